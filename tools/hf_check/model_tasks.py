"""What models of each kind are asked and trained on: rows by formula, which tests/virtual/model_truth_test.cc has, too.

    kind      inputs                                           loss
    causal    windows of tokens                                of each next token
    masked    the same; every token is seen                    of each next token, as good as any
    labelled  "tokens" with padding behind, "types", "label"   of the label
    pairs     "source" and "target" with padding behind        of the target's tokens
    images    "pixels" from 0 to 255, "label"                  of the label"""

import torch
import transformers

TOKENS, TARGET_TOKENS, VOCABULARY = 8, 6, 32


def kind_of(config):
    if config["model_type"] in ("t5", "bart"):
        return "pairs"
    if config["model_type"] == "vit":
        return "images"
    if config["model_type"] != "bert":
        return "causal"
    return "labelled" if "ForSequenceClassification" in config.get("architectures", [""])[0] else "masked"


def auto_of(config):
    return {"causal": transformers.AutoModelForCausalLM, "masked": transformers.AutoModelForMaskedLM,
            "labelled": transformers.AutoModelForSequenceClassification,
            "pairs": transformers.AutoModelForSeq2SeqLM, "images": transformers.AutoModelForImageClassification}[kind_of(config)]


def window(number):
    """Row `number` of the data: one token more than a row has."""
    place = torch.arange(TOKENS + 1)
    return (number * 31 + place * place * 7 + place * (3 + number) + 5) % VOCABULARY


def text(number, tokens, padding):
    """Tokens that are no padding, which is 0, but for the last ones."""
    place = torch.arange(tokens)
    row = 1 + (number * 31 + place * place * 7 + place * (3 + number) + 5) % (VOCABULARY - 1)
    return torch.where(place < tokens - padding, row, 0)


def image(number, config):
    """Pixels of [channels, side, side]."""
    side = config["image_size"]
    place = torch.arange(config["num_channels"] * side * side)
    pixels = (number * 31 + place * place * 7 + place * (3 + number) + 5) % 256
    return pixels.reshape(config["num_channels"], side, side)


def label_of(number, labels):
    return (number * 7 + 3) // 2 % labels


def stacked(make, rows):
    return torch.stack([make(row) for row in rows])


def logits_of(config, model, rows):
    kind = kind_of(config)
    if kind in ("causal", "masked"):
        more = dict(use_cache=False) if kind == "causal" else {}
        return model(input_ids=stacked(window, rows)[:, :-1], **more).logits
    if kind == "images":
        pixels = stacked(lambda row: image(row, config), rows).double() / 255
        by = [torch.tensor(config.get(key, [0.5] * config["num_channels"])).double()[:, None, None]
              for key in ("image_mean", "image_std")]
        return model(pixel_values=(pixels - by[0]) / by[1]).logits
    source = stacked(lambda row: text(row, TOKENS, row % 3), rows)
    seen = (source != 0).long()
    if kind == "labelled":
        types = (torch.arange(TOKENS) >= TOKENS // 2).long() * seen
        return model(input_ids=source, attention_mask=seen, token_type_ids=types).logits
    target = stacked(lambda row: text(row + 100, TARGET_TOKENS, row % 4), rows)
    return model(input_ids=source, attention_mask=seen, labels=torch.where(target == 0, -100, target)).logits


def loss_of(config, model, rows):
    kind = kind_of(config)
    logits = logits_of(config, model, rows)
    if kind in ("labelled", "images"):
        labels = torch.tensor([label_of(row, logits.shape[-1]) for row in rows])
    elif kind == "pairs":
        target = stacked(lambda row: text(row + 100, TARGET_TOKENS, row % 4), rows)
        labels = torch.where(target == 0, -100, target)
    else:
        labels = stacked(window, rows)[:, 1:]
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))
