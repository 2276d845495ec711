"""transformers' generate on a folder's model, greedy, with its cache of keys: JSON on stdout.

    transformers_write.py FOLDER --type float32|bfloat16 --texts N --prompt N --new N --threads N
    transformers_write.py FOLDER --make gpt2|llama|llama-1g  writes a model drawn with seed 0 instead
"""
import argparse
import json
import random
import time

import torch
import transformers


def make(folder, kind):
    torch.manual_seed(0)
    if kind == "gpt2":
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    else:
        width, ffn, layers, heads = (1280, 3456, 10, 20) if kind == "llama-1g" else (768, 2048, 12, 12)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=32_000, hidden_size=width, intermediate_size=ffn, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=heads, max_position_embeddings=4096,
            tie_word_embeddings=False))
    model.save_pretrained(folder)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("--make", choices=["gpt2", "llama", "llama-1g"])
    p.add_argument("--type", choices=["float32", "bfloat16"], default="float32")
    for name, default in (("texts", 1), ("prompt", 32), ("new", 128), ("threads", 1)):
        p.add_argument(f"--{name}", type=int, default=default)
    args = p.parse_args()
    if args.make:
        make(args.folder, args.make)
        return
    torch.set_num_threads(args.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.folder, dtype=getattr(torch, args.type))
    model.eval()
    drawn = random.Random(1)
    prompts = torch.tensor([[drawn.randrange(model.config.vocab_size) for _ in range(args.prompt)]
                            for _ in range(args.texts)])
    arrivals = []

    class Clock(transformers.LogitsProcessor):
        def __call__(self, ids, scores):
            arrivals.append(time.perf_counter())
            return scores

    def write(new):
        arrivals.clear()
        begin = time.perf_counter()
        with torch.inference_mode():
            model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=new, min_new_tokens=new,
                           do_sample=False, pad_token_id=0, logits_processor=transformers.LogitsProcessorList([Clock()]))
        return begin

    write(4)
    begin = write(args.new)
    seconds = arrivals[-1] - arrivals[0]
    print(json.dumps({"prompt_seconds": arrivals[0] - begin,
                      "decode_tokens_per_s": args.texts * (len(arrivals) - 1) / seconds}))


if __name__ == "__main__":
    main()
