"""A job that is followed while things break: when each step was told, what its log says."""
import json
import subprocess
import threading
import time

from .cluster import Failed

JOB_PATIENCE_S = 3600


class Followed:
    """Submits a job and follows it, also over the controller's death."""

    def __init__(self, cluster, file, sets):
        self.cluster, self.steps, self.end = cluster, {}, None
        self.lines = {}  # of its log, without their times: when each came first
        self.twice = 0
        words = ["submit", file, "-o", "json", "--no-wait"]
        for value in sets:
            words += ["--set", value]
        submitted = cluster.run(*words, timeout=60)
        if submitted.returncode != 0:
            raise Failed(submitted.stderr.strip() or submitted.stdout.strip())
        self.id = json.loads(submitted.stdout.splitlines()[0])["id"]
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def _follow(self):
        deadline = time.monotonic() + JOB_PATIENCE_S
        while self.end is None and time.monotonic() < deadline:
            process = subprocess.Popen(self.cluster.command("logs", "-f", self.id, "-o", "json"), text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self.cluster.env)
            seen = set()
            for line in process.stdout:
                self._take(json.loads(line), time.monotonic(), seen)
            process.wait()
            time.sleep(0.02)

    def _take(self, report, now, seen):
        with self.changed:
            if "step" in report and "loss" in report:
                self.twice += report["step"] in seen
                seen.add(report["step"])
                self.steps.setdefault(report["step"], (now, report["loss"]))
            elif "state" in report and report["state"] in ("SUCCEEDED", "FAILED", "CANCELLED"):
                self.end = report
            elif "line" in report:
                self.lines.setdefault(report["line"].partition(" ")[2], now)
            self.changed.notify_all()

    def count(self):
        with self.changed:
            return len(self.steps)

    def wait_for(self, count, timeout_s=60):
        """Until so many steps were told, or the job has ended. -> when that was."""
        with self.changed:
            reached = self.changed.wait_for(lambda: len(self.steps) >= count or self.end is not None, timeout_s)
        if not reached:
            raise Failed(f"job {self.id} has done {self.count()} steps, and no other one for {timeout_s} s: "
                         + self.last_lines())
        return time.monotonic()

    def pause_after(self, moment, watched_s=1.0, timeout_s=90):
        """How long after the moment the job went on: steps that were done before it are told for a little while, so
        it is the end of the longest silence that begins within `watched_s`. None: the job has ended first."""
        deadline = time.monotonic() + timeout_s
        while True:
            time.sleep(0.02)
            now = time.monotonic()
            with self.changed:
                times = sorted(at for at, _ in self.steps.values() if at > moment)
                if self.end is not None:
                    return None
            if now > deadline:
                raise Failed(f"no step of job {self.id} for {timeout_s} s: " + self.last_lines())
            if now - moment < watched_s or not times or now - times[-1] > 0.5 * watched_s:
                continue
            edges = [at for at in [moment, *times] if at <= moment + watched_s]
            nexts = [*times, now][:len(edges)]
            _, end = max((after - before, after) for before, after in zip(edges, nexts))
            return end - moment

    def line_after(self, begin, moment, timeout_s=60):
        """When the first line that begins so came after the moment."""
        def found():
            return min((at for line, at in self.lines.items() if line.startswith(begin) and at > moment), default=None)
        with self.changed:
            if not self.changed.wait_for(lambda: found() is not None or self.end is not None, timeout_s):
                raise Failed(f"no line '{begin}' of job {self.id} for {timeout_s} s: " + self.last_lines())
            return found()

    def wait(self, timeout_s=JOB_PATIENCE_S):
        with self.changed:
            if not self.changed.wait_for(lambda: self.end is not None, timeout_s):
                raise Failed(f"job {self.id} does not end: " + self.last_lines())
        return self.end

    def log(self):
        """Its lines, without their times."""
        return [json.loads(line)["line"].partition(" ")[2] for line in self.cluster.run("logs", self.id, "-o", "json").stdout.splitlines()
                if '"line"' in line]

    def last_lines(self):
        return " | ".join(self.log()[-3:])

    def weights(self):
        path = self.cluster.folder / "state/jobs" / str(self.id) / "model.safetensors"
        return path.read_bytes() if path.exists() else b""

    def periods(self):
        """Seconds from a step's report to the next one's."""
        times = [self.steps[step][0] for step in sorted(self.steps)]
        return [b - a for a, b in zip(times, times[1:])]
