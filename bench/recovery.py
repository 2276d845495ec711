"""Cases of what is lost when something dies, and of what it costs that nothing is. bench/cases.py registers them."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import ours
from cases import CaseError, GPT2, case, shape_text
from common import MESHWRIGHT, ROOT, clean_environment, cores, log, output_of
from rounds import interleave, median, significant, spread

sys.path.insert(0, str(ROOT / "tools"))
from faults.cluster import Cluster, Failed  # noqa: E402
from faults.hosts import Namespaces, OneMachine  # noqa: E402
from faults.job import Followed  # noqa: E402

GPT = "examples/gpt-bytes.toml"
KILLED = "the GPT of ./run, data=2 of 4 workers, 2 cores"
CHAOS_TIMEOUT_S = 3600


def chaos(*words):
    """The line of tools/chaos."""
    done = subprocess.run([str(ROOT / "tools/chaos"), *map(str, words)], capture_output=True, text=True,
                          timeout=CHAOS_TIMEOUT_S, env=clean_environment(), check=False)
    for line in done.stderr.splitlines():
        log(f"  {line}")
    try:
        result = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise CaseError((done.stderr.strip().splitlines() or ["tools/chaos said nothing"])[-1][:300]) from None
    if result["wrong"]:
        raise CaseError("; ".join(result["wrong"])[:300])
    return result


@case("recovery-kill", KILLED, "median < 1 s, p95 < 2 s, none > 5 s, bitwise equal", 200)
def recovery_kill(options, steps):
    """kill -9 of an executor or of a worker at random times: from the kill to the next step that is done."""
    result = chaos("--kills", options.steps(steps), "--every", 1)
    return judge_pauses(result)


@case("recovery-failpoints", KILLED, "median < 1 s, p95 < 2 s, none > 5 s, bitwise equal")
def recovery_failpoints(options, steps):
    """A kill at every failpoint, the controller's too."""
    del options, steps
    return judge_pauses(chaos("--failpoints"))


def judge_pauses(result):
    times = result["fault_to_step"]
    met = times["median_s"] < 1 and times["p95_s"] < 2 and times["most_s"] <= 5
    return {"ours": {"seconds": times["median_s"], "p95_s": times["p95_s"], "most_s": times["most_s"],
                     "kills": times["faults"], "recoveries": result["recoveries"]}, "met": met}


@case("effective-time", KILLED + ", kill -9 of a worker or executor every 30 s", "ours.percent >= 95", 10)
def effective_time(options, steps):
    """Steps finished x median undisturbed step / wall time, over so many minutes."""
    result = chaos("--minutes", options.steps(steps), "--every", 30, "--faults", "kill-worker,kill-executor")
    percent = 100 * result["effective"]
    return {"ours": {"percent": significant(percent), "recoveries": result["recoveries"],
                     "median_pause_s": result["fault_to_step"]["median_s"]}, "met": percent >= 95}


@contextlib.contextmanager
def cluster_of(workers, hosts=None):
    with tempfile.TemporaryDirectory(prefix="meshwright-bench-") as folder:
        with contextlib.closing(hosts or OneMachine()) as places:
            with Cluster(MESHWRIGHT, folder, places, workers, cores=cores(2)) as cluster:
                yield cluster


def long_job(cluster, *more, first_step=30):
    job = Followed(cluster, ROOT / GPT, [
        "training.steps=100000", "validation.interval=0", f'training.dataset_path="{ROOT}/runs/data/corpus.txt"',
        "parallelism.data_parallel_replicate_degree=2", "parallelism.tensor_parallel_degree=1",
        "parallelism.pipeline_parallel_degree=1", *more])
    job.wait_for(first_step)
    return job


def rounds_of(options, measure):
    try:
        values = []
        for index in range(options.rounds):
            values.append(measure())
            log(f"  round {index + 1}  {values[-1]}")
        return values
    except Failed as error:
        raise CaseError(str(error)[:300]) from None


@case("recovery-fewer", "the GPT of ./run, data=2, one of two workers gone for good", "ours.seconds < 2")
def recovery_fewer(options, steps):
    """From the moment that the loss is known to the next step, by a program made ahead, with the same global batch."""
    del steps
    return fewer(options, 2, prepared=True)


@case("recovery-replan", "the GPT of ./run, data=2, one of two workers gone for good", "ours.seconds < 10")
def recovery_replan(options, steps):
    """The same by a new plan: the worker is lost before there is a program for that."""
    del steps
    return fewer(options, 10, prepared=False)


def fewer(options, most_s, prepared):
    ahead = "goes on with fewer devices, by the program made ahead"

    def measure():
        with cluster_of(2) as cluster:
            sets = ["fault_tolerance.max_wait_for_spare_seconds=0"]
            job = long_job(cluster, *sets, first_step=30 if prepared else 1)
            if prepared:
                job.line_after("prepared for the loss of a worker", 0)
            killed = time.monotonic()
            os.kill(cluster.workers[1].keeper.pid, signal.SIGKILL)
            known = job.line_after("recovering", killed)
            pause_s = job.pause_after(killed)
            if known is None or pause_s is None:
                raise Failed("the job ended: " + job.last_lines())
            if prepared != (ahead in job.log()):
                raise Failed("it went on by the other way: " + job.last_lines())
            return killed + pause_s - known
    values = rounds_of(options, measure)
    return {"ours": {"seconds": significant(median(values))}, "met": median(values) < most_s,
            "spread": {"ours": spread(values)}}


@case("recovery-controller", "the GPT of ./run, data=2, the controller killed", "ours.seconds <= 3")
def recovery_controller(options, steps):
    """From the kill to the next step that a client hears of."""
    del steps

    def measure():
        with cluster_of(2) as cluster:
            job = long_job(cluster)
            before = set(cluster.workers[0].executors())
            killed = time.monotonic()
            os.kill(cluster.controller.pid, signal.SIGKILL)
            pause_s = job.pause_after(killed)
            if pause_s is None:
                raise Failed("the job ended: " + job.last_lines())
            if not before & set(cluster.workers[0].executors()):
                raise Failed("its executor was replaced")
            return pause_s
    values = rounds_of(options, measure)
    return {"ours": {"seconds": significant(median(values))}, "met": max(values) <= 3,
            "spread": {"ours": spread(values)}}


@case("death-seen", "an executor killed; a host cut off (namespaces)", "ours.milliseconds <= 50 and silent_s <= 7")
def death_seen(options, steps):
    """From the death to the line in the job's log."""
    del steps

    def process():
        with cluster_of(3) as cluster:
            job = long_job(cluster)
            pid = next(pid for pid in map(lambda worker: worker.working_executor(), cluster.workers) if pid)
            killed = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            return job.line_after("recovering", killed) - killed

    def host():
        with cluster_of(3, Namespaces(4)) as cluster:
            job = long_job(cluster)
            index = next(i for i, worker in enumerate(cluster.workers) if worker.working_executor())
            cut = time.monotonic()
            cluster.hosts.cut(index + 1)
            return job.line_after("recovering", cut) - cut
    values = [1e3 * value for value in rounds_of(options, process)]
    silent = median(rounds_of(options, host))
    return {"ours": {"milliseconds": significant(median(values)), "silent_s": significant(silent)},
            "met": median(values) <= 50 and silent <= 7, "spread": {"ours": spread(values)}}


def overheads(options, steps, variants, limits):
    """Step times with each of the variants, in turn, against the first one."""
    with ours.Cluster(4, 1, 2) as cluster:
        def seconds(sets):
            pinned = ["parallelism.data_parallel_replicate_degree=2", "parallelism.tensor_parallel_degree=1",
                      "parallelism.pipeline_parallel_degree=1", "validation.interval=0", *sets]
            return median(cluster.submit(GPT, pinned, options.steps(steps)).periods)
        values = interleave({name: (lambda sets=sets: seconds(sets)) for name, sets in variants.items()},
                            3 * options.rounds)
    names = list(variants)
    base = values[names[0]]
    percent = {name: 100 * (median([a / b for a, b in zip(values[name], base)]) - 1) for name in names[1:]}
    return {"ours": {f"{name}_percent": significant(value, 3) for name, value in percent.items()},
            "met": all(percent[name] <= limits[name] for name in percent),
            "spread": {name: spread(each) for name, each in values.items()}}


@case("snapshot-cost", "the GPT of ./run, data=2, four workers", "every step <= 2 %, with copies <= 4 %", 60)
def snapshot_cost(options, steps):
    """Steps with snapshots of every step, and as a job has them, against none."""
    return overheads(options, steps, {
        "none": ["fault_tolerance.snapshot_every=0"],
        "every": ["fault_tolerance.snapshot_every=1", "fault_tolerance.copies=0"],
        "default": []}, {"every": 2, "default": 4})


@case("checkpoint-cost", "the GPT of ./run, data=2, a checkpoint every 20 steps", "<= 2 %", 60)
def checkpoint_cost(options, steps):
    """The mean step with checkpoints against the mean one without, in turn."""
    with ours.Cluster(4, 1, 2) as cluster:
        def seconds(sets):
            pinned = ["parallelism.data_parallel_replicate_degree=2", "parallelism.tensor_parallel_degree=1",
                      "parallelism.pipeline_parallel_degree=1", "validation.interval=0", *sets]
            periods = cluster.submit(GPT, pinned, options.steps(steps)).periods
            return sum(periods) / len(periods)
        values = interleave({"without": lambda: seconds([]),
                             "with": lambda: seconds(["checkpoint.enable=true", "checkpoint.interval=20"])},
                            3 * options.rounds)
    percent = 100 * (median([a / b for a, b in zip(values["with"], values["without"])]) - 1)
    return {"ours": {"percent": significant(percent, 3)}, "met": percent <= 2,
            "spread": {name: spread(each) for name, each in values.items()}}


@case("checkpoint-stall", shape_text(GPT2, "float32", "2 workers"), "ours.ms_per_gib <= 3", 12)
def checkpoint_stall(options, steps):
    """How long a job stands still for a save, as its log says, less a copy of the same bytes. The first save, which
    also takes its memory, does not count."""
    state = 124.4e6 * 12  # weights and two moments, written once by all

    def measure():
        # Both what is read and what is written.
        rate = float(output_of(ours.on_cores(cores(2), [ours.MW_BENCH, "copy", "--threads", 2])).split()[0]) * 1e9
        copy_s = 2 * state / rate
        with cluster_of(2) as cluster:
            job = Followed(cluster, ROOT / "bench/jobs/gpt2.toml", [
                f"training.steps={options.steps(steps)}", "model.vocab_size=50257", "checkpoint.enable=true",
                "checkpoint.interval=3", "checkpoint.keep_latest_k=2", "fault_tolerance.snapshot_every=0",
                "parallelism.data_parallel_replicate_degree=2", "parallelism.tensor_parallel_degree=1",
                "parallelism.pipeline_parallel_degree=1"])
            job.wait(timeout_s=600)
            held = [float(line.split("held up ")[1].split()[0]) for line in job.log() if "held up" in line]
        if len(held) < 2:
            raise Failed("no second save: " + job.last_lines())
        stall = median(held[1:])
        log(f"  stood still {stall:.4f} s, a copy takes {copy_s:.4f} s, the first save {held[0]:.4f} s")
        return (stall - copy_s) * 1e3 / (state / 2**30)
    values = rounds_of(options, measure)
    return {"ours": {"ms_per_gib": significant(median(values))}, "met": median(values) <= 3,
            "spread": {"ours": [significant(min(values)), significant(max(values))]}}


@case("checkpoint-load", "1 GiB by 4 processes, digests checked, 2 cores", "ratio >= 0.8", 1024)
def checkpoint_load(options, steps):
    """Every process reads its part of every tensor; against reading the same bytes and throwing them away. The limit reads
    them and makes the digests of bytes that are in the cache, and nothing else."""
    with tempfile.TemporaryDirectory(prefix="meshwright-bench-", dir=ROOT / "runs") as folder:
        row = ours.mw_bench(2, "load", folder, "--mebibytes", options.steps(steps), "--rounds", 3 * options.rounds)[0]
    ratio = row["read_seconds"] / row["load_seconds"]
    least_seconds = row["read_seconds"] + row["digest_seconds"]
    return {"ours": {"gb_per_s": significant(row["bytes"] / row["load_seconds"] / 1e9)},
            "limit": {"gb_per_s": significant(row["bytes"] / least_seconds / 1e9)},
            "limit_ratio": significant(least_seconds / row["load_seconds"]),
            "peer": {"gb_per_s": significant(row["bytes"] / row["read_seconds"] / 1e9), "name": "reading"},
            "ratio": significant(ratio), "met": ratio >= 0.8}


@case("cover", "100,000 boxes, 1 core", "ours.milliseconds < 100", 100_000)
def cover(options, steps):
    """Checking that boxes cover a tensor exactly."""
    seconds = ours.mw_bench(1, "cover", "--boxes", options.steps(steps))[0]["seconds"]
    return {"ours": {"milliseconds": significant(1e3 * seconds)}, "met": seconds < 0.1}
