"""Trains one of two models with PyTorch on the first GPU and prints {"tokens_per_s", "step_ms",
"torch", "device", "losses"}: what tools/gpu-check holds `mw_bench gpu-step` against. Fused attention,
torch.compile, fused AdamW, bf16 autocast; the same sizes as bench/jobs/gpt2-gpu.toml and
bench/jobs/llama-1b.toml. A step is timed from call to result on the host; the median of --steps counts.
"""
import argparse
import json
import math
import random
import statistics
import sys
import time
import types

import torch

from models import make_model

CASES = {
    "gpt2-gpu": dict(model="gpt2", dim=768, layers=12, heads=12, kv_heads=12, ffn=3072, vocab=50257,
                     seq=1024, batch=32),
    "llama-1b": dict(model="llama", dim=2048, layers=24, heads=16, kv_heads=16, ffn=5504, vocab=32000,
                     seq=2048, batch=8),
}
WARM_STEPS = 10


def make_optimizer(model):
    """AdamW as ours: decay on matrices only."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)


def batches(spec):
    """Random tokens, as many different ones as bytes."""
    numbers = random.Random(99)
    while True:
        rows = torch.tensor([[numbers.randrange(256) for _ in range(spec.seq + 1)]
                             for _ in range(spec.batch)]).pin_memory()
        yield rows


def main():
    p = argparse.ArgumentParser()
    p.add_argument("case", choices=list(CASES))
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--no-compile", action="store_true")
    args = p.parse_args()
    spec = types.SimpleNamespace(fused=True, **CASES[args.case])
    torch.backends.cuda.matmul.allow_tf32 = True
    model = make_model(spec).cuda()
    parameters = list(model.parameters())
    optimizer = make_optimizer(model)
    run = model if args.no_compile else torch.compile(model)
    made = batches(spec)
    rows = [next(made) for _ in range(4)]

    def step(index):
        tokens = rows[index % len(rows)].cuda(non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    losses = [step(i) for i in range(WARM_STEPS)]
    torch.cuda.synchronize()
    # The host runs ahead as it does in training; whole steps are timed together.
    rounds = []
    for _ in range(max(args.steps // 5, 1)):
        start = time.perf_counter()
        losses += [step(i) for i in range(5)]
        torch.cuda.synchronize()
        rounds.append((time.perf_counter() - start) / 5)
    seconds = statistics.median(rounds)
    losses = [losses[0].item(), losses[-1].item()]
    if not all(map(math.isfinite, losses)):
        sys.exit(f"the losses of the first and the last step are {losses}")
    print(json.dumps({"tokens_per_s": spec.batch * spec.seq / seconds, "step_ms": seconds * 1e3,
                      "torch": torch.__version__, "device": torch.cuda.get_device_name(0),
                      "losses": losses}))


if __name__ == "__main__":
    main()
