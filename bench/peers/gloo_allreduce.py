"""All-reduce of float32 over gloo between processes of this machine. A line "BYTES REPEATS BATCHES" on
stdin times BATCHES runs of REPEATS calls each and prints {"seconds": median per call}; the end of
stdin ends it.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist


def measure(count, repeats, batches):
    x = torch.ones(count)
    dist.all_reduce(x)
    assert float(x[0]) == dist.get_world_size() and float(x[-1]) == dist.get_world_size()
    x.zero_()
    seconds = []
    for _ in range(batches + 1):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(repeats):
            dist.all_reduce(x)
        seconds.append((time.perf_counter() - start) / repeats)
    return sorted(seconds[1:])[batches // 2]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--rank", type=int, default=0)
    p.add_argument("--port", type=int, default=0)
    args = p.parse_args()
    torch.set_num_threads(1)
    others = []
    if args.rank == 0:
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
    if args.rank == 0:
        print(json.dumps({"torch": torch.__version__}), flush=True)
    while True:
        line = sys.stdin.readline() if args.rank == 0 else ""
        words = [int(word) for word in line.split()] or [0, 0, 0]
        request = torch.tensor(words)
        dist.broadcast(request, 0)
        size, repeats, batches = request.tolist()
        if size == 0:
            break
        seconds = measure(max(1, size // 4), repeats, batches)
        if args.rank == 0:
            print(json.dumps({"seconds": seconds}), flush=True)
    dist.destroy_process_group()
    for other in others:
        other.wait()


if __name__ == "__main__":
    main()
