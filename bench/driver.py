"""Runs cases, prints a line of JSON for each and keeps it in runs/bench. bench/run calls it."""
import argparse
import json
import signal
import sys

import cases
import context  # registers its cases
import page  # registers its case
import recovery  # registers its cases
import roofline
import secured  # registers its cases
import table
import writing  # registers its cases
from common import RUNS, log, machine

KEYS = ("name", "shape", "ours", "peer", "ratio", "limit", "limit_ratio", "target", "met", "spread", "machine")
KEPT_ROUNDS = 3  # fewer are a look, not a result


def number(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("a number above 0")
    return value


def parse():
    p = argparse.ArgumentParser(prog="bench/run")
    p.add_argument("cases", nargs="*", metavar="CASE")
    p.add_argument("--list", action="store_true")
    p.add_argument("--table", action="store_true")
    p.add_argument("--rounds", type=number, default=3)
    p.add_argument("--steps", type=number)
    return p.parse_args()


def chosen(words):
    """Names of cases: exact ones, or all that begin with the word."""
    if not words:
        return list(cases.REGISTRY)
    names = []
    for word in words:
        found = [word] if word in cases.REGISTRY else [n for n in cases.REGISTRY if n.startswith(word)]
        if not found:
            sys.exit(f"bench/run: no case '{word}'; see bench/run --list")
        names += [name for name in found if name not in names]
    return names


def run(name, options):
    case = cases.REGISTRY[name]
    result = dict.fromkeys(KEYS) | {"name": name, "shape": case.shape, "target": case.target, "met": False,
                                    "machine": machine()}
    try:
        result |= case.run(options)
    except cases.EXPECTED_ERRORS as error:
        log(f"  {name}: {error}")
        result |= {"ours": {"error": str(error)}}
    return {key: result[key] for key in KEYS}


def main():
    args = parse()
    if args.list:
        for name, case in cases.REGISTRY.items():
            print(f"{name:<24} {case.target}")
        return
    if args.table:
        print(table.write())
        return
    # An end by signal still stops what was started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = cases.Options(args.rounds, args.steps)
    words = [word for word in args.cases if word != "roofline"]
    RUNS.mkdir(parents=True, exist_ok=True)
    for name in chosen(words) if words or not args.cases else []:
        log(f"{name}")
        result = run(name, options)
        line = json.dumps(result, ensure_ascii=False)
        print(line, flush=True)
        if args.rounds >= KEPT_ROUNDS:
            (RUNS / f"{name}.json").write_text(line + "\n", encoding="utf-8")
    if "roofline" in args.cases:
        print(roofline.report(options))


if __name__ == "__main__":
    main()
