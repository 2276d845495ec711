"""llama.cpp (PyPI's xllamacpp) writes texts with a folder's GPT-2: JSON on stdout.

    llama_cpp.py FOLDER GGUF --type f32|bf16 --texts N --prompt N --new N --threads N

GGUF is made of the folder's model.safetensors where it is not there: names and layouts as
llama.cpp's reader of the architecture "gpt2" wants them; the vocabulary is one of made-up words,
since prompts are given as tokens.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import time

import gguf
import numpy as np


def tensors_of(path):
    """name -> float32 array, of a safetensors file in float32."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data, np.float32, count=(end - begin) // 4, offset=8 + length + begin)
        yield name.removeprefix("transformer."), array.reshape(entry["shape"])


NAMES = {"wte.weight": "token_embd.weight", "wpe.weight": "position_embd.weight",
         "ln_f.weight": "output_norm.weight", "ln_f.bias": "output_norm.bias"}
PARTS = {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm",
         "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}


def gguf_name(name):
    if name in NAMES:
        return NAMES[name]
    _, layer, rest = name.split(".", 2)
    part, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{PARTS[part]}.{kind}"


def convert(folder, path, kind):
    config = json.loads((folder / "config.json").read_text())
    made = path.with_suffix(".part")
    writer = gguf.GGUFWriter(made, "gpt2")
    writer.add_block_count(config["n_layer"])
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    words = [chr(256 + i) if i < 256 else f"w{i}" for i in range(config["vocab_size"])]
    writer.add_token_list(words)
    writer.add_token_types([1] * len(words))
    writer.add_token_merges(["w300 w301"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(len(words) - 1)
    for name, array in tensors_of(folder / "model.safetensors"):
        if name.endswith((".attn.bias", ".attn.masked_bias", "lm_head.weight")):
            continue
        if array.ndim == 2 and name.startswith("h."):
            array = np.ascontiguousarray(array.T)
        if kind == "bf16" and array.ndim == 2:
            quantised = gguf.quantize(array, gguf.GGMLQuantizationType.BF16)
            writer.add_tensor(gguf_name(name), quantised, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(gguf_name(name), array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(made, path)
    return config["vocab_size"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("gguf", type=pathlib.Path)
    p.add_argument("--type", choices=["f32", "bf16"], default="f32")
    for name, default in (("texts", 1), ("prompt", 32), ("new", 128), ("threads", 1)):
        p.add_argument(f"--{name}", type=int, default=default)
    args = p.parse_args()
    if not args.gguf.exists():
        convert(args.folder, args.gguf, args.type)
    vocabulary = json.loads((args.folder / "config.json").read_text())["vocab_size"]

    import xllamacpp as xl  # loads its library at once
    params = xl.CommonParams()
    params.model.path = str(args.gguf)
    params.n_parallel = args.texts
    params.n_ctx = args.texts * (args.prompt + args.new + 16)
    params.n_batch = params.n_ubatch = max(512, args.prompt)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = args.threads
    params.n_gpu_layers = 0
    params.cache_prompt = False
    params.fit_params = False
    if args.type == "f32":
        params.cache_type_k = params.cache_type_v = xl.ggml_type.GGML_TYPE_F32
    server = xl.Server(params)
    drawn = random.Random(1)

    def write(new):
        prompt = [drawn.randrange(vocabulary) for _ in range(args.prompt)]
        request = {"prompt": prompt, "n_predict": new, "temperature": 0, "samplers": ["top_k"], "top_k": 1,
                   "ignore_eos": True, "cache_prompt": False, "stream": False}
        return server.handle_completions(request)

    write(4)
    begin = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(args.texts) as pool:
        answers = list(pool.map(lambda _: write(args.new), range(args.texts)))
    seconds = time.perf_counter() - begin
    for answer in answers:
        if "timings" not in answer:
            raise SystemExit(f"llama.cpp answered {json.dumps(answer)[:300]}")
    timings = [answer["timings"] for answer in answers]
    # Texts run side by side, from the last one's first token on by each one's own clock.
    print(json.dumps({"prompt_seconds": max(t["prompt_ms"] for t in timings) / 1e3,
                      "decode_tokens_per_s": sum(t["predicted_per_second"] for t in timings),
                      "seconds": seconds, "tokens": sum(t["predicted_n"] for t in timings)}))


if __name__ == "__main__":
    main()
