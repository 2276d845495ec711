"""Protobuf by hand, where generated code would copy tensors: fields of a message as views.

Only what carries tensors is read and written here; everything else is left to generated code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Buffer = bytes | bytearray | memoryview

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(number: int) -> bytes:
    """An unsigned number as it is written."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(view: memoryview, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    number = shift = 0
    while True:
        byte = view[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of the wire has more than ten bytes")


def fields(view: memoryview) -> Iterator[tuple[int, int, int, int, int]]:
    """Of each field: number, type, where it begins, where its value begins, where it ends."""
    at = 0
    while at < len(view):
        begin = at
        tag, at = read_varint(view, at)
        kind = tag & 7
        value = at
        if kind == VARINT:
            _, at = read_varint(view, at)
        elif kind == FIXED64:
            at += 8
        elif kind == FIXED32:
            at += 4
        elif kind == BYTES:
            size, value = read_varint(view, at)
            at = value + size
        else:
            raise ValueError(f"a field of the wire has the type {kind}")
        if at > len(view):
            raise ValueError("a field of the wire ends behind its message")
        yield tag >> 3, kind, begin, value, at


def split(view: memoryview, number: int) -> tuple[bytes, list[memoryview]]:
    """A message without the bytes fields of a number, and their values."""
    rest: list[memoryview] = []
    values: list[memoryview] = []
    for field, kind, begin, value, end in fields(view):
        if field == number and kind == BYTES:
            values.append(view[value:end])
        else:
            rest.append(view[begin:end])
    return b"".join(rest), values


def size_of(parts: Iterable[Buffer]) -> int:
    """Bytes of all parts."""
    return sum(len(part) for part in parts)


def field_of(number: int, parts: list[Buffer]) -> list[Buffer]:
    """A bytes field with the parts as its value."""
    return [varint(number << 3 | BYTES) + varint(size_of(parts)), *parts]


def cut_to_frames(parts: list[Buffer], chunk: int) -> Iterator[bytes]:
    """A message as Frames of a session: pieces of at most `chunk` bytes, the last of them marked."""
    total = size_of(parts)
    views = iter([memoryview(part).cast("B") for part in parts])
    view = next(views, memoryview(b""))
    sent = 0
    while True:
        room = min(chunk, total - sent)
        piece: list[Buffer] = [b"\x0a" + varint(room)]
        while room > 0:
            if not len(view):
                view = next(views)
                continue
            take = min(room, len(view))
            piece.append(view[:take])
            view = view[take:]
            room -= take
            sent += take
        if sent == total:
            piece.append(b"\x10\x01")
        yield b"".join(piece)
        if sent == total:
            return


class FrameJoiner:
    """Frames become messages again. A message of several frames is put together once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: list[memoryview] = []
        self._size = 0

    def add(self, frame: bytes) -> memoryview | None:
        """The message that this frame completes; it may be written to, and is nobody else's."""
        view = memoryview(frame)
        last = False
        for field, kind, _, value, end in fields(view):
            if field == 1 and kind == BYTES:
                self._pieces.append(view[value:end])
                self._size += end - value
            elif field == 2 and kind == VARINT:
                last = read_varint(view, value)[0] != 0
        if self._size > self._most:
            raise ValueError(f"a message of a session has more than {self._most} bytes")
        if not last:
            return None
        whole = bytearray().join(self._pieces)
        self._pieces, self._size = [], 0
        return memoryview(whole)
