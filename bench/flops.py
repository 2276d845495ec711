"""Model FLOPs of a training step by the matrix products that it is made of."""


def _linears(spec):
    """(inputs, outputs, how many) of every matrix that tokens are multiplied with."""
    d, layers = spec["dim"], spec["layers"]
    if spec["model"] != "gpt2":
        kv = spec["kv_heads"] * d // spec["heads"]
        each = [(d, d, 2), (d, kv, 2)]
        each += [(d, spec["experts"], 1)] if "experts" in spec else [(d, spec["ffn"], 2), (spec["ffn"], d, 1)]
    else:
        each = [(d, 3 * d, 1), (d, d, 1), (d, 4 * d, 1), (4 * d, d, 1)]
    return [(i, o, count * layers) for i, o, count in each] + [(d, spec["vocab"], 1)]


def _expert_linears(spec):
    """The same of every expert, which get as many tokens each."""
    count = spec["layers"] * spec.get("experts", 0)
    return [(spec["dim"], spec["ffn"], 2 * count), (spec["ffn"], spec["dim"], count)] if count else []


def products(spec, dtype):
    """{(m, n, k, a transposed, b transposed, dtype): FLOPs of all such products of a step}. Each weight
    takes part in three: forward, gradient of its input, gradient of itself. Attention counts its causal
    half, once forward and twice backward; nothing that is computed again counts."""
    tokens, seq = spec["batch"] * spec["seq"], spec["seq"]
    flops = {}

    def add(count, m, n, k, ta=False, tb=False, part=1.0):
        key = (m, n, k, ta, tb, dtype)
        flops[key] = flops.get(key, 0) + 2.0 * count * m * n * k * part

    for i, o, count in _linears(spec):
        table = o == spec["vocab"]  # stored as [outputs, inputs]
        add(count, tokens, o, i, tb=table)
        add(count, tokens, i, o, tb=not table)
        add(count, *((o, i) if table else (i, o)), tokens, ta=True)
    for i, o, count in _expert_linears(spec):
        rows = tokens * spec["chosen"] // spec["experts"]
        add(count, rows, o, i)
        add(count, rows, i, o, tb=True)
        add(count, i, o, rows, ta=True)
    width, heads = spec["dim"] // spec["heads"], spec["layers"] * spec["batch"] * spec["heads"]
    add(2 * heads, seq, seq, width, tb=True, part=0.5)  # scores; gradient of the probabilities
    add(2 * heads, seq, width, seq, part=0.5)           # output; gradient of the queries
    add(2 * heads, seq, width, seq, ta=True, part=0.5)  # gradients of the keys and the values
    return flops


def limit_seconds(spec, dtype, rate):
    """Seconds of a step whose products all run at rate(shape) and that does nothing else."""
    return sum(flops / rate(shape) for shape, flops in products(spec, dtype).items())
