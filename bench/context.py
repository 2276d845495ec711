"""Cases of long rows that processes share. bench/driver.py registers them."""
import json
import time
import urllib.request

import ours
from cases import CaseError, JobPeaks, case, mib
from common import MESHWRIGHT, ROOT, log, output_of
from rounds import interleave, median, significant, spread

ATTENTION = "bench/jobs/attention-32k.toml"
ROW = "bench/jobs/context-131k.toml"
ATTENTION_TOKENS = 32_768
MOST_APART = 0.03  # of the busiest rank
MOST_MEMORY = 1.1  # of a rank's share


def waited_seconds(cluster):
    """Of each worker since it started, by its own counters: collectives and messages, the wait for others included."""
    rows = json.loads(output_of([MESHWRIGHT, "status", "--address", cluster.address, "-o", "json"]))["workers"]
    waited = []
    for row in sorted(rows, key=lambda row: row["name"]):
        with urllib.request.urlopen(f"http://{row['metrics_address']}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        waited.append(sum(float(line.rpartition(" ")[2]) for line in lines
                          if line.startswith("meshwright_collective_seconds_total")))
    return waited


class Rows:
    """Steps of ATTENTION on `workers` processes of a core each; `way`: of its attention."""

    def __init__(self, workers, way, steps):
        self.workers, self.steps, self.apart = workers, steps, []
        self.sets = [f"parallelism.context_parallel_degree={workers}"]
        if workers > 1:
            self.sets.append(f'parallelism.context_parallel_attention="{way}"')

    def __call__(self):
        with ours.Cluster(self.workers, 1, self.workers) as cluster:
            seen = []

            def look():
                seen.append((time.perf_counter(), waited_seconds(cluster)))

            # Behind its last step a job's process ends, and what it counted is not asked for any more.
            job = cluster.submit(ATTENTION, self.sets, self.steps + 1, look)
            (begin, waited_before), (end, waited) = seen[ours.WARM_STEPS - 1], seen[-2]
            busy = [end - begin - (last - first) for first, last in zip(waited_before, waited)]
            self.apart.append(1 - min(busy) / max(busy))
            log(f"  busy seconds {[round(seconds, 2) for seconds in busy]}")
            return ATTENTION_TOKENS / median(job.periods)


def attention(options, steps, way):
    """The same row on one core and on two."""
    count = options.steps(steps)
    two, one = Rows(2, way, count), Rows(1, way, count)
    values = interleave({"context=2": two, "one core": one}, options.rounds)
    ratio = median(values["context=2"]) / median(values["one core"])
    apart = median(two.apart)
    return {"ours": {"tokens_per_s": significant(median(values["context=2"]), 5), "busy_apart": significant(apart, 2)},
            "peer": {"tokens_per_s": significant(median(values["one core"]), 5), "name": "ours on one core"},
            "ratio": significant(ratio), "met": ratio >= 1.7 and apart <= MOST_APART,
            "spread": {"ours": spread(values["context=2"]), "peer": spread(values["one core"])}}


for _name, _way in (("attention-32k", "ring"), ("attention-32k-ulysses", "ulysses")):
    case(_name, f"llama d=128 layers=2 heads=4 seq=32768 batch=1 vocab=256 float32, context=2 by {_way}, "
         "2 processes x 1 core", f"ratio >= 1.7 and ours.busy_apart <= {MOST_APART}", 1)(
             lambda options, steps, way=_way: attention(options, steps, way))


def planned(devices):
    """Of the fullest device: bytes by kind, and all that it allocates."""
    words = [MESHWRIGHT, "plan", ROOT / ROW, "--devices", devices, "--json",
             "--set", f"parallelism.context_parallel_degree={devices}"]
    rows = json.loads(output_of(words))["memory"]
    if not rows:
        raise CaseError("the plan shows no memory")
    return max(rows, key=lambda row: row["allocated_bytes"])


@case("context-131k", "llama d=64 layers=1 heads=2 seq=131072 batch=1 vocab=256 float32, context=2, 2 processes x 1 core",
      f"ratio <= {MOST_MEMORY} / 2 and a step is taken", 1)
def context_row(options, steps):
    """Activations of a rank by the plan, against those of one device's plan; the step is taken."""
    del options
    of_one, of_two = (planned(devices)["kinds_bytes"]["activations"] for devices in (1, 2))
    with ours.Cluster(2, 1, 2) as cluster:
        peaks = JobPeaks(cluster.workers)
        job = cluster.submit(ROW, ["parallelism.context_parallel_degree=2"], steps, peaks.look, warm=0)
    ratio = of_two / of_one
    return {"ours": {"activations_mib": mib(of_two), "step_seconds": significant(job.seconds[-1]),
                     "peak_rss_mib": mib(peaks.peak), "idle_rss_mib": mib(peaks.idle),
                     "plan_mib": mib(planned(2)["allocated_bytes"])},
            "peer": {"activations_mib": mib(of_one), "name": "the plan of one device"},
            "ratio": significant(ratio), "met": ratio <= MOST_MEMORY / 2}
