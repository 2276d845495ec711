"""Files of a job: found on this machine, read in place by workers, or uploaded."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._channel import CHUNK_BYTES, Channel
from ._errors import Code, Error
from ._proto import meshwright_pb2 as pb
from ._proto import resolve_pb2
from ._wire import BYTES, fields

if TYPE_CHECKING:
    from numpy.typing import NDArray

_UPLOAD_SECONDS = 60.0
_UPLOAD_BYTES_PER_SECOND = 20e6
_HEAD_BYTES = 1 << 16
_TAIL_BYTES = 1 << 16
_SAMPLE_BYTES = 4096
_SAMPLES = 64


def sha256_of(path: str) -> str:
    """The name of a file's bytes."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(CHUNK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def sampled_hash(path: str) -> str:
    """What says that two files are the same without reading them: as data/identity.h."""
    size = os.path.getsize(path)
    digest = hashlib.sha256(size.to_bytes(8, "little"))
    whole = size <= _SAMPLE_BYTES * _SAMPLES
    blocks = -(-size // _SAMPLE_BYTES) if whole else _SAMPLES
    span = size - _SAMPLE_BYTES
    with open(path, "rb") as file:
        for i in range(blocks):
            last = _SAMPLES - 1
            file.seek(i * _SAMPLE_BYTES if whole else span // last * i + span % last * i // last)
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def upload(channel: Channel, path: str) -> tuple[str, int]:
    """Sends a file by its hash, unless the controller has it. SHA-256 and size."""
    name, size = sha256_of(path), os.path.getsize(path)
    has = channel.unary("Blob.Has", pb.HasBlobRequest(sha256=name), pb.HasBlobReply)
    if has.present:
        return name, size

    def chunks() -> Iterator[Any]:
        with open(path, "rb") as file:
            yield pb.PutBlobChunk(sha256=name, size_bytes=size, data=file.read(CHUNK_BYTES))
            while block := file.read(CHUNK_BYTES):
                yield pb.PutBlobChunk(data=block)

    timeout = _UPLOAD_SECONDS + size / _UPLOAD_BYTES_PER_SECOND
    channel.send("Blob.Put", chunks(), pb.PutBlobReply, timeout)
    return name, size


def fetch(channel: Channel, blob: Any) -> "NDArray[Any]":
    """The bytes of a BlobRef of the wire, in memory of their own."""
    import numpy as np

    # Not zeroed before it is written to, as a bytearray would be.
    whole = np.empty(blob.size_bytes, dtype=np.uint8)
    into = whole.data
    at = 0
    timeout = _UPLOAD_SECONDS + blob.size_bytes / _UPLOAD_BYTES_PER_SECOND
    request = pb.GetBlobRequest(sha256=blob.sha256)
    for chunk in bytes_of(channel, "Blob.Get", request, 2, timeout):
        into[at : at + len(chunk)] = chunk
        at += len(chunk)
    if at != len(whole):
        raise Error(Code.DATA_LOSS, f"{blob.name}: {at} of {len(whole)} bytes came")
    return whole


def is_here(channel: Channel, blob: Any, path: str) -> bool:
    """Whether this machine has the file of a BlobRef at a path, as the controller's own machine
    does: it has the size, and ends in the same way."""
    begin = max(0, blob.size_bytes - _TAIL_BYTES)
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size != blob.size_bytes:
                return False
            file.seek(begin)
            request = pb.GetBlobRequest(sha256=blob.sha256, offset=begin)
            tail = b"".join(bytes_of(channel, "Blob.Get", request, 2, channel.timeout))
            return file.read() == tail
    except OSError:
        return False


def bytes_of(
    channel: Channel, method: str, request: Any, number: int, timeout: float
) -> Iterator[memoryview]:
    """The bytes field `number` of each reply, as views of what came."""
    replies: Iterator[memoryview] = channel.stream(method, request, _view_of, timeout)
    for reply in replies:
        for field, kind, _, value, end in fields(reply):
            if field == number and kind == BYTES:
                yield reply[value:end]


def _view_of(message: bytes) -> memoryview:
    return memoryview(message)


def workers_of(channel: Channel) -> list[Any]:
    """All WorkerInfos of the wire."""
    workers: list[Any] = []
    request = pb.WorkersRequest()
    while True:
        reply = channel.unary("Admin.Workers", request, pb.WorkersReply)
        workers += reply.workers
        if not reply.truncated or not workers:
            return workers
        request.after_name = workers[-1].name


@dataclass
class DataRoots:
    """Folders below which every ready worker reads files in place, where this machine has them too.

    The path of a root is that of the workers, if all of them say the same; `known` says where this
    machine has it else.
    """

    by_name: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(workers: list[Any], known: dict[str, str]) -> "DataRoots":
        """The roots that all ready workers have."""
        ready = [worker for worker in workers if worker.state == "READY"]
        paths: dict[str, list[str]] = {}
        for worker in ready:
            for root in worker.data_roots:
                paths.setdefault(root.name, []).append(root.path)
        here = {}
        for name, places in paths.items():
            if len(places) < len(ready):
                continue
            if name in known:
                here[name] = os.path.abspath(known[name])
            elif len(set(places)) == 1:
                here[name] = places[0]
        return DataRoots(here)

    def find(self, path: str) -> tuple[str, str] | None:
        """Root and path below it of a file; None: there is none. A link that leads out of a root is
        not below it."""
        best: tuple[str, str] | None = None
        longest = 0
        real = os.path.realpath(path)
        for name, folder in sorted(self.by_name.items()):
            inside = os.path.realpath(folder)
            if not real.startswith(inside.rstrip("/") + "/") or len(folder) <= longest:
                continue
            best, longest = (name, os.path.relpath(real, inside)), len(folder)
        return best


def _expand(path: str) -> list[str]:
    if os.path.isdir(path):
        names = sorted(os.listdir(path))
        files = [os.path.join(path, name) for name in names if not name.startswith(".")]
        return [file for file in files if os.path.isfile(file)]
    if os.path.exists(path):
        return [path]
    if any(mark in path for mark in "*?["):
        return sorted(found for found in glob.glob(path) if os.path.isfile(found))
    return []


def _data_files(path: str) -> list[str]:
    # Megatron's data sets may be named without an extension; an index lies beside its tokens.
    files = _expand(path) or _expand(path + ".bin")
    beside = [file[:-4] + ".idx" for file in files if file.endswith(".bin")]
    return files + [file for file in beside if os.path.exists(file) and file not in files]


def _weights_files(path: str) -> list[str]:
    if not os.path.isdir(path):
        return _expand(path)
    one = os.path.join(path, "model.safetensors")
    if os.path.exists(one):
        return [one]
    index = os.path.join(path, "model.safetensors.index.json")
    if not os.path.exists(index):
        return []
    return [index, *sorted(glob.glob(os.path.join(path, "*.safetensors")))]


def _model_files(path: str, weights: bool) -> list[str]:
    if not os.path.isdir(path):
        return _expand(path)
    config = os.path.join(path, "config.json")
    files = [config] if os.path.exists(config) else []
    return files + (_weights_files(path) if weights else [])


def find(wanted: Any, folders: list[str]) -> list[str]:
    """The files of a WantedFiles of the wire: below the first of the folders that has any."""
    for folder in folders:
        path = os.path.normpath(os.path.join(folder, wanted.path))
        if wanted.kind == resolve_pb2.WANTED_MODEL:
            files = _model_files(path, wanted.weights)
        elif wanted.kind == resolve_pb2.WANTED_WEIGHTS:
            files = _weights_files(path)
        else:
            files = _data_files(path)
        if files:
            return files
    return []


def head_of(path: str) -> Any:
    """A ClientFile with what a file begins with."""
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
    return resolve_pb2.ClientFile(path=path, size_bytes=os.path.getsize(path), head=head)


def send(channel: Channel, path: str, roots: DataRoots, described: bool) -> Any:
    """A ClientFile of a file that workers read in place, or that is uploaded now. described: its
    head says what it is."""
    place = roots.find(path) if described else None
    if place is None:
        name, size = upload(channel, path)
        return resolve_pb2.ClientFile(path=path, size_bytes=size, sha256=name)
    file = head_of(path)
    file.root, file.below = place
    file.sampled = sampled_hash(path)
    return file
