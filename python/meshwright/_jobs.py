"""Jobs as people see them, and what can be done with one."""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._channel import Channel
from ._errors import Code, DeadlineExceeded, JobFailed, Unavailable, make_error
from ._proto import meshwright_pb2 as pb
from ._reconnect import Reconnect

if TYPE_CHECKING:
    from ._session import Session
    from .checkpoints import Checkpoint
    from .safetensors import Tensors


class JobState(enum.Enum):
    """Where a job is."""

    UNSPECIFIED = 0
    QUEUED = 1
    PLANNING = 2
    STARTING = 3
    RUNNING = 4
    SUCCEEDED = 5
    FAILED = 6
    CANCELLED = 7
    RECOVERING = 8
    PAUSED = 9

    @property
    def terminal(self) -> bool:
        """Whether the job is over."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True)
class JobInfo:
    """What the controller says of a job. Times are seconds since 1970; None: not yet. tool: the
    command whose session it is, as "generate"; empty: somebody submitted it."""

    id: int
    name: str
    state: JobState
    reason: str
    message: str
    steps_done: int
    steps: int
    loss: float
    layout: str
    directory: str
    submitted: float
    started: float | None
    ended: float | None
    checkpoint_step: int | None
    checkpoint_root: str
    checkpoint_path: str
    tool: str

    @staticmethod
    def of_wire(wire: Any) -> "JobInfo":
        """The info of a JobInfo of the wire."""

        def seconds(unix_ms: int) -> float | None:
            return unix_ms / 1000 if unix_ms else None

        known = {state.value for state in JobState}
        return JobInfo(
            id=wire.id,
            name=wire.name,
            state=JobState(wire.state) if wire.state in known else JobState.UNSPECIFIED,
            reason=wire.reason,
            message=wire.message,
            steps_done=wire.steps_done,
            steps=wire.steps,
            loss=wire.loss,
            layout=wire.layout,
            directory=wire.directory,
            submitted=wire.submitted_unix_ms / 1000,
            started=seconds(wire.started_unix_ms),
            ended=seconds(wire.ended_unix_ms),
            checkpoint_step=wire.checkpoint_step if wire.HasField("checkpoint_step") else None,
            checkpoint_root=wire.checkpoint_folder.root,
            checkpoint_path=wire.checkpoint_folder.path,
            tool=getattr(wire, "tool", ""),  # wire types that are older have none
        )


@dataclass(frozen=True)
class Step:
    """What a step came to. step: its number, from 0. values: what the job's own programs report
    besides."""

    step: int
    loss: float
    grad_norm: float
    lr: float
    tokens: float
    seconds: float
    validation_loss: float | None = None
    values: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def of_wire(wire: Any) -> "Step":
        """The step of a StepMetrics of the wire."""
        return Step(
            step=wire.step,
            loss=wire.loss,
            grad_norm=wire.grad_norm,
            lr=wire.lr,
            tokens=wire.tokens,
            seconds=wire.seconds,
            validation_loss=wire.validation_loss if wire.HasField("validation_loss") else None,
            values=dict(wire.values),
        )


@dataclass(frozen=True)
class Event:
    """Something that happened to a job, in a line for people."""

    line: str


@dataclass(frozen=True)
class StateChange:
    """A job is in another state; info says why."""

    state: JobState
    info: JobInfo


News = Step | Event | StateChange


class Job:
    """A job of the controller: `client.submit(...)` makes one, `client.job(7)` finds one."""

    def __init__(self, channel: Channel, job_id: int, patience: float) -> None:
        self._channel = channel
        self._patience = patience
        self.id = job_id
        self.notes: list[str] = []  # what the controller had to say of its job file

    def __repr__(self) -> str:
        return f"meshwright.Job({self.id})"

    @property
    def _request(self) -> Any:
        return pb.JobIdRequest(job_id=self.id)

    def info(self) -> JobInfo:
        """How it is now."""
        return JobInfo.of_wire(self._channel.unary("Job.Get", self._request, pb.JobInfo))

    def stop(self) -> None:
        """Ends it. One that keeps checkpoints is saved first; asked a second time, it ends at
        once."""
        self._channel.unary("Job.Cancel", self._request, pb.CancelReply)

    def pause(self) -> None:
        """Asks for a pause: once its state is saved it is PAUSED, and its devices are free."""
        self._channel.unary("Job.Pause", self._request, pb.PauseReply)

    def resume(self) -> None:
        """Back into the queue, in its old place."""
        self._channel.unary("Job.Resume", self._request, pb.ResumeReply)

    def logs(self) -> list[str]:
        """Its event and log lines, oldest first."""
        chunks = self._channel.stream(
            "Log.Tail",
            pb.TailRequest(job_id=self.id),
            pb.LogChunk.FromString,
            self._channel.timeout,
        )
        return [line for chunk in chunks for line in chunk.lines]

    def updates(self, timeout: float | None = None) -> Iterator[Any]:
        """Updates of the wire until the job is over or `timeout` seconds have passed. Goes on over
        another connection where one breaks."""
        request = pb.WatchRequest(job_id=self.id)
        reconnect = Reconnect(self._patience)
        due = None if timeout is None else time.monotonic() + timeout
        heard_at_all = False
        while True:
            heard = False
            rest = None if due is None else max(0.001, due - time.monotonic())
            try:
                for update in self._channel.stream(
                    "Job.Watch", request, pb.JobUpdate.FromString, rest
                ):
                    heard = heard_at_all = True
                    request.from_step_record = update.next_step_record
                    request.from_log_line = update.next_log_line
                    yield update
                return
            except DeadlineExceeded:
                if heard_at_all:
                    return
                raise
            except Unavailable:
                if not heard_at_all:
                    raise
                pause = reconnect.pause_after(heard)
                if pause is None:
                    raise
            if due is not None and time.monotonic() >= due:
                return
            # One that has just died needs a moment to be back.
            time.sleep(max(pause, 0.02))

    def follow(self, timeout: float | None = None) -> Iterator[News]:
        """Steps, events and changes of state, from the first on, until the job is over."""
        state: JobState | None = None
        for update in self.updates(timeout):
            info = JobInfo.of_wire(update.info)
            yield from (Event(line) for line in update.log_lines)
            if info.state is not state and not info.state.terminal:
                yield StateChange(info.state, info)
            yield from (Step.of_wire(step) for step in update.steps)
            if info.state is not state and info.state.terminal:
                yield StateChange(info.state, info)
            state = info.state

    def wait(self, timeout: float | None = None) -> JobInfo:
        """Until it is over, or for `timeout` seconds. A job that has not succeeded raises
        JobFailed."""
        info: JobInfo | None = None
        for update in self.updates(timeout):
            info = JobInfo.of_wire(update.info)
        if info is None:
            raise make_error(Code.INTERNAL, f"the controller told nothing of job {self.id}")
        if not info.state.terminal:
            raise make_error(
                Code.DEADLINE_EXCEEDED,
                f"job {self.id} is {info.state.name} after {timeout:g} s, at step "
                f"{info.steps_done} of {info.steps}; wait longer, or follow it",
            )
        if info.state is not JobState.SUCCEEDED:
            code = Code.CANCELLED if info.state is JobState.CANCELLED else Code.ABORTED
            reason = f" ({info.reason})" if info.reason else ""
            raise JobFailed(
                code, f"job {self.id} is {info.state.name}{reason}: {info.message}", info
            )
        return info

    def metrics(self) -> list[Step]:
        """All steps so far."""
        done = self.info().steps_done
        steps: list[Step] = []
        if done == 0:
            return steps
        for update in self.updates(self._channel.timeout):
            steps += [Step.of_wire(step) for step in update.steps]
            if steps and steps[-1].step + 1 >= done:
                break
        return steps

    def checkpoints(self) -> list[int]:
        """Steps of its checkpoints, newest first."""
        from .checkpoints import steps_of_job

        return steps_of_job(self._channel, self.info())

    def checkpoint(self, step: int | None = None) -> "Checkpoint":
        """One of its checkpoints; the newest, where no step is given."""
        from .checkpoints import checkpoint_of_job

        return checkpoint_of_job(self._channel, self.info(), step)

    def weights(self) -> "Tensors":
        """The weights that it left at its end: arrays by the names of Hugging Face. On the
        controller's machine they are mapped, elsewhere fetched."""
        from . import safetensors
        from ._files import fetch, is_here

        blob = self._channel.unary("Job.Describe", self._request, pb.JobDescription).weights
        if not blob.sha256:
            raise make_error(
                Code.NOT_FOUND,
                f"job {self.id} has left no weights; it writes them when it succeeds, with "
                "checkpoint.last_save = true",
            )
        path = os.path.join(self.info().directory, "model.safetensors")
        if is_here(self._channel, blob, path):
            return safetensors.load(path)
        return safetensors.Tensors(f"the weights of job {self.id}", fetch(self._channel, blob))

    def attach(
        self, *, open_timeout: float = 600.0, timeout: float = 60.0, reconnect: float = 60.0
    ) -> "Session":
        """A session of a job that is there: its programs can be called between its steps."""
        from ._session import Session

        return Session(
            self._channel,
            pb.SessionOpen(job_id=self.id),
            open_timeout=open_timeout,
            timeout=timeout,
            reconnect=reconnect,
        )
