"""Hugging Face's tokenizers by one thread, and the files that both sides read: JSON on stdout.

    tokenizers_encode.py make CORPUS FOLDER     english.json (byte-level BPE of the corpus), large.json (128k)
    tokenizers_encode.py measure FILE CORPUS    load and encode, as mw_bench encode does
"""
import itertools
import json
import pathlib
import statistics
import string
import sys
import time

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

PIECE_BYTES = 16 << 10
LARGE = 128 * 1024
ROUNDS = 5


def byte_level(model):
    made = Tokenizer(model)
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def make(corpus, folder):
    folder.mkdir(parents=True, exist_ok=True)
    english = byte_level(models.BPE())
    english.train([str(corpus)], trainers.BpeTrainer(
        vocab_size=32_000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    english.save(str(folder / "english.json"))
    # Bytes, pairs of letters, pairs of pairs: as many merges as a large vocabulary has.
    words = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = ["".join(pair) for pair in itertools.product(string.ascii_lowercase, repeat=2)]
    merges = [tuple(pair) for pair in pairs]
    merges += itertools.islice(itertools.product(pairs, repeat=2), LARGE - len(words) - len(pairs))
    vocabulary = {word: index for index, word in enumerate([*words, *("".join(merge) for merge in merges)])}
    byte_level(models.BPE(vocab=vocabulary, merges=merges)).save(str(folder / "large.json"))


def pieces_of(text):
    while text:
        end = -1 if len(text) <= PIECE_BYTES else text.find(b"\n", PIECE_BYTES)
        count = len(text) if end < 0 else end + 1
        yield text[:count].decode()
        text = text[count:]


def measure(file, corpus):
    text = corpus.read_bytes()
    pieces = list(pieces_of(text))
    loads, rates, tokens = [], [], 0
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        loaded = Tokenizer.from_file(str(file))
        loads.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        tokens = sum(len(loaded.encode(piece).ids) for piece in pieces)
        rates.append(len(text) / (time.perf_counter() - begin))
    print(json.dumps({"load_seconds": statistics.median(loads), "bytes_per_s": statistics.median(rates),
                      "tokens": tokens}))


if __name__ == "__main__":
    {"make": make, "measure": measure}[sys.argv[1]](pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
