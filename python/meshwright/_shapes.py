"""Types of values and how shapes fit: what the graph builder knows of its ops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ._errors import refuse

FLOATS = ("f32", "f64", "bf16", "f16")
Dims = tuple[int, ...]


class Type(NamedTuple):
    """A dtype and a shape."""

    dtype: str
    dims: Dims

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"

    @property
    def elements(self) -> int:
        """How many there are."""
        return math.prod(self.dims)


def statistic(dtype: str) -> str:
    """The type of sums and statistics of a float type."""
    return "f64" if dtype == "f64" else "f32"


def common(x: Dims, y: Dims) -> Dims | None:
    """The shape that both repeat to, as in NumPy."""
    rank = max(len(x), len(y))
    wide_x = (1,) * (rank - len(x)) + x
    wide_y = (1,) * (rank - len(y)) + y
    if any(a != b and 1 not in (a, b) for a, b in zip(wide_x, wide_y)):
        return None
    return tuple(max(a, b) for a, b in zip(wide_x, wide_y))


def is_suffix(x: Dims, y: Dims) -> bool:
    """Whether y is how x ends."""
    return len(y) <= len(x) and x[len(x) - len(y) :] == y


def from_front(rank: int, dims: Sequence[int], what: str) -> list[int]:
    """Dims counted from the front, increasing."""
    for dim in dims:
        if not -rank <= dim < rank:
            refuse(f"{what}: a value of rank {rank} has no dim {dim}")
    return sorted(dim % rank for dim in dims)


def einsum(equation: str, a: Type, b: Type) -> Type:
    """The result of a contraction of two operands."""
    try:
        inputs, out = equation.split("->")
        of_a, of_b = inputs.split(",")
    except ValueError:
        refuse(f"einsum '{equation}': write it as 'ab,bc->ac'")
    sizes: dict[str, int] = {}
    for labels, operand in ((of_a, a), (of_b, b)):
        if len(labels) != len(operand.dims):
            refuse(f"einsum '{equation}': '{labels}' does not have the rank of {operand}")
        for label, size in zip(labels, operand.dims):
            if sizes.setdefault(label, size) != size:
                refuse(f"einsum '{equation}': '{label}' is {sizes[label]} and {size}")
    if a.dtype != b.dtype:
        refuse(f"einsum '{equation}': operands are {a.dtype} and {b.dtype}; cast one of them")
    if any(label not in sizes for label in out):
        refuse(f"einsum '{equation}': the result has a label that no operand has")
    return Type(a.dtype, tuple(sizes[label] for label in out))


def window_dims(
    x: Type, window: Sequence[int], strides: Sequence[int], padding: Sequence[int], channels: int
) -> Dims:
    """[b, h', w', channels] of windows over images."""
    top, left, bottom, right = padding
    counts = []
    for size, length, step, pad in (
        (x.dims[1], window[0], strides[0], top + bottom),
        (x.dims[2], window[1], strides[1], left + right),
    ):
        counts.append((size + pad - length) // step + 1)
    if min(counts) < 1:
        refuse(f"a window {list(window)} is larger than the padded images {x}")
    return (x.dims[0], counts[0], counts[1], channels)
