"""Holds `meshwright tokenizer` against PyPI's `sentencepiece`, and writes its golden files.

  check_pieces.py goldens FOLDER            writes FOLDER/NAME.json, which tests/unit/tokenizer reads
  check_pieces.py live MESHWRIGHT [-n STRINGS] [FILE ..]
                                            compares random strings: small models, with SentencePiece's
                                            own tables too, and every tokenizer.model given
"""
import argparse
import base64
import io
import json
import pathlib
import random
import subprocess
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = json.loads((ROOT / "tests/unit/tokenizer/golden/texts.json").read_text())
# Rules of replacement: code points, a tab, code points. Some are longer than one character, one
# begins with another, one is replaced by nothing, one by spaces.
RULES = [("41", "61"), ("42", "62"), ("c9", "65"), ("fb01", "66 69"), ("a0", "20"), ("3000", "20"),
         ("200b", ""), ("2163", "69 76"), ("45 301", "65"), ("45", "65"), ("bd", "20 31 20"),
         ("9", "20"), ("a", "20"), ("ad", "20 20")]


def training_texts():
    files = [ROOT / "README.md", *sorted((ROOT / "docs" / "adr").glob("00[0-3]*.md"))]
    lines = [line for f in files for line in f.read_text().split("\n") if line]
    return lines[:400] + [t for t in TEXTS if t and "\0" not in t] * 3


def train(rules=True, **options):
    out = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as table:
        table.write("".join(f"{a}\t{b}\n" for a, b in RULES))
        table.flush()
        if rules:
            options["normalization_rule_tsv"] = table.name
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(training_texts()), model_writer=out, minloglevel=2,
            hard_vocab_limit=False, num_threads=1, **options)
    return out.getvalue()


def edited(model, edit):
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    edit(proto)
    return proto.SerializeToString()


def unuse(proto):
    """Every third piece of several characters is not to be made."""
    long = [p for p in proto.pieces if p.type == 1 and len(p.piece) > 2]
    for piece in long[::3]:
        piece.type = 5


def surface(proto):
    proto.trainer_spec.unk_surface = "?!"


SMALL = {
    "unigram": lambda: train(model_type="unigram", vocab_size=300, user_defined_symbols=["<sep>", "the x", "\u4e2d"],
                             control_symbols=["<cls>", "<pad2>"]),
    "unigram_bytes": lambda: edited(train(False, model_type="unigram", vocab_size=500, byte_fallback=True,
                                          normalization_rule_name="identity", character_coverage=0.98,
                                          add_dummy_prefix=False, remove_extra_whitespaces=False), unuse),
    "bpe": lambda: edited(train(model_type="bpe", vocab_size=400, user_defined_symbols=["<sep>", "\u2581\u2581", "days"],
                                character_coverage=0.98, bos_id=-1, pad_id=3), surface),
    "bpe_bytes": lambda: train(False, model_type="bpe", vocab_size=600, byte_fallback=True, split_digits=True,
                               normalization_rule_name="identity", remove_extra_whitespaces=False,
                               character_coverage=0.98, allow_whitespace_only_pieces=True),
    "bpe_unused": lambda: edited(train(model_type="bpe", vocab_size=600, byte_fallback=True,
                                       add_dummy_prefix=False), unuse),
    "plain_spaces": lambda: edited(train(model_type="unigram", vocab_size=300), lambda proto: setattr(
        proto.normalizer_spec, "escape_whitespaces", False)),
}
LARGE = {
    "nmt_nfkc": lambda: train(False, model_type="unigram", vocab_size=800, normalization_rule_name="nmt_nfkc"),
    "nfkc_cf": lambda: train(False, model_type="bpe", vocab_size=800, normalization_rule_name="nmt_nfkc_cf"),
}


def load(model):
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def drawn(processor, rng, count):
    size = processor.get_piece_size()
    return [[rng.randrange(size) for _ in range(rng.randrange(1, 20))] for _ in range(count)]


def write_goldens(folder):
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(11)
    for name, make in SMALL.items():
        model = make()
        processor = load(model)
        data = {"model": base64.b64encode(model).decode(),
                "cases": [processor.encode(t) for t in TEXTS],
                "decoded": [processor.decode(processor.encode(t)) for t in TEXTS],
                "drawn": [{"ids": ids, "decoded": processor.decode(ids)} for ids in drawn(processor, rng, 30)]}
        (folder / f"{name}.json").write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")


def random_texts(count, rng):
    parts = [c for t in training_texts() for c in t.split(" ")]
    texts = []
    for _ in range(count):
        text = ""
        for _ in range(rng.randrange(1, 12)):
            kind = rng.randrange(6)
            if kind < 3:
                text += rng.choice(parts)
            elif kind == 3:
                text += " " * rng.randrange(1, 4)
            elif kind == 4:
                code = rng.choice([rng.randrange(0x20, 0x250), rng.randrange(0x20, 0x3100), rng.randrange(0x110000)])
                text += "" if 0xD800 <= code < 0xE000 else chr(code)
            else:
                text += rng.choice(parts)[:3] + rng.choice("\t\n\u2581\u00a0\u3000\u0301")
        texts.append(text)
    return texts


def ours(binary, action, path, lines, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
        file.flush()
        done = subprocess.run([binary, "tokenizer", action, path, "--jsonl", file.name, *options],
                              check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def compare(binary, name, model, texts):
    processor = load(model)
    with tempfile.NamedTemporaryFile(suffix=".model") as file:
        file.write(model)
        file.flush()
        ids = [processor.encode(t) for t in texts]
        wrong = [i for i, got in enumerate(ours(binary, "encode", file.name, texts)) if got != ids[i]]
        more = ids + drawn(processor, random.Random(3), len(texts) // 4)
        decoded = [processor.decode(i) for i in more]
        other = [i for i, got in enumerate(ours(binary, "decode", file.name, more)) if got != decoded[i]]
    print(f"{name}: of {len(texts)} texts {len(wrong)} encoded otherwise; of {len(more)} lists {len(other)} decoded "
          "otherwise")
    for i in wrong[:3]:
        print("  text ", json.dumps(texts[i]), ids[i])
    for i in other[:3]:
        print("  list ", more[i], json.dumps(decoded[i]))
    return not wrong and not other


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["goldens", "live"])
    parser.add_argument("target")
    parser.add_argument("files", nargs="*")
    parser.add_argument("-n", type=int, default=2000)
    args = parser.parse_args()
    if args.action == "goldens":
        write_goldens(pathlib.Path(args.target))
        return 0
    texts = random_texts(args.n, random.Random(7))
    models = {file: (lambda f=file: pathlib.Path(f).read_bytes()) for file in args.files}
    good = [compare(args.target, name, make(), texts)
            for name, make in (models or {**SMALL, **LARGE}).items()]
    return 0 if all(good) else 1


if __name__ == "__main__":
    raise SystemExit(main())
