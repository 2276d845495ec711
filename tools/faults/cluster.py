"""A cluster of processes, each under a keeper that starts it again, as `meshwright up` has them; here every process can
have a host of its own."""
import os
import pathlib
import signal
import subprocess
import time

from .hosts import die_with_parent

PATIENCE_S = 30


class Failed(Exception):
    """Why the run cannot go on, or what it has shown to be wrong."""


def children(pid):
    """Of all threads of the process."""
    found = []
    try:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            found += [int(word) for word in (task / "children").read_text().split()]
    except OSError:
        pass
    return found


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def cpu_seconds(pid):
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def family(pid):
    """The process and all below it."""
    return [pid, *(each for child in children(pid) for each in family(child))]


class Kept:
    """A daemon and its keeper."""

    def __init__(self, name, words, log, env):
        self.name, self.log = name, log
        ready, ready_write = os.pipe()
        start_read, start = os.pipe()
        with open(log, "ab") as output:
            self.keeper = subprocess.Popen(
                [*words, "--ready-fd", str(ready_write), "--start-fd", str(start_read)], stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, pass_fds=[ready_write, start_read], env=env, preexec_fn=die_with_parent)
        os.close(ready_write)
        os.close(start_read)
        os.write(start, b"\n")
        os.close(start)
        self.ready = os.fdopen(ready)

    def await_ready(self):
        line = self.ready.readline().strip()
        if not line:
            raise Failed(f"{self.name} did not start; see {self.log}")
        return line

    @property
    def pid(self):
        """Of the daemon; 0 while it is away."""
        found = children(self.keeper.pid)
        return found[0] if found else 0

    def executors(self):
        return [pid for pid in children(self.pid) if name_of(pid) == "mw-executor"] if self.pid else []

    def working_executor(self):
        """The one that computes; 0: none does."""
        found = {pid: cpu_seconds(pid) for pid in self.executors()}
        time.sleep(0.05)
        busy = {pid: cpu_seconds(pid) - before for pid, before in found.items()}
        return max(busy, key=busy.get) if busy and max(busy.values()) > 0 else 0


class Cluster:
    """A controller on host 0 and worker k on host k + 1; a context manager."""

    def __init__(self, binary, folder, hosts, workers, worker_words=(), cores=None, more_env=None):
        self.binary, self.folder, self.hosts = str(binary), pathlib.Path(folder), hosts
        self.temporary = self.folder / "tmp"
        self.checkpoints = self.folder / "checkpoints"
        for each in (self.temporary, self.checkpoints):
            each.mkdir(parents=True, exist_ok=True)
        self.env = {**os.environ, "TMPDIR": str(self.temporary), "MESHWRIGHT_TOKEN": "of-a-test-of-faults",
                    "MESHWRIGHT_INSECURE": "1",
                    **(more_env or {})}
        self.pinned = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
        self.controller = self._start("controller", 0, [
            "controller", "--state-dir", str(self.folder / "state"), "--bind", hosts.address(0), "--port", "0",
            "--metrics-port", "0"])
        self.workers = []
        port = self.controller.await_ready().split()[0]
        self.address = f"{hosts.address(0)}:{port}"
        self.worker_words = list(worker_words)
        for index in range(workers):
            self.add_worker(index)
        self.await_workers(workers)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def add_worker(self, index):
        host = index + 1
        worker = self._start(f"worker-{index}", host, [
            "worker", "--name", f"worker-{index}", "--address", self.address, "--bind", self.hosts.address(host),
            "--advertise", self.hosts.address(host), "--checkpoint-root", str(self.checkpoints), "--data-root", "/",
            "--cache-dir", str(self.folder / f"cache-{index}"), "--profile", "off", *self.worker_words])
        worker.await_ready()
        self.workers.append(worker)

    def _start(self, name, host, words):
        words = self.hosts.on(host, [*self.pinned, self.binary, "keep", self.binary, *words])
        return Kept(name, words, self.folder / f"{name}.log", self.env)

    def command(self, *words):
        """The command line of a client, on the controller's host."""
        return self.hosts.on(0, [*self.pinned, self.binary, *map(str, words), "--address", self.address])

    def run(self, *words, timeout=PATIENCE_S):
        return subprocess.run(self.command(*words), capture_output=True, text=True, timeout=timeout, env=self.env,
                              check=False)

    def await_workers(self, count):
        deadline = time.monotonic() + PATIENCE_S
        while f"{count} ready of" not in self.run("status").stdout:
            if time.monotonic() > deadline:
                raise Failed(f"{count} workers are not ready; see the logs in {self.folder}")
            time.sleep(0.05)

    def daemons(self):
        return [self.controller, *self.workers]

    def stop(self):
        """SIGTERM to all. -> what was left behind, as text."""
        pids = [pid for daemon in self.daemons() for pid in family(daemon.keeper.pid)]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except OSError:
                pass
        for daemon in reversed(self.daemons()):
            daemon.keeper.terminate()
        left = []
        for daemon in self.daemons():
            try:
                daemon.keeper.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                left.append(f"{daemon.name} did not end")
                daemon.keeper.kill()
                daemon.keeper.wait()
        left += [f"process {pid} ({name_of(pid)})" for pid in pids if name_of(pid).startswith(("mw-", "meshwright"))]
        left += [f"file {path.name}" for path in self.temporary.iterdir()]
        return "; ".join(left)
