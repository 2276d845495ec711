"""Cases of text: models that write, tokenizers, adapters. bench/driver.py registers them."""
import json
import subprocess
import time

import ours
from cases import NO_SNAPSHOTS, JobPeaks, case, mib
from common import (CORPUS, MESHWRIGHT, ROOT, RUNS, CaseError, clean_environment, cores, log, on_cores,
                    output_of, pinned)
from rounds import interleave, median, significant, spread

TORCH = ROOT / "build/peer/torch/bin/python"
LLAMA_CPP = ROOT / "build/peer/llama/bin/python"
MODELS = RUNS / "models"
WORDS = RUNS / "vocabularies"
CORES = 2
PROMPT, NEW = 32, 128
BYTES = {"float32": 4, "bfloat16": 2}
TYPE_OF_GGUF = {"float32": "f32", "bfloat16": "bf16"}
GPT2_WEIGHTS = 124_439_808
GPT2_PRODUCTS = [(2304, 768), (768, 768), (3072, 768), (768, 3072)]  # of a layer: out, in
LIMIT_SHARE = 0.85


def last_json(text):
    return json.loads(text.strip().splitlines()[-1])


def peer(python, script, *words, threads=CORES):
    env = clean_environment(OMP_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")
    return output_of(pinned(threads, [python, ROOT / "bench/peers" / script, *words]), 1200, env)


def model_folder(kind):
    """A model drawn with seed 0, made once; a tokenizer for those who ask by text."""
    folder = MODELS / kind
    if not (folder / "model.safetensors").exists():
        folder.mkdir(parents=True, exist_ok=True)
        peer(TORCH, "transformers_write.py", folder, "--make", kind)
    if not (folder / "tokenizer.json").exists():
        (folder / "tokenizer.json").write_bytes(vocabulary("english").read_bytes())
    return folder


def vocabulary(name):
    if not (WORDS / f"{name}.json").exists():
        peer(TORCH, "tokenizers_encode.py", "make", CORPUS, WORDS)
    return WORDS / f"{name}.json"


def write(cluster, folder, dtype="float32", **counts):
    """mw_bench write: one text of PROMPT and NEW tokens, or as `counts` say."""
    words = ["write", cluster.local_address, folder, "--set", f'training.dtype="{dtype}"']
    for name, value in ({"prompt": PROMPT, "new": NEW} | counts).items():
        words += [f"--{name}", value]
    return ours.mw_bench(CORES, *words)[-1]


def decode_rate(answer):
    return answer["decode_tokens"] / answer["decode_seconds"]


def read_rate():
    """Bytes/s that reading reaches."""
    return float(output_of(pinned(CORES, [ours.MW_BENCH, "read", "--threads", CORES])).split()[0]) * 1e9


def decode(options, steps, dtype, texts):
    """Tokens/s of all texts behind their prompts, against llama.cpp and transformers."""
    new = options.steps(steps)
    folder = model_folder("gpt2")
    gguf = MODELS / f"gpt2.{TYPE_OF_GGUF[dtype]}.gguf"
    common = ["--texts", texts, "--prompt", PROMPT, "--new", new, "--threads", CORES]

    def llama_cpp():
        return last_json(peer(LLAMA_CPP, "llama_cpp.py", folder, gguf, "--type", TYPE_OF_GGUF[dtype],
                              *common))["decode_tokens_per_s"]

    def transformers():
        return last_json(peer(TORCH, "transformers_write.py", folder, "--type", dtype, *common))["decode_tokens_per_s"]

    with ours.Cluster(1, CORES, CORES) as cluster:
        values = interleave({
            "ours": lambda: decode_rate(write(cluster, folder, dtype, texts=texts, new=new)),
            "llama.cpp": llama_cpp, "transformers": transformers,
            "reading": lambda: read_rate() / (GPT2_WEIGHTS * BYTES[dtype])}, options.rounds)
    middle = {name: median(of_name) for name, of_name in values.items()}
    best = max(("llama.cpp", "transformers"), key=middle.get)
    # The weights are read once for all texts; products of so few rows hide behind that.
    limit = middle["reading"] * texts
    ratio, share = middle["ours"] / middle[best], middle["ours"] / limit
    wanted = 1.3 if texts == 1 else 2
    by = middle[best] if texts == 1 else middle["llama.cpp"]
    return {"ours": {"tokens_per_s": significant(middle["ours"])},
            "peer": {"tokens_per_s": significant(middle[best]), "name": best}
                    | {f"{name}_tokens_per_s": significant(middle[name]) for name in ("llama.cpp", "transformers")},
            "ratio": significant(ratio), "limit": {"tokens_per_s": significant(limit)},
            "limit_ratio": significant(share, 3), "met": middle["ours"] >= wanted * by or share >= LIMIT_SHARE,
            "spread": {"ours": spread(values["ours"]), "peer": spread(values[best])}}


for _dtype in BYTES:
    case(f"decode-{TYPE_OF_GGUF[_dtype]}", f"gpt2 124M {_dtype}, 1 text, prompt {PROMPT}, 1 process x {CORES} cores",
         f"ratio >= 1.3, or limit_ratio >= {LIMIT_SHARE}", NEW)(
             lambda options, steps, dtype=_dtype: decode(options, steps, dtype, 1))
    case(f"decode-{TYPE_OF_GGUF[_dtype]}-8", f"gpt2 124M {_dtype}, 8 texts, prompt {PROMPT}, 1 process x {CORES} cores",
         f"2 x llama.cpp, or limit_ratio >= {LIMIT_SHARE}", NEW)(
             lambda options, steps, dtype=_dtype: decode(options, steps, dtype, 8))


@case("decode-steady", f"llama 134M float32, 32 texts, a prompt of 2048 tokens joins, 1 process x {CORES} cores",
      "late gap p99 <= 2 x quiet median", 64)
def steady(options, steps):
    """Gaps between tokens of texts that run while a long prompt comes in."""
    folder = model_folder("llama")
    with ours.Cluster(1, CORES, CORES) as cluster:
        answers = [write(cluster, folder, texts=32, prompt=16, new=options.steps(steps), step=40, late=2048)
                   for _ in range(options.rounds)]
    quiet, late = (median([answer[key] for answer in answers]) for key in ("gap_median_seconds", "late_gap_p99_seconds"))
    return {"ours": {"ms_p99": significant(late * 1e3), "ms_median_quiet": significant(quiet * 1e3),
                     "ms_median": significant(median([a["late_gap_median_seconds"] for a in answers]) * 1e3),
                     "prompt_seconds": significant(median([a["late_seconds"] for a in answers]))},
            "peer": {"name": "ours without the prompt"}, "ratio": significant(late / quiet), "met": late <= 2 * quiet}


@case("prefill-512", f"gpt2 124M float32, a prompt of 512 tokens, 1 process x {CORES} cores",
      "limit_ratio >= 0.8", 1)
def prefill(options, steps):
    """From the request to its first token, against nothing but the products at oneDNN's rate."""
    del steps
    folder = model_folder("gpt2")

    def limit():
        flops = seconds = 0
        for out, into in GPT2_PRODUCTS:
            of_product = 2 * 512 * out * into
            seconds += of_product / ours.matmul_rate(CORES, (512, out, into, False, False, "float32"))
            flops += of_product
        return 12 * seconds

    with ours.Cluster(1, CORES, CORES) as cluster:
        values = interleave({
            "ours": lambda: write(cluster, folder, prompt=512, new=4, step=512)["prompt_seconds"],
            "limit": limit}, options.rounds)
    mine, least = median(values["ours"]), min(values["limit"])
    return {"ours": {"seconds": significant(mine)}, "limit": {"seconds": significant(least)},
            "limit_ratio": significant(least / mine, 3), "met": least / mine >= 0.8,
            "spread": {"ours": spread(values["ours"])}}


def start(options, steps, kind, most_seconds):
    """From the start of `generate` to the first byte of its text; plans known, weights in the page cache."""
    folder = model_folder(kind)
    words = [MESHWRIGHT, "generate", folder, "In the beginning", "--max-new-tokens", 4, "--greedy", "--ignore-eos"]
    with ours.Cluster(1, CORES, CORES) as cluster:
        def first_byte():
            begin = time.perf_counter()
            with subprocess.Popen(on_cores(cluster.cores, [*words, "--address", cluster.local_address]),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(),
                                  cwd=ROOT) as process:
                byte = process.stdout.read(1)
                seconds = time.perf_counter() - begin
                _, errors = process.communicate(timeout=60)
            if not byte:
                raise CaseError(errors.decode().strip()[-300:] or "no text")
            return seconds

        cold = first_byte()
        values = [first_byte() for _ in range(options.rounds * options.steps(steps))]
    log(f"  the first of the cluster: {cold:.3f} s")
    return {"ours": {"seconds": significant(median(values)), "first_seconds": significant(cold)},
            "met": median(values) < most_seconds, "spread": {"ours": spread(values)}}


case("write-start", f"gpt2 124M float32, a folder, 1 process x {CORES} cores", "ours.seconds < 0.5", 5)(
    lambda options, steps: start(options, steps, "gpt2", 0.5))
case("write-start-1g", f"llama 280M float32 (1.04 GiB), a folder, 1 process x {CORES} cores", "ours.seconds < 2", 3)(
    lambda options, steps: start(options, steps, "llama-1g", 2))


@case("encode", "byte-level BPE of 21,308 words, English of 4.2 MB, 1 core; loading a vocabulary of 131,072",
      "ours >= 5 MB/s and ratio >= 3 and ours.load_ms < 150", 1)
def encode(options, steps):
    """Bytes of text per second, against Hugging Face's tokenizers."""
    del steps
    words = {name: vocabulary(name) for name in ("english", "large")}
    found = {"ours": [], "tokenizers": [], "loads": []}
    for _ in range(options.rounds):
        mine = ours.mw_bench(1, "encode", words["english"], CORPUS)[-1]
        theirs = last_json(peer(TORCH, "tokenizers_encode.py", "measure", words["english"], CORPUS, threads=1))
        if mine["tokens"] != theirs["tokens"]:
            raise CaseError(f"{mine['tokens']} tokens here, {theirs['tokens']} there")
        found["ours"].append(mine["bytes_per_s"])
        found["tokenizers"].append(theirs["bytes_per_s"])
        found["loads"].append(ours.mw_bench(1, "encode", words["large"], CORPUS, "--rounds", 1)[-1]["load_seconds"])
    mine, theirs, load = (median(found[name]) for name in ("ours", "tokenizers", "loads"))
    return {"ours": {"mb_per_s": significant(mine / 1e6), "load_ms": significant(load * 1e3)},
            "peer": {"mb_per_s": significant(theirs / 1e6), "name": "tokenizers 0.23"},
            "ratio": significant(mine / theirs), "met": mine >= 5e6 and mine >= 3 * theirs and load < 0.15,
            "spread": {"ours": spread(found["ours"]), "peer": spread(found["tokenizers"])}}


@case("lora-step", f"gpt2 124M, LoRA rank 8 on attention, 4 x 512 tokens, float32, 1 process x {CORES} cores",
      "ratio >= 1.3 and memory_ratio <= 0.6 and abs(over_plan - 1) <= 0.03", 3)
def lora(options, steps):
    """A step of adapters, against PEFT; peaks of both processes."""
    job, count = "bench/jobs/lora.toml", options.steps(steps)
    theirs, peaks, mine = [], [], []
    with ours.Cluster(1, CORES, CORES) as cluster:
        memory_of_ours = JobPeaks(cluster.workers)
        for index in range(options.rounds):
            def of_peer():
                answer = last_json(peer(TORCH, "peft_train.py", "--steps", count, "--threads", CORES))
                theirs.append(median(answer["seconds"]))
                peaks.append(answer["peak_mib"])

            def of_ours():
                mine.append(median(cluster.submit(job, [NO_SNAPSHOTS], count, memory_of_ours.look).periods))

            for run in (of_ours, of_peer) if index % 2 == 0 else (of_peer, of_ours):
                run()
        plan = ours.planned_bytes(job, address=cluster.address)
    peak, planned = memory_of_ours.peak, plan + memory_of_ours.idle
    ratio, memory, over = median(theirs) / median(mine), mib(peak) / median(peaks), peak / planned
    return {"ours": {"seconds": significant(median(mine)), "peak_rss_mib": mib(peak), "over_plan": significant(over)},
            "peer": {"seconds": significant(median(theirs)), "peak_rss_mib": significant(median(peaks)),
                     "name": "PEFT on PyTorch", "memory_ratio": significant(memory, 3)},
            "ratio": significant(ratio), "met": ratio >= 1.3 and memory <= 0.6 and abs(over - 1) <= 0.03,
            "spread": {"ours": spread(mine), "peer": spread(theirs)}}
