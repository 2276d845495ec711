"""Our side: a cluster of processes, jobs on it, and the C++ program mw_bench."""
import json
import re
import subprocess
import tempfile
import threading
import time

from common import (MESHWRIGHT, MW_BENCH, ROOT, RUNS, CaseError, clean_environment, cores, on_cores,
                    output_of, pinned)

WARM_STEPS = 2  # first steps of a job, not counted
JOB_TIMEOUT_S = 1800


class Job:
    """What a submitted job showed: seconds are those that its user waits, from report to report."""

    def __init__(self, arrivals, steps, started, layout):
        self.layout = layout
        self.seconds = [step["seconds"] for step in steps]
        self.losses = [step["loss"] for step in steps]
        self.periods = [b - a for a, b in zip(arrivals, arrivals[1:])][WARM_STEPS - 1:]
        # From the call of `submit` to the begin of the first step.
        self.start_seconds = arrivals[0] - started - steps[0]["seconds"]


class Cluster:
    """A controller and workers on `count` cores, or on those of `only`; `options`: of `up`; a context manager."""

    def __init__(self, workers=1, threads=1, count=1, profile="cached", only=None, options=()):
        self.cores, self.folder = only or cores(count), RUNS / "cluster"
        self.down()
        output_of(on_cores(self.cores, [
            MESHWRIGHT, "up", "--workers", workers, "--threads-per-device", threads, "--dir", self.folder,
            "--port", 0, "--metrics-port", 0, "--log-level", "warn", "--profile", profile, "--no-keep", *options]))
        self.workers = []
        for line in (self.folder / "cluster.txt").read_text().splitlines():
            words = line.split()
            if words[0] == "address":
                self.address = words[1]
                # As the workers of `up` do: bench/README.md.
                socket = self.folder / "state/controller.sock"
                self.local_address = f"unix:{socket}" if socket.is_socket() else self.address
            if words[0] == "process" and words[1].startswith("worker"):
                self.workers.append(int(words[2]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.down()

    def down(self):
        output_of([MESHWRIGHT, "down", "--dir", self.folder])

    def submit(self, job, sets, steps, on_report=lambda: None, warm=WARM_STEPS, words=()):
        """Runs `steps` counted steps of the job behind `warm` others; `on_report` is called after each; `words`: of
        the program before its command."""
        words = [MESHWRIGHT, *words, "submit", ROOT / job, "--address", self.address, "-o", "json"]
        for value in [*sets, f"training.steps={steps + warm}"]:
            words += ["--set", value]
        started = time.perf_counter()
        errors_file = tempfile.TemporaryFile("w+")
        process = subprocess.Popen(
            on_cores(self.cores, words), stdout=subprocess.PIPE, stderr=errors_file, text=True,
            env=clean_environment(), cwd=ROOT)
        watchdog = threading.Timer(JOB_TIMEOUT_S, process.kill)
        watchdog.start()
        arrivals, reports, last, layout = [], [], "", ""
        try:
            for line in process.stdout:
                now = time.perf_counter()
                report = json.loads(line)
                last = report.get("message") or last
                layout = report.get("layout") or layout
                if "step" in report:
                    arrivals.append(now)
                    reports.append(report)
                    on_report()
            process.wait()
            errors_file.seek(0)
            errors = errors_file.read().strip().splitlines()
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()
        if process.returncode != 0 or len(reports) < steps + warm:
            raise CaseError((last or (errors[-1] if errors else "the job failed"))[:300])
        if not all(isinstance(report["loss"], float) for report in reports):
            raise CaseError("a loss is no number")
        return Job(arrivals, reports, started, layout)


def check_job(job, sets):
    """Raises CaseError when the program does not take the job."""
    words = [MESHWRIGHT, "config", "validate", ROOT / job]
    for value in sets:
        words += ["--set", value]
    output_of(words)


def planned_bytes(job, columns_of=("allocated",), address=None):
    """Memory of the device in the job's plan: columns of it, summed up. For one assumed device, or for the cluster at
    the address: what a job leaves open is decided by the devices, so that what ran is held against the plan that ran."""
    columns = None
    devices = ["--address", address] if address else ["--devices", 1]
    for line in output_of([MESHWRIGHT, "plan", ROOT / job, *devices]).splitlines():
        words = line.split()
        if words[:1] == ["DEVICE"]:
            columns = words
        elif columns and words[:1] == ["0"]:
            return sum(float(words[columns.index(name)]) for name in columns_of) * 2**20
    raise CaseError("the plan shows no memory")


def copied_bytes(job, sets):
    """To the host's memory and back in a step, of the job's plan for one device."""
    words = [MESHWRIGHT, "plan", ROOT / job, "--devices", 1]
    for value in sets:
        words += ["--set", value]
    found = re.search(r"([0-9.]+) MiB are copied in a step", output_of(words))
    if not found:
        raise CaseError("the plan copies nothing")
    return float(found.group(1)) * 2**20


def mw_bench(count, *words, timeout=600):
    """Lines of JSON."""
    lines = output_of(pinned(count, [MW_BENCH, *words]), timeout).splitlines()
    return [json.loads(line) for line in lines]


def matmul_rate(count, shape):
    """FLOP/s of oneDNN on `count` cores for shape = (m, n, k, a transposed, b transposed, dtype): the sum
    over processes that run at once, a core each, so that no time goes into starting or joining threads."""
    m, n, k, ta, tb, dtype = shape
    words = [MW_BENCH, "matmul", m, n, k]
    words += ["--ta"] * ta + ["--tb"] * tb + ["--bf16"] * (dtype == "bfloat16")
    processes = [
        subprocess.Popen(["taskset", "-c", str(core), *map(str, words)], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, env=clean_environment(), cwd=ROOT)
        for core in cores(count)]
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode != 0 for process in processes):
        raise CaseError("mw_bench matmul failed")
    return sum(float(output.split()[0]) for output in outputs) * 1e9


def copy_rate(count):
    """Bytes/s, read and written ones counted."""
    return float(output_of(pinned(count, [MW_BENCH, "copy", "--threads", count])).split()[0]) * 1e9
