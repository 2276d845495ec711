"""Writes mixture_truth.txt: losses and gradients of small mixtures of experts as transformers has them.

Needs torch and transformers (5.x): python mixture_truth.py > mixture_truth.txt. Weights are numbers by formula, in the
shapes that this project has them in; mixture_truth_test.cc makes the same ones. A gradient is one number, its
product with numbers by formula. Routers of transformers compute in float32, so six digits count.
"""
import numpy
import torch
from transformers import (GptOssConfig, GptOssForCausalLM, LlamaConfig, LlamaForCausalLM, MixtralConfig,
                          MixtralForCausalLM, OlmoeConfig, OlmoeForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM,
                          Qwen3MoeConfig, Qwen3MoeForCausalLM)
from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3ForCausalLM, DeepseekV3MoE

ROWS, TOKENS, VOCABULARY, WIDTH, HEADS, KV_HEADS, INNER, LAYERS = 2, 6, 32, 16, 4, 2, 12, 2
HEAD = WIDTH // HEADS
AUX = 0.02


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
    if "norm" in name:
        return 1 + 0.1 * x
    return x if name.endswith("gate.weight") else 0.3 * x


class Places:
    """Our params beside those of transformers: shapes here, and views of a gradient there."""

    def __init__(self, model):
        model.double().eval()  # which makes new buffers
        self.model = dict(model.named_parameters()) | dict(model.named_buffers())
        self.rows = []

    def add(self, name, shape, to_ours, to_theirs, theirs=None, part=None):
        self.rows.append((name, shape, to_ours, to_theirs, theirs or name, part))

    def same(self, name, shape):
        self.add(name, shape, lambda x: x.reshape(shape), lambda x: x)

    def turned(self, name, shape):
        """Ours [in, ..out], theirs [out, in]."""
        self.add(name, shape, lambda x: x.T.reshape(shape), lambda x: x.reshape(shape[0], -1).T)

    def projection(self, name, heads, bias):
        self.turned(name + ".weight", (WIDTH, heads, HEAD))
        if bias:
            self.add(name + ".bias", (heads, HEAD), lambda x: x.reshape(heads, HEAD), lambda x: x.reshape(-1))

    def out(self, name, head):
        shape = (HEADS, head, WIDTH)
        self.add(name, shape, lambda x: x.T.reshape(shape), lambda x: x.reshape(-1, WIDTH).T)

    def swiglu(self, name, inner):
        for part in ("gate_proj", "up_proj"):
            self.turned(f"{name}.{part}.weight", (WIDTH, inner))
        self.turned(f"{name}.down_proj.weight", (inner, WIDTH))

    def experts(self, ours, theirs, parts, experts):
        """Ours [experts, in, out]; theirs [experts, out, in], gate and up in one."""
        across = lambda x: x.transpose(1, 2)
        halves = (slice(0, INNER), slice(INNER, 2 * INNER))
        for part, half in zip(parts[:2], halves):
            self.add(f"{ours}.{part}", (experts, WIDTH, INNER), across, across, theirs + ".gate_up_proj", half)
        self.add(f"{ours}.{parts[2]}", (experts, INNER, WIDTH), across, across, theirs + ".down_proj")

    @staticmethod
    def part_of(tensor, part):
        """part: of the second dim, or of those behind the first."""
        return tensor if part is None else tensor[(slice(None), *part)] if type(part) is tuple else tensor[:, part]

    def fill(self):
        with torch.no_grad():
            for name, shape, _, to_theirs, theirs, part in self.rows:
                tensor = self.model[theirs]
                place = self.part_of(tensor, part)
                place.copy_(to_theirs(weight(name, shape)))

    def gradients(self):
        for name, shape, to_ours, _, theirs, part in self.rows:
            grad = self.model[theirs].grad
            if grad is None:
                continue
            ours = to_ours(self.part_of(grad, part))
            yield name, (ours * numbers("probe/" + name, shape)).sum().item()


def latent_places(rows, name):
    """DeepSeek's attention; its vectors have ranks 10 and 6, its heads 4 + 2 elements, and 5 of values."""
    rows.turned(name + ".q_a_proj.weight", (WIDTH, 10))
    rows.same(name + ".q_a_layernorm.weight", (10,))
    rows.turned(name + ".q_b_proj.weight", (10, HEADS, 6))
    rows.turned(name + ".kv_a_proj_with_mqa.weight", (WIDTH, 8))
    rows.same(name + ".kv_a_layernorm.weight", (6,))
    rows.turned(name + ".kv_b_proj.weight", (6, HEADS, 9))
    rows.out(name + ".o_proj.weight", 5)


def places(model, bias=False, head_norm=None, of_layer=None, latent=False):
    result = Places(model)
    result.same("model.embed_tokens.weight", (VOCABULARY, WIDTH))
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        result.same(layer + ".input_layernorm.weight", (WIDTH,))
        result.same(layer + ".post_attention_layernorm.weight", (WIDTH,))
        of_layer(result, layer, i)
        if latent:
            latent_places(result, layer + ".self_attn")
            continue
        result.projection(layer + ".self_attn.q_proj", HEADS, bias)
        result.projection(layer + ".self_attn.k_proj", KV_HEADS, bias)
        for kind, heads in (("q", HEADS), ("k", KV_HEADS)):
            if head_norm:
                length = HEAD if head_norm == "each" else heads * HEAD
                result.same(f"{layer}.self_attn.{kind}_norm.weight", (length,))
        result.projection(layer + ".self_attn.v_proj", KV_HEADS, bias)
        result.out(layer + ".self_attn.o_proj.weight", HEAD)
    result.same("model.norm.weight", (WIDTH,))
    result.same("lm_head.weight", (VOCABULARY, WIDTH))
    return result


def show(family, model, rows, **extra):
    rows.fill()
    window = torch.arange(ROWS * (TOKENS + 1)).reshape(ROWS, TOKENS + 1)
    window = (window * window * 7 + window + 3) % VOCABULARY
    answer = model(input_ids=window[:, :-1], **extra)
    loss = torch.nn.functional.cross_entropy(answer.logits.reshape(-1, VOCABULARY), window[:, 1:].reshape(-1))
    if getattr(answer, "aux_loss", None) is not None:
        loss = loss + AUX * answer.aux_loss
    loss.backward()
    print(family, "loss", repr(loss.item()))
    for name, value in rows.gradients():
        print(family, name, repr(value))


SIZES = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
         "num_key_value_heads": KV_HEADS, "rms_norm_eps": 1e-5, "max_position_embeddings": 64,
         "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "pad_token_id": None,
         "bos_token_id": None, "eos_token_id": None, "attn_implementation": "sdpa",
         "experts_implementation": "eager"}
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def routed(layer_name, parts, experts, theirs="mlp"):
    def of_layer(rows, layer, _):
        rows.add(f"{layer}.{layer_name}.gate.weight", (experts, WIDTH), lambda x: x, lambda x: x,
                 f"{layer}.{theirs}.gate.weight")
        rows.experts(f"{layer}.{layer_name}.experts", f"{layer}.{theirs}.experts", parts, experts)
    return of_layer


def mixtral():
    model = MixtralForCausalLM(MixtralConfig(**SIZES, intermediate_size=INNER, num_local_experts=4,
                                             num_experts_per_tok=2, sliding_window=None))
    rows = places(model, of_layer=routed("block_sparse_moe", ("w1", "w3", "w2"), 4))
    show("mixtral", model, rows, output_router_logits=True)


def qwen2():
    def of_layer(rows, layer, index):
        routed("mlp", PROJECTIONS, 4)(rows, layer, index)
        rows.swiglu(layer + ".mlp.shared_expert", 20)
        rows.same(layer + ".mlp.shared_expert_gate.weight", (1, WIDTH))
    model = Qwen2MoeForCausalLM(Qwen2MoeConfig(**SIZES, intermediate_size=INNER, moe_intermediate_size=INNER,
                                               shared_expert_intermediate_size=20, num_experts=4,
                                               num_experts_per_tok=2, norm_topk_prob=False))
    show("qwen2-moe", model, places(model, bias=True, of_layer=of_layer), output_router_logits=True)


def qwen3():
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES, head_dim=HEAD, intermediate_size=INNER,
                                               moe_intermediate_size=INNER, num_experts=4, num_experts_per_tok=2,
                                               norm_topk_prob=True))
    rows = places(model, head_norm="each", of_layer=routed("mlp", PROJECTIONS, 4))
    show("qwen3-moe", model, rows, output_router_logits=True)


def olmoe():
    model = OlmoeForCausalLM(OlmoeConfig(**SIZES, intermediate_size=INNER, num_experts=4, num_experts_per_tok=2,
                                         norm_topk_prob=False))
    rows = places(model, head_norm="together", of_layer=routed("mlp", PROJECTIONS, 4))
    show("olmoe", model, rows, output_router_logits=True)


def of_deepseek(rows, layer, index):
    if index == 0:
        rows.swiglu(layer + ".mlp", 20)
        return
    rows.same(layer + ".mlp.gate.e_score_correction_bias", (8,))
    routed("mlp", PROJECTIONS, 8)(rows, layer, index)
    rows.swiglu(layer + ".mlp.shared_experts", INNER)


def deepseek():
    """DeepSeek-V3's layer of experts in LLaMA's blocks, the first one dense; then all of DeepSeek-V3."""
    routing = {"moe_intermediate_size": INNER, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
               "n_group": 4, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5}
    model = LlamaForCausalLM(LlamaConfig(**SIZES, intermediate_size=20))
    model.model.layers[1].mlp = DeepseekV3MoE(DeepseekV3Config(hidden_size=WIDTH, **routing))
    show("deepseek-moe", model, places(model, of_layer=of_deepseek))
    sizes = SIZES | {"num_key_value_heads": HEADS, "rms_norm_eps": 1e-6}
    model = DeepseekV3ForCausalLM(DeepseekV3Config(
        **sizes, **routing, intermediate_size=20, first_k_dense_replace=1, q_lora_rank=10, kv_lora_rank=6,
        qk_nope_head_dim=4, qk_rope_head_dim=2, v_head_dim=5, rope_interleave=False))
    show("deepseek-v3", model, places(model, of_layer=of_deepseek, latent=True))


def gpt_oss():
    """Its experts have gate and up in turn, [experts, in, out]; the first layer sees 3 tokens, the second all."""
    def of_layer(rows, layer, _):
        experts, theirs = layer + ".mlp.experts", layer + ".mlp.experts."
        rows.add(layer + ".mlp.gate.weight", (4, WIDTH), lambda x: x, lambda x: x, layer + ".mlp.router.weight")
        rows.add(layer + ".mlp.gate.bias", (4,), lambda x: x, lambda x: x, layer + ".mlp.router.bias")
        for first, part in enumerate(("gate_proj", "up_proj")):
            every_second = (slice(None), slice(first, None, 2))
            rows.add(f"{experts}.{part}", (4, WIDTH, INNER), lambda x: x, lambda x: x, theirs + "gate_up_proj",
                     every_second)
            rows.add(f"{experts}.{part}_bias", (4, 1, INNER), lambda x: x.reshape(4, 1, INNER),
                     lambda x: x.reshape(4, INNER), theirs + "gate_up_proj_bias", slice(first, None, 2))
        rows.add(experts + ".down_proj", (4, INNER, WIDTH), lambda x: x, lambda x: x)
        rows.add(experts + ".down_proj_bias", (4, 1, WIDTH), lambda x: x.reshape(4, 1, WIDTH),
                 lambda x: x.reshape(4, WIDTH))
        rows.same(layer + ".self_attn.sinks", (HEADS,))
        rows.same(layer + ".self_attn.o_proj.bias", (WIDTH,))
    model = GptOssForCausalLM(GptOssConfig(**SIZES | {"attn_implementation": "eager"}, head_dim=HEAD,
                                           intermediate_size=INNER, num_local_experts=4, num_experts_per_tok=2,
                                           sliding_window=3))
    for block in model.model.layers:
        block.mlp.experts.limit = 0.5  # 7 would never be reached
    show("gpt-oss", model, places(model, bias=True, of_layer=of_layer), output_router_logits=True)


for family in (mixtral, qwen2, qwen3, olmoe, deepseek, gpt_oss):
    family()
