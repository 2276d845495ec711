"""Trains one model with PyTorch and answers on stdin/stdout: a line "STEPS" runs that many steps and
prints {"seconds": [...], "losses": [...]}; the end of stdin ends it. The first line printed says what
it is. With --ranks it starts the other ranks itself and joins them over gloo on the loopback.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import time

import torch
import torch.distributed as dist

from models import make_model


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", choices=["gpt2", "llama", "mixtral"], default="gpt2")
    for name in ("dim", "layers", "heads", "seq", "batch", "vocab"):
        p.add_argument("--" + name, type=int, required=True)
    p.add_argument("--kv-heads", type=int, default=0)
    p.add_argument("--ffn", type=int, default=0)
    p.add_argument("--experts", type=int, default=0)
    p.add_argument("--chosen", type=int, default=0)
    p.add_argument("--data", required=True, help="file of bytes, a token each")
    p.add_argument("--mode", choices=["sdpa", "manual", "compile", "grouped"], default="manual")
    p.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--parallel", choices=["none", "data", "tensor"], default="none")
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--rank", type=int, default=0)
    p.add_argument("--port", type=int, default=0)
    args = p.parse_args()
    args.fused = args.mode != "manual"
    return args


class Batches:
    """The same rows on every rank; each takes its part."""

    def __init__(self, args):
        with open(args.data, "rb") as file:
            self.bytes = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
        self.random, self.args = random.Random(99), args
        self.rows = args.batch // args.ranks if args.parallel == "data" else args.batch
        self.first = self.rows * args.rank if args.parallel == "data" else 0

    def next(self):
        starts = [
            self.random.randrange(len(self.bytes) - self.args.seq - 1)
            for _ in range(self.args.batch)
        ][self.first : self.first + self.rows]
        rows = torch.stack([self.bytes[s : s + self.args.seq + 1].long() for s in starts])
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def make_optimizer(model):
    """AdamW as ours: decay on matrices only. The fused one where there is one for CPUs."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    options = dict(lr=3e-4, betas=(0.9, 0.95), eps=1e-8)
    try:
        optimizer = torch.optim.AdamW(groups, fused=True, **options)
        torch.optim.AdamW([torch.nn.Parameter(torch.zeros(2))], fused=True)
        return optimizer
    except (RuntimeError, TypeError):
        return torch.optim.AdamW(groups, foreach=False, **options)


class Trainer:
    def __init__(self, args):
        self.args, self.batches = args, Batches(args)
        tensor = args.parallel == "tensor"
        model = make_model(args, args.rank if tensor else 0, args.ranks if tensor else 1)
        self.parameters = list(model.parameters())
        # Under tensor parallelism the norm needs each shard once, and what all ranks have once.
        self.shared = [
            p for n, p in model.named_parameters()
            if any(word in n for word in ("ln", "wpe", "proj_bias", "down_bias"))
        ] if tensor else []
        self.optimizer = make_optimizer(model)
        if args.parallel == "data":
            model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        self.model = torch.compile(model) if args.mode == "compile" else model

    def clip(self):
        if self.args.parallel != "tensor":
            torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
            return
        shared = {id(p) for p in self.shared}
        split = [p.grad for p in self.parameters if id(p) not in shared]
        both = [p.grad for p in self.shared]
        square = torch.stack([g.norm() for g in split]).square().sum()
        dist.all_reduce(square)
        norm = (square + torch.stack([g.norm() for g in both]).square().sum()).sqrt()
        scale = torch.clamp(1.0 / (norm + 1e-6), max=1.0)
        for gradient in split + both:
            gradient.mul_(scale)

    def step(self):
        if self.args.ranks > 1:
            dist.barrier()
        start = time.perf_counter()
        tokens, labels = self.batches.next()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.args.dtype == "bfloat16"):
            loss = self.model(tokens, labels)
        loss.backward()
        self.clip()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.args.ranks > 1:
            dist.barrier()
        return time.perf_counter() - start, loss.item()


def join(args):
    """Starts the other ranks from rank 0, then joins them."""
    if args.ranks == 1:
        return []
    others = []
    if args.rank == 0:
        import socket

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            args.port = probe.getsockname()[1]
        for rank in range(1, args.ranks):
            words = [*sys.argv, "--rank", str(rank), "--port", str(args.port)]
            others.append(subprocess.Popen([sys.executable, *words], stdin=subprocess.DEVNULL))
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port), GLOO_SOCKET_IFNAME="lo"
    )
    dist.init_process_group("gloo", rank=args.rank, world_size=args.ranks)
    return others


def peak_rss():
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def say(**fields):
    print(json.dumps(fields), flush=True)


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    others = join(args)
    trainer = Trainer(args)
    if args.rank == 0:
        say(torch=torch.__version__, mode=args.mode, parameters=sum(
            p.numel() for p in trainer.parameters))
    while True:
        line = sys.stdin.readline() if args.rank == 0 else ""
        count = torch.tensor([int(line) if line.strip() else 0])
        if args.ranks > 1:
            dist.broadcast(count, 0)
        if count.item() == 0:
            break
        done = [trainer.step() for _ in range(count.item())]
        if args.rank == 0:
            say(seconds=[s for s, _ in done], losses=[l for _, l in done], peak_rss=peak_rss())
    if args.ranks > 1:
        dist.destroy_process_group()
    for other in others:
        other.wait()


if __name__ == "__main__":
    main()
