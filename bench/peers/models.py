"""GPT-2, LLaMA and Mixtral in plain PyTorch, the models that bench/run trains on both sides.

GPT-2: pre-LN, learned positions, tanh GELU, tied head. LLaMA: RMS norm, rotary positions, grouped
queries, SwiGLU, untied head. Mixtral: the same with experts, a loop over them as transformers has it,
or tokens sorted by expert and one grouped product. Attention is the library's fused call or spelled out. With a
process group, GPT-2 is split by tensors as Megatron does: QKV and the first layer of the MLP by
columns, the others by rows, the table of tokens and the loss by vocabulary.
Runs on PyTorch 1.13 and newer.
"""
import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class SumForward(torch.autograd.Function):
    """All-reduce going forward, identity going back."""

    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class SumBackward(torch.autograd.Function):
    """Identity going forward, all-reduce going back."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad


class VocabularyLoss(torch.autograd.Function):
    """Mean cross-entropy of logits whose columns are spread over the ranks."""

    @staticmethod
    def forward(ctx, logits, target, low, valid):
        logits = logits.float()
        if valid < logits.shape[1]:
            logits[:, valid:] = float("-inf")
        peak = logits.max(dim=1).values
        dist.all_reduce(peak, op=dist.ReduceOp.MAX)
        e = (logits - peak[:, None]).exp_()
        local = target - low
        inside = (local >= 0) & (local < logits.shape[1])
        local = local.clamp(0, logits.shape[1] - 1)
        zero = torch.zeros((), dtype=logits.dtype)
        picked = torch.where(inside, logits.gather(1, local[:, None])[:, 0], zero)
        sums = torch.stack((e.sum(dim=1), picked))
        dist.all_reduce(sums)
        ctx.save_for_backward(e.div_(sums[0][:, None]), local, inside)
        return (sums[0].log() + peak - sums[1]).mean()

    @staticmethod
    def backward(ctx, grad):
        p, local, inside = ctx.saved_tensors
        p[torch.arange(p.shape[0]), local] -= inside.to(p.dtype)
        return p.mul_(grad / p.shape[0]), None, None, None


def attend(q, k, v, mask, fused):
    """q, k, v [batch, heads, sequence, width] -> the same; causal."""
    if fused:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = torch.matmul(q, k.transpose(-2, -1)) * (1.0 / math.sqrt(q.shape[-1])) + mask
    return torch.matmul(torch.softmax(scores, dim=-1), v)


def causal_mask(sequence):
    return torch.full((sequence, sequence), float("-inf")).triu(1)


class GptBlock(nn.Module):
    def __init__(self, spec, ranks):
        super().__init__()
        d, self.heads = spec.dim, spec.heads // ranks
        self.width, self.fused, self.split = d // spec.heads, spec.fused, ranks > 1
        local = self.heads * self.width
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * local)
        # A bias behind a sum over ranks is added once, after it.
        self.proj = nn.Linear(local, d, bias=not self.split)
        self.up = nn.Linear(d, 4 * d // ranks)
        self.down = nn.Linear(4 * d // ranks, d, bias=not self.split)
        if self.split:
            self.proj_bias = nn.Parameter(torch.zeros(d))
            self.down_bias = nn.Parameter(torch.zeros(d))

    def enter(self, x):
        return SumBackward.apply(x) if self.split else x

    def leave(self, x, bias):
        return SumForward.apply(x) + bias if self.split else x

    def forward(self, x, mask):
        b, s, _ = x.shape
        qkv = self.qkv(self.enter(self.ln1(x))).view(b, s, 3, self.heads, self.width)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = attend(q, k, v, mask, self.fused).transpose(1, 2).reshape(b, s, -1)
        x = x + self.leave(self.proj(y), getattr(self, "proj_bias", None))
        y = self.down(F.gelu(self.up(self.enter(self.ln2(x))), approximate="tanh"))
        return x + self.leave(y, getattr(self, "down_bias", None))


class Gpt2(nn.Module):
    def __init__(self, spec, rank=0, ranks=1):
        super().__init__()
        self.split = ranks > 1
        self.rows = (spec.vocab + ranks - 1) // ranks
        self.low = rank * self.rows
        self.valid = min(self.rows, spec.vocab - self.low)
        self.wte, self.wpe = nn.Embedding(self.rows, spec.dim), nn.Embedding(spec.seq, spec.dim)
        self.blocks = nn.ModuleList(GptBlock(spec, ranks) for _ in range(spec.layers))
        self.ln_f = nn.LayerNorm(spec.dim)
        self.register_buffer("mask", causal_mask(spec.seq))

    def embed(self, tokens):
        if not self.split:
            return self.wte(tokens)
        local = tokens - self.low
        outside = (local < 0) | (local >= self.rows)
        x = F.embedding(local.masked_fill(outside, 0), self.wte.weight)
        return SumForward.apply(x.masked_fill(outside[..., None], 0.0))

    def forward(self, tokens, labels):
        x = self.embed(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, self.mask)
        x = self.ln_f(x)
        labels = labels.reshape(-1)
        if self.split:
            logits = F.linear(SumBackward.apply(x), self.wte.weight).view(-1, self.rows)
            return VocabularyLoss.apply(logits, labels, self.low, self.valid)
        logits = F.linear(x, self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels)


class RmsNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.library = getattr(F, "rms_norm", None)

    def forward(self, x):
        if self.library is not None:
            return self.library(x, (x.shape[-1],), self.weight, 1e-6)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Experts(nn.Module):
    """Top-k of a softmax, weights that add up to one."""

    def __init__(self, spec):
        super().__init__()
        self.count, self.chosen, self.grouped = spec.experts, spec.chosen, spec.mode == "grouped"
        self.router = nn.Linear(spec.dim, spec.experts, bias=False)
        self.gate_up = nn.Parameter(torch.empty(spec.experts, 2 * spec.ffn, spec.dim).normal_(std=0.02))
        self.down = nn.Parameter(torch.empty(spec.experts, spec.dim, spec.ffn).normal_(std=0.02))

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        shares = torch.softmax(self.router(tokens).float(), dim=-1)
        weights, ids = shares.topk(self.chosen, dim=-1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(tokens.dtype)
        route = self.sorted_runs if self.grouped else self.loop
        return route(tokens, weights, ids).view_as(x)

    def loop(self, tokens, weights, ids):
        out = torch.zeros_like(tokens)
        for expert in range(self.count):
            token, choice = torch.where(ids == expert)
            if token.numel() == 0:
                continue
            gate, up = F.linear(tokens[token], self.gate_up[expert]).chunk(2, dim=-1)
            y = F.linear(F.silu(gate) * up, self.down[expert])
            out.index_add_(0, token, y * weights[token, choice, None])
        return out

    def sorted_runs(self, tokens, weights, ids):
        order = ids.flatten().argsort(stable=True)
        ends = torch.bincount(ids.flatten(), minlength=self.count).cumsum(0).to(torch.int32)
        token = order // self.chosen
        gate, up = self.product(tokens[token], self.gate_up, ends).chunk(2, dim=-1)
        y = self.product(F.silu(gate) * up, self.down, ends)
        return torch.zeros_like(tokens).index_add_(0, token, y * weights.flatten()[order, None])

    @staticmethod
    def product(x, matrices, ends):
        return torch._grouped_mm(x, matrices.transpose(-2, -1), offs=ends)


class LlamaBlock(nn.Module):
    def __init__(self, spec):
        super().__init__()
        d, self.heads, self.kv = spec.dim, spec.heads, spec.kv_heads
        self.width, self.fused = d // spec.heads, spec.fused
        self.norm1, self.norm2 = RmsNorm(d), RmsNorm(d)
        self.qkv = nn.Linear(d, (self.heads + 2 * self.kv) * self.width, bias=False)
        self.o = nn.Linear(d, d, bias=False)
        self.experts = Experts(spec) if spec.model == "mixtral" else None
        if self.experts is not None:
            return
        self.gate_up = nn.Linear(d, 2 * spec.ffn, bias=False)
        self.down = nn.Linear(spec.ffn, d, bias=False)

    def forward(self, x, mask, cos, sin):
        b, s, _ = x.shape
        sizes = [self.heads, self.kv, self.kv]
        qkv = self.qkv(self.norm1(x)).view(b, s, sum(sizes), self.width).transpose(1, 2)
        q, k, v = qkv.split(sizes, dim=1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (t.repeat_interleave(self.heads // self.kv, dim=1) for t in (k, v))
        x = x + self.o(attend(q, k, v, mask, self.fused).transpose(1, 2).reshape(b, s, -1))
        if self.experts is not None:
            return x + self.experts(self.norm2(x))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.embed = nn.Embedding(spec.vocab, spec.dim)
        self.blocks = nn.ModuleList(LlamaBlock(spec) for _ in range(spec.layers))
        self.norm = RmsNorm(spec.dim)
        self.head = nn.Linear(spec.dim, spec.vocab, bias=False)
        half = spec.dim // spec.heads // 2
        angles = torch.outer(torch.arange(spec.seq).float(), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("mask", causal_mask(spec.seq))

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.mask, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.reshape(-1))


def make_model(spec, rank=0, ranks=1):
    """spec: dim, layers, heads, kv_heads, ffn, seq, vocab, fused, model, and of Mixtral experts, chosen, mode. Weights from one seed."""
    torch.manual_seed(1234)
    model = Gpt2(spec, rank, ranks) if spec.model == "gpt2" else Llama(spec)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02)
        elif "bias" in name:
            nn.init.zeros_(parameter)
    return model
