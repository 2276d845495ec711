"""What can break, and how it is put right again. Each fault takes a cluster and a random number generator, and says in
words what it did; `undo` is called at its end."""
import os
import signal
import time

from .cluster import family

FAULTS = {}


def fault(name, needs=lambda cluster: True):
    def register(make):
        make.needs, make.name = needs, name
        FAULTS[name] = make
        return make
    return register


class Done:
    """A fault that happened at a moment."""

    def __init__(self, text, at, undo=lambda: None, lasts_s=0.0):
        self.text, self.at, self.undo, self.lasts_s = text, at, undo, lasts_s


def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


@fault("kill-executor")
def kill_executor(cluster, rng):
    busy = [(worker, pid) for worker in cluster.workers if (pid := worker.working_executor())]
    if not busy:
        return None
    worker, pid = rng.choice(busy)
    at = time.monotonic()
    send([pid], signal.SIGKILL)
    return Done(f"kill -9 of the executor of {worker.name}", at)


@fault("kill-worker")
def kill_worker(cluster, rng):
    worker = rng.choice(cluster.workers)
    if not worker.pid:
        return None
    at = time.monotonic()
    send([worker.pid], signal.SIGKILL)  # its executors die with it
    return Done(f"kill -9 of {worker.name}", at)


@fault("kill-controller")
def kill_controller(cluster, _rng):
    if not cluster.controller.pid:
        return None
    at = time.monotonic()
    send([cluster.controller.pid], signal.SIGKILL)
    return Done("kill -9 of the controller", at)


def stop(daemon, rng, most_s):
    pids = family(daemon.pid) if daemon.pid else []
    if not pids:
        return None
    at, lasts_s = time.monotonic(), rng.uniform(0.2, most_s)
    send(pids, signal.SIGSTOP)
    return Done(f"SIGSTOP of {daemon.name} for {lasts_s:.1f} s", at, lambda: send(pids, signal.SIGCONT), lasts_s)


@fault("stop-worker")
def stop_worker(cluster, rng):
    return stop(rng.choice(cluster.workers), rng, 9)


@fault("stop-controller")
def stop_controller(cluster, rng):
    return stop(cluster.controller, rng, 9)


@fault("cut-network", needs=lambda cluster: cluster.hosts.can_cut)
def cut_network(cluster, rng):
    host = rng.randrange(len(cluster.workers) + 1)
    at, lasts_s = time.monotonic(), rng.uniform(0.2, 9)
    cluster.hosts.cut(host)
    name = cluster.daemons()[host].name
    return Done(f"{name} cut off for {lasts_s:.1f} s", at, lambda: cluster.hosts.mend(host), lasts_s)


@fault("full-disk", needs=lambda cluster: os.path.ismount(cluster.checkpoints))
def full_disk(cluster, rng):
    at, lasts_s = time.monotonic(), rng.uniform(0.5, 5)
    filler = cluster.checkpoints / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 20))
        except OSError:
            pass
    return Done(f"no room for checkpoints for {lasts_s:.1f} s", at, lambda: filler.unlink(missing_ok=True), lasts_s)
