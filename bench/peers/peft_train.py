"""PEFT trains LoRA adapters of GPT-2 124M with PyTorch: JSON on stdout, seconds of each step, peak memory.

    peft_train.py --rank 8 --batch 4 --seq 512 --steps 5 --threads N
"""
import argparse
import json
import resource
import time

import peft
import torch
import transformers


def main():
    p = argparse.ArgumentParser()
    for name, default in (("rank", 8), ("batch", 4), ("seq", 512), ("steps", 5), ("threads", 1)):
        p.add_argument(f"--{name}", type=int, default=default)
    p.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa")
    args = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    config = transformers.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, attn_implementation=args.attention)
    model = transformers.GPT2LMHeadModel(config)
    model = peft.get_peft_model(model, peft.LoraConfig(r=args.rank, lora_alpha=16, target_modules=["c_attn"],
                                                       fan_in_fan_out=True, task_type="CAUSAL_LM"))
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0, fused=True)
    seconds = []
    for _ in range(args.steps + 2):
        tokens = torch.randint(0, config.vocab_size, (args.batch, args.seq))
        begin = time.perf_counter()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds[2:], "peak_mib": peak / 1024}))


if __name__ == "__main__":
    main()
