"""Writes tests/unit/client/tuning_truth.txt: what fine-tuning makes of tiny models in PyTorch, transformers and PEFT.

Needs torch, transformers (5.x) and peft (0.21): python tools/hf_check/tuning_truth.py > tests/unit/client/tuning_truth.txt
Everything is float64; what transformers rounds to float32 (LLaMA's norms and rotary angles) is taken in float64.
Weights are numbers by formula, of the tensor's name and the place in its file; tuning_truth_test.cc makes the same.
After 20 steps each trained tensor is two numbers: its product with numbers by formula, and its sum of squares.
"""
import numpy
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama
from transformers.optimization import Adafactor

ROWS, TOKENS, VOCABULARY, STEPS = 2, 6, 32, 20


def numbers(name, shape):
    """In [-1, 1): a hash of the name and the place."""
    base = 14695981039346656037
    for letter in name.encode():
        base = (base ^ letter) * 1099511628211 % 2**64
    count = int(numpy.prod(shape))
    x = numpy.uint64(base) + numpy.arange(count, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    x = x ^ (x >> numpy.uint64(31))
    return torch.tensor(((x >> numpy.uint64(11)).astype(numpy.float64) / 2**52 - 1).reshape(shape))


def weight(name, shape):
    x = numbers(name, shape)
    norm = ("norm" in name or ".ln_" in name) and name.endswith("weight")
    if name.endswith("lora_B.weight"):
        return 0 * x
    return 1 + 0.1 * x if norm else 0.3 * x


def norm_in_double(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def rotary_in_double(self, x, position_ids):
    dim = self.config.hidden_size // self.config.num_attention_heads
    inverse = 1.0 / 10000.0 ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = position_ids[:, :, None].double() * inverse
    both = torch.cat((angles, angles), dim=-1)
    return both.cos(), both.sin()


modeling_llama.LlamaRMSNorm.forward = norm_in_double
modeling_llama.LlamaRotaryEmbedding.forward = rotary_in_double


def gpt2():
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=8, n_embd=16, n_layer=2, n_head=4, embd_pdrop=0,
                                      resid_pdrop=0, attn_pdrop=0))


def llama():
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24,
                                        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                        rms_norm_eps=1e-5, tie_word_embeddings=False))


def file_name(name):
    """Of a module's param, as it is in files."""
    name = name.replace(".base_layer.", ".").replace(".modules_to_save.default.", ".").replace(".default.", ".")
    if name.startswith("base_model.model.") and ".lora_" not in name:
        name = name[len("base_model.model."):]
    return name


def trained(model):
    return {file_name(name): param for name, param in model.named_parameters() if param.requires_grad}


def fill(model):
    model.double().train()
    with torch.no_grad():
        for name, param in model.named_parameters():
            if ".original_module." not in name:
                param.copy_(weight(file_name(name), param.shape))


def adamw(model, groups=lambda name: {}):
    options = []
    for name, param in trained(model).items():
        own = {"params": [param], "lr": 1e-2, "weight_decay": 0.1 if param.ndim > 1 else 0.0}
        options.append(own | groups(name))
    return torch.optim.AdamW(options, betas=(0.9, 0.95), eps=1e-8)


class Lion(torch.optim.Optimizer):
    """Chen et al., NeurIPS'23, algorithm 2."""

    def __init__(self, groups):
        super().__init__(groups, {"lr": 1e-3, "weight_decay": 0.1, "betas": (0.9, 0.99)})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first, second = group["betas"]
            for param in group["params"]:
                state = self.state.setdefault(param, {})
                mean = state.setdefault("mean", torch.zeros_like(param))
                sign = torch.sign(first * mean + (1 - first) * param.grad)
                param.sub_(group["lr"] * (sign + group["weight_decay"] * param))
                mean.mul_(second).add_((1 - second) * param.grad)


def lion(model):
    return Lion([{"params": [param], "weight_decay": 0.1 if param.ndim > 1 else 0.0}
                 for param in trained(model).values()])


def adafactor(model, **options):
    decay = options.pop("weight_decay")
    groups = [{"params": [param], "weight_decay": decay if param.ndim > 1 else 0.0} for param in trained(model).values()]
    return Adafactor(groups, **options)


def cross_entropy(logits, labels):
    return torch.nn.functional.cross_entropy(logits, labels)


def smooth_with_z(logits, labels):
    spread = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=0.1)
    return spread + 0.01 * torch.logsumexp(logits, -1).square().mean()


def tune(case, model, optimizer, loss_of=cross_entropy):
    at = torch.arange(ROWS)[:, None] * (TOKENS + 1) + torch.arange(TOKENS + 1)[None]
    window = (at * at * 7 + at + 3) % VOCABULARY
    for step in range(STEPS):
        logits = model(input_ids=window[:, :-1]).logits.reshape(-1, VOCABULARY)
        loss = loss_of(logits, window[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in (0, STEPS - 1):
            print(case, f"loss{step}", repr(loss.item()), 0)
    for name, param in trained(model).items():
        probe = (param.detach() * numbers("probe/" + name, param.shape)).sum().item()
        print(case, name, repr(probe), repr(param.detach().square().sum().item()))


def with_lora(model, **options):
    tuned = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **options))
    fill(tuned)
    return tuned


def main():
    torch.manual_seed(0)
    model = with_lora(gpt2(), r=4, lora_alpha=8, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)
    tune("gpt2-lora", model, adamw(model))
    model = with_lora(llama(), r=4, lora_alpha=8, use_rslora=True, modules_to_save=["lm_head"],
                      target_modules=["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"])
    tune("llama-rslora", model, adamw(model))
    model = gpt2()
    fill(model)
    for name, param in model.named_parameters():
        param.requires_grad = ".wte." not in name and ".wpe." not in name and ".h.0." not in name
    tune("gpt2-frozen", model, adamw(model, lambda name: {"lr": 3e-2, "weight_decay": 0.02} if ".mlp." in name else {}))
    model = llama()
    fill(model)
    tune("llama-terms", model, adamw(model), smooth_with_z)
    model = gpt2()
    fill(model)
    # The gradient of the keys' biases is 0 but for rounding, whose sign is anybody's.
    for name, param in model.named_parameters():
        param.requires_grad = not name.endswith("c_attn.bias")
    tune("gpt2-lion", model, lion(model))
    model = gpt2()
    fill(model)
    for name, param in model.named_parameters():
        param.requires_grad = not name.endswith("c_attn.bias")
    tune("gpt2-adafactor", model, adafactor(model, weight_decay=0.0))
    model = llama()
    fill(model)
    tune("llama-adafactor", model,
         adafactor(model, lr=1e-3, relative_step=False, scale_parameter=False, clip_threshold=0.5, weight_decay=0.1))
    model = llama()
    fill(model)
    tune("llama-adafactor-warmup", model, adafactor(model, warmup_init=True, weight_decay=0.0))


if __name__ == "__main__":
    main()
