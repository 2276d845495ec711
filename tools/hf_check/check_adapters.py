"""Do transformers and PEFT take what `meshwright adapter` wrote?

    python tools/hf_check/check_adapters.py MODEL_FOLDER ADAPTER_FOLDER MERGED.safetensors

Logits of the model with PEFT's adapter must be those of the merged weights, and not those of the model alone.
Needs torch, transformers, peft and safetensors.
"""
import sys

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def logits(model):
    tokens = torch.arange(12)[None] * 7 % model.config.vocab_size
    with torch.no_grad():
        return model.eval()(input_ids=tokens).logits.double()


def main():
    folder, adapter, merged = sys.argv[1:]
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    alone = logits(plain)
    adapted = logits(PeftModel.from_pretrained(plain, adapter))
    other = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    missing, unexpected = other.load_state_dict(load_file(merged), strict=False)
    # A tied head is not in files; whatever else is missing would be left as it was.
    missing = [name for name in missing if name != "lm_head.weight"]
    other.tie_weights()
    apart = (adapted - logits(other)).abs().max().item()
    moved = (adapted - alone).abs().max().item()
    print(f"with PEFT and merged: {apart:.3g} apart; from the model alone: {moved:.3g}")
    if missing or unexpected or apart > 1e-4 or moved < 1e-3:
        sys.exit(f"not the same model: missing {missing}, unexpected {unexpected}")


if __name__ == "__main__":
    main()
