"""Small tokenizers of every kind and with every component, trained for the purpose."""
import base64
import json
import struct

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
MARK = "\u2581"


def bpe_trainer(size, **options):
    return trainers.BpeTrainer(vocab_size=size, show_progress=False, **options)


def trained(model, trainer, texts, **parts):
    tokenizer = Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def bytes_bpe(texts, size=320, special=("<|endoftext|>",), **parts):
    return trained(models.BPE(), bpe_trainer(
        size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(special)), texts, decoder=decoders.ByteLevel(), **parts)


def gpt2(texts):
    return bytes_bpe(texts, pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False),
                     post_processor=processors.ByteLevel(trim_offsets=False))


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(pattern, behavior, invert)


def llama3(texts):
    t = bytes_bpe(texts, special=("<|begin_of_text|>", "<|end_of_text|>"),
                  pre_tokenizer=pre_tokenizers.Sequence([
                      split(Regex(LLAMA3)),
                      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
            special_tokens=[("<|begin_of_text|>", 0)])])
    # A token that merges do not reach.
    data = json.loads(t.to_str())
    data["model"]["ignore_merges"] = True
    data["model"]["vocab"]["\u0120the\u0120"] = len(data["model"]["vocab"])
    data["model"]["vocab"]["qzx"] = len(data["model"]["vocab"])
    return Tokenizer.from_str(json.dumps(data))


def qwen(texts):
    return bytes_bpe(texts, normalizer=normalizers.NFC(), pre_tokenizer=pre_tokenizers.Sequence([
        split(Regex(LLAMA3.replace("{1,3}", ""))),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def deepseek(texts):
    third = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
             r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    return bytes_bpe(texts, pre_tokenizer=pre_tokenizers.Sequence([
        split(Regex(r"\p{N}{1,3}")), split(Regex("[一-龥\u3040-ゟ゠-ヿ]+")), split(Regex(third)),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def tekken(texts):
    return bytes_bpe(texts, pre_tokenizer=pre_tokenizers.Sequence([
        split(Regex(TEKKEN)),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def bloom(texts):
    return bytes_bpe(texts, pre_tokenizer=pre_tokenizers.Sequence([
        split(Regex(BLOOM)),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def starcoder(texts):
    return bytes_bpe(texts, pre_tokenizer=pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)]))


def roberta(texts):
    t = bytes_bpe(texts, special=("<s>", "<pad>", "</s>", "<unk>"),
                  pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True))
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return t


def byte_normalizer(texts):
    """Bytes by the normalizer, so that words are cut in the alphabet."""
    return bytes_bpe(texts, normalizer=normalizers.ByteLevel(),
                     pre_tokenizer=split(Regex("\u0120?[^\u0120]+")))


def neox(texts):
    t = bytes_bpe(texts, normalizer=normalizers.NFC(),
                  pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False))
    t.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    return t


def llama2(texts):
    """Byte fallback, by the normalizers of older files."""
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    t = trained(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
                bpe_trainer(450, special_tokens=special, limit_alphabet=60), texts,
                normalizer=normalizers.Sequence([normalizers.Prepend(MARK),
                                                 normalizers.Replace(" ", MARK)]),
                decoder=decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1, 0)]))
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    data = json.loads(t.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    return Tokenizer.from_str(json.dumps(data))


def llama2_metaspace(texts):
    """Byte fallback without all bytes, by Metaspace as newer files have it."""
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(0x80, 0xF0)]
    t = trained(models.BPE(unk_token="<unk>", fuse_unk=False, byte_fallback=True),
                bpe_trainer(360, special_tokens=special, limit_alphabet=50), texts,
                pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
                decoder=decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1, 0)]))
    data = json.loads(t.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    return Tokenizer.from_str(json.dumps(data))


def gemma(texts):
    special = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)]
    t = trained(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
                bpe_trainer(450, special_tokens=special, limit_alphabet=60), texts,
                normalizer=normalizers.Replace(" ", MARK),
                pre_tokenizer=split(" ", "merged_with_previous"),
                decoder=decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(),
                                           decoders.Fuse()]))
    data = json.loads(t.to_str())
    data["added_tokens"] = data["added_tokens"][:4]
    return Tokenizer.from_str(json.dumps(data))


def clip(texts):
    t = trained(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>"),
                bpe_trainer(560, end_of_word_suffix="</w>",
                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                            special_tokens=["<|startoftext|>", "<|endoftext|>"]), texts,
                normalizer=normalizers.Sequence([
                    normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
                    normalizers.Lowercase()]),
                pre_tokenizer=pre_tokenizers.Sequence([
                    split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"),
                          "removed", True),
                    pre_tokenizers.ByteLevel(add_prefix_space=False)]),
                decoder=decoders.ByteLevel())
    t.post_processor = processors.RobertaProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0),
                                                    False, False)
    return t


def subword_bpe(texts):
    """The affixes of BPE, its own decoder, an unknown token that is not fused."""
    return trained(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##",
                              end_of_word_suffix="</w>"),
                   bpe_trainer(320, continuing_subword_prefix="##", end_of_word_suffix="</w>",
                               limit_alphabet=40, special_tokens=["[UNK]"]), texts,
                   pre_tokenizer=pre_tokenizers.WhitespaceSplit(),
                   decoder=decoders.BPEDecoder(suffix="</w>"))


def lossy_bpe(texts):
    """No unknown token: characters are lost. No decoder."""
    return trained(models.BPE(), bpe_trainer(300, limit_alphabet=40), texts,
                   pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Whitespace(),
                                                          pre_tokenizers.Punctuation()]))


def bert(texts, **options):
    t = trained(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(
        vocab_size=400, limit_alphabet=60, show_progress=False,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]), texts,
                normalizer=normalizers.BertNormalizer(**options),
                pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
                decoder=decoders.WordPiece())
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t


def bert_cased(texts):
    t = bert(texts, lowercase=False, strip_accents=None)
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    t.decoder = decoders.WordPiece(cleanup=False)
    return t


def word_level(texts):
    return trained(models.WordLevel(unk_token="<unk>"), trainers.WordLevelTrainer(
        vocab_size=300, special_tokens=["<unk>", "<pad>", "|"], show_progress=False), texts,
                   normalizer=normalizers.Sequence([normalizers.Strip(), normalizers.NFKD(),
                                                    normalizers.StripAccents(),
                                                    normalizers.Lowercase()]),
                   pre_tokenizer=pre_tokenizers.CharDelimiterSplit(" "),
                   decoder=decoders.CTC(pad_token="<pad>", word_delimiter_token="|"))


def charsmap():
    """A small table of SentencePiece: some letters, a ligature, a cluster, CR LF."""
    pairs = [("\u00bd", "1/2"), ("\ufb01", "fi"), ("\u00c5", "A*"), ("\r", " "), ("\t", " "),
             ("\u3000", " "), ("e\u0301", "\u00e9"), ("\u00ad", ""), ("\u2460", "(1)")]
    texts, places = b"", {}
    for source, target in pairs:
        places[source.encode()] = len(texts)
        texts += target.encode() + b"\0"
    units = double_array(places)
    trie = b"".join(struct.pack("<I", u) for u in units)
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + texts).decode()


def double_array(values):
    """Darts-clone's units of a dictionary from bytes to numbers."""
    tree = {}
    for key, value in values.items():
        node = tree
        for byte in key:
            node = node.setdefault(byte, {})
        node[None] = value
    units, taken = {0: 0}, {0}

    def place(node, at, label):
        base = 1
        offsets = [0 if b is None else b for b in node]
        while any(at ^ base ^ o in taken for o in offsets) or base % 256 == 0:
            base += 1
        for o in offsets:
            taken.add(at ^ base ^ o)
        units[at] = label | base << 10 | (1 << 8 if None in node else 0)
        for byte, child in node.items():
            if byte is None:
                units[at ^ base] = child | 1 << 31
            else:
                place(child, at ^ base ^ byte, byte)

    place(tree, 0, 0)
    return [units.get(i, 0) for i in range((max(units) // 256 + 1) * 256)]


def unigram(texts, **parts):
    return trained(models.Unigram(), trainers.UnigramTrainer(
        vocab_size=300, unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"],
        show_progress=False), texts, **parts)


def t5(texts):
    t = unigram(texts, pre_tokenizer=pre_tokenizers.Metaspace(),
                decoder=decoders.Metaspace())
    t.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    t.add_tokens([AddedToken("<extra_id_0>", lstrip=True, rstrip=True)])
    data = json.loads(t.to_str())
    data["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Precompiled", "precompiled_charsmap": charsmap()},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": MARK}]}
    return Tokenizer.from_str(json.dumps(data))


def albert(texts):
    return unigram(texts, normalizer=normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.Nmt(), normalizers.NFKC(),
        normalizers.Strip(left=True, right=False), normalizers.Lowercase()]),
                   pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="never"),
                   decoder=decoders.Metaspace(prepend_scheme="never"))


def unigram_bytes(texts):
    t = unigram(texts, pre_tokenizer=pre_tokenizers.Metaspace(split=False),
                decoder=decoders.Sequence([decoders.Metaspace(), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip("e", 2, 0)]))
    data = json.loads(t.to_str())
    data["model"]["byte_fallback"] = True
    data["model"]["vocab"] += [[f"<0x{b:02X}>", -20.0] for b in range(256)]
    return Tokenizer.from_str(json.dumps(data))


def scripts(texts):
    return unigram(texts, pre_tokenizer=pre_tokenizers.Sequence([
        pre_tokenizers.UnicodeScripts(), pre_tokenizers.FixedLength(4)]),
                   normalizer=normalizers.NFD(), decoder=decoders.Fuse())


def splits(texts):
    """Every behaviour of a split, and what it does to matches beside each other."""
    return bytes_bpe(texts, pre_tokenizer=pre_tokenizers.Sequence([
        split("--", "merged_with_next"), split(Regex(r"[aeiou]+|\d"), "contiguous"),
        split(Regex(r"\w+"), "merged_with_previous", True), split(",", "removed"),
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def added(texts):
    """Added tokens with each of their flags, some of which overlap."""
    t = bert(texts)
    t.add_special_tokens([AddedToken("<s>"), AddedToken("<sep>", lstrip=True),
                          AddedToken("<cls>", rstrip=True), AddedToken("<both>", lstrip=True,
                                                                       rstrip=True)])
    t.add_tokens([AddedToken("Yesterday"), AddedToken("day", single_word=True),
                  AddedToken("Caf\u00e9", normalized=True), AddedToken("RAW", normalized=False),
                  AddedToken("<s><s>", normalized=False), AddedToken("\u4e2d", single_word=True),
                  AddedToken("of the", lstrip=True, rstrip=True, single_word=True)])
    return t


ALL = {f.__name__: f for f in (
    gpt2, llama3, qwen, deepseek, tekken, bloom, starcoder, roberta, byte_normalizer, neox, llama2,
    llama2_metaspace, gemma, clip, subword_bpe, lossy_bpe, bert, bert_cased, word_level, t5, albert,
    unigram_bytes, scripts, splits, added)}
