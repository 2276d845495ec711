"""The cases: what is run, against whom, and what is asked of it. Each returns the fields of its line."""
import collections
import contextlib
import functools
import json
import pathlib
import re
import subprocess

import flops
import ours
import pytorch
from common import ROOT, STATE, CaseError, clean_environment, log, output_of, pinned
from rounds import interleave, median, significant, spread

SMALL = {"model": "gpt2", "dim": 256, "layers": 4, "heads": 4, "seq": 256, "batch": 8, "vocab": 256}
SMALL_50K = {**SMALL, "vocab": 50257}
GPT2 = {"model": "gpt2", "dim": 768, "layers": 12, "heads": 12, "seq": 256, "batch": 2, "vocab": 50257}
LLAMA = {"model": "llama", "dim": 512, "layers": 8, "heads": 8, "kv_heads": 2, "ffn": 1376, "seq": 512,
         "batch": 2, "vocab": 256}
MOE = {"model": "mixtral", "dim": 256, "layers": 4, "heads": 4, "kv_heads": 4, "ffn": 512, "seq": 256,
       "batch": 8, "vocab": 256, "experts": 8, "chosen": 2}
JOBS = {"moe": "bench/jobs/moe.toml", "small": "bench/jobs/small.toml", "gpt2": "bench/jobs/gpt2.toml", "llama": "bench/jobs/llama.toml"}
RAY = ROOT / "build/peer/ray/bin/python"
SHORT_ROUNDS = 3  # rounds of a case of milliseconds for each that is asked for
SMALL_ROUNDS = 2  # of one whose step is about half a second
LIMIT_SHARE = 0.9    # of the limit: as good as the target
LIMIT_NOISE = 1.05
GROUPED = (8, 64, 512, 1024)  # experts, rows of each, width, inner width
GROUPED_TARGET = 0.85
OWN_F32_TARGET = 1.6  # bfloat16 over our own float32

Case = collections.namedtuple("Case", "shape target run")
REGISTRY = {}


class Options:
    def __init__(self, rounds, steps):
        self.rounds, self._steps = rounds, steps

    def steps(self, default):
        return self._steps or default

    def rounds_of(self, spec):
        return self.rounds * (SMALL_ROUNDS if spec is SMALL else 1)


def case(name, shape, target, steps=10):
    """Registers a function of (options, steps) as a case; steps: of a round, unless options say."""
    def register(function):
        REGISTRY[name] = Case(shape, target, functools.partial(function, steps=steps))
        return function
    return register


def shape_text(spec, dtype, layout):
    words = [spec["model"], f"d={spec['dim']}", f"layers={spec['layers']}", f"heads={spec['heads']}"]
    if "kv_heads" in spec:
        words.append(f"kv={spec['kv_heads']}")
    return " ".join([*words, f"seq={spec['seq']}", f"batch={spec['batch']}", f"vocab={spec['vocab']}", dtype,
                     layout])


def sets_of(spec, dtype, **parallel):
    sets = [f"model.vocab_size={spec['vocab']}", f"training.dtype={dtype}"]
    return sets + [f"parallelism.{key}={value}" for key, value in parallel.items()]


def tokens(value):
    return {"tokens_per_s": significant(value, 5)}


class Limit:
    """Tokens/s of a step that is nothing but its matrix products at oneDNN's rate."""

    def __init__(self, spec, dtype, cores):
        self.spec, self.dtype, self.cores = spec, dtype, cores

    def __call__(self):
        seconds = flops.limit_seconds(self.spec, self.dtype, lambda shape: ours.matmul_rate(self.cores, shape))
        return self.spec["batch"] * self.spec["seq"] / seconds


class OurTraining:
    def __init__(self, cluster, job, spec, dtype, steps, **parallel):
        self.cluster, self.job, self.steps = cluster, job, steps
        self.sets, self.tokens = sets_of(spec, dtype, **parallel), spec["batch"] * spec["seq"]

    def __call__(self):
        return self.tokens / median(self.cluster.submit(self.job, self.sets, self.steps).periods)


def train(options, steps, job, spec, dtype, cores, ratio_target):
    """One device with `cores` threads, against PyTorch."""
    count = options.steps(steps)
    with contextlib.ExitStack() as stack:
        ours.check_job(job, sets_of(spec, dtype))
        peers = []
        for contender in pytorch.best(spec, dtype, cores):
            peer = pytorch.Trainer(contender, spec, dtype, cores)
            stack.callback(peer.close)
            peer.seconds(pytorch.WARM_STEPS)
            peers.append(peer)
        cluster = stack.enter_context(ours.Cluster(1, cores, cores))
        parties = {"ours": OurTraining(cluster, job, spec, dtype, count)}
        parties |= {p.name: functools.partial(p.tokens_per_s, count) for p in peers}
        if dtype != "float32":
            parties["ours, float32"] = OurTraining(cluster, job, spec, "float32", count)
        parties["limit"] = Limit(spec, dtype, cores)
        values = interleave(parties, options.rounds_of(spec))
    return judge_training(values, [p.name for p in peers], ratio_target)


def near_limit(share, wanted):
    """More than all of the limit says that the machine was slow while the limit was measured."""
    return wanted <= share <= LIMIT_NOISE


def judge_training(values, peers, ratio_target):
    middle = {name: median(v) for name, v in values.items()} | {"limit": max(values["limit"])}
    peer = max(peers, key=middle.get)
    ratio, limit_ratio = middle["ours"] / middle[peer], middle["ours"] / middle["limit"]
    result = {
        "ours": tokens(middle["ours"]), "peer": {**tokens(middle[peer]), "name": peer},
        "ratio": significant(ratio), "limit": tokens(middle["limit"]),
        "limit_ratio": significant(limit_ratio), "met": ratio >= ratio_target,
        "spread": {"ours": spread(values["ours"]), "peer": spread(values[peer])},
    }
    if "ours, float32" in values:
        own = middle["ours"] / middle["ours, float32"]
        result["ours"] |= {"over_own_float32": significant(own)}
        result["met"] = result["met"] and own >= OWN_F32_TARGET
    result["met"] = result["met"] or near_limit(limit_ratio, LIMIT_SHARE)
    return result


def _register_training():
    rows = [("small", "small", SMALL, 1, 1.3, 20), ("small-50k", "small", SMALL_50K, 1, 1.4, 6),
            ("gpt2", "gpt2", GPT2, 1, 1.25, 4), ("gpt2", "gpt2", GPT2, 2, 1.25, 6)]

    def register(name, job, spec, dtype, cores, ratio, steps, target):
        short = {"float32": "f32", "bfloat16": "bf16"}[dtype]
        layout = f"{cores} core" + "s" * (cores > 1)
        case(f"{name}-{short}-{cores}core", shape_text(spec, dtype, layout), target, steps)(
            functools.partial(train, job=JOBS[job], spec=spec, dtype=dtype, cores=cores, ratio_target=ratio))

    limit = f"or limit_ratio >= {LIMIT_SHARE}"
    for name, job, spec, cores, ratio, steps in [*rows, ("llama", "llama", LLAMA, 1, 1.3, 8)]:
        register(name, job, spec, "float32", cores, ratio, steps, f"ratio >= {ratio}, {limit}")
    register("moe", "moe", MOE, "float32", 2, 1.3, 6, f"ratio >= 1.3, {limit}")
    for name, job, spec, cores, _, steps in rows:
        register(name, job, spec, "bfloat16", cores, 1.4, steps,
                 f"ratio >= 1.4 and over_own_float32 >= {OWN_F32_TARGET}, {limit}")


_register_training()


@case("gpt2-limit", shape_text(GPT2, "float32", "1 core"), "limit_ratio >= 0.85", 4)
def gpt2_limit(options, steps):
    with ours.Cluster() as cluster:
        values = interleave({"ours": OurTraining(cluster, JOBS["gpt2"], GPT2, "float32", options.steps(steps)),
                             "limit": Limit(GPT2, "float32", 1)}, options.rounds)
    work = sum(flops.products(GPT2, "float32").values()) / (GPT2["batch"] * GPT2["seq"])
    us, limit = median(values["ours"]), max(values["limit"])
    return {"ours": {**tokens(us), "model_gflop_per_s": significant(us * work / 1e9)},
            "limit": {**tokens(limit), "model_gflop_per_s": significant(limit * work / 1e9)},
            "limit_ratio": significant(us / limit), "met": near_limit(us / limit, 0.85),
            "spread": {"ours": spread(values["ours"]), "limit": spread(values["limit"])}}


def parallel(options, steps, kind):
    degrees = {"data": "data_parallel_replicate_degree", "tensor": "tensor_parallel_degree"}
    mine = {degrees["data"]: 1, degrees[kind]: 2}
    with contextlib.ExitStack() as stack:
        peers = []
        for contender in pytorch.best(SMALL, "float32", 2, kind, 2):
            peer = pytorch.Trainer(contender, SMALL, "float32", 2, kind, 2)
            stack.callback(peer.close)
            peer.seconds(pytorch.WARM_STEPS)
            peers.append(peer)
        cluster = stack.enter_context(ours.Cluster(2, 1, 2))
        count = options.steps(steps)
        parties = {"ours": OurTraining(cluster, JOBS["small"], SMALL, "float32", count, **mine)}
        parties |= {p.name: functools.partial(p.tokens_per_s, count) for p in peers}
        parties["limit"] = Limit(SMALL, "float32", 2)
        values = interleave(parties, options.rounds_of(SMALL))
    result = judge_training(values, [p.name for p in peers], 1.5)
    result["peer"]["name"] += " over gloo"
    return result


for _name, _kind in (("dp2-small", "data"), ("tp2-small", "tensor")):
    case(_name, shape_text(SMALL, "float32", f"{_kind}=2, 2 processes x 1 core"),
         f"ratio >= 1.5, or limit_ratio >= {LIMIT_SHARE}", 20)(functools.partial(parallel, kind=_kind))


@case("dp2-scaling", shape_text(SMALL, "float32", "data=2, 2 processes x 1 core"), "ratio >= 1.85", 20)
def dp2_scaling(options, steps):
    """The same job, so the same batch, on one core and on two."""
    count, values = options.steps(steps), {}

    # Two clusters cannot share a folder, and one must not disturb the other: each round starts its own.
    def run(workers):
        with ours.Cluster(workers, 1, workers) as cluster:
            return OurTraining(cluster, JOBS["small"], SMALL, "float32", count,
                               data_parallel_replicate_degree=workers)()

    values = interleave({"data=2": lambda: run(2), "one core": lambda: run(1)}, options.rounds_of(SMALL))
    two, one = median(values["data=2"]), median(values["one core"])
    return {"ours": tokens(two),
            "peer": {**tokens(one), "name": "ours on one core"}, "ratio": significant(two / one),
            "met": two >= 1.85 * one,
            "spread": {"ours": spread(values["data=2"]), "peer": spread(values["one core"])}}


@case("dp2-overlap", shape_text(SMALL, "float32", "data=2, 2 processes x 1 core"), "ratio >= 1", 20)
def dp2_overlap(options, steps):
    """Gradients reduced while others are made, against after them."""
    count = options.steps(steps)
    with ours.Cluster(2, 1, 2) as cluster:
        parties = {name: OurTraining(cluster, JOBS["small"], SMALL, "float32", count,
                                     data_parallel_replicate_degree=2, overlap=overlap)
                   for name, overlap in (("beside", "true"), ("in turn", "false"))}
        values = interleave(parties, options.rounds_of(SMALL))
    beside, in_turn = median(values["beside"]), median(values["in turn"])
    return {"ours": tokens(beside), "peer": {**tokens(in_turn), "name": "ours in turn"},
            "ratio": significant(beside / in_turn), "met": beside >= in_turn,
            "spread": {"ours": spread(values["beside"]), "peer": spread(values["in turn"])}}


def offload(options, steps, mib_per_s, percent):
    """Optimizer state in the host's memory behind a link of `mib_per_s`, against the same job with all on the device.
    The limit is the step that is as long as what computes or what the link carries, whichever is longer."""
    count = options.steps(steps)
    far = {"optimizer_memory": '"host"', "offload_chunk_bytes": 1 << 20}
    far |= {"host_update_percent": percent} if percent else {}
    bytes_per_step = ours.copied_bytes(JOBS["small"], sets_of(SMALL, "float32", **far))
    with ours.Cluster(1, 1, 2, options=["--host-link-mib-per-s", mib_per_s]) as cluster:
        parties = {name: OurTraining(cluster, JOBS["small"], SMALL, "float32", count, **memory)
                   for name, memory in (("far", far), ("near", {}))}
        values = interleave(parties, options.rounds_of(SMALL))
    far_rate, near_rate = median(values["far"]), median(values["near"])
    step_tokens = SMALL["batch"] * SMALL["seq"]
    link_s = bytes_per_step / (mib_per_s * 2**20)
    limit_s = max(step_tokens / near_rate, link_s)
    limit_ratio = far_rate * limit_s / step_tokens
    return {"ours": {**tokens(far_rate), "copied_mib": mib(bytes_per_step)},
            "peer": {**tokens(near_rate), "name": "ours, all on the device"}, "ratio": significant(far_rate / near_rate),
            "limit": tokens(step_tokens / limit_s), "limit_ratio": significant(limit_ratio),
            "met": limit_ratio >= 1 / 1.05,
            "spread": {"ours": spread(values["far"]), "peer": spread(values["near"])}}


for _name, _rate, _percent in (("offload", 2000, 0), ("offload-slow-link", 60, 0), ("offload-host-update", 60, 100)):
    case(_name, shape_text(SMALL, "float32", f"state in the host's memory, {_rate} MiB/s"),
         "limit_ratio >= 0.952", 20)(functools.partial(offload, mib_per_s=_rate, percent=_percent))


def mpi(size, ranks, repeats):
    """Seconds of OpenMPI's all-reduce."""
    program = STATE / "mpi_allreduce"
    source = ROOT / "bench/peers/mpi_allreduce.cc"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        STATE.mkdir(parents=True, exist_ok=True)
        output_of(["mpicxx", "-O2", "-o", program, source])
    env = clean_environment(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    words = ["mpirun", "-n", ranks, "--bind-to", "core", program, size, repeats, 5]
    return float(output_of(pinned(ranks, words), env=env).split(":")[1].strip(" }\n"))


def our_all_reduce(size, ranks, repeats, cores=2):
    words = ["--ranks", ranks, "--bytes", size, "--repeats", repeats, "--batches", 5]
    return ours.mw_bench(cores, "all_reduce", *words)[0]["seconds"]


def all_reduce(options, steps, size, repeats, gloo_repeats, target):
    del steps
    with contextlib.ExitStack() as stack:
        parties = {"ours": lambda: our_all_reduce(size, 2, repeats),
                   "OpenMPI": lambda: mpi(size, 2, repeats)}
        for version in (pytorch.NEWEST, pytorch.DEBIAN):
            peer = pytorch.Process(version, "gloo_allreduce.py", ["--ranks", 2], 2)
            stack.callback(peer.close)
            name = f"Gloo of PyTorch {peer.hello['torch'].split('+')[0]}"
            parties[name] = lambda peer=peer: peer.ask(f"{size} {gloo_repeats} 5")["seconds"]
        values = interleave(parties, SHORT_ROUNDS * options.rounds)
    middle = {name: median(v) for name, v in values.items()}
    peer = min((name for name in middle if name != "ours"), key=middle.get)
    ratio = middle[peer] / middle["ours"]
    return {"ours": microseconds(middle["ours"], size), "peer": {**microseconds(middle[peer], size), "name": peer},
            "ratio": significant(ratio), "met": ratio >= target,
            "spread": {"ours": spread(values["ours"]), "peer": spread(values[peer])}}


def microseconds(seconds, size):
    return {"us": significant(seconds * 1e6), "gb_per_s": significant(size / seconds / 1e9)}


for _name, _size, _repeats, _gloo, _target in (("4KiB", 4 << 10, 5000, 200, 1.0),
                                               ("1MiB", 1 << 20, 200, 50, 5.0),
                                               ("64MiB", 64 << 20, 5, 3, 5.0)):
    case(f"allreduce-{_name}", "2 processes x 1 core, float32", f"ratio >= {_target:g}")(
        functools.partial(all_reduce, size=_size, repeats=_repeats, gloo_repeats=_gloo, target=_target))


@case("allreduce-1MiB-4ranks", "4 processes on 2 cores, float32", "ratio >= 0.4")
def all_reduce_four(options, steps):
    """More processes than cores: waiting must not cost what working needs."""
    del steps
    size = 1 << 20
    values = interleave({"4 ranks": lambda: our_all_reduce(size, 4, 100),
                         "2 ranks": lambda: our_all_reduce(size, 2, 200)}, SHORT_ROUNDS * options.rounds)
    four, two = median(values["4 ranks"]), median(values["2 ranks"])
    return {"ours": microseconds(four, size),
            "peer": {**microseconds(two, size), "name": "ours with 2 ranks"}, "ratio": significant(two / four),
            "met": two >= 0.4 * four,
            "spread": {"ours": spread(values["4 ranks"]), "peer": spread(values["2 ranks"])}}


@case("executor-overhead", shape_text(SMALL, "float32", "1 core"),
      "us_per_node <= 2 and percent_of_step <= 1", 10)
def executor_overhead(options, steps):
    rounds = []
    for index in range(options.rounds):
        row = ours.mw_bench(1, "overhead", ROOT / JOBS["small"], "--steps", options.steps(steps))[0]
        rounds.append(row)
        log(f"  round {index + 1}  {row}")
    per_node = [row["overhead_seconds"] / row["nodes"] * 1e6 for row in rounds]
    share = [100 * row["overhead_seconds"] / row["step_seconds"] for row in rounds]
    bound = median([row["rest_seconds"] / row["nodes"] * 1e6 for row in rounds])
    return {"ours": {"us_per_node": significant(median(per_node)), "us_per_node_with_observer": significant(bound),
                     "percent_of_step": significant(median(share)), "nodes": rounds[0]["nodes"],
                     "instructions": rounds[0]["instructions"]},
            "met": median(per_node) <= 2 and median(share) <= 1, "spread": {"ours": spread(per_node)}}


@case("recorded-step", shape_text(SMALL, "float32", "1 core"), "percent <= 3", 30)
def recorded_step(options, steps):
    """A step that `timeline` and `why` look at, against one that nobody looks at, in turns within one process."""
    rows = []
    for index in range(options.rounds):
        rows.append(ours.mw_bench(1, "overhead", ROOT / JOBS["small"], "--steps", options.steps(steps))[0])
        log(f"  round {index + 1}  {rows[-1]}")
    more = [100 * (row["recorded_seconds"] / row["step_seconds"] - 1) for row in rows]
    return {"ours": {"percent": significant(median(more)), "marks": rows[0]["marks"]}, "met": median(more) <= 3,
            "spread": {"ours": spread([row["recorded_seconds"] for row in rows])}}


def grouped_products(options, dtype):
    """Three products of eight experts, of 64 rows each, against one product of all rows."""
    flags = ["--bf16"] if dtype == "bfloat16" else []
    rows = []
    for index in range(SHORT_ROUNDS * options.rounds):
        rows.append(ours.mw_bench(1, "grouped", *GROUPED, *flags)[0])
        log(f"  round {index + 1}  {rows[-1]}")
    rates = {side: [row["gflop"] / sum(row[side]) for row in rows] for side in ("grouped", "one")}
    ratio = median([row["ratio"] for row in rows])
    return {"ours": {"gflop_per_s": significant(median(rates["grouped"]))},
            "peer": {"gflop_per_s": significant(median(rates["one"])), "name": "one product by oneDNN"},
            "ratio": significant(ratio), "met": ratio >= GROUPED_TARGET,
            "limit_ratio": significant(median([row["limit_ratio"] for row in rows])),
            "spread": {"ours": spread(rates["grouped"]), "peer": spread(rates["one"])}}


for _dtype, _short in (("float32", "f32"), ("bfloat16", "bf16")):
    case(f"grouped-products-{_short}", f"8 experts x 64 rows, 512 x 1024 and back, and gradients, {_dtype}, 1 core",
         f"ratio >= {GROUPED_TARGET}")(lambda options, steps, dtype=_dtype: grouped_products(options, dtype))


def peak_rss(process):
    try:
        with open(f"/proc/{process}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except FileNotFoundError:
        pass
    raise CaseError("the worker is gone")


NO_SNAPSHOTS = "fault_tolerance.snapshot_every=0"  # copies of the state that a peer does not have


class JobPeaks:
    """Peaks of the processes in which workers run a job; they end with it, so they are looked at after each step."""

    def __init__(self, workers):
        self.workers = workers
        self.idle = max(peak_rss(worker) for worker in workers)
        self.peak = 0

    def look(self):
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            try:
                parent = int(re.search(r"^PPid:\s+(\d+)", status.read_text(encoding="ascii"), re.MULTILINE)[1])
                if parent in self.workers:
                    self.peak = max(self.peak, peak_rss(status.parent.name))
            except (OSError, TypeError, CaseError):
                continue  # it has ended since


@case("gpt2-memory", shape_text(GPT2, "float32", "1 core"),
      "abs(over_plan - 1) <= 0.03, and ratio <= 0.6 or limit_ratio >= 0.9", 3)
def gpt2_memory(options, steps):
    """The plan's memory and what a worker takes with no job, against the peak of the job's process. The limit: weights,
    their gradients and two moments, which all are there when the global norm is known."""
    limit = ours.planned_bytes(JOBS["gpt2"], ("weights", "gradients", "optimizer"))
    count = options.steps(steps)
    contenders = pytorch.best(GPT2, "float32", 1)

    def worker():
        with ours.Cluster() as cluster:
            peaks = JobPeaks(cluster.workers)
            baselines.append(peaks.idle)
            cluster.submit(JOBS["gpt2"], [NO_SNAPSHOTS], count, peaks.look)
            plans.append(ours.planned_bytes(JOBS["gpt2"], address=cluster.address))
            return peaks.peak

    def torch(tuned):
        trainer = pytorch.Trainer(contenders[0], GPT2, "float32", 1, tuned=tuned)
        try:
            names.append(trainer.name)
            return trainer.ask(str(count))["peak_rss"]
        finally:
            trainer.close()

    baselines, names, plans = [], [], []
    values = interleave({"ours": worker, "peer, tuned": lambda: torch(True),
                         "peer, default malloc": lambda: torch(False)}, options.rounds)
    plan = median(plans)
    us, predicted = median(values["ours"]), plan + median(baselines)
    peer = min(("peer, tuned", "peer, default malloc"), key=lambda name: median(values[name]))
    ratio = us / median(values[peer])
    return {"ours": {"peak_rss_mib": mib(us), "plan_mib": mib(plan), "baseline_mib": mib(median(baselines)),
                     "over_plan": significant(us / predicted)},
            "peer": {"peak_rss_mib": mib(median(values[peer])), "name": f"{names[0]} ({peer[6:]})"},
            "ratio": significant(ratio), "limit": {"peak_rss_mib": mib(limit)}, "limit_ratio": significant(limit / us),
            "met": abs(us / predicted - 1) <= 0.03 and (ratio <= 0.6 or limit / us >= 0.9),
            "spread": {"ours": spread(values["ours"]), "peer": spread(values[peer])}}


def mib(value):
    return round(value / 2**20, 1)


@case("gpt2-start", shape_text(GPT2, "float32", "1 core"), "ours.seconds <= 1", 1)
def gpt2_start(options, steps):
    """From the call of `submit` to the begin of step 1, of all submits but the first to a cluster."""
    del steps
    with ours.Cluster() as cluster:
        first = cluster.submit(JOBS["gpt2"], [], 1).start_seconds
        values = [cluster.submit(JOBS["gpt2"], [], 1).start_seconds for _ in range(options.rounds)]
    log(f"  first {first:.3f} s, then {values}")
    return {"ours": {"seconds": significant(median(values)), "first_submit_seconds": significant(first)},
            "met": median(values) <= 1, "spread": {"ours": spread(values)}}


@case("session-call", "a program of one node, one call in flight, processes on 2 cores",
      "ours.milliseconds <= 0.3", 10_000)
def session_call(options, steps):
    """From the call to its answer, less what the step takes on its device: over the socket of the file system that
    processes of one host use, and, as the peer, over the port."""
    calls = options.steps(steps)
    with ours.Cluster(count=2) as cluster:
        def over(address):
            row = ours.mw_bench(2, "call", "--address", address, "--calls", calls)[0]
            return (row["call_seconds"] - row["step_seconds"]) * 1e3
        values = interleave({"ours": lambda: over(cluster.local_address), "port": lambda: over(cluster.address)},
                            options.rounds)
    milliseconds, port = median(values["ours"]), median(values["port"])
    return {"ours": {"milliseconds": significant(milliseconds), "calls": calls},
            "peer": {"name": "ours over the port", "milliseconds": significant(port)},
            "ratio": significant(port / milliseconds), "met": milliseconds <= 0.3,
            "spread": {"ours": spread(values["ours"]), "peer": spread(values["port"])}}


@case("actor-ask", "a client asks a host actor, 16 bytes each way, processes on 2 cores",
      "ours.milliseconds <= 0.15, or ratio >= 1 / 1.4", 10_000)
def actor_ask(options, steps):
    """The peer is two gRPC calls that the controller answers at once: the least that a way over it can take. Ray's
    actor call, client and actor as processes too, is measured in the same rounds where Ray is installed."""
    asks, values, peers, rays = options.steps(steps), [], [], []
    with ours.Cluster(count=2) as cluster:
        for index in range(options.rounds):
            row = ours.mw_bench(2, "ask", "--address", cluster.local_address, "--asks", asks)[0]
            values.append(row["ask_seconds"] * 1e3)
            peers.append(2 * row["unary_seconds"] * 1e3)
            log(f"  round {index + 1}  {row}")
            # The cluster stands idle meanwhile.
            if RAY.exists():
                call = json.loads(output_of(pinned(2, [RAY, ROOT / "bench/peers/ray_ask.py", asks])))
                rays.append(call["ask_seconds"] * 1e3)
                log(f"  round {index + 1}  Ray {call}")
    ratio = median(peers) / median(values)
    result = {"ours": {"milliseconds": significant(median(values)), "asks": asks},
              "peer": {"name": "two gRPC calls", "milliseconds": significant(median(peers))},
              "ratio": significant(ratio), "met": median(values) <= 0.15 or ratio >= 1 / 1.4,
              "spread": {"ours": spread(values), "peer": spread(peers)}}
    if rays:
        result["peer"]["name"] += f"; Ray {call['version']} {significant(median(rays))} ms"
        result["spread"]["ray"] = spread(rays)
    return result


# A peer that hangs or is missing is a case without a result, not the end of all.
EXPECTED_ERRORS = (CaseError, OSError, subprocess.SubprocessError)
