"""NumPy arrays as tensors of the wire, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._errors import Code, Error, refuse
from ._proto import meshwright_pb2 as pb
from ._wire import Buffer, field_of, split

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# bf16 has no type in NumPy: its arrays are float32, which holds every bf16.
_NUMPY_NAMES = {
    "f32": "<f4",
    "f64": "<f8",
    "bf16": "<f4",
    "f16": "<f2",
    "i32": "<i4",
    "i64": "<i8",
    "bool": "?",
}
_STORED_NAMES = {**_NUMPY_NAMES, "bf16": "<u2"}
_WIRE_NAMES = {"<f4": "f32", "<f8": "f64", "<f2": "f16", "<i4": "i32", "<i8": "i64", "|b1": "bool"}


def itemsize(dtype: str) -> int:
    """Bytes of an element as it is stored."""
    import numpy as np

    return np.dtype(_STORED_NAMES[dtype]).itemsize


def from_bytes(dtype: str, dims: list[int], data: Buffer) -> "NDArray[Any]":
    """The array of a tensor's bytes: a view of them, but for bf16."""
    import numpy as np

    if dtype not in _STORED_NAMES:
        raise Error(Code.DATA_LOSS, f"a tensor has the type '{dtype}'; install a newer meshwright")
    stored = np.frombuffer(data, dtype=_STORED_NAMES[dtype]).reshape(dims)
    if dtype != "bf16":
        return stored
    return (stored.astype("<u4") << np.uint32(16)).view("<f4")


def _rounded_to_bf16(array: "NDArray[Any]") -> "NDArray[Any]":
    import numpy as np

    bits = np.ascontiguousarray(array, dtype="<f4").view("<u4")
    even = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = (even >> np.uint32(16)).astype("<u2")
    # Rounding would make some of these an infinity.
    nan = np.isnan(bits.view("<f4"))
    rounded[nan] = ((bits[nan] >> np.uint32(16)) | np.uint32(0x40)).astype("<u2")
    return rounded


def to_bytes(
    value: "ArrayLike", name: str, dtype: str | None, dims: list[int] | None
) -> tuple[str, list[int], bytes]:
    """A value as dtype, dims and bytes of the wire.

    dtype and dims: what is wanted; Python numbers and arrays of the other width become that,
    anything that would change its values is refused.
    """
    import numpy as np

    array = np.asarray(value)
    if dtype is None:
        dtype = _WIRE_NAMES.get(array.dtype.newbyteorder("<").str.replace("=", "<"))
        if dtype is None:
            refuse(
                f"'{name}' is an array of {array.dtype}; make it float32, float64, float16, "
                "int32, int64 or bool"
            )
    wanted = np.dtype(_NUMPY_NAMES[dtype])
    if array.dtype != wanted:
        same_kind = array.dtype.kind == wanted.kind or (
            wanted.kind == "f" and array.dtype.kind in "iu"
        )
        cast = array.astype(wanted)
        if not same_kind or (wanted.kind == "i" and not np.array_equal(cast, array)):
            refuse(f"'{name}' must be {dtype}, is an array of {array.dtype}; convert it by astype")
        array = cast
    if dims is not None and list(array.shape) != dims:
        refuse(f"'{name}' must have the shape {dims}, has {list(array.shape)}")
    stored = _rounded_to_bf16(array) if dtype == "bf16" else array
    return dtype, list(array.shape), stored.astype(stored.dtype.newbyteorder("<")).tobytes()


def encode(
    tensors: Mapping[str, "ArrayLike"], types: Mapping[str, Any], number: int
) -> tuple[list[Buffer], int]:
    """The tensors as a repeated field of NamedTensors, and how many bytes of data they have. types:
    what is known of them, by name."""
    parts: list[Buffer] = []
    size = 0
    for name, value in tensors.items():
        known = types.get(name)
        dtype, dims, data = to_bytes(
            value, name, known.dtype if known else None, list(known.dims) if known else None
        )
        head = pb.NamedTensor(name=name, dtype=dtype, dims=dims).SerializeToString()
        parts += field_of(number, [head, *field_of(4, [data])])
        size += len(data)
    return parts, size


def assemble(tiles: list[memoryview]) -> "dict[str, NDArray[Any]]":
    """The tensors of serialised TensorTiles. A tile that is the whole tensor is not copied."""
    import numpy as np

    arrays: dict[str, NDArray[Any]] = {}
    placed: dict[str, int] = {}
    for view in tiles:
        head, data = split(view, 6)
        tile = pb.TensorTile.FromString(head)
        dims, size = list(tile.dims), list(tile.size)
        try:
            block = from_bytes(tile.dtype, size, data[-1] if data else b"")
        except ValueError:
            raise Error(Code.DATA_LOSS, f"a block of '{tile.name}' does not fit it") from None
        if size == dims and tile.name not in arrays:
            arrays[tile.name] = block
        else:
            whole = arrays.get(tile.name)
            if whole is None:
                whole = arrays[tile.name] = np.empty(dims, dtype=block.dtype)
            place = tuple(slice(at, at + n) for at, n in zip(tile.offset, size))
            if whole.shape != tuple(dims) or whole[place].shape != block.shape:
                raise Error(Code.DATA_LOSS, f"a block of '{tile.name}' does not fit it")
            whole[place] = block
        placed[tile.name] = placed.get(tile.name, 0) + block.size
    for name, array in arrays.items():
        if placed[name] != array.size:
            raise Error(Code.DATA_LOSS, f"the blocks of '{name}' do not make it whole")
    return arrays
