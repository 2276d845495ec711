"""This build against another one of Meshwright: is anything slower than it was? See bench/README.md.

Usage: bench/against TREE [CASE...] [--rounds N]
TREE: another checkout with build/release/bin/{meshwright,mw_bench}. Prints one line of JSON for each case; `ratio` is
the median of this build's speed over the other's, pair by pair, and `self_spread` how far this build's own rounds lie
from each other.
"""
import argparse
import contextlib
import json
import pathlib

import cases
import ours
from common import ROOT, CaseError, log
from rounds import interleave, median, significant, spread


@contextlib.contextmanager
def programs_of(tree):
    """Both programs are this tree's meanwhile."""
    before = ours.MESHWRIGHT, ours.MW_BENCH
    ours.MESHWRIGHT, ours.MW_BENCH = (tree / "build/release/bin" / name for name in ("meshwright", "mw_bench"))
    try:
        yield
    finally:
        ours.MESHWRIGHT, ours.MW_BENCH = before


def training(job, spec, dtype, steps, workers=1, **parallel):
    """Tokens/s of a cluster of its own: two cannot share cores or a folder."""
    def run():
        with ours.Cluster(workers, 1, workers) as cluster:
            return cases.OurTraining(cluster, cases.JOBS[job], spec, dtype, steps, **parallel)()
    return run


def all_reduce(size, repeats, ranks=2):
    return lambda: 1 / cases.our_all_reduce(size, ranks, repeats)


def overhead():
    row = ours.mw_bench(1, "overhead", ROOT / cases.JOBS["small"], "--steps", 10)[0]
    return row["nodes"] / row["overhead_seconds"]


def start():
    with ours.Cluster() as cluster:
        cluster.submit(cases.JOBS["gpt2"], [], 1)
        return 1 / cluster.submit(cases.JOBS["gpt2"], [], 1).start_seconds


CASES = {
    "small-f32": training("small", cases.SMALL, "float32", 16),
    "gpt2-f32": training("gpt2", cases.GPT2, "float32", 3),
    "gpt2-bf16": training("gpt2", cases.GPT2, "bfloat16", 4),
    "llama-f32": training("llama", cases.LLAMA, "float32", 5),
    "dp2-small": training("small", cases.SMALL, "float32", 16, 2, data_parallel_replicate_degree=2),
    "tp2-small": training("small", cases.SMALL, "float32", 16, 2, data_parallel_replicate_degree=1,
                          tensor_parallel_degree=2),
    "allreduce-4KiB": all_reduce(4 << 10, 5000),
    "allreduce-1MiB": all_reduce(1 << 20, 200),
    "allreduce-64MiB": all_reduce(64 << 20, 5),
    "allreduce-1MiB-4ranks": all_reduce(1 << 20, 100, 4),
    "executor-overhead": overhead,
    "gpt2-start": start,
}


def compare(name, tree, rounds):
    def of(root):
        def run():
            with programs_of(root):
                return CASES[name]()
        return run

    values = interleave({"this": of(ROOT), "other": of(tree)}, rounds)
    ratios = [mine / others for mine, others in zip(values["this"], values["other"])]
    return {"name": name, "ratio": significant(median(ratios)), "rounds": rounds,
            "self_spread": spread(values["this"]), "this": significant(median(values["this"])),
            "other": significant(median(values["other"]))}


def main():
    parser = argparse.ArgumentParser(prog="bench/against", description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=pathlib.Path, help="another checkout, built")
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    unknown = set(args.cases) - set(CASES)
    if unknown:
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    tree = args.tree.resolve()
    for name in args.cases or CASES:
        try:
            print(json.dumps(compare(name, tree, args.rounds)), flush=True)
        except (*cases.EXPECTED_ERRORS, CaseError) as error:
            log(f"{name}: {error}")


if __name__ == "__main__":
    main()
