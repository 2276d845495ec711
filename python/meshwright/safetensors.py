"""Safetensors files as NumPy arrays, without copying: `meshwright.safetensors.load(path)`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ._errors import Code, Error
from ._tensors import from_bytes, itemsize

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAMES = {
    "F32": "f32",
    "F64": "f64",
    "BF16": "bf16",
    "F16": "f16",
    "I32": "i32",
    "I64": "i64",
    "BOOL": "bool",
}
_MOST_HEADER_BYTES = 100_000_000


class Tensors(Mapping[str, "NDArray[Any]"]):
    """The tensors of a file, by name. Each is read when it is asked for; bf16 comes as float32."""

    def __init__(self, name: str, data: "NDArray[Any]") -> None:
        """name: for messages. data: the whole file, as bytes."""
        self.path = name
        self._bytes = data
        size = int.from_bytes(self._bytes[:8].tobytes(), "little")
        if len(self._bytes) < 8 or size > min(_MOST_HEADER_BYTES, len(self._bytes) - 8):
            raise self._damaged("it is too short for its header")
        try:
            header = json.loads(self._bytes[8 : 8 + size].tobytes())
        except ValueError:
            raise self._damaged("its header is no JSON") from None
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        self._header = header
        self._begin = 8 + size

    def _damaged(self, why: str) -> Error:
        return Error(Code.DATA_LOSS, f"{self.path} is no safetensors file: {why}")

    def __getitem__(self, name: str) -> "NDArray[Any]":
        entry = self._header[name]
        dtype = _NAMES.get(entry["dtype"])
        if dtype is None:
            raise Error(
                Code.UNIMPLEMENTED,
                f"{self.path}: '{name}' is {entry['dtype']}, which is not read; known: "
                + ", ".join(_NAMES),
            )
        begin, end = entry["data_offsets"]
        count = itemsize(dtype)
        for dim in entry["shape"]:
            count *= dim
        if begin < 0 or end - begin != count or self._begin + end > len(self._bytes):
            raise self._damaged(f"'{name}' does not lie in it")
        data = self._bytes[self._begin + begin : self._begin + end]
        return from_bytes(dtype, entry["shape"], data.data)

    def __iter__(self) -> Iterator[str]:
        return iter(self._header)

    def __len__(self) -> int:
        return len(self._header)


def load(path: str | os.PathLike[str]) -> Tensors:
    """The tensors of a file, which is mapped."""
    import numpy as np

    name = os.fspath(path)
    if os.path.getsize(name) == 0:
        raise Error(Code.DATA_LOSS, f"{name} is no safetensors file: it is empty")
    return Tensors(name, np.memmap(name, dtype=np.uint8, mode="r"))
