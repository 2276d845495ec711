"""Real vocabularies as tokenizer.json, from the GGUF files that llama.cpp tests itself with.

  real_vocabularies.py MODELS OUT     MODELS: vendor/llama.cpp/models of llama-cpp-python's sources

Each is made of its tokens, scores and merges, and of the rules of its family, which such a file does
not hold. Texts and ids that lie beside it (.inp, .out) say whether the rules are right: a vocabulary
that `tokenizers` does not encode as they say is not written, and is named.
"""
import json
import pathlib
import sys

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

SEPARATOR = "\n__ggml_vocab_test__\n"
CONTROL, USER = 3, 4  # token types
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)"
          r"|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (QWEN2.replace(r"]?\p{L}+", r"]?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+"))
DEEPSEEK_LETTERS = r"\s?[\p{Lu}\p{Ll}\p{Lt}]+"


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def by_bytes(*before, regex):
    return pre_tokenizers.Sequence([*before, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)])


# name: (what cuts a text, what normalises it)
BYTE_LEVEL = {
    "gpt-2": (by_bytes(regex=True), None),
    "gpt-neox": (by_bytes(regex=True), normalizers.NFC()),
    "mpt": (by_bytes(regex=True), normalizers.NFC()),
    "starcoder": (by_bytes(pre_tokenizers.Digits(individual_digits=True), regex=True), None),
    "refact": (by_bytes(pre_tokenizers.Digits(individual_digits=True), regex=True), None),
    "command-r": (by_bytes(pre_tokenizers.Digits(individual_digits=True), regex=True), normalizers.NFC()),
    "falcon": (pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False), split("[0-9][0-9][0-9]")]), None),
    "llama-bpe": (by_bytes(split(LLAMA3), regex=False), None),
    "qwen2": (by_bytes(split(QWEN2), regex=False), normalizers.NFC()),
    "qwen35": (by_bytes(split(QWEN35), regex=False), None),
    "deepseek-llm": (by_bytes(
        split(r"[\r\n]"), split(DEEPSEEK_LETTERS), split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"),
        split("[一-龥ࠀ-一가-퟿]+"), pre_tokenizers.Digits(individual_digits=True), regex=False), None),
    "deepseek-coder": (by_bytes(
        split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"),
        pre_tokenizers.Digits(individual_digits=True), regex=False), None),
    "aquila": (by_bytes(regex=True), None),
}
PIECES = ("llama-spm", "phi-3", "baichuan")


class File:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.fields = {name.removeprefix("tokenizer.ggml."): field for name, field in reader.fields.items()}
        self.tokens = self.get("tokens")
        self.types = self.get("token_type")

    def get(self, name):
        field = self.fields.get(name)
        return None if field is None else field.contents()

    def vocabulary(self):
        return {token: index for index, token in enumerate(self.tokens)}

    def merges(self):
        return [tuple(merge.split(" ")) for merge in self.get("merges")]

    def added(self):
        return [AddedToken(token, normalized=False, special=kind == CONTROL)
                for token, kind in zip(self.tokens, self.types) if kind in (CONTROL, USER)]


def byte_level(file, name):
    cut, normal = BYTE_LEVEL[name]
    made = Tokenizer(models.BPE(vocab=file.vocabulary(), merges=file.merges(), ignore_merges=name == "llama-bpe"))
    made.pre_tokenizer, made.decoder = cut, decoders.ByteLevel()
    if normal is not None:
        made.normalizer = normal
    return made


def merges_of_scores(vocabulary, scores):
    """As SentencePiece's BPE prefers them: by the score of what comes out."""
    merges = []
    for piece, index in vocabulary.items():
        ways = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        ways = [way for way in ways if way[0] in vocabulary and way[1] in vocabulary]
        ways.sort(key=lambda way: (vocabulary[way[0]], vocabulary[way[1]]))
        merges += [(scores[index], way) for way in ways]
    merges.sort(key=lambda merge: merge[0], reverse=True)
    return [way for _, way in merges]


def pieces(file, name):
    vocabulary = file.vocabulary()
    model = models.BPE(vocab=vocabulary, merges=merges_of_scores(vocabulary, file.get("scores")), unk_token="<unk>",
                       fuse_unk=True, byte_fallback=True)
    made = Tokenizer(model)
    prefix = [] if name == "baichuan" else [normalizers.Prepend("▁")]
    made.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", "▁")])
    strip = [] if name == "baichuan" else [decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return made


def gemma(file):
    made = Tokenizer(models.BPE(vocab=file.vocabulary(), merges=[tuple(m.split(" ", 1)) for m in file.get("merges")],
                                unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return made


def word_pieces(file):
    """The file marks beginnings of words; a WordPiece vocabulary marks what goes on."""
    words = {}
    for index, (token, kind) in enumerate(zip(file.tokens, file.types)):
        plain = token if kind == CONTROL or token.startswith("[") and token.endswith("]") and len(token) > 2 else (
            token[1:] if token.startswith("▁") else "##" + token)
        words[plain] = index
    made = Tokenizer(models.WordPiece(words, unk_token="[UNK]", max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", words["[SEP]"]), ("[CLS]", words["[CLS]"]))
    made.decoder = decoders.WordPiece()
    return made


def unigram(file):
    made = Tokenizer(models.Unigram(list(zip(file.tokens, map(float, file.get("scores")))),
                                    unk_id=file.get("unknown_token_id"), byte_fallback=False))
    made.normalizer = normalizers.Sequence([
        normalizers.Precompiled(bytes(file.get("precompiled_charsmap"))), normalizers.Replace(Regex(" {2,}"), " ")])
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    made.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    return made


def rebuilt(path, name):
    file = File(path)
    if name in BYTE_LEVEL:
        made = byte_level(file, name)
    elif name in PIECES:
        made = pieces(file, name)
    else:
        made = {"gemma-4": gemma, "bert-bge": word_pieces, "nomic-bert-moe": unigram}[name](file)
    added = [token for token in file.added() if made.token_to_id(token.content) is not None]
    made.add_tokens(added)
    return made


def vectors(path):
    texts, ids = path.with_name(path.name + ".inp"), path.with_name(path.name + ".out")
    if not texts.exists():
        return None
    of_texts = texts.read_bytes().decode().split(SEPARATOR)
    of_ids = ids.read_text().split("\n")
    return [(text, [int(word) for word in line.split()]) for text, line in zip(of_texts, of_ids)]


def main():
    models_folder, out = map(pathlib.Path, sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    written = 0
    for path in sorted(models_folder.glob("ggml-vocab-*.gguf")):
        name = path.stem.removeprefix("ggml-vocab-")
        try:
            made = rebuilt(path, name)
        except Exception as error:  # what tokenizers refuses has no class of its own
            print(f"{name}: not rebuilt: {error}")
            continue
        known = vectors(path)
        wrong = [] if known is None else [
            (text, ids, got) for text, ids in known
            if (got := made.encode(text, add_special_tokens=False).ids) != ids]
        if wrong:
            print(f"{name}: not rebuilt: {len(wrong)} of {len(known)} texts differ, such as {wrong[0]!r}")
            continue
        made.save(str(out / f"{name}.json"))
        written += 1
        print(f"{name}: {made.get_vocab_size()} tokens, " + ("no vectors" if known is None else f"{len(known)} vectors equal"))
    print(f"{written} written")


if __name__ == "__main__":
    main()
