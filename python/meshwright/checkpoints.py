"""Checkpoints as NumPy arrays: `meshwright.checkpoints.open("/mnt/runs/gpt-bytes/1")`, `job.checkpoint()`.

The format is that of docs/checkpoints.md. What is read is not compared with its digests:
`meshwright checkpoint verify` does that.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from . import _files
from ._channel import Channel
from ._errors import Code, Error, NotFound
from ._proto import meshwright_pb2 as pb
from ._tensors import from_bytes, itemsize

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ._jobs import JobInfo

__all__ = ["Checkpoint", "open", "steps"]

_FORMAT = "meshwright-checkpoint/1"
_STEP = re.compile(r"step-(\d{8,})$")
_READ_SECONDS = 60.0
_READ_BYTES_PER_SECOND = 20e6
_WITH_CONTROLLER = "controller"


class _Files(Protocol):
    """The files of one checkpoint."""

    place: str

    def text(self, name: str) -> str:
        """A whole file."""

    def part(self, name: str, begin: int, count: int) -> memoryview:
        """Bytes of a file."""


class _Folder:
    """On this machine; parts are views of the mapped file."""

    def __init__(self, path: str) -> None:
        self.place = path
        self._maps: dict[str, Any] = {}

    def text(self, name: str) -> str:
        return pathlib.Path(self.place, name).read_text(encoding="utf-8")

    def part(self, name: str, begin: int, count: int) -> memoryview:
        import numpy as np

        if count == 0:
            return memoryview(b"")
        if name not in self._maps:
            path = os.path.join(self.place, name)
            self._maps[name] = np.memmap(path, dtype=np.uint8, mode="r")
        part: memoryview = self._maps[name][begin : begin + count].data
        return part


class _Remote:
    """With the controller, of a job."""

    def __init__(self, channel: Channel, job_id: int, step: int) -> None:
        self.place = f"checkpoint {step} of job {job_id}"
        self._channel = channel
        self._job_id = job_id
        self._step = step

    def _chunks(self, name: str, begin: int, count: int) -> Iterator[memoryview]:
        request = pb.GetFileRequest(
            job_id=self._job_id, step=self._step, name=name, offset=begin, count=count
        )
        timeout = _READ_SECONDS + max(0, count) / _READ_BYTES_PER_SECOND
        return _files.bytes_of(self._channel, "Checkpoint.Get", request, 1, timeout)

    def text(self, name: str) -> str:
        return b"".join(self._chunks(name, 0, -1)).decode()

    def part(self, name: str, begin: int, count: int) -> memoryview:
        import numpy as np

        # Not zeroed before it is written to, as a bytearray would be.
        whole: memoryview = np.empty(count, dtype=np.uint8).data
        at = 0
        for chunk in self._chunks(name, begin, count):
            whole[at : at + len(chunk)] = chunk
            at += len(chunk)
        if at != count:
            raise Error(Code.DATA_LOSS, f"{self.place}: {at} of {count} bytes of {name} came")
        return whole


class Checkpoint(Mapping[str, "NDArray[Any]"]):
    """The state of a job after a step: weights and optimizer state, by name.

    A tensor is read when it is asked for. One that lies in one box of a local file is a view of it;
    bf16 comes as float32.
    """

    def __init__(self, files: _Files) -> None:
        self._files = files
        try:
            manifest = json.loads(files.text("manifest.json"))
            known = manifest["format"]
        except FileNotFoundError:
            raise NotFound(
                Code.NOT_FOUND, f"{files.place} is no checkpoint: it has no manifest.json"
            ) from None
        except (ValueError, KeyError, TypeError):
            raise Error(Code.DATA_LOSS, f"the manifest of {files.place} is damaged") from None
        if known != _FORMAT:
            raise Error(
                Code.UNIMPLEMENTED, f"{files.place} is '{known}', this version reads '{_FORMAT}'"
            )
        self.step: int = manifest["step"]
        self.cause: str = manifest["cause"]
        self.layout: str = manifest["layout"]
        self.saved: float = manifest["saved_unix_ms"] / 1000
        self._names: list[str] = [file["name"] for file in manifest["files"]]
        self._tensors: dict[str, Any] = manifest["tensors"]

    def __getitem__(self, name: str) -> "NDArray[Any]":
        import numpy as np

        entry = self._tensors[name]
        shape: list[int] = entry["shape"]
        boxes = entry["boxes"]
        if len(boxes) == 1 and boxes[0]["size"] == shape:
            return self._box(entry["dtype"], boxes[0])
        blocks = [(box, self._box(entry["dtype"], box)) for box in boxes]
        whole = np.empty(shape, dtype=blocks[0][1].dtype)
        for box, block in blocks:
            whole[tuple(slice(at, at + n) for at, n in zip(box["at"], box["size"]))] = block
        return whole

    def _box(self, dtype: str, box: Any) -> "NDArray[Any]":
        count = math.prod(box["size"]) * itemsize(dtype)
        data = self._files.part(self._names[box["file"]], box["begin"], count)
        return from_bytes(dtype, box["size"], data)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without reading it."""
        return tuple(self._tensors[name]["shape"])

    def weights(self) -> list[str]:
        """The names of the weights; the others are the optimizer's."""
        return [name for name, entry in self._tensors.items() if entry["kind"] == "weights"]


def steps(folder: str | os.PathLike[str]) -> list[int]:
    """Steps of the checkpoints in a folder, newest first."""
    if not os.path.isdir(folder):
        raise NotFound(
            Code.NOT_FOUND,
            f"there is no folder {os.fspath(folder)} on this machine, and only folders of this "
            "machine are opened; a checkpoint that is with the controller is read by "
            "client.job(ID).checkpoint(STEP), and `meshwright checkpoint export ID "
            "model.safetensors --step STEP` makes a file of its weights here",
        )
    found = [
        int(match[1])
        for name in os.listdir(folder)
        if (match := _STEP.match(name))
        and os.path.exists(os.path.join(folder, name, "manifest.json"))
    ]
    return sorted(found, reverse=True)


def open(folder: str | os.PathLike[str], step: int | None = None) -> Checkpoint:
    """A checkpoint on this machine: its own folder, or one of those in a folder, the newest where no
    step is given."""
    path = os.fspath(folder)
    if step is None and os.path.exists(os.path.join(path, "manifest.json")):
        return Checkpoint(_Folder(path))
    there = steps(path)
    if not there or (step is not None and step not in there):
        wanted = "no checkpoint" if step is None else f"no checkpoint of step {step}"
        raise NotFound(Code.NOT_FOUND, f"{path} has {wanted}; it has {there}")
    chosen = there[0] if step is None else step
    return Checkpoint(_Folder(os.path.join(path, f"step-{chosen:08d}")))


def _folder_here(channel: Channel, info: "JobInfo") -> str:
    """Where this machine has the checkpoints of a job; "" where they are with the controller."""
    if not info.checkpoint_path:
        raise NotFound(
            Code.NOT_FOUND,
            f"job {info.id} keeps no checkpoints; set checkpoint.enable = true in its job file",
        )
    if info.checkpoint_root == _WITH_CONTROLLER:
        return ""
    roots = [
        root.path
        for worker in _files.workers_of(channel)
        for root in worker.checkpoint_roots
        if info.checkpoint_root in ("", root.name)
    ]
    for root in roots:
        path = os.path.join(root, info.checkpoint_path)
        if os.path.isdir(path):
            return path
    if not roots:
        return ""
    raise NotFound(
        Code.NOT_FOUND,
        f"the checkpoints of job {info.id} are in {info.checkpoint_path} below {roots[0]} of its "
        "workers, which this machine does not have; mount it here, or ask on a worker",
    )


def _with_controller(channel: Channel, info: "JobInfo") -> Any:
    request = pb.ListCheckpointsRequest(job_id=info.id)
    return channel.unary("Checkpoint.List", request, pb.ListCheckpointsReply)


def steps_of_job(channel: Channel, info: "JobInfo") -> list[int]:
    """Steps of a job's checkpoints, newest first."""
    folder = _folder_here(channel, info)
    if folder:
        return steps(folder)
    return list(_with_controller(channel, info).steps)


def checkpoint_of_job(channel: Channel, info: "JobInfo", step: int | None) -> Checkpoint:
    """A checkpoint of a job, the newest where no step is given."""
    folder = _folder_here(channel, info)
    if folder:
        return open(folder, step)
    listed = _with_controller(channel, info)
    there = list(listed.steps)
    if not there or (step is not None and step not in there):
        raise NotFound(Code.NOT_FOUND, f"job {info.id} has no such checkpoint; it has {there}")
    chosen = there[0] if step is None else step
    remote = _Remote(channel, info.id, chosen)
    here = _Folder(os.path.join(listed.root, info.checkpoint_path, f"step-{chosen:08d}"))
    return Checkpoint(here if _is_same(here, remote) else remote)


def _is_same(here: _Folder, remote: _Remote) -> bool:
    """Whether this machine is the controller's: a manifest has the digests of all its tensors."""
    try:
        return here.text("manifest.json") == remote.text("manifest.json")
    except OSError:
        return False
