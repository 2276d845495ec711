"""Holds `meshwright tokenizer` against PyPI's `tokenizers`, and writes the golden files.

  check_tokenizers.py goldens FOLDER       writes FOLDER/NAME.json, which tests/unit/tokenizer reads
  check_tokenizers.py live MESHWRIGHT [-n STRINGS] [NAME or FILE ..]
                                           compares random strings: the small tokenizers, and
                                           every tokenizer.json given
  check_tokenizers.py real FOLDER OUT      writes OUT/texts.json and OUT/NAME.json of the real
                                           tokenizers FOLDER/NAME/tokenizer.json
  check_tokenizers.py train MESHWRIGHT FILE ..
                                           compares what both learn from texts
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import small_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]

TEXTS = [
    "", " ", "Hello, world!", "Hello world", " leading and trailing  ", "It's what they'll've said",
    "IT'S HE'LL \u017f'\u017f", "one  two   three    four", "tabs\tand\nlines\r\n\r\nand more\n",
    "1234567 12 3,456.78 \u0663\u0664 \u00bd \u2167", "na\u00efve caf\u00e9 Caf\u00e9 cafe\u0301",
    "\u4e2d\u6587\u5b57 and \u65e5\u672c\u8a9e\u30c6\u30ad\u30b9\u30c8", "\u043f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0643", "\u0939\u093f\u0928\u094d\u0926\u0940 \u0915\u094d\u0937",
    "\U0001F600 \U0001F468\u200d\U0001F469\u200d\U0001F467 \U0001F1E9\U0001F1EA e\u0301",
    "a\u00a0b\u2003c\u3000d\u180ee\u200bf\ufeffg\u0085h", "\u212b \ufb01n \u2460 \u00c5 \u0130 \u1e9e \u00df \u01c5",
    "(a) [b] {c} <d> 'e' \"f\" \u201cg\u201d --h-- ``i''", "snake_case camelCase HTTPServer v1.2.3-rc4",
    "int main() {\n  return 0;\n}\n", "<s>Hello</s> <s> <s><s> <sep> x <cls> y <both> z",
    "<|begin_of_text|>a<|end_of_text|> <|endoftext|>b  <mask> c", "[CLS] a [SEP] [MASK]b [UNK]",
    "Yesterday yesterday YESTERDAY today day days a day. \u4e2d\u4e2d x\u4e2d", "RAW raw of the  of the x of thex",
    "x <extra_id_0> y<extra_id_0>z", "do not . isn't ? I 'm ! they 've 're , it 's ' x", "| a|b <pad> c",
    "\u0378 \U0001F6DD \U0001FAE8 \u1c89 \ua7cb \U000105c0", "a\u0300\u0301\u0327b \u1e69 s\u0323\u0307",
    "\u1100\u1161\u11a8 \uac01", "zero\u0000byte", "\ufffd \ufffe \U0010ffff", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" * 4,
    "the the\u2581the <0x41> <0xE2><0x82><0xAC>", "x" * 101, "qzx the  of",
]


def training_texts():
    files = [ROOT / "README.md", *sorted((ROOT / "docs" / "adr").glob("00[0-3]*.md"))]
    lines = [line for f in files for line in f.read_text().split("\n") if line]
    return lines[:400] + [t for t in TEXTS if t] * 3


def compact(tokenizer, old_merges):
    """As JSON; merges in the older of their two forms where that is wanted and can be had."""
    data = json.loads(tokenizer.to_str())
    merges = data["model"].get("merges", [])
    if old_merges and not any(" " in part for merge in merges for part in merge):
        data["model"]["merges"] = [" ".join(merge) for merge in merges]
    return data


def cases_of(tokenizer, rng):
    cases = []
    for text in TEXTS:
        case = {"ids": tokenizer.encode(text).ids}
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        if plain != case["ids"]:
            case["plain"] = plain
        case["decoded"] = tokenizer.decode(case["ids"], skip_special_tokens=True) if case["ids"] else ""
        case["decoded_all"] = tokenizer.decode(case["ids"], skip_special_tokens=False) if case["ids"] else ""
        if case["decoded_all"] == case["decoded"]:
            del case["decoded_all"]
        if case["decoded"] == text:
            del case["decoded"]
        cases.append(case)
    pair = tokenizer.encode("Hello, world!", "It's 12 a day")
    size = tokenizer.get_vocab_size()
    drawn = []
    for _ in range(4):
        ids = [rng.randrange(size) for _ in range(12)]
        drawn.append({"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
    return {"cases": cases, "pair": {"ids": pair.ids, "types": pair.type_ids}, "drawn": drawn}


def write_goldens(folder):
    texts = training_texts()
    folder.mkdir(parents=True, exist_ok=True)
    shared = json.dumps(TEXTS, ensure_ascii=False, separators=(",", ":"))
    (folder / "texts.json").write_text(shared + "\n")
    total = len(shared.encode())
    for name, make in small_tokenizers.ALL.items():
        tokenizer = make(texts)
        golden = {"tokenizer": compact(tokenizer, name != "gpt2"), **cases_of(tokenizer, random.Random(name))}
        text = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
        (folder / f"{name}.json").write_text(text + "\n")
        total += len(text.encode())
    print(f"{len(small_tokenizers.ALL)} golden files, {total} bytes")


def write_real(folder, out):
    """What `tokenizers` says of some texts by real files, which a test may have and this tree does not."""
    out.mkdir(parents=True, exist_ok=True)
    texts = TEXTS + random_texts(80, random.Random(11))
    (out / "texts.json").write_text(json.dumps(texts, ensure_ascii=False, separators=(",", ":")) + "\n")
    for path in sorted(folder.glob("*/tokenizer.json")):
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        ids = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
        golden = dict(tokens=tokenizer.get_vocab_size(), ids=ids, decoded=tokenizer.decode_batch(ids, False))
        text = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
        (out / f"{path.parent.name}.json").write_text(text + "\n")
        print(f"{path.parent.name}: {len(texts)} texts, {len(text.encode())} bytes")


def characters():
    """Of Unicode 14, by kind, so that each kind is drawn often."""
    kinds = {}
    for code in range(1, 0x110000):
        kind = unicodedata.category(chr(code))
        if kind not in ("Cn", "Cs", "Co"):
            kinds.setdefault(kind, []).append(chr(code))
    return list(kinds.values())


def random_texts(count, rng):
    kinds = characters()
    words = " ".join(TEXTS).split(" ")
    spaces = [" ", "  ", "\n", "\t", "\r\n", "\u00a0", "", "", "", " "]
    texts = []
    for _ in range(count):
        parts = []
        for _ in range(rng.randrange(1, 14)):
            how = rng.random()
            if how < 0.4:
                parts.append(rng.choice(words))
            elif how < 0.7:
                parts.append("".join(rng.choice(rng.choice(kinds)) for _ in range(rng.randrange(1, 5))))
            elif how < 0.85:
                kind = rng.choice(kinds)
                parts.append("".join(rng.choice(kind) for _ in range(rng.randrange(1, 6))))
            else:
                parts.append("".join(chr(rng.randrange(33, 127)) for _ in range(rng.randrange(1, 6))))
            parts.append(rng.choice(spaces))
        texts.append("".join(parts))
    return texts


def ours(binary, action, path, lines, *options):
    command = [binary, "tokenizer", action, path, "--jsonl", "-", *options]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    run = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: {run.stderr}")
    return [json.loads(line) for line in run.stdout.split("\n") if line]


def differences(name, what, inputs, expected, got, shown):
    if len(expected) != len(got):
        sys.exit(f"{name}: {len(got)} answers to {len(expected)} questions")
    wrong = [i for i in range(len(expected)) if expected[i] != got[i]]
    for i in wrong[:shown]:
        print(f"  {name} {what} {inputs[i]!r}\n    theirs {expected[i]}\n    ours   {got[i]}")
    return len(wrong)


def compare(binary, name, tokenizer, path, texts, shown):
    tokenizer.no_truncation()
    tokenizer.no_padding()
    expected = [e.ids for e in tokenizer.encode_batch(texts)]
    wrong = {"encode": differences(name, "encode", texts, expected,
                                   ours(binary, "encode", path, texts), shown)}
    rng = random.Random(1)
    ids = [e for e in expected if e][:len(texts) // 2]
    size = tokenizer.get_vocab_size()
    ids += [[rng.randrange(size) for _ in range(rng.randrange(1, 20))] for _ in range(len(texts) // 4)]
    wrong["decode"] = differences(name, "decode", ids, tokenizer.decode_batch(ids, False),
                                  ours(binary, "decode", path, ids, "--special"), shown)
    return wrong


def compare_all(binary, names, count, shown):
    texts = random_texts(count, random.Random(7))
    files = [n for n in names if n.endswith(".json")]
    small = [n for n in names if not n.endswith(".json")] or (
        [] if files else list(small_tokenizers.ALL))
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in small:
            path = f"{folder}/{name}.json"
            small_tokenizers.ALL[name](training_texts()).save(path)
            files.append(path)
        for path in files:
            name = pathlib.Path(path).stem if path.startswith(folder) else path
            wrong = compare(binary, name, Tokenizer.from_file(path), path, texts, shown)
            print(f"{name}: of {len(texts)} texts {wrong['encode']} encoded otherwise; "
                  f"{wrong['decode']} lists of ids decoded otherwise")
            failed += sum(wrong.values())
    return failed


def compare_training(binary, files):
    """Vocabulary and merges of a byte-level BPE of 1,000 tokens."""
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = [pathlib.Path(f).read_text() for f in files]
    theirs.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=1000, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/tokenizer.json"
        subprocess.run([binary, "tokenizer", "train", *files, "--vocabulary", "1000", "--out", out],
                       check=True)
        ours_model = json.loads(pathlib.Path(out).read_text())["model"]
        Tokenizer.from_file(out)
    their_model = json.loads(theirs.to_str())["model"]
    equal = all(ours_model[key] == their_model[key] for key in ("vocab", "merges"))
    print(f"{len(ours_model['vocab'])} tokens, {len(ours_model['merges'])} merges: "
          f"{'equal' if equal else 'different'}")
    return 0 if equal else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["goldens", "live", "real", "train"])
    parser.add_argument("where")
    parser.add_argument("names", nargs="*")
    parser.add_argument("-n", type=int, default=20000)
    parser.add_argument("--shown", type=int, default=3)
    args = parser.parse_intermixed_args()
    if args.action == "goldens":
        write_goldens(pathlib.Path(args.where))
        return 0
    if args.action == "real":
        write_real(pathlib.Path(args.where), pathlib.Path(args.names[0]))
        return 0
    if args.action == "train":
        return compare_training(args.where, args.names)
    return 1 if compare_all(args.where, args.names, args.n, args.shown) else 0


if __name__ == "__main__":
    sys.exit(main())
