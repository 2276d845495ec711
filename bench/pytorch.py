"""PyTorch as a peer: the newest one and Debian's 1.13.1, each in its best mode."""
import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import time

from rounds import median
from common import CORPUS, ROOT, RUNS, STATE, CaseError, clean_environment, log, machine, pinned

NEWEST, DEBIAN = "newest", "Debian's"
_PYTHON = {NEWEST: ROOT / "build/peer/torch/bin/python", DEBIAN: "/usr/bin/python3"}
WARM_STEPS = 2
TIMEOUT_S = 1200
CLOSE_SHARE = 0.85  # contenders this near to the best take part in the rounds

# Memory stays with the process on large pages: page faults would cost up to half of a step.
_MALLOC = ("glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296:"
           "glibc.malloc.trim_threshold=8589934592:glibc.malloc.top_pad=268435456")


def environment(version, threads, tuned=True):
    env = clean_environment(OMP_NUM_THREADS=str(threads), TORCHINDUCTOR_CACHE_DIR=str(RUNS / "inductor"))
    if version == DEBIAN:
        env["LD_LIBRARY_PATH"] = "/usr/lib/x86_64-linux-gnu/openblas-openmp"
        with open("/proc/cpuinfo", encoding="ascii") as info:
            if "avx512bw" in info.read():
                env["ATEN_CPU_CAPABILITY"] = "avx512"
    if tuned:
        env["GLIBC_TUNABLES"] = _MALLOC
    return env


class Process:
    """A peer that answers a line of stdin with a line of JSON. It is stopped between answers, all its
    processes: waiting for us must not cost others anything. A group of processes of its own, so that the
    kernel ends it should we die."""

    def __init__(self, version, script, words, cores, threads=1, tuned=True):
        STATE.mkdir(parents=True, exist_ok=True)
        self.errors = open(STATE / "peer-errors.txt", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            pinned(cores, [_PYTHON[version], ROOT / "bench/peers" / script, *words]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, cwd=ROOT,
            process_group=0, env=environment(version, threads, tuned))
        try:
            self.hello = self.read()
            self.signal(signal.SIGSTOP)
        except BaseException:
            self.close()
            raise

    def read(self):
        # One line per answer, so nothing is left in the buffer of the stream.
        ready, _, _ = select.select([self.process.stdout], [], [], TIMEOUT_S)
        line = self.process.stdout.readline() if ready else ""
        if line.startswith("{"):
            return json.loads(line)
        self.errors.seek(0)
        text = self.errors.read().strip().splitlines() or [line.strip() or "no answer"]
        raise CaseError(f"peer failed: {text[-1][:200]}")

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def ask(self, line):
        self.signal(signal.SIGCONT)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.read()
        self.signal(signal.SIGSTOP)
        return answer

    def close(self):
        """At once and hard: nothing of it is needed any more."""
        self.signal(signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            with contextlib.suppress(OSError):
                stream.close()


class Trainer(Process):
    def __init__(self, contender, spec, dtype, cores, parallel="none", ranks=1, tuned=True):
        version, mode = contender
        threads = cores // ranks
        words = ["--model", spec["model"], "--data", CORPUS, "--mode", mode, "--dtype", dtype,
                 "--threads", threads, "--parallel", parallel, "--ranks", ranks]
        for key in ("dim", "layers", "heads", "seq", "batch", "vocab", "kv_heads", "ffn", "experts", "chosen"):
            if key in spec:
                words += ["--" + key.replace("_", "-"), spec[key]]
        super().__init__(version, "pytorch_train.py", words, cores, threads, tuned)
        self.tokens = spec["batch"] * spec["seq"]
        self.name = f"PyTorch {self.hello['torch'].split('+')[0]} {mode}"

    def seconds(self, steps):
        return self.ask(str(steps))["seconds"]

    def tokens_per_s(self, steps):
        return self.tokens / median(self.seconds(steps))


def _contenders(spec, parallel):
    if spec["model"] == "mixtral":  # a loop over experts does not compile
        return [(NEWEST, "sdpa"), (NEWEST, "grouped"), (DEBIAN, "manual")]
    modes = ("sdpa", "manual") if parallel == "tensor" else ("sdpa", "manual", "compile")
    return [*itertools.product([NEWEST], modes), (DEBIAN, "manual")]


def _probe(contender, spec, dtype, cores, parallel, ranks, steps):
    """Tokens/s in the fastest of a few steps; 0 when it does not run."""
    began = time.monotonic()
    try:
        trainer = Trainer(contender, spec, dtype, cores, parallel, ranks)
    except CaseError as error:
        log(f"  {' '.join(contender)}: {error}")
        return 0
    try:
        trainer.seconds(WARM_STEPS)
        rate = trainer.tokens / min(trainer.seconds(steps))
        log(f"  probe  {trainer.name:<30} {rate:.1f} tokens/s, {time.monotonic() - began:.0f} s in all")
        return rate
    except CaseError as error:
        log(f"  {' '.join(contender)}: {error}")
        return 0
    finally:
        trainer.close()


def _newest_version():
    found = sorted((ROOT / "build/peer/torch/lib").glob("python3*/site-packages/torch-*.dist-info"))
    return found[-1].name if found else "none"


def _rate(contender, spec, dtype, cores, parallel, ranks, steps):
    """As _probe, once per machine, version and case: kept in a file."""
    where = STATE / "probes.json"
    known = json.loads(where.read_text()) if where.exists() else {}
    key = json.dumps([machine()["cpu"], _newest_version(), spec, dtype, cores, parallel, ranks, contender])
    if key not in known:
        known[key] = _probe(contender, spec, dtype, cores, parallel, ranks, steps)
        STATE.mkdir(parents=True, exist_ok=True)
        where.write_text(json.dumps(known, indent=1))
    return known[key]


def best(spec, dtype, cores, parallel="none", ranks=1, steps=4):
    """The contenders worth a round: the fastest, and one that came close."""
    rates = {c: _rate(c, spec, dtype, cores, parallel, ranks, steps) for c in _contenders(spec, parallel)}
    order = sorted((c for c in rates if rates[c] > 0), key=rates.get, reverse=True)
    if not order:
        raise CaseError("no PyTorch runs this case")
    return [c for c in order[:2] if rates[c] >= CLOSE_SHARE * rates[order[0]]]
