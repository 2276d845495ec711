"""The graph builder: formulas on values, as text of the grammar in ir/text.h.

Its ops are those of client/layers.h, by the same rules: shapes are fitted here, the ops of a graph
know equal shapes and suffixes only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

from . import _shapes
from ._errors import refuse
from ._shapes import Dims, Type, common, from_front, is_suffix, statistic

AttrValue = Union[int, float, str, list[int], list[str]]
Operand = Union["Value", float, int]


def _quoted(text: str) -> str:
    out = []
    for char in text:
        if char in '"\\':
            out.append("\\" + char)
        elif ord(char) < 0x20 or ord(char) == 0x7F:
            out.append(f"\\x{ord(char):02x}")
        else:
            out.append(char)
    return '"' + "".join(out) + '"'


def _attr_text(value: AttrValue) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list):
        if not value:
            return "[]"
        return "[" + ",".join(str(v) if isinstance(v, int) else _quoted(v) for v in value) + "]"
    return repr(value)


@dataclass(frozen=True, eq=False)
class Value:
    """A value of a graph. Python's operators work on it: x + y, 2 * x, x @ w, x > 0."""

    graph: "Graph"
    id: int
    type: Type

    @property
    def dims(self) -> Dims:
        """Its shape."""
        return self.type.dims

    @property
    def dtype(self) -> str:
        """Its type: "f32", "i32", "bool", ..."""
        return self.type.dtype

    def __add__(self, other: Operand) -> "Value":
        return self.graph.add(self, other)

    def __radd__(self, other: Operand) -> "Value":
        return self.graph.add(self, other)

    def __sub__(self, other: Operand) -> "Value":
        return self.graph.sub(self, other)

    def __rsub__(self, other: Operand) -> "Value":
        return self.graph.add(self.graph.neg(self), other)

    def __mul__(self, other: Operand) -> "Value":
        return self.graph.mul(self, other)

    def __rmul__(self, other: Operand) -> "Value":
        return self.graph.mul(self, other)

    def __truediv__(self, other: Operand) -> "Value":
        return self.graph.div(self, other)

    def __pow__(self, other: Operand) -> "Value":
        return self.graph.pow(self, other)

    def __neg__(self) -> "Value":
        return self.graph.neg(self)

    def __lt__(self, other: Operand) -> "Value":
        return self.graph.less(self, other)

    def __le__(self, other: Operand) -> "Value":
        return self.graph.less_equal(self, other)

    def __gt__(self, other: Operand) -> "Value":
        return self.graph.greater(self, other)

    def __ge__(self, other: Operand) -> "Value":
        return self.graph.greater_equal(self, other)

    def __matmul__(self, other: "Value") -> "Value":
        """[..., m, k] @ [k, n], or of two stacks of matrices."""
        rank, other_rank = len(self.dims), len(other.dims)
        letters = "abcdefgh"
        if rank < 2 or rank > 8 or other_rank not in (2, rank):
            refuse(f"{self.type} @ {other.type}: write it as an einsum")
        lead = letters[: rank - 2]
        right = ("" if other_rank == 2 else lead) + "yz"
        return self.graph.einsum(f"{lead}xy,{right}->{lead}xz", self, other)


class Graph:
    """A graph that grows: every method adds nodes and returns their value.

    name: of the program. dtype: of weights and of what it fills: "f32" or "f64". `layer` is given
    to nodes from now on: number the layers of a deep model from 0, so that it can be cut into
    pipeline stages; -1 is none.
    """

    def __init__(self, name: str, dtype: str = "f32") -> None:
        if dtype not in ("f32", "f64"):
            refuse(f"a graph is of f32 or f64, not {dtype}; training.dtype says how it computes")
        self.name = name
        self.dtype = dtype
        self.layer = -1
        self.outputs: dict[str, tuple[Value, bool]] = {}
        self._lines: list[str] = []
        self._values = 0
        self._names: set[str] = set()

    # ---- Nodes ----

    def node(
        self,
        op: str,
        inputs: Sequence[Value],
        results: Sequence[Type],
        attrs: dict[str, AttrValue] | None = None,
    ) -> list[Value]:
        """A node of any op of ir/op.h, for what has no method. results: its types, which the
        controller checks."""
        for value in inputs:
            if value.graph is not self:
                refuse(f"{op} of graph '{self.name}' has a value of graph '{value.graph.name}'")
        made = [Value(self, self._values + i, Type(*each)) for i, each in enumerate(results)]
        self._values += len(made)
        text = ", ".join(f"%{value.id}" for value in made) + f" = {op}"
        if inputs:
            text += "(" + ", ".join(f"%{value.id}" for value in inputs) + ")"
        if attrs:
            listed = ", ".join(f"{name}={_attr_text(attrs[name])}" for name in sorted(attrs))
            text += f" {{{listed}}}"
        if self.layer != -1:
            text += f" @layer{self.layer}"
        self._lines.append(text + " : " + ", ".join(str(value.type) for value in made))
        return made

    def _one(
        self, op: str, inputs: Sequence[Value], result: Type, **attrs: AttrValue
    ) -> Value:
        return self.node(op, inputs, [result], attrs)[0]

    def _claim(self, name: str) -> None:
        if name in self._names:
            refuse(
                f"the name '{name}' is used twice in graph '{self.name}'; weights, dropouts and "
                "noise need unique names"
            )
        self._names.add(name)

    def text(self) -> str:
        """The text form of the graph."""
        lines = [f"graph {_quoted(self.name)} {{"]
        lines += [f"  {line}" for line in self._lines]
        for name, (value, mean) in self.outputs.items():
            lines.append(f"  output {_quoted(name)} %{value.id}" + (" mean" if mean else ""))
        return "\n".join([*lines, "}"]) + "\n"

    def set_output(self, name: str, value: Value, mean: bool = False) -> None:
        """Gives something out. mean: of a scalar that is a mean over its batch: over several
        batches it is averaged, others are summed."""
        self.outputs[name] = (value, mean)

    # ---- Sources ----

    def feed(self, name: str, dtype: str, dims: Sequence[int], batch: bool = True) -> Value:
        """An input; `meshwright.graph.program` makes them."""
        attrs: dict[str, AttrValue] = {"source": name}
        if not batch:
            attrs["batch"] = 0
        return self._one("feed", [], Type(dtype, tuple(dims)), **attrs)

    def param(
        self,
        name: str,
        dims: Sequence[int],
        init: str = "normal",
        std: float = 0.02,
        decay: bool | None = None,
    ) -> Value:
        """A trained weight. init: "normal", "zeros" or "ones". decay: None: of rank 2 and more."""
        self._claim(name)
        decays = len(dims) >= 2 if decay is None else decay
        attrs: dict[str, AttrValue] = {
            "name": name,
            "init": init,
            "decay": int(decays),
            "export_name": name,
        }
        if init == "normal":
            attrs.update(mean=0.0, std=float(std))
        return self._one("param", [], Type(self.dtype, tuple(dims)), **attrs)

    def fill(self, dims: Sequence[int], value: float) -> Value:
        """A tensor of one value."""
        return self._constant(Type(self.dtype, tuple(dims)), value)

    def _constant(self, kind: Type, value: float) -> Value:
        return self._one("constant", [], kind, value=float(value))

    def iota(self, count: int) -> Value:
        """i32[count]: 0, 1, 2, ..."""
        # Of equal elements top_k gives the places in their order.
        return self.top_k(self.fill((count,), 0), count)[1]

    # ---- Formulas of two values: shapes are fitted as in NumPy ----

    def _operand(self, like: Value, value: Operand) -> Value:
        if isinstance(value, Value):
            return value
        return self._constant(Type(like.dtype, ()), value)

    def _binary(self, op: str, x: Value, other: Operand, result: str | None = None) -> Value:
        y = self._operand(x, other)
        if x.dtype != y.dtype:
            refuse(f"{op} of {x.type} and {y.type}: cast one of them")
        if not is_suffix(x.dims, y.dims):
            if op in ("add", "mul") and is_suffix(y.dims, x.dims):
                x, y = y, x
            else:
                x, y = self._fitted(op, x, y)
        return self._one(op, [x, y], Type(result or x.dtype, x.dims))

    def _fitted(self, op: str, x: Value, y: Value) -> tuple[Value, Value]:
        without_ones = y.dims
        while without_ones and without_ones[0] == 1:
            without_ones = without_ones[1:]
        if is_suffix(x.dims, without_ones):
            return x, self.reshape(y, without_ones)
        wide = common(x.dims, y.dims)
        if wide is None:
            refuse(f"{op} of {x.type} and {y.type}: dims must be equal, or one of them 1")
        fits = is_suffix(wide, y.dims)
        return self.broadcast_to(x, wide), y if fits else self.broadcast_to(y, wide)

    def add(self, x: Value, y: Operand) -> Value:
        """x + y."""
        return self._binary("add", x, y) if isinstance(y, Value) else self.shift(x, y)

    def mul(self, x: Value, y: Operand) -> Value:
        """x * y."""
        return self._binary("mul", x, y) if isinstance(y, Value) else self.scale(x, y)

    def sub(self, x: Value, y: Operand) -> Value:
        """x - y."""
        return self._binary("sub", x, y) if isinstance(y, Value) else self.shift(x, -y)

    def div(self, x: Value, y: Operand) -> Value:
        """x / y."""
        return self._binary("divide", x, y)

    def pow(self, x: Value, y: Operand) -> Value:
        """x to the power of y."""
        return self._binary("pow", x, y)

    def maximum(self, x: Value, y: Operand) -> Value:
        """The larger."""
        return self._binary("maximum", x, y)

    def minimum(self, x: Value, y: Operand) -> Value:
        """The smaller."""
        return self._binary("minimum", x, y)

    def equal(self, x: Value, y: Operand) -> Value:
        """x == y, as bool."""
        return self._binary("equal", x, y, "bool")

    def not_equal(self, x: Value, y: Operand) -> Value:
        """x != y, as bool."""
        return self._binary("not_equal", x, y, "bool")

    def less(self, x: Value, y: Operand) -> Value:
        """x < y, as bool."""
        return self._binary("less", x, y, "bool")

    def less_equal(self, x: Value, y: Operand) -> Value:
        """x <= y, as bool."""
        return self._binary("less_equal", x, y, "bool")

    def greater(self, x: Value, y: Operand) -> Value:
        """x > y, as bool."""
        return self._binary("greater", x, y, "bool")

    def greater_equal(self, x: Value, y: Operand) -> Value:
        """x >= y, as bool."""
        return self._binary("greater_equal", x, y, "bool")

    def logical_and(self, x: Value, y: Value) -> Value:
        """Both, of bool."""
        return self._binary("logical_and", x, y)

    def logical_or(self, x: Value, y: Value) -> Value:
        """One or both, of bool."""
        return self._binary("logical_or", x, y)

    def logical_not(self, x: Value) -> Value:
        """Not x, of bool."""
        return self._one("logical_not", [x], x.type)

    def where(self, condition: Value, x: Value, y: Value) -> Value:
        """x where `condition` (bool), else y."""
        of_two = common(x.dims, y.dims)
        wide = None if of_two is None else common(of_two, condition.dims)
        if wide is None:
            refuse(f"where of {condition.type}, {x.type} and {y.type}: dims must be equal, or 1")
        other = y if is_suffix(wide, y.dims) else self.broadcast_to(y, wide)
        operands = [self.broadcast_to(condition, wide), self.broadcast_to(x, wide), other]
        return self._one("select", operands, Type(x.dtype, wide))

    # ---- Formulas of one value ----

    def _map(self, op: str, x: Value, **attrs: AttrValue) -> Value:
        return self._one(op, [x], x.type, **attrs)

    def scale(self, x: Value, factor: float) -> Value:
        """factor * x."""
        return self._map("scale", x, factor=float(factor))

    def shift(self, x: Value, value: float) -> Value:
        """x + value."""
        return self._map("shift", x, value=float(value))

    def neg(self, x: Value) -> Value:
        """-x."""
        return self.scale(x, -1)

    def abs(self, x: Value) -> Value:
        """|x|."""
        return self._map("abs", x)

    def sign(self, x: Value) -> Value:
        """-1, 0 or 1; no gradient passes."""
        return self._map("sign", x)

    def exp(self, x: Value) -> Value:
        """e to the power of x."""
        return self._map("exp", x)

    def log(self, x: Value) -> Value:
        """The natural logarithm."""
        return self._map("log", x)

    def sqrt(self, x: Value) -> Value:
        """The square root."""
        return self._map("sqrt", x)

    def rsqrt(self, x: Value) -> Value:
        """1 / sqrt(x)."""
        return self._map("rsqrt", x)

    def square(self, x: Value) -> Value:
        """x * x."""
        return self._map("square", x)

    def erf(self, x: Value) -> Value:
        """The error function."""
        return self._map("erf", x)

    def relu(self, x: Value) -> Value:
        """max(x, 0)."""
        return self._map("relu", x)

    def tanh(self, x: Value) -> Value:
        """The hyperbolic tangent."""
        return self._map("tanh", x)

    def sigmoid(self, x: Value) -> Value:
        """1 / (1 + exp(-x))."""
        return self._map("sigmoid", x)

    def softplus(self, x: Value) -> Value:
        """log(1 + exp(x))."""
        return self._map("softplus", x)

    def gelu(self, x: Value) -> Value:
        """GELU, the tanh form."""
        return self._map("gelu", x)

    def gelu_erf(self, x: Value) -> Value:
        """GELU, the exact one."""
        return self._map("gelu_erf", x)

    def silu(self, x: Value) -> Value:
        """x * sigmoid(x)."""
        return self._map("silu", x)

    def cast(self, x: Value, dtype: str) -> Value:
        """x as another type."""
        if x.dtype == dtype:
            return x
        return self._one("cast", [x], Type(dtype, x.dims), dtype=dtype)

    def stop_gradient(self, x: Value) -> Value:
        """x as a constant: gradients do not pass."""
        return self._map("stop_gradient", x)

    # ---- Structure: a negative dim counts from the end ----

    def einsum(self, equation: str, a: Value, b: Value) -> Value:
        """A contraction: "bqd,bkd->bqk"."""
        return self._one(
            "einsum", [a, b], _shapes.einsum(equation, a.type, b.type), equation=equation
        )

    def slice(self, x: Value, dim: int, start: int, size: int) -> Value:
        """A part of a dim."""
        at = from_front(len(x.dims), [dim], "slice")[0]
        if start < 0 or size < 1 or start + size > x.dims[at]:
            refuse(f"slice: {start} + {size} is beyond dim {dim} of {x.type}")
        dims = (*x.dims[:at], size, *x.dims[at + 1 :])
        return self._one("slice", [x], Type(x.dtype, dims), dim=at, start=start, size=size)

    def pad(self, x: Value, dim: int, before: int, after: int) -> Value:
        """Zeros around."""
        at = from_front(len(x.dims), [dim], "pad")[0]
        dims = (*x.dims[:at], x.dims[at] + before + after, *x.dims[at + 1 :])
        return self._one("pad", [x], Type(x.dtype, dims), dim=at, before=before, after=after)

    def concat(self, parts: Sequence[Value], dim: int) -> Value:
        """Parts one after the other."""
        if not parts:
            refuse("concat of nothing")
        first = parts[0]
        at = from_front(len(first.dims), [dim], "concat")[0]
        for part in parts:
            if part.dims[:at] != first.dims[:at] or part.dims[at + 1 :] != first.dims[at + 1 :]:
                refuse(f"concat of {first.type} and {part.type}: they differ beside dim {dim}")
        dims = (*first.dims[:at], sum(part.dims[at] for part in parts), *first.dims[at + 1 :])
        return self._one("concat", list(parts), Type(first.dtype, dims), dim=at)

    def reshape(self, x: Value, dims: Sequence[int]) -> Value:
        """The same elements in another shape; one dim may be -1."""
        given = list(dims)
        if -1 in given:
            known = math.prod(size for size in given if size != -1)
            if given.count(-1) > 1 or known == 0 or x.type.elements % known:
                refuse(f"reshape: {x.type} does not become {given}")
            given[given.index(-1)] = x.type.elements // known
        if math.prod(given) != x.type.elements:
            refuse(f"reshape: {x.type} has {x.type.elements} elements, {given} has others")
        return self._one("reshape", [x], Type(x.dtype, tuple(given)))

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """Dims in another order."""
        if sorted(perm) != list(range(len(x.dims))):
            refuse(f"transpose: {list(perm)} is no order of the dims of {x.type}")
        dims = tuple(x.dims[at] for at in perm)
        return self._one("transpose", [x], Type(x.dtype, dims), perm=list(perm))

    def broadcast_to(self, x: Value, dims: Sequence[int]) -> Value:
        """x repeated, as NumPy does."""
        wanted = tuple(dims)
        if common(x.dims, wanted) != wanted:
            refuse(f"{x.type} does not repeat to {list(wanted)}")
        if x.dims == wanted:
            return x
        leading = len(wanted) - len(x.dims)
        repeated = [
            i for i, size in enumerate(wanted) if i < leading or x.dims[i - leading] != size
        ]
        kept = tuple(size for i, size in enumerate(wanted) if i not in repeated)
        narrow = x if kept == x.dims else self.reshape(x, kept)
        return self._one("broadcast", [narrow], Type(x.dtype, wanted), dims=repeated)

    # ---- Reductions over dims, which go, or stay as 1 ----

    def _reduce(self, op: str, x: Value, dims: Sequence[int], keep_dims: bool) -> Value:
        gone = from_front(len(x.dims), dims, op)
        left = tuple(size for i, size in enumerate(x.dims) if i not in gone)
        result = self._one(op, [x], Type(x.dtype, left), dims=gone)
        if not keep_dims:
            return result
        return self.reshape(result, [1 if i in gone else size for i, size in enumerate(x.dims)])

    def reduce_sum(self, x: Value, dims: Sequence[int], keep_dims: bool = False) -> Value:
        """The sum."""
        return self._reduce("reduce_sum", x, dims, keep_dims)

    def reduce_mean(self, x: Value, dims: Sequence[int], keep_dims: bool = False) -> Value:
        """The mean."""
        total = self.reduce_sum(x, dims, keep_dims)
        return self.scale(total, total.type.elements / x.type.elements)

    def reduce_max(self, x: Value, dims: Sequence[int], keep_dims: bool = False) -> Value:
        """The largest."""
        return self._reduce("reduce_max", x, dims, keep_dims)

    def reduce_min(self, x: Value, dims: Sequence[int], keep_dims: bool = False) -> Value:
        """The smallest."""
        return self.neg(self.reduce_max(self.neg(x), dims, keep_dims))

    def softmax(self, x: Value) -> Value:
        """Over the last dim."""
        return self._map("softmax", x)

    def log_softmax(self, x: Value) -> Value:
        """Over the last dim."""
        return self._map("log_softmax", x)

    def logsumexp(self, x: Value) -> Value:
        """[..., v] -> [...]."""
        return self._one("logsumexp", [x], Type(statistic(x.dtype), x.dims[:-1]))

    # ---- Choice ----

    def top_k(self, x: Value, k: int) -> tuple[Value, Value]:
        """The k largest of the last dim, and their places (i32)."""
        dims = (*x.dims[:-1], k)
        values, ids = self.node("top_k", [x], [Type(x.dtype, dims), Type("i32", dims)], {"k": k})
        return values, ids

    def argmax(self, x: Value, dim: int) -> Value:
        """The place (i32) of the largest along a dim, without it."""
        at = from_front(len(x.dims), [dim], "argmax")[0]
        kept = [size for i, size in enumerate(x.dims) if i != at]
        if at != len(x.dims) - 1:
            x = self.transpose(x, [i for i in range(len(x.dims)) if i != at] + [at])
        return self.reshape(self.top_k(x, 1)[1], kept)

    def gather(self, x: Value, ids: Value, dim: int) -> Value:
        """The elements of x at ids (i32) along a dim; else ids has x's shape."""
        at = from_front(len(x.dims), [dim], "gather")[0]
        return self._one("gather", [x, ids], Type(x.dtype, ids.dims), dim=at)

    def one_hot(self, ids: Value, size: int) -> Value:
        """i32[...] -> [..., size]."""
        kind = Type(self.dtype, (*ids.dims, size))
        return self._one("one_hot", [ids], kind, size=size, dtype=self.dtype)

    # ---- Numbers that are new in every step and the same on every layout ----

    def _noise(self, x: Value, name: str, kind: str) -> Value:
        self._claim(name)
        return self._map("noise", x, name=name, kind=kind)

    def uniform(self, x: Value, name: str) -> Value:
        """In [0, 1), in the shape of x. name: seeds them, unique in the graph."""
        return self._noise(x, name, "uniform")

    def normal(self, x: Value, name: str) -> Value:
        """Of the normal distribution, in the shape of x."""
        return self._noise(x, name, "normal")

    def bernoulli(self, probability: Value, name: str) -> Value:
        """True with this probability."""
        return self.less(self.uniform(probability, name), probability)

    def categorical(self, logits: Value, name: str) -> Value:
        """[..., v] -> i32[...]: a place, drawn by the softmax of the logits."""
        exponential = self.neg(self.log(self.uniform(logits, name)))
        return self.argmax(self.sub(logits, self.log(exponential)), -1)

    def dropout(self, x: Value, rate: float, name: str) -> Value:
        """Zeros at some places, others scaled up; in training only."""
        if rate == 0:
            return x
        self._claim(name)
        return self._map("dropout", x, rate=float(rate), name=name)

    # ---- Layers: they make their weights under the name they are given ----

    def linear(
        self, x: Value, name: str, out: int, bias: bool = True, std: float = 0.02
    ) -> Value:
        """[..., in] -> [..., out]; weights [in, out] and [out]."""
        if not 1 <= len(x.dims) <= 8:
            refuse(f"linear '{name}' needs an operand [..., in] of rank 1 to 8, got {x.type}")
        weight = self.param(f"{name}.weight", (x.dims[-1], out), std=std)
        rows = "abcdefgh"[: len(x.dims) - 1]
        y = self.einsum(f"{rows}y,yz->{rows}z", x, weight)
        return self.add(y, self.param(f"{name}.bias", (out,), "zeros")) if bias else y

    def layer_norm(self, x: Value, name: str, epsilon: float = 1e-5) -> Value:
        """Mean 0 and variance 1 over the last dim, then a weight and a bias."""
        weight = self.param(f"{name}.weight", x.dims[-1:], "ones")
        bias = self.param(f"{name}.bias", x.dims[-1:], "zeros")
        lead = Type(statistic(x.dtype), x.dims[:-1])
        return self.node("layer_norm", [x, weight, bias], [x.type, lead, lead], {"eps": epsilon})[0]

    def rms_norm(self, x: Value, name: str, epsilon: float = 1e-5) -> Value:
        """Mean square 1 over the last dim, then a weight."""
        weight = self.param(f"{name}.weight", x.dims[-1:], "ones")
        lead = Type(statistic(x.dtype), x.dims[:-1])
        return self.node("rms_norm", [x, weight], [x.type, lead], {"eps": epsilon})[0]

    def embedding(self, ids: Value, name: str, rows: int, width: int) -> Value:
        """i32[...] -> [..., width]; weight [rows, width]."""
        return self.lookup(self.param(f"{name}.weight", (rows, width)), ids)

    def lookup(self, table: Value, ids: Value) -> Value:
        """Rows of a table made by `param`."""
        kind = Type(table.dtype, (*ids.dims, table.dims[-1]))
        return self._one("embedding", [table, ids], kind)

    def rotary(self, x: Value, base: float = 10000.0) -> Value:
        """Rotary positions on [b, s, h, e], pairs (i, i + e/2)."""
        return self._map("rotary", x, base=float(base), inverse=0)

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value,
        causal: bool = True,
        window: int = 0,
        segments: Value | None = None,
        dropout: float = 0.0,
        name: str = "",
    ) -> Value:
        """q [b, s, h, e], k and v [b, s, g, e] -> [b, s, h, e]; g divides h.

        window: keys that a causal query sees, itself and those before it; 0: all. segments i32[b, s]:
        tokens see those of their own only. dropout: of the probabilities; name: seeds it.
        """
        if len(q.dims) != 4 or len(k.dims) != 4 or q.dims[2] % k.dims[2]:
            refuse(f"attention of {q.type} and {k.type}: needs [b,s,h,e] and [b,s,g,e], g divides h")
        attrs: dict[str, AttrValue] = {"causal": int(causal)}
        if window:
            attrs["window"] = window
        if dropout:
            self._claim(name)
            attrs.update(dropout=float(dropout), name=name)
        operands = [q, k, v] if segments is None else [q, k, v, segments]
        lse = Type(statistic(q.dtype), (q.dims[0], q.dims[2], q.dims[1]))
        return self.node("attention", operands, [q.type, lse], attrs)[0]

    def segments(self, tokens: Value, separator: int) -> Value:
        """i32[..., s]: the number of the document of each token, when `separator` ends them."""
        return self._map("segments", tokens, separator=separator)

    def conv2d(
        self,
        x: Value,
        name: str,
        window: Sequence[int],
        out: int,
        strides: Sequence[int] = (1, 1),
        padding: Sequence[int] = (0, 0, 0, 0),
        bias: bool = True,
    ) -> Value:
        """Images [b, height, width, channels] -> [b, h', w', out]. padding: top, left, bottom,
        right."""
        weight = self.param(f"{name}.weight", (*window, x.dims[3], out))
        dims = _shapes.window_dims(x.type, window, strides, padding, out)
        y = self._one(
            "conv2d", [x, weight], Type(x.dtype, dims), strides=list(strides), padding=list(padding)
        )
        return self.add(y, self.param(f"{name}.bias", (out,), "zeros")) if bias else y

    def _pool(
        self,
        op: str,
        x: Value,
        dtype: str,
        window: Sequence[int],
        strides: Sequence[int],
        padding: Sequence[int],
    ) -> Value:
        dims = _shapes.window_dims(x.type, window, strides, padding, x.dims[3])
        return self._one(
            op,
            [x],
            Type(dtype, dims),
            window=list(window),
            strides=list(strides),
            padding=list(padding),
        )

    def max_pool(
        self,
        x: Value,
        window: Sequence[int],
        strides: Sequence[int] = (1, 1),
        padding: Sequence[int] = (0, 0, 0, 0),
    ) -> Value:
        """The largest of each window."""
        places = self._pool("window_argmax", x, "i32", window, strides, padding)
        b, height, width, channels = x.dims
        _, rows, columns, _ = places.dims
        flat = self.reshape(x, (b, height * width, channels))
        ids = self.reshape(places, (b, rows * columns, channels))
        return self.reshape(self.gather(flat, ids, 1), places.dims)

    def avg_pool(
        self,
        x: Value,
        window: Sequence[int],
        strides: Sequence[int] = (1, 1),
        padding: Sequence[int] = (0, 0, 0, 0),
    ) -> Value:
        """The mean of each window; padding counts as zeros."""
        return self._pool("avg_pool", x, x.dtype, window, strides, padding)

    def cross_entropy(
        self, logits: Value, labels: Value, ignore_index: int = -100
    ) -> tuple[Value, Value]:
        """The sum of the losses, and how many labels (i32[...]) count: not those that are
        ignore_index."""
        scalar = Type(statistic(logits.dtype), ())
        lse = Type(statistic(logits.dtype), logits.dims[:-1])
        results = self.node(
            "cross_entropy", [logits, labels], [scalar, scalar, lse], {"ignore_index": ignore_index}
        )
        return results[0], results[1]
