"""Vectors of texts as transformers makes them: `meshwright embed` is held against it.

  check_embeddings.py golden FILE                     writes FILE, which tests/virtual and tests/e2e read: a tiny BERT
                                                      whose weights are made by formula, a tokenizer, texts, vectors
  check_embeddings.py live MESHWRIGHT FOLDER [-n TEXTS]
                                                      starts a cluster and compares texts of many lengths, on one
                                                      device and on two
  check_embeddings.py trained FOLDER FILE             writes FILE: texts, and of the vectors of a trained model so much
                                                      that a test knows them again
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import check_models

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = dict(model_type="bert", architectures=["BertModel"], vocab_size=112, hidden_size=16, intermediate_size=24,
              num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=24, pad_token_id=0)
TEXTS = ["A cat.", "The cat sat on the mat, and the dog looked at it.", "dog", "",
         "In the beginning there was a word that nobody had written down, so it was told from one to the next.",
         "The dog sat on the cat.", "It was told, and told again."]
SHOWN = 16  # numbers of a vector that a golden file has


def tiny_tokenizer():
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=100, special_tokens=special, show_progress=False))
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.decoder = decoders.WordPiece()
    return made


def tiny_model(folder):
    """With weights by check_models.weight, under the names that a model without a head has."""
    transformers.BertModel(transformers.BertConfig(**CONFIG), add_pooling_layer=False).save_pretrained(folder)
    path = folder / "model.safetensors"
    tensors = {name: check_models.weight(name, tensor.shape) for name, tensor in load_file(path).items()}
    save_file(tensors, path, {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return transformers.BertModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager",
                                                  add_pooling_layer=False).double()


def states_of(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).last_hidden_state[0]


def encode(tokenizer, text, most):
    tokenizer.enable_truncation(most)
    tokenizer.no_padding()
    return tokenizer.encode(text).ids


def mean(states):
    return states.mean(0)


def unit(vector):
    return torch.nn.functional.normalize(vector, dim=0)


def write_golden(path):
    with check_models.DoubleInPlaceOfFloat(), tempfile.TemporaryDirectory() as folder:
        model, tokenizer = tiny_model(pathlib.Path(folder)), tiny_tokenizer()
        ids = [encode(tokenizer, text, CONFIG["max_position_embeddings"]) for text in TEXTS]
        states = [states_of(model, row) for row in ids]
    tokenizer.no_truncation()
    golden = dict(config=CONFIG, tokenizer=json.loads(tokenizer.to_str()), texts=TEXTS, ids=ids,
                  mean=[mean(s).tolist() for s in states], cls=[s[0].tolist() for s in states],
                  unit_mean=[unit(mean(s)).tolist() for s in states])
    path.write_text(json.dumps(golden, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(f"{path}: {path.stat().st_size} bytes, {[len(row) for row in ids]} tokens")


def texts_of_many_lengths(count):
    """Pieces of this tree's documents, from a word to more than a model has positions for."""
    rng = random.Random(5)
    words = " ".join(f.read_text() for f in sorted((ROOT / "docs").glob("*.md"))).split()
    lengths = [max(1, int(2 ** rng.uniform(0, 8.7))) for _ in range(count)]
    texts = []
    for length in lengths:
        begin = rng.randrange(len(words) - length)
        texts.append(" ".join(words[begin:begin + length]))
    return texts


class Truth:
    """A folder as transformers has it, one text at a time, so that nothing is padded."""

    def __init__(self, folder, dtype):
        folder = pathlib.Path(folder)
        self.model = transformers.AutoModel.from_pretrained(folder, dtype=dtype).eval()
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        sizes = folder / "sentence_bert_config.json"
        self.most = self.model.config.max_position_embeddings
        if sizes.exists():
            self.most = min(self.most, json.loads(sizes.read_text())["max_seq_length"])

    def vectors(self, texts):
        rows = [mean(states_of(self.model, encode(self.tokenizer, text, self.most))) for text in texts]
        return torch.stack(rows).double().numpy()


class Cluster:
    def __init__(self, binary, workers):
        self.binary, self.folder = binary, tempfile.TemporaryDirectory()
        subprocess.run([binary, "up", "--workers", str(workers), "--port", "0", "--metrics-port", "0", "--dir",
                        self.folder.name], check=True, stdout=subprocess.DEVNULL)
        lines = pathlib.Path(self.folder.name, "cluster.txt").read_text().split("\n")
        self.address = next(line.split()[1] for line in lines if line.startswith("address "))

    def embed(self, folder, texts, *options):
        lines, out = pathlib.Path(self.folder.name, "texts.jsonl"), pathlib.Path(self.folder.name, "vectors.npy")
        lines.write_text("".join(json.dumps(dict(text=text)) + "\n" for text in texts))
        subprocess.run([self.binary, "--address", self.address, "embed", folder, "--file", str(lines), "--out", str(out),
                        "--pooling", "mean", "--no-normalize", *options], check=True, stdout=subprocess.DEVNULL)
        return numpy.load(out).astype(numpy.float64)

    def close(self):
        subprocess.run([self.binary, "down", "--dir", self.folder.name], check=False, stdout=subprocess.DEVNULL)
        self.folder.cleanup()


def compare(binary, folder, count):
    texts = texts_of_many_lengths(count)
    wanted = {torch.float32: Truth(folder, torch.float32).vectors(texts),
              torch.float64: Truth(folder, torch.float64).vectors(texts)}
    one = ["--set", "parallelism.tensor_parallel_degree=1", "--set", "parallelism.data_parallel_replicate_degree=1"]
    two = ["--set", "parallelism.tensor_parallel_degree=2", "--set", "parallelism.data_parallel_replicate_degree=1"]
    runs = [("float32, one device", torch.float32, one, 1e-5), ("float32, tensor=2", torch.float32, two, 1e-5),
            ("float64, one device", torch.float64, one + ["--dtype", "float64"], 1e-5)]
    cluster, failed = Cluster(binary, 2), 0
    try:
        for name, dtype, options, bound in runs:
            got = cluster.embed(folder, texts, *options)
            worst = float(numpy.abs(got - wanted[dtype]).max())
            print(f"{name}: {len(texts)} texts, vectors differ by up to {worst:.2e} (bound {bound:.0e})", flush=True)
            failed += worst > bound
    finally:
        cluster.close()
    return failed


def write_trained(folder, path):
    texts = texts_of_many_lengths(24)
    vectors = Truth(folder, torch.float32).vectors(texts)
    rows = [[round(float(x), 7) for x in row[:SHOWN]] for row in vectors]
    path.write_text(json.dumps(dict(texts=texts, mean=rows), ensure_ascii=False, separators=(",", ":")) + "\n")
    print(f"{path}: {path.stat().st_size} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["golden", "live", "trained"])
    parser.add_argument("where", nargs="+")
    parser.add_argument("-n", type=int, default=200)
    args = parser.parse_intermixed_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    if args.action == "golden":
        write_golden(pathlib.Path(args.where[0]))
    elif args.action == "trained":
        write_trained(args.where[0], pathlib.Path(args.where[1]))
    else:
        return 1 if compare(args.where[0], args.where[1], args.n) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
