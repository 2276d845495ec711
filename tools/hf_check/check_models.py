"""What transformers says of small models, in numbers: tests/virtual/model_truth_test.cc reads it.

    check_models.py write FOLDER [--salt TEXT] [NAME ..]
        writes FOLDER/NAME.json of models of model_cases.py: its config.json, logits of two rows, losses of 20 steps of
        AdamW with clipping, and a number for each weight after them. Weights and tokens are made by formula, which the
        test has, too; the salt changes the weights.
    check_models.py load FOLDER
        loads every folder in FOLDER with from_pretrained, and compares its logits with those in its logits.json.

All in float64: what transformers rounds to float32 whatever the model is in (norms, softmax, angles) is taken in
float64, too, by giving the name torch.float32 to the other type while a model is made and run; so is the root of 2 / pi,
of which BLOOM has eight digits."""

import argparse
import json
import pathlib
import sys
import tempfile

import numpy
import torch
import transformers
from safetensors.numpy import load_file, save_file

import model_cases
import model_tasks
from transformers.models.bloom import modeling_bloom

NO_WEIGHT = "final_logits_bias"  # of BART: a buffer of zeros, which no family here has
ROWS, STEPS, BATCH, GREEDY = 2, 20, 4, 64
LEARNING = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
MAX_NORM = 0.5


def gelu_tanh(x):
    return torch.nn.functional.gelu(x, approximate="tanh")


class DoubleInPlaceOfFloat:
    def __enter__(self):
        self.kept = (torch.float32, torch.float, torch.Tensor.float)
        torch.float32 = torch.float = torch.float64
        torch.Tensor.float = torch.Tensor.double
        torch.set_default_dtype(torch.float64)
        self.bloom_gelu, modeling_bloom.bloom_gelu_forward = modeling_bloom.bloom_gelu_forward, gelu_tanh

    def __exit__(self, *_):
        torch.float32, torch.float, torch.Tensor.float = self.kept
        torch.set_default_dtype(torch.float32)
        modeling_bloom.bloom_gelu_forward = self.bloom_gelu


salt = ""


def numbers(name, count):
    """In [-1, 1): a hash of the name and the place."""
    mask = (1 << 64) - 1
    seed = 14695981039346656037
    for letter in (salt + name).encode():
        seed = (seed ^ letter) * 1099511628211 & mask
    x = numpy.arange(count, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15) + numpy.uint64(seed)
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    x ^= x >> numpy.uint64(31)
    return (x >> numpy.uint64(11)).astype(numpy.float64) / float(1 << 52) - 1


def weight(name, shape):
    x = numbers(name, int(numpy.prod(shape))).reshape(shape)
    if name.endswith(".bias"):
        return 0.1 * x
    is_norm = len(shape) == 1
    return 0.7 + 0.2 * x if is_norm else 0.3 * x


def make(config, folder):
    auto = transformers.AutoConfig.for_model(**config)
    auto._attn_implementation = "eager"
    model_tasks.auto_of(config).from_config(auto).save_pretrained(folder)
    path = folder / "model.safetensors"
    shapes = {name: tensor.shape for name, tensor in load_file(path).items()}
    if config["model_type"] == "t5" and not config.get("tie_word_embeddings", True):
        shapes["lm_head.weight"] = shapes["shared.weight"]  # which transformers makes one of, unless a file has both
    tensors = {name: weight(name, shape) for name, shape in shapes.items()}
    if NO_WEIGHT in tensors:
        tensors[NO_WEIGHT] = numpy.zeros(shapes[NO_WEIGHT])
    save_file(tensors, path, {"format": "pt"})
    # In the keys of the case, not those in which transformers writes them.
    (folder / "config.json").write_text(json.dumps(config))
    return load(folder)


def load(folder):
    config = json.loads((folder / "config.json").read_text())
    model = model_tasks.auto_of(config).from_pretrained(folder, dtype=torch.float64, attn_implementation="eager",
                                                          experts_implementation="eager")
    return model.double()


def train(config, model):
    decays = lambda name, p: p.dim() >= 2 and not name.endswith("_bias")
    matrices = [p for name, p in model.named_parameters() if decays(name, p)]
    vectors = [p for name, p in model.named_parameters() if not decays(name, p)]
    optimizer = torch.optim.AdamW([dict(params=matrices), dict(params=vectors, weight_decay=0.0)], **LEARNING)
    losses = []
    model.eval()  # no dropout is asked for; some models round otherwise in training
    for step in range(STEPS):
        loss = model_tasks.loss_of(config, model, range(step * BATCH, (step + 1) * BATCH))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        losses.append(loss.item())
    return losses


def greedy(model):
    """Row 0 and the tokens behind it, each that of the largest logit; nothing where the model has too few positions."""
    if getattr(model.config, "max_position_embeddings", GREEDY + model_tasks.TOKENS) < GREEDY + model_tasks.TOKENS:
        return []
    row = model_tasks.window(0)[None, : model_tasks.TOKENS]
    for _ in range(GREEDY):
        row = torch.cat([row, model(input_ids=row, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    return row[0].tolist()


def written(model):
    """Of the sources of rows 0 and 2, which have other lengths, what is written: tokens of the largest logits, and those."""
    texts = []
    for row in (0, 2):
        source = model_tasks.text(row, model_tasks.TOKENS, row % 3)
        source = source[source != 0][None]
        text, best = torch.tensor([[model.config.decoder_start_token_id]]), []
        for _ in range(GREEDY):
            logits = model(input_ids=source, decoder_input_ids=text, use_cache=False).logits[:, -1:]
            text = torch.cat([text, logits.argmax(-1)], 1)
            best.append(logits.max().item())
        texts.append(dict(source=source[0].tolist(), tokens=text[0, 1:].tolist(), best=best))
    return texts


BEAMS = [dict(num_beams=3, length_penalty=1.0, early_stopping=False, eos=[5]),
         dict(num_beams=4, length_penalty=-0.5, early_stopping=True, eos=[7, 9]),
         dict(num_beams=2, length_penalty=2.0, early_stopping="never", repetition_penalty=1.3, eos=[]),
         dict(num_beams=5, length_penalty=0.0, early_stopping="never", eos=[3])]
BEAM_CASES = ("llama", "t5", "bart")
BEAM_TOKENS = 24


def beams(config, model):
    """What searches with beams find, best first, with scores."""
    found = []
    pairs = model_tasks.kind_of(config) == "pairs"
    row = model_tasks.text(2, model_tasks.TOKENS, 2) if pairs else model_tasks.window(0)[: model_tasks.TOKENS]
    row = row[row != 0] if pairs else row
    for options in BEAMS:
        how = dict(options)
        eos = how.pop("eos") or None
        out = model.generate(input_ids=row[None], attention_mask=torch.ones_like(row[None]), do_sample=False,
                             max_new_tokens=BEAM_TOKENS, eos_token_id=eos, pad_token_id=0,
                             num_return_sequences=how["num_beams"], return_dict_in_generate=True, output_scores=True,
                             **how)
        begin = 1 if pairs else len(row)
        lengths = (out.beam_indices >= 0).sum(1)
        texts = [dict(tokens=text[begin : begin + int(length)].tolist(), score=float(score))
                 for text, length, score in zip(out.sequences, lengths, out.sequences_scores) if score > -1e8]
        found.append(dict(options=options, prompt=row.tolist(), texts=texts))
    return found


def truth(name, config):
    with DoubleInPlaceOfFloat(), tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        model = make(config, folder)
        with torch.no_grad():
            logits = model_tasks.logits_of(config, model, range(ROWS))
            kind = model_tasks.kind_of(config)
            text = greedy(model) if kind == "causal" else []
            more = dict(written=written(model)) if kind == "pairs" else {}
            if name in BEAM_CASES:
                more["beams"] = beams(config, model)
        losses = train(config, model)
        model.save_pretrained(folder / "trained")
        trained = load_file(folder / "trained" / "model.safetensors")
        probes = {name: float((tensor.reshape(-1) * numbers("probe/" + name, tensor.size)).sum())
                  for name, tensor in sorted(trained.items()) if name != NO_WEIGHT}
        return dict(config=config, salt=salt, logits=logits.reshape(-1).tolist(), losses=losses, greedy=text,
                    weights=probes, **more)


def compare_folders(folder):
    worst = 0.0
    for path in sorted(folder.iterdir()):
        wanted = json.loads((path / "logits.json").read_text())
        with DoubleInPlaceOfFloat(), torch.no_grad():
            config = json.loads((path / "config.json").read_text())
            logits = model_tasks.logits_of(config, load(path), range(ROWS)).reshape(-1)
        difference = float((logits - torch.tensor(wanted, dtype=torch.float64)).abs().max())
        worst = max(worst, difference)
        print(f"{path.name}: logits differ by up to {difference:.2e}")
    return 0 if worst <= 1e-9 else 1


def main():
    global salt
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["write", "load"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--salt", default="")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    if args.action == "load":
        return compare_folders(args.folder)
    salt = args.salt
    args.folder.mkdir(parents=True, exist_ok=True)
    known = dict(model_cases.cases())
    for name in args.names or known:
        text = json.dumps(truth(name, known[name]), separators=(",", ":"))
        (args.folder / f"{name}.json").write_text(text + "\n")
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
