"""Job files: the controller makes requests of them, this machine brings the files they read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

from . import _files
from ._channel import Channel
from ._errors import Code, JobFileError, JobFileErrors, NotFound, refuse, whole_hint
from ._proto import resolve_pb2

if TYPE_CHECKING:
    from .graph import OwnJob

_RESOLVE_SECONDS = 120.0
_ENVIRONMENT = "MESHWRIGHT__"

Scalar = bool | int | float | str
Section = Mapping[str, "Scalar | list[str]"]
JobFile = Union[str, "os.PathLike[str]", Mapping[str, Section], "OwnJob"]
Overrides = Mapping[str, "Scalar | list[str]"]


@dataclass(frozen=True)
class Resolved:
    """What became of a job file. request is what `submit` takes; it is None where there are errors.
    notes: what has no effect, for people."""

    request: Any
    notes: list[str] = field(default_factory=list)
    errors: list[JobFileError] = field(default_factory=list)
    summary: str = ""


def _toml_text(text: str) -> str:
    out = []
    for char in text:
        if char in '"\\':
            out.append("\\" + char)
        elif ord(char) < 0x20 or ord(char) == 0x7F:
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(char)
    return '"' + "".join(out) + '"'


def toml_value(name: str, value: object) -> str:
    """A value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return _toml_text(value)
    if isinstance(value, os.PathLike):
        return _toml_text(os.fspath(value))
    if isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
        return "[" + ", ".join(_toml_text(each) for each in value) + "]"
    refuse(f"{name} is {value!r}; write a number, a text, True, False or a list of texts")


def toml_of(sections: Mapping[str, Section]) -> str:
    """The text of a job file that is given as a dict of sections."""
    lines = []
    for section, keys in sections.items():
        if not isinstance(keys, Mapping):
            refuse(f"'{section}' must be a section: a dict of its keys")
        lines.append(f"[{section}]")
        lines += [f"{key} = {toml_value(f'{section}.{key}', value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def _request_of(job: JobFile, overrides: Overrides) -> Any:
    request = resolve_pb2.ResolveRequest(working_folder=os.getcwd())
    if isinstance(job, Mapping):
        request.file = "the job"
        request.text = toml_of(job)
    elif not isinstance(job, (str, os.PathLike)):
        request.file = "the settings of the job"
        request.text = toml_of(job.settings)
        request.own.CopyFrom(job.to_wire())
    else:
        path = os.fspath(job)
        try:
            with open(path, encoding="utf-8") as file:
                request.text = file.read()
        except FileNotFoundError:
            raise NotFound(
                Code.NOT_FOUND, f"there is no job file {path}; write it or correct the path"
            ) from None
        request.file = path
        request.folder = os.path.dirname(os.path.abspath(path))
    request.overrides.extend(
        f"{key}={toml_value(key, value)}" for key, value in overrides.items()
    )
    for name, value in os.environ.items():
        if name.startswith(_ENVIRONMENT):
            request.environment[name] = value
    return request


def resolve(
    channel: Channel,
    job: JobFile,
    overrides: Overrides,
    data_roots: Mapping[str, str],
    upload: bool,
) -> Resolved:
    """The request of a job file, its files sent; or all that is wrong with it."""
    request = _request_of(job, overrides)
    reply = channel.unary(
        "JobFile.Resolve", request, resolve_pb2.ResolveReply, timeout=_RESOLVE_SECONDS
    )
    errors = list(reply.errors)
    if reply.wanted:
        folders = [folder for folder in (request.folder, request.working_folder) if folder]
        found = [(wanted, _files.find(wanted, folders)) for wanted in reply.wanted]
        roots = _files.DataRoots()
        if not errors and not upload:
            roots = _files.DataRoots.of(_files.workers_of(channel), dict(data_roots))
        for wanted, paths in found:
            # A head says what data is, but not all of a model or an index.
            data = wanted.kind == resolve_pb2.WANTED_DATA
            for path in paths:
                described = data and not path.endswith(".idx")
                # With errors nothing will run: nothing is sent, and what is missing is told as well.
                request.files.append(
                    _files.send(channel, path, roots, described)
                    if not errors or not described
                    else _files.head_of(path)
                )
        request.listed = True
        reply = channel.unary(
            "JobFile.Resolve", request, resolve_pb2.ResolveReply, timeout=_RESOLVE_SECONDS
        )
        known = {error.message for error in reply.errors}
        errors = list(reply.errors) + [each for each in errors if each.message not in known]
    return Resolved(
        request=None if errors else reply.job,
        notes=list(reply.notes),
        errors=[
            JobFileError(
                each.key, each.message, whole_hint(each.hint), each.place, each.line, each.column
            )
            for each in errors
        ],
        summary=reply.summary,
    )


def check(resolved: Resolved) -> Any:
    """The request. Raises JobFileErrors with all errors."""
    if resolved.errors:
        raise JobFileErrors(resolved.errors)
    return resolved.request
