"""The page of a large cluster: how soon it is there, and what it costs its controller. bench/driver.py registers it."""
import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import socket
import subprocess
import tempfile
import time

from cases import case
from common import MESHWRIGHT, MW_BENCH, CaseError, clean_environment, cores, log, on_cores
from rounds import median, significant, spread

WORKERS, DEVICES, REJOINS_PER_S = 1000, 8, 1
WINDOW_S = 20     # with the page, and as long without
FORGOTTEN_S = 12  # until the controller has seen that a page was closed
STREAM_S = 20
PAINT_MS, CORE_SHARE = 1000, 0.01

# When all tiles stand in the picture that comes next.
WATCH = f"""
window.listed = 0;
const look = () => {{
  if (document.querySelectorAll('.tiles a').length < {WORKERS}) return requestAnimationFrame(look);
  requestAnimationFrame(() => requestAnimationFrame(() => {{ window.listed = performance.now(); }}));
}};
requestAnimationFrame(look);
"""


def cpu_seconds(pid):
    """That a process has taken, of all its threads: the kernel's clock of it."""
    return time.clock_gettime((~pid << 3) | 2)


def tree_seconds(root):
    """Of a process and those below it that live."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    total, todo = 0.0, [root]
    while todo:
        pid = todo.pop()
        with contextlib.suppress(OSError):
            total += cpu_seconds(pid)
        todo += [child for child, parent in parents.items() if parent == pid]
    return total


class Controller:
    def __init__(self, folder, numbers):
        self.state = folder / "state"
        with open(folder / "controller.log", "w", encoding="utf-8") as to:
            self.process = subprocess.Popen(
                on_cores(numbers, [MESHWRIGHT, "controller", "--port", 0, "--metrics-port", 0, "--state-dir", self.state,
                                   "--log-level", "warn"]), stdout=to, stderr=to, env=clean_environment())
        deadline = time.monotonic() + 30
        while not (self.state / "ports").exists() or len((self.state / "ports").read_text().split()) != 2:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise CaseError((folder / "controller.log").read_text()[-300:] or "the controller does not start")
            time.sleep(0.05)
        port, self.http = map(int, (self.state / "ports").read_text().split())
        self.address, self.url = f"127.0.0.1:{port}", f"http://127.0.0.1:{self.http}/"

    def cpu(self):
        return cpu_seconds(self.process.pid)

    def resident_mib(self):
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text())[1]) / 1024

    def stream_bytes(self, seconds):
        """That one more viewer is sent in so many seconds."""
        with socket.create_connection(("127.0.0.1", self.http)) as link:
            link.sendall(b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            got, end = 0, time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                if select.select([link], [], [], left)[0]:
                    piece = link.recv(1 << 16)
                    if not piece:
                        raise CaseError("the stream has ended")
                    got += len(piece)
        return got

    def close(self):
        self.process.terminate()
        self.process.wait(30)


class Crowd:
    def __init__(self, address, numbers):
        self.process = subprocess.Popen(
            on_cores(numbers, [MW_BENCH, "crowd", address, "--workers", WORKERS, "--devices", DEVICES, "--rejoins",
                               REJOINS_PER_S]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=clean_environment())
        line = self.process.stdout.readline()
        if not line:
            raise CaseError("the workers did not join")
        self.joined = json.loads(line)

    def end(self):
        """What it has done meanwhile."""
        return json.loads(self.process.communicate("\n", timeout=60)[0])

    def close(self):
        self.process.kill()
        self.process.wait()


class Browser:
    """Chromium without a window, by the DevTools protocol over a pipe."""

    def __init__(self, folder, numbers):
        if shutil.which("chromium") is None:
            raise CaseError("there is no chromium; apt-get install chromium")
        down, up = os.pipe(), os.pipe()
        self.process = subprocess.Popen(
            ["bash", "-c", "exec taskset -c %s chromium --headless=new --no-sandbox --disable-gpu --no-first-run "
             "--disable-dev-shm-usage --user-data-dir=%s --remote-debugging-pipe about:blank 3<&%d 4>&%d"
             % (",".join(map(str, numbers)), folder / "profile", down[0], up[1])],
            pass_fds=(down[0], up[1]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=clean_environment(HOME=str(folder)))
        os.close(down[0])
        os.close(up[1])
        self.to, self.answers, self.buffer, self.number, self.session = down[1], up[0], b"", 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Network.enable")
        self.call("Network.setCacheDisabled", cacheDisabled=True)
        self.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)

    def call(self, method, **params):
        self.number += 1
        ask = {"id": self.number, "method": method, "params": params}
        if self.session:
            ask["sessionId"] = self.session
        os.write(self.to, json.dumps(ask).encode() + b"\0")
        while True:
            while b"\0" not in self.buffer:
                if not select.select([self.answers], [], [], 60)[0]:
                    raise CaseError("the browser does not answer")
                piece = os.read(self.answers, 1 << 16)
                if not piece:
                    raise CaseError("the browser has ended")
                self.buffer += piece
            message, _, self.buffer = self.buffer.partition(b"\0")
            answer = json.loads(message)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise CaseError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def value(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def open(self, url):
        """-> milliseconds to the first paint, and to the one with all workers."""
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + 60
        while not (listed := self.value("window.listed")):
            if time.monotonic() > deadline:
                raise CaseError("the page does not list all workers: " + str(self.value("document.body.innerText"))[:200])
            time.sleep(0.2)
        return self.value("performance.getEntriesByName('first-contentful-paint')[0].startTime"), listed

    def blank(self):
        self.call("Page.navigate", url="about:blank")

    def cpu(self):
        return tree_seconds(self.process.pid)

    def close(self):
        with contextlib.suppress(CaseError, OSError):
            self.session = None
            self.call("Browser.close")
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.answers)


def share(clocks, seconds):
    """Of a core, that each of the clocks goes on by meanwhile."""
    before, began = [clock() for clock in clocks], time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    return [(clock() - was) / took for clock, was in zip(clocks, before)]


@case(f"page-{WORKERS}", f"{WORKERS:,} workers of {DEVICES} devices from one process, one of them anew each second",
      f"first paint < 1 s, < {100 * CORE_SHARE:.0f} % of a core", steps=WINDOW_S)
def page(options, steps):
    """steps: seconds of a window."""
    window = options.steps(steps)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mw-page-")))
        controller = Controller(folder, cores(2))
        stack.callback(controller.close)
        crowd = Crowd(controller.address, cores(2))
        stack.callback(crowd.close)
        browser = Browser(folder, cores(2))
        stack.callback(browser.close)
        paints, lists, on, off, browsing = [], [], [], [], []
        for index in range(options.rounds):
            first, listed = browser.open(controller.url)
            paints.append(first)
            lists.append(listed)
            time.sleep(2)
            with_page, browsed = share([controller.cpu, browser.cpu], window)
            on.append(with_page)
            browsing.append(browsed)
            browser.blank()
            time.sleep(FORGOTTEN_S)
            off += share([controller.cpu], window)
            log(f"  round {index + 1}  first paint {first:.0f} ms, all workers {listed:.0f} ms, a core {100 * on[-1]:.2f} % "
                f"with the page, {100 * off[-1]:.2f} % without, browser {100 * browsed:.2f} %")
        stream = controller.stream_bytes(STREAM_S) / STREAM_S
        resident = controller.resident_mib()
        done = crowd.end()
        page_share = median([a - b for a, b in zip(on, off)])
        return {
            "ours": {"milliseconds": significant(median(lists), 3), "first_paint_ms": significant(median(paints), 3),
                     "page_core_percent": significant(100 * page_share, 3),
                     "sessions_core_percent": significant(100 * median(off), 3),
                     "browser_core_percent": significant(100 * median(browsing), 3),
                     "stream_bytes_per_s": significant(stream, 3), "controller_rss_mib": significant(resident, 3),
                     "join_seconds": crowd.joined["join_seconds"],
                     "heartbeats_per_s": significant(done["heartbeats"] / done["seconds"], 4)},
            "met": max(median(paints), median(lists)) < PAINT_MS and page_share < CORE_SHARE,
            "spread": {"ours": spread(on)},
        }
