"""Import, one call, 100 MiB fetched: medians, each beside its target."""

import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from cluster import JOB, Cluster, with_keys

from meshwright import Client, checkpoints, graph

MIB = 1 << 20
ROUNDS = 9


def median(measure, rounds: int = ROUNDS) -> float:
    measure()
    return statistics.median(measure() for _ in range(rounds))


def timed(call) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def seconds_of(code: str, cache: str) -> float:
    """In a Python of its own, with the package's byte code, which pip writes when it installs it."""
    timed_code = f"import time; t = time.perf_counter(); {code}; print(time.perf_counter() - t)"
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with_code = [sys.executable, "-X", f"pycache_prefix={cache}", "-c", timed_code]
    return float(subprocess.check_output(with_code, env=env))


def memcpy_seconds(size: int) -> float:
    source, sink = np.ones(size, np.uint8), np.ones(size, np.uint8)
    return median(lambda: timed(lambda: np.copyto(sink, source)))


def line(what: str, measured: str, target: str, met: bool) -> None:
    print(f"{what:<58} {measured:>14}  target {target:<10} {'ok' if met else 'MISSED'}", flush=True)


def fetched(what: str, call, size: int) -> None:
    seconds, copy = median(lambda: timed(call)), memcpy_seconds(size)
    rate, share = size / seconds / 1e9, copy / seconds
    line(what, f"{rate:.2f} GB/s {100 * share:.0f} %", ">= 50 %", share >= 0.5)


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        for code in ("from meshwright import Client", "from meshwright import Client; Client()"):
            seconds = median(lambda: seconds_of(code, cache))
            line(code, f"{1e3 * seconds:.0f} ms", "< 150 ms", seconds < 0.15)
    cluster = Cluster(1)
    try:
        os.chdir(cluster.data)
        client = Client(cluster.address)
        seconds = median(lambda: timed(client.cluster), 500)
        line("one call over loopback", f"{1e6 * seconds:.0f} us", "< 1 ms", seconds < 1e-3)

        # An embedding of 100 MiB, trained for a step.
        big = with_keys(
            JOB,
            model={"vocab_size": 102400, "dim": 256, "n_layers": 1},
            training={"steps": 1, "global_batch_size": 1},
            checkpoint={"enable": True, "interval": 1, "root": "controller"},
        )
        job = client.submit(big)
        job.wait(timeout=300)
        name = "transformer.wte.weight"
        here = job.checkpoint()
        assert here[name].nbytes == 100 * MIB
        sink = np.empty_like(here[name])
        np.copyto(sink, here[name])
        fetched(
            "100 MiB of a checkpoint, on the controller's machine",
            lambda: np.copyto(sink, job.checkpoint()[name]),
            100 * MIB,
        )
        fetched(
            "100 MiB of weights, on the controller's machine",
            lambda: np.copyto(sink, job.weights()[name]),
            100 * MIB,
        )
        channel = client._channel
        away = checkpoints.Checkpoint(checkpoints._Remote(channel, job.id, here.step))
        fetched("100 MiB of a checkpoint, over loopback", lambda: away[name], 100 * MIB)

        x = graph.Input("x", "f32", (64, 1 << 18))
        give = graph.program("give", [x], lambda g, x: {"y": g.neg(x)})
        with client.open(graph.job("give", [give], batch=64)) as session:
            rows = np.ones((64, 1 << 18), np.float32)
            seconds = median(lambda: timed(lambda: session.run("give", {"x": rows})), 3)
            quiet = median(lambda: timed(lambda: session.run("give", {"x": rows}, fetch=False)), 3)
            copy = memcpy_seconds(64 * MIB)
            rest = seconds - quiet
            line(
                "64 MiB given out by a call, beside the call without it",
                f"{64 * MIB / rest / 1e9:.2f} GB/s {100 * copy / rest:.0f} %",
                ">= 50 %",
                copy / rest >= 0.5,
            )
        client.close()
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
