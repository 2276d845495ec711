"""What can go wrong, as exceptions that say what, why and what to do."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NoReturn


class Code(enum.IntEnum):
    """The canonical codes, with the numbers of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @classmethod
    def of(cls, number: int) -> "Code":
        """The code of a number; UNKNOWN for one that this version does not know."""
        return cls(number) if 0 <= number <= 16 else cls.UNKNOWN


def split_hint(message: str) -> tuple[str, str]:
    """What is wrong and what to do: the two parts of a message of Meshwright."""
    marks = ("; ", " (did you mean ", " (it belongs to ", ": write ")
    found = [(message.find(mark), mark) for mark in marks if mark in message]
    if not found:
        return message, ""
    at, _ = min(found)
    return message[:at], whole_hint(message[at + 2 :])


def whole_hint(hint: str) -> str:
    """A hint that began in brackets without the bracket that closed them, wherever it stands: older
    controllers cut it off at the end alone."""
    if not hint.startswith(("did you mean ", "it belongs to ")):
        return hint
    depth = 0
    for at, letter in enumerate(hint):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth < 0:
            return hint[:at] + hint[at + 1 :]
    return hint


class Error(Exception):
    """An error of a call.

    code: what kind it is. cause: what is wrong. hint: what to do, "" where nothing is known.
    Where something failed on a device: worker, device, step, and instruction, the number of the
    instruction in that device's program; None where that is not known.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        hint: str | None = None,
        kind: str = "",
        worker: str = "",
        device: int | None = None,
        step: int | None = None,
        instruction: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.cause, found = split_hint(message)
        self.hint = found if hint is None else hint
        self.kind = kind
        self.worker = worker
        self.device = device
        self.step = step
        self.instruction = instruction

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


class InvalidArgument(Error):
    """What was asked is wrong, whatever the state of the cluster."""


class NotFound(Error):
    """There is no such job, worker, file or program."""


class DeadlineExceeded(Error):
    """No answer came in time."""


class Unavailable(Error):
    """The controller is not there, or was away for too long."""


class Unauthenticated(Error):
    """The token is missing or wrong."""


@dataclass(frozen=True)
class JobFileError:
    """One error of a job file. line and column are 0 where it is not about a place in the file."""

    key: str
    message: str
    hint: str
    place: str
    line: int
    column: int

    def __str__(self) -> str:
        return self.message


class JobFileErrors(InvalidArgument):
    """A job file is wrong. `errors` has all that is wrong with it."""

    def __init__(self, errors: list[JobFileError], code: Code = Code.INVALID_ARGUMENT) -> None:
        super().__init__(code, "\n".join(error.message for error in errors), hint=errors[0].hint)
        self.cause = split_hint(errors[0].message)[0]
        self.errors = errors


class JobFailed(Error):
    """A job that was waited for has not succeeded. `job` says how it ended."""

    def __init__(self, code: Code, message: str, job: Any) -> None:
        super().__init__(code, message)
        self.job = job


_CLASSES: dict[Code, type[Error]] = {
    Code.INVALID_ARGUMENT: InvalidArgument,
    Code.NOT_FOUND: NotFound,
    Code.DEADLINE_EXCEEDED: DeadlineExceeded,
    Code.UNAVAILABLE: Unavailable,
    Code.UNAUTHENTICATED: Unauthenticated,
}


def make_error(code: int | Code, message: str, **details: Any) -> Error:
    """The error of a code, as the class that stands for it."""
    known = Code.of(int(code))
    return _CLASSES.get(known, Error)(known, message, **details)


def error_of_wire(wire: Any) -> Error:
    """The exception of a RuntimeError of the wire."""
    from ._proto import meshwright_pb2 as pb

    name = pb.ErrorKind.Name(wire.kind) if wire.kind in pb.ErrorKind.values() else "ERROR_INTERNAL"
    return make_error(
        wire.code,
        wire.message,
        kind="".join(word.capitalize() for word in name.split("_")[1:]),
        worker=wire.worker,
        device=None if wire.device < 0 else wire.device,
        step=None if wire.step < 0 else wire.step,
        instruction=None if wire.instruction < 0 else wire.instruction,
    )


def refuse(message: str) -> NoReturn:
    """Says that an argument is wrong."""
    raise InvalidArgument(Code.INVALID_ARGUMENT, message)
