"""What certificates cost: the same cluster in the clear and by mutual TLS, in turns. bench/driver.py registers them."""
import contextlib
import pathlib
import subprocess
import tempfile
import time

import ours
from cases import case, interleave
from common import MESHWRIGHT, CaseError, clean_environment, cores, on_cores, output_of
from rounds import median, significant, spread

CORES, STEP_RATIO, LAUNCH_US = 2, 1.1, 20
LAYOUT = ["parallelism.data_parallel_replicate_degree=2", "validation.batches=0", "checkpoint.last_save=false"]


def certificates(folder, workers):
    """An authority with its identities; -> name to folder."""
    env = clean_environment(MESHWRIGHT_TLS_HOME=str(folder))
    output_of([MESHWRIGHT, "cert", "init", "--host", "127.0.0.1"], env=env)
    for index in range(workers):
        output_of([MESHWRIGHT, "cert", "issue", "worker", f"w{index}", "--out", folder / f"w{index}"], env=env)
    return {name: folder / name for name in ["controller", "operator", *(f"w{index}" for index in range(workers))]}


class Cluster(ours.Cluster):
    """Of a controller and workers on loopback that talk over ports only; `identities`: theirs, if they have any."""

    def __init__(self, folder, workers, identities=None):
        # pylint: disable=super-init-not-called
        self.cores, self.folder, self.processes = cores(CORES), folder, []
        self.identities = identities or {}
        folder.mkdir()
        try:
            self.start(workers)
        except Exception:
            self.down()
            raise

    def start(self, workers):
        folder = self.folder
        self.run("controller", "controller", "--port", 0, "--metrics-port", -1, "--state-dir", folder / "state")
        ports = folder / "state/ports"
        self.until(lambda: ports.exists() and ports.read_text().split(), "the controller does not start")
        self.address = f"127.0.0.1:{ports.read_text().split()[0]}"
        for index in range(workers):
            self.run(f"w{index}", "worker", "--address", self.address, "--name", f"w{index}", "--transport", "tcp",
                     "--metrics-port", -1, "--cache-dir", folder / f"cache{index}")
        output_of([MESHWRIGHT, *self.tls("operator"), "--address", self.address, "status", "--wait-workers", workers,
                   "--timeout-s", 30])

    def tls(self, role):
        return ["--tls-dir", self.identities[role]] if role in self.identities else []

    def run(self, role, *words):
        with open(self.folder / f"{role}.log", "a", encoding="utf-8") as to:
            self.processes.append(subprocess.Popen(
                on_cores(self.cores, [MESHWRIGHT, *self.tls(role), *words, "--log-level", "warn"]), stdout=to, stderr=to,
                env=clean_environment()))

    def until(self, done, otherwise):
        deadline = time.monotonic() + 30
        while not done():
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes):
                raise CaseError(otherwise)
            time.sleep(0.05)

    def step(self, steps):
        """Median seconds of the job of ./run."""
        return median(self.submit("examples/gpt-bytes.toml", LAYOUT, steps, words=self.tls("operator")).seconds)

    def call(self, calls):
        """Median seconds from a session's call to its answer, less the step on its device."""
        row = ours.mw_bench(CORES, "call", "--address", f"unix:{self.folder}/state/controller.sock", "--calls", calls)[0]
        return row["call_seconds"] - row["step_seconds"]

    def down(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()


@contextlib.contextmanager
def both(workers):
    """-> the cluster in the clear, and the one with certificates."""
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mw-secured-")))
        plain = stack.enter_context(Cluster(folder / "plain", workers))
        yield plain, stack.enter_context(Cluster(folder / "secured", workers, certificates(folder / "tls", workers)))


def compared(options, workers, measure):
    with both(workers) as (plain, secured):
        values = interleave({"tls": lambda: measure(secured), "clear": lambda: measure(plain)}, options.rounds)
    return median(values["tls"]), median(values["clear"]), {"ours": spread(values["tls"]), "peer": spread(values["clear"])}


@case("tls-step", "the job of ./run over TCP, data=2, processes on 2 cores", f"<= {STEP_RATIO} x in the clear", 100)
def tls_step(options, steps):
    """A step by mutual TLS (gRPC and the data plane), against the same in the clear."""
    tls, clear, spreads = compared(options, 2, lambda cluster: cluster.step(options.steps(steps)))
    return {"ours": {"ms": significant(tls * 1e3)}, "peer": {"name": "ours in the clear", "ms": significant(clear * 1e3)},
            "ratio": significant(tls / clear), "met": tls <= STEP_RATIO * clear, "spread": spreads}


@case("tls-launch", "a program of one node, one call in flight, controller and worker over the port, processes on 2 cores",
      f"<= {LAUNCH_US} us more than in the clear", 5000)
def tls_launch(options, steps):
    """A launch and its report by mutual TLS, against the same in the clear. Their client uses the controller's socket,
    as processes of its host do, in both."""
    tls, clear, spreads = compared(options, 1, lambda cluster: cluster.call(options.steps(steps)))
    more_us = (tls - clear) * 1e6
    return {"ours": {"microseconds": significant(tls * 1e6), "more_us": significant(more_us)},
            "peer": {"name": "ours in the clear", "microseconds": significant(clear * 1e6)},
            "ratio": significant(tls / clear), "met": more_us <= LAUNCH_US, "spread": spreads}
