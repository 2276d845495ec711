"""A controller and workers as processes, for tests. Each test program starts one, and ends it."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

BINARY = os.environ["MESHWRIGHT_BINARY"]
ACTOR_WORKER = os.environ["MESHWRIGHT_ACTOR_WORKER"]

TEXT = "The quick brown fox jumps over the lazy dog. " * 7000  # more than is hashed whole

JOB = {
    "job": {"name": "small"},
    "model": {"name": "gpt2", "dim": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 256},
    "training": {
        "dataset_path": "text.txt",
        "global_batch_size": 8,
        "seq_len": 16,
        "steps": 6,
        "seed": 3,
    },
    "parallelism": {"data_parallel_replicate_degree": 1},
    "metrics": {"log_freq": 1},
}


class Cluster:
    """`meshwright up` in a folder of its own. keep: processes that die are started again."""

    def __init__(self, workers: int = 1, *args: str, keep: bool = False) -> None:
        self.folder = tempfile.mkdtemp(prefix="meshwright-python-")
        self.data = os.path.join(self.folder, "data")
        os.mkdir(self.data)
        pathlib.Path(self.data, "text.txt").write_text(TEXT)
        self._kept = keep
        self._dir = ["--dir", os.path.join(self.folder, "run")]
        try:
            out = self.command(
                "up", "-o", "json", "--workers", str(workers), "--port", "0", "--metrics-port", "0",
                "--keep" if keep else "--no-keep", "--data-root", self.data, *self._dir, *args,
            )  # fmt: skip
            self.address = json.loads(out)["address"]
        except BaseException:
            self.stop()
            raise

    def command(self, *args: str) -> str:
        """What `meshwright ARGS` prints."""
        done = subprocess.run(
            [BINARY, *args], capture_output=True, text=True, timeout=120, cwd=self.data
        )
        if done.returncode != 0:
            raise RuntimeError(f"meshwright {' '.join(args)}: {done.stdout}{done.stderr}")
        return done.stdout

    def controller(self) -> int:
        """The process id of the controller."""
        lines = pathlib.Path(self.folder, "run", "cluster.txt").read_text().splitlines()
        pid = next(int(line.split()[2]) for line in lines if line.startswith("process controller "))
        # What is kept is the child of its keeper.
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if self._kept else pid

    def kill_controller(self) -> None:
        """As a crash does."""
        os.kill(self.controller(), signal.SIGKILL)

    def stop(self) -> None:
        """Ends all processes and removes the folder."""
        with contextlib.suppress(Exception):
            self.command("down", *self._dir)
        shutil.rmtree(self.folder, ignore_errors=True)


def with_keys(job: dict, /, **sections: dict) -> dict:
    """A copy of a job with other keys."""
    return {
        section: {**job.get(section, {}), **sections.get(section, {})}
        for section in [*job, *(each for each in sections if each not in job)]
    }
