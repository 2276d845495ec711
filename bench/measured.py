"""Forecasts against steps that really run on this machine, and a plan for unequal workers.

`measured`: for each model some pinned layouts and the one that the search chooses, as jobs on four workers
whose devices and links were measured when they registered. Each round has new workers and new forecasts; the
ratio is the median of the rounds' ratios.
`unequal`: two workers on a core each, one of them beside a busy process; the stages that the search makes
against stages of equal layers.
"""
import contextlib
import json
import pathlib
import subprocess
import sys
import time
import urllib.request

import ours
from common import MESHWRIGHT, MW_BENCH, ROOT, RUNS, CaseError, clean_environment, cores, log, output_of
from rounds import interleave, median, significant, spread

TIME_RANGE, MEMORY_RANGE, CHOSEN_RANGE = 0.15, 0.03, 1.05
UNEQUAL_GAIN = 1.3
READY_TIMEOUT_S = 120

QUIET = ["validation.batches=0", "checkpoint.last_save=false", "metrics.log_freq=1000"]
# Four rows and no more: a step of two cores then takes some seconds.
GPT2 = ["training.global_batch_size=4", *QUIET]
# One row, so that a step takes part of a second.
LONG = ["training.global_batch_size=1", *QUIET]

OPEN = {"expert_parallel_degree": '"auto"', "context_parallel_degree": '"auto"',
        "data_parallel_replicate_degree": '"auto"', "tensor_parallel_degree": '"auto"',
        "pipeline_parallel_degree": '"auto"', "pipeline_parallel_schedule": '"auto"', "zero_stage": '"auto"',
        "pipeline_parallel_microbatches": '"auto"'}


def pinned(data=1, tensor=1, pipeline=1, microbatches=1, zero=0, sequence=False, expert=1, context=1):
    """Settings of [parallelism]."""
    return {"expert_parallel_degree": expert, "context_parallel_degree": context,
            "data_parallel_replicate_degree": data, "tensor_parallel_degree": tensor,
            "pipeline_parallel_degree": pipeline, "pipeline_parallel_schedule": '"1f1b"', "zero_stage": zero,
            "pipeline_parallel_microbatches": microbatches, "enable_sequence_parallel": str(sequence).lower()}


DENSE = {
    "data=2": pinned(data=2),
    "data=2 zero=3": pinned(data=2, zero=3),
    "tensor=2 sequence": pinned(tensor=2, sequence=True),
    "pipeline=2": pinned(pipeline=2, microbatches=4),
    "data=2 tensor=2": pinned(data=2, tensor=2),
    "data=2 pipeline=2": pinned(data=2, pipeline=2, microbatches=2),
    "chosen": OPEN,
}
# An expert axis is of the replicas.
EXPERTS = {
    "data=2": pinned(data=2),
    "data=2 expert=2": pinned(data=2, expert=2),
    "data=4 expert=2": pinned(data=4, expert=2),
    "data=4 expert=4": pinned(data=4, expert=4),
    "data=2 expert=2 pipeline=2": pinned(data=2, expert=2, pipeline=2, microbatches=2),
    "chosen": OPEN,
}
CONTEXTS = {
    "context=2": pinned(context=2),
    "context=4": pinned(context=4),
    "tensor=2": pinned(tensor=2),
    "context=2 tensor=2": pinned(context=2, tensor=2),
    "context=2 pipeline=2": pinned(context=2, pipeline=2),
    "chosen": OPEN,
}
FAR = {"optimizer_memory": '"host"', "offload_chunk_bytes": 1 << 20}
# State in the host's memory, and who renews it.
FARTHER = {
    "optimizer on the host": pinned() | FAR,
    "and weights": pinned() | FAR | {"weights_memory": '"host"'},
    "renewed by the host": pinned() | FAR | {"host_update_percent": 100},
    "data=2 zero=3 optimizer on the host": pinned(data=2, zero=3) | FAR,
}
# The first layout is run once before anything counts.
MODELS = {
    "gpt-bytes": ("examples/gpt-bytes.toml", QUIET, 40, DENSE),
    "gpt2-124m": ("bench/jobs/gpt2.toml", GPT2, 3, DENSE),
    "llama-bytes": ("examples/llama-bytes.toml", QUIET, 20, DENSE),
    "moe-bytes": ("examples/moe-bytes.toml", QUIET, 20, EXPERTS),
    "long-context": ("examples/long-context.toml", LONG, 8, CONTEXTS),
    "offload": ("examples/gpt-bytes.toml", QUIET, 20, FARTHER),
}


def sets_of(parallelism):
    return [f"parallelism.{key}={value}" for key, value in parallelism.items()]


def forecast(address, job, sets):
    """What mw_bench says of the plan for the running cluster."""
    words = [MW_BENCH, "plan", ROOT / job, "--address", address]
    for value in sets:
        words += ["--set", value]
    return json.loads(output_of(words, timeout=600))


def resident_bytes(processes):
    """Of all together; what several have mapped counts once."""
    kib = 0
    for process in processes:
        for line in pathlib.Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                kib += int(line.split()[1])
    return kib * 1024


def device_bytes(addresses):
    """What the devices of all workers have allocated: weights, state and the arena at its fullest."""
    held = 0
    for address in addresses:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("meshwright_device_memory_bytes{"):
                    held += float(line.split()[-1])
    return held


def ready_workers(address):
    text = output_of([MESHWRIGHT, "status", "--address", address, "-o", "json"])
    return [worker for worker in json.loads(text)["workers"] if worker["state"] == "READY"]


class Party:
    """A layout of a model on a cluster; `held`: what memory() said."""

    def __init__(self, cluster, job, sets, steps):
        self.metrics = [worker["metrics_address"] for worker in ready_workers(cluster.address)]
        self.cluster, self.job, self.sets, self.steps = cluster, job, sets, steps
        self.plan, self.held = forecast(cluster.address, job, sets), None

    def run(self, steps, on_report=lambda: None):
        """A job of the layout that the forecast is of."""
        job = self.cluster.submit(self.job, self.sets, steps, on_report)
        if job.layout != self.plan["layout"]:
            raise CaseError(f"the job ran {job.layout}, the forecast is of {self.plan['layout']}, planned in "
                            f"{self.plan['plan_s']:.2f} s; mw_bench and meshwright must be of the same build")
        return job

    def __call__(self):
        """Seconds of a step."""
        return median(self.run(self.steps).periods)

    def memory(self):
        """Bytes that the workers' devices hold while the job runs, and by which the processes grow."""
        before, held, resident = resident_bytes(self.cluster.workers), [], []

        def look():
            held.append(device_bytes(self.metrics))
            resident.append(resident_bytes(self.cluster.workers))

        self.run(2, look)
        return max(held), max(resident) - before


def measure_round(job, sets, steps, layouts, index):
    """Forecasts for a new cluster and steps on it. -> {name: Party}, {name: seconds}."""
    # The profiles are measured now, with whatever else runs on the machine.
    with ours.Cluster(workers=4, count=2, profile="measure") as cluster:
        parties = {name: Party(cluster, job, [*sets, *sets_of(layout)], steps) for name, layout in layouts.items()}
        parties[next(iter(layouts))].memory()  # what processes take once, whatever the job
        seconds = {}
        for name in parties if index % 2 == 0 else reversed(parties):
            # Pinned layouts hold the same in each round.
            if index == 0 or name == "chosen":
                parties[name].held = parties[name].memory()
            seconds[name] = parties[name]()
    return parties, seconds


def run_measured(args, emit):
    for model, (job, sets, steps, layouts) in MODELS.items():
        if args.model and model != args.model:
            continue
        rounds = []
        for index in range(args.rounds):
            # A slow hour of the machine meets the profile and the steps.
            rounds.append(measure_round(job, sets, args.steps or steps, layouts, index))
            for name, seconds in rounds[-1][1].items():
                forecast_s = rounds[-1][0][name].plan["step_s"]
                log(f"  round {index + 1}  {name:<20} measured {seconds:.6g} s, forecast {forecast_s:.6g} s")
        report(model, rounds, layouts, emit)


def seconds_of_layout(parties, seconds, name):
    """In one round: the mean of the parties that ran the same layout as `name`."""
    same = [seconds[other] for other in parties if parties[other].plan["layout"] == parties[name].plan["layout"]]
    return sum(same) / len(same)


def report(model, rounds, layouts, emit):
    def of_rounds(name, value):
        return [value(parties[name], seconds[name]) for parties, seconds in rounds]

    def of_held(name, value):
        return [value(parties[name]) for parties, _ in rounds if parties[name].held]

    seconds = {name: median(of_rounds(name, lambda _, s: s)) for name in layouts}
    log("forecast s  measured s  ratio  memory ratio  layout")
    for name in layouts:
        ratios = of_rounds(name, lambda party, s: party.plan["step_s"] / s)
        memory_ratios = of_held(name, lambda party: party.plan["all_bytes"] / party.held[0])
        # The one that is furthest off: memory does not depend on the machine's hour.
        memory_ratio = max(memory_ratios, key=lambda ratio: abs(ratio - 1))
        forecast_s, time_ratio = median(of_rounds(name, lambda party, _: party.plan["step_s"])), median(ratios)
        ran = sorted(set(of_rounds(name, lambda party, _: party.plan["layout"])))
        emit(f"measured-{model}-{name.replace(' ', '-')}", layouts=ran,
             forecast_s=significant(forecast_s), measured_s=significant(seconds[name]),
             ratio=significant(time_ratio), ratios=[significant(ratio) for ratio in ratios],
             device_bytes=median(of_held(name, lambda party: party.held[0])),
             processes_bytes=median(of_held(name, lambda party: party.held[1])),
             memory_ratio=significant(memory_ratio), spread=spread(of_rounds(name, lambda _, s: s)),
             target=f"abs(ratio - 1) <= {TIME_RANGE} and abs(memory_ratio - 1) <= {MEMORY_RANGE}",
             met=abs(time_ratio - 1) <= TIME_RANGE and abs(memory_ratio - 1) <= MEMORY_RANGE)
        log(f"{forecast_s:10.4f}  {seconds[name]:10.4f}  {time_ratio:5.3f}  {memory_ratio:12.3f}  "
            f"{' | '.join(ran)}")
    if "chosen" not in layouts:
        return
    # What ran twice in a round, pinned and chosen, is one layout with two measurements.
    seconds = {name: median([seconds_of_layout(*one, name) for one in rounds]) for name in layouts}
    fastest = min(seconds, key=seconds.get)
    # Not of each round: the least of seven noisy figures is too small.
    ratio = seconds["chosen"] / seconds[fastest]
    emit(f"measured-{model}-choice", chosen=sorted(set(of_rounds("chosen", lambda party, _: party.plan["layout"]))),
         fastest=fastest, ratio=significant(ratio), target=f"ratio <= {CHOSEN_RANGE}", met=ratio <= CHOSEN_RANGE)
    log(f"{model}: the chosen layout takes {ratio:.3f} of the fastest that was measured ({fastest})")


# ---- Unequal workers ----

UNEQUAL_JOB = "bench/jobs/small.toml"
UNEQUAL_SETS = ["model.n_layers=12", "training.global_batch_size=16", "training.seq_len=128", *QUIET]


# Busy half of each millisecond: shorter than what a scheduler gives a process at a time, so that who else is
# kept to the core computes at half speed and is not held up for longer when it wakes.
BUSY = """
import os, sys, time
os.sched_setaffinity(0, [int(sys.argv[1])])
print(1, flush=True)
while True:
    end = time.perf_counter() + 0.0005
    while time.perf_counter() < end: pass
    time.sleep(0.00045)
"""


@contextlib.contextmanager
def busy_core(core):
    process = subprocess.Popen([sys.executable, "-c", BUSY, str(core)], stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()


class UnequalCluster:
    """A controller and a worker on one core, and a worker on another; a context manager."""

    def __init__(self, fast, slow):
        self.first = ours.Cluster(workers=1, profile="measure", only=[fast])
        self.address, self.cores, self.submit = self.first.address, [fast], self.first.submit
        self.log = open(RUNS / "slow-worker.log", "wb")
        self.second = subprocess.Popen(
            ["taskset", "-c", str(slow), MESHWRIGHT, "worker", "--address", self.address, "--name", "slow",
             "--profile", "measure", "--log-level", "warn"],
            env=clean_environment(), stdout=self.log, stderr=self.log, cwd=ROOT)
        self.await_workers(2)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.second.terminate()
        self.second.wait()
        self.log.close()
        self.first.down()

    def await_workers(self, count):
        end = time.monotonic() + READY_TIMEOUT_S
        while len(ready_workers(self.address)) < count:
            if time.monotonic() > end or self.second.poll() is not None:
                self.__exit__()
                raise CaseError(f"the slow worker did not come; see {RUNS / 'slow-worker.log'}")
            time.sleep(0.2)


def profile_names(workers):
    """What each worker's profile is called: it says the share of its core."""
    return {worker["name"]: worker["device_profile"].split('"')[1] for worker in workers}


def run_unequal(args, emit):
    fast, slow = cores(2)
    # Of the two with pinned degrees only the layers, and what suits them, differ.
    pipeline = pinned(pipeline=2, microbatches=8)
    layouts = {"chosen": OPEN, "uneven": pipeline | {"pipeline_parallel_schedule": '"auto"'},
               "even": pipeline | {"pipeline_parallel_layers": '"6,6"'}}
    with busy_core(slow), UnequalCluster(fast, slow) as cluster:
        profiles = profile_names(ready_workers(cluster.address))
        log(f"profiles: {profiles}")
        parties = {name: Party(cluster, UNEQUAL_JOB, [*UNEQUAL_SETS, *sets_of(layout)], args.steps or 6)
                   for name, layout in layouts.items()}
        values = interleave(parties, args.rounds)
    measured = {name: median(of) for name, of in values.items()}
    planned = {name: party.plan["step_s"] for name, party in parties.items()}
    gain = measured["even"] / measured["chosen"]
    forecast_gain = planned["even"] / planned["chosen"]
    emit("unequal", profiles=profiles, **{name: party.plan["layout"] for name, party in parties.items()},
         measured_s={name: significant(value) for name, value in measured.items()},
         forecast_s={name: significant(value) for name, value in planned.items()},
         gain=significant(gain), forecast_gain=significant(forecast_gain),
         spread={name: spread(of) for name, of in values.items()}, target=f"gain >= {UNEQUAL_GAIN}",
         met=gain >= UNEQUAL_GAIN)
    log(f"unequal: the chosen layout is {gain:.2f} x as fast as even stages (forecast {forecast_gain:.2f}): "
        f"{parties['chosen'].plan['layout']}")
