"""What all parts of the benchmarks share: places, cores, environments, the machine's description."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUNS = ROOT / "runs/bench"
STATE = RUNS / "state"
MESHWRIGHT = ROOT / "build/release/bin/meshwright"
MW_BENCH = ROOT / "build/release/bin/mw_bench"
CORPUS = ROOT / "runs/data/corpus.txt"

# Settings of numerical libraries that a shell may have by chance.
_STRAY = ("OPENBLAS", "GOTO", "NVPL", "OMP_", "GOMP_", "KMP_", "MKL_", "DNNL_", "ONEDNN_", "BLIS_", "ATEN_",
          "TORCH", "GLIBC_TUNABLES", "LD_PRELOAD", "LD_LIBRARY_PATH", "MALLOC_", "MESHWRIGHT", "PYTHON",
          "OMPI_")


class CaseError(Exception):
    """Why a case has no result."""


def log(text):
    print(text, file=sys.stderr, flush=True)


def clean_environment(**more):
    env = {key: value for key, value in os.environ.items() if not key.startswith(_STRAY)}
    env.update(PYTHONDONTWRITEBYTECODE="1", **more)
    return env


def cores(count):
    """The last `count` cores that we may use: the first ones serve interrupts more often."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < count:
        raise CaseError(f"needs {count} cores, {len(allowed)} are there")
    return allowed[-count:]


def on_cores(numbers, words):
    """The command on these cores."""
    return ["taskset", "-c", ",".join(map(str, numbers)), *map(str, words)]


def pinned(count, words):
    """The command on `count` cores."""
    return on_cores(cores(count), words)


def output_of(words, timeout=600, env=None):
    """stdout of a command that has to succeed."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=timeout,
                          env=env or clean_environment(), cwd=ROOT, check=False)
    if done.returncode != 0:
        why = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}")
        raise CaseError(why.splitlines()[-1].removeprefix("error: ")[:300])
    return done.stdout


def machine():
    fields = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    name = fields.get("model name", "unknown CPU")
    if "cpu family" in fields:
        name += f" (family {fields['cpu family']}, model {fields['model']})"
    return {"cpu": name, "cores": len(os.sched_getaffinity(0)), "load": round(os.getloadavg()[0], 2)}
