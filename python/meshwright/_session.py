"""A session: a client that drives a job, call by call."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._actors import ActorAsks, Actors
from ._ask_table import Ask, AskTable
from ._channel import CHUNK_BYTES, Channel
from ._errors import Code, Error, error_of_wire, make_error
from ._proto import meshwright_pb2 as pb
from ._reconnect import Reconnect
from ._wire import BYTES, Buffer, FrameJoiner, cut_to_frames, fields, size_of, split

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MAX_TENSOR_BYTES = 64 << 20
_TAKEN = "meshwright-session-taken"
_OF_THE_NETWORK = (Code.UNAVAILABLE, Code.UNKNOWN, Code.INTERNAL, Code.CANCELLED)
_CALL, _READ, _WRITE = 2, 3, 4  # fields of ClientUp
_ACTOR_FIELDS = {
    "SpawnHostActor": "spawn_actor",
    "AskHostActor": "ask_actor",
    "StopHostActor": "stop_actor",
    "WatchHostActor": "watch_actor",
}
_DONE = 2  # field of ClientDown


@dataclass(frozen=True)
class TensorType:
    """What an input takes: "f32", "i32", ... and its shape."""

    dtype: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Answer:
    """What came of a call. values: scalars; tensors: what the program gives out, where asked for."""

    step: int
    seconds: float
    values: dict[str, float]
    tensors: "dict[str, NDArray[Any]]"


class _Stream:
    """One connection of a session. Writes never block: frames wait in a queue."""

    def __init__(self, channel: Channel) -> None:
        self._frames: "queue.SimpleQueue[bytes | None]" = queue.SimpleQueue()
        self._lock = threading.Lock()
        self.call = channel.converse("Job.Interact", iter(self._frames.get, None))

    def write(self, message: list[Buffer]) -> None:
        with self._lock:
            for frame in cut_to_frames(message, CHUNK_BYTES):
                self._frames.put(frame)

    def end(self) -> None:
        self._frames.put(None)
        self.call.cancel()

    def taken(self) -> bool:
        """Whether the controller had this connection, once its headers have come."""
        import grpc

        try:
            headers = self.call.initial_metadata() or ()
        except grpc.RpcError:
            return False
        return any(key == _TAKEN for key, _ in headers)


def _answer_of(view: memoryview) -> tuple[Any, list[memoryview]]:
    """A serialised AskDone: what is no tensor, and the tensors."""
    rest, tiles = split(view, 5)
    return pb.AskDone.FromString(rest), tiles


class Session:
    """A client that drives a job: `client.open(job)` submits one, `job.attach()` asks one that is
    there. Calls are carried out in their order, each exactly once, also where the connection breaks
    and is made again. Thread-safe. Leaving a `with` block closes it.
    """

    def __init__(
        self,
        channel: Channel,
        opening: Any,
        *,
        open_timeout: float,
        timeout: float,
        reconnect: float,
    ) -> None:
        self._channel = channel
        self._opening = opening
        self._opening.session = uuid.uuid4().hex
        self._timeout = timeout
        self._patience = reconnect
        self._changed = threading.Condition()
        self._order = threading.Lock()  # asks are sent in the order of their ids
        self._table = AskTable()
        self._live: _Stream | None = None
        self._newest: _Stream | None = None
        self._opened: Any = None
        self._types: dict[str, dict[str, TensorType]] = {}
        self._ended: Error | None = None
        self._closing: Any = None
        self._given_up = False
        self._actor_asks = ActorAsks(self._write_to_actors, self._next_id)
        self.actors = Actors(self._actor_asks, timeout)
        reader = threading.Thread(target=self._run, name="meshwright-session", daemon=True)
        reader.start()
        try:
            self._wait_until_open(open_timeout)
        except BaseException:
            self.abandon()
            raise

    # ---- What a user does ----

    @property
    def job_id(self) -> int:
        """The job that the session drives."""
        return int(self._opened.job_id)

    @property
    def programs(self) -> dict[str, dict[str, TensorType]]:
        """What can be called, and with which inputs."""
        return self._types

    def call(
        self,
        program: str,
        inputs: "Mapping[str, ArrayLike] | None" = None,
        *,
        fetch: bool = True,
        step: int | None = None,
    ) -> "Future[Answer]":
        """Starts a call; several may be under way. fetch: the program's tensors come back."""
        from ._tensors import encode

        message = pb.CallProgram(program=program, fetch=fetch, step=step)
        tensors, size = encode(inputs or {}, self._types.get(program, {}), 3)
        return self._ask(_CALL, message, tensors, size)

    def run(
        self,
        program: str,
        inputs: "Mapping[str, ArrayLike] | None" = None,
        *,
        fetch: bool = True,
        step: int | None = None,
    ) -> Answer:
        """Calls a program and waits for its answer."""
        answer: Answer = self._await(self.call(program, inputs, fetch=fetch, step=step), program)
        return answer

    def read_state(self, names: Sequence[str] = ()) -> "dict[str, NDArray[Any]]":
        """Weights (none named: all) and optimizer state ("opt.m/NAME") after the calls before."""
        future = self._ask(_READ, pb.ReadState(names=names), [])
        answer: Answer = self._await(future, "reading the state")
        return answer.tensors

    def write_state(self, tensors: "Mapping[str, ArrayLike]") -> None:
        """Replaces tensors of the state, where the job's driver is "client"."""
        from ._tensors import encode

        future = self._ask(_WRITE, pb.WriteState(), *encode(tensors, {}, 2))
        self._await(future, "writing the state")

    def close(self, end_job: bool = False) -> None:
        """Says that the client has finished, once all its calls are answered. end_job: the job ends
        although others have it open."""
        due = time.monotonic() + self._timeout
        with self._changed:
            self._closing = pb.SessionClose(end_job=end_job)
            while self._ended is None and len(self._table) > 0:
                if not self._changed.wait(due - time.monotonic()):
                    raise make_error(
                        Code.DEADLINE_EXCEEDED,
                        f"{len(self._table)} calls are unanswered after {self._timeout:g} s, so "
                        "that the session did not close; close it again",
                    )
            stream = self._live
        if stream is not None:
            stream.write([pb.ClientUp(close=self._closing).SerializeToString()])
        with self._changed:
            while self._ended is None:
                if not self._changed.wait(due - time.monotonic()):
                    raise make_error(
                        Code.DEADLINE_EXCEEDED,
                        f"the controller did not end the session within {self._timeout:g} s",
                    )
            if self._ended.code == Code.UNAVAILABLE:
                raise self._ended

    def abandon(self) -> None:
        """Leaves at once, without a word: the job has the client back, or ends, within its
        driver.grace_s."""
        with self._changed:
            self._given_up = True
            stream = self._newest
            self._changed.notify_all()
        if stream is not None:
            stream.end()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    # ---- Asking ----

    def _wait_until_open(self, timeout: float) -> None:
        due = time.monotonic() + timeout
        with self._changed:
            while self._ended is None and self._opened is None:
                if not self._changed.wait(due - time.monotonic()):
                    raise make_error(
                        Code.DEADLINE_EXCEEDED,
                        f"the job did not run within {timeout:g} s; see why with client.jobs(), "
                        "or give it more time",
                    )
            if self._opened is None:
                assert self._ended is not None
                raise self._ended

    def _await(self, future: "Future[Any]", what: str) -> Any:
        try:
            return future.result(self._timeout)
        except TimeoutError:
            raise make_error(
                Code.DEADLINE_EXCEEDED, f"no answer to '{what}' within {self._timeout:g} s"
            ) from None

    def _may_ask(self) -> bool:
        return self._opened is not None and self._table.open < max(1, self._opened.credits)

    def _ask(
        self, field: int, message: Any, tensors: list[Buffer], size: int = 0
    ) -> "Future[Any]":
        if size > MAX_TENSOR_BYTES:
            raise make_error(
                Code.RESOURCE_EXHAUSTED,
                f"the tensors have {size} bytes, of which one message takes {MAX_TENSOR_BYTES}; "
                "use smaller batches, or write fewer tensors at once",
            )
        ask = Ask(field, message, tensors, Future())
        due = time.monotonic() + self._timeout
        while True:
            with self._changed:
                while self._ended is None and self._closing is None and not self._may_ask():
                    if not self._changed.wait(due - time.monotonic()):
                        raise make_error(
                            Code.DEADLINE_EXCEEDED,
                            f"{len(self._table)} calls are unanswered, the most at once, for "
                            f"{self._timeout:g} s",
                        )
            with self._order:
                with self._changed:
                    if self._ended is not None or self._closing is not None:
                        raise self._ended or make_error(
                            Code.FAILED_PRECONDITION, "the session is closed"
                        )
                    if not self._may_ask():
                        continue
                    number = self._table.add(ask)
                    stream = self._live
                    if stream is None:
                        return ask.future  # it goes with what is sent again
                    written = self._table.message_of(number)
                stream.write(written)
                return ask.future

    def _next_id(self) -> int:
        with self._changed:
            return self._table.next_id()

    def _write_to_actors(self, message: Any) -> None:
        due = time.monotonic() + self._timeout
        with self._changed:
            while self._ended is None and self._live is None:
                if not self._changed.wait(due - time.monotonic()):
                    raise make_error(
                        Code.DEADLINE_EXCEEDED,
                        f"the connection to the controller is broken for {self._timeout:g} s",
                    )
            if self._live is None:
                assert self._ended is not None
                raise self._ended
            stream = self._live
        field = _ACTOR_FIELDS[type(message).__name__]
        stream.write([pb.ClientUp(**{field: message}).SerializeToString()])

    # ---- Hearing: on the reader's thread ----

    def _run(self) -> None:
        try:
            end = self._connect_and_read()
        except Exception as error:  # noqa: BLE001 - who waits must hear of it
            end = make_error(Code.INTERNAL, f"the session's reader failed: {error!r}")
        with self._changed:
            self._ended = end
            self._live = None
            left = self._table.take_all()
            self._changed.notify_all()
        for future in left:
            future.set_exception(end)
        self._actor_asks.end(end)

    def _connect_and_read(self) -> Error:
        reconnect = Reconnect(self._patience)
        pause = 0.0
        while True:
            with self._changed:
                due = time.monotonic() + pause
                while not self._given_up and time.monotonic() < due:
                    self._changed.wait(due - time.monotonic())
                if self._given_up:
                    return make_error(Code.CANCELLED, "the session was given up")
                stream = self._newest = _Stream(self._channel)
            stream.write([pb.ClientUp(open=self._opening).SerializeToString()])
            taken, final, end = self._read(stream)
            stream.end()
            if self._given_up:
                return make_error(Code.CANCELLED, "the session was given up")
            if final or end.code not in _OF_THE_NETWORK or self._patience <= 0:
                return end
            again = reconnect.pause_after(taken)
            if again is None:
                return make_error(
                    Code.UNAVAILABLE,
                    f"{end.message}; the connection was tried again for {self._patience:g} s",
                )
            pause = again
            with self._changed:
                self._live = None
            self._actor_asks.lose(
                make_error(
                    Code.UNAVAILABLE,
                    f"the connection broke before the actor's answer came: {end.message}",
                )
            )

    def _read(self, stream: _Stream) -> tuple[bool, bool, Error]:
        """Until the connection ends: whether it was taken, whether the session is over, and why."""
        import grpc

        joiner = FrameJoiner(MAX_TENSOR_BYTES + (1 << 20))
        taken = stream.taken()
        final = False
        try:
            for frame in stream.call:
                message = joiner.add(frame)
                if message is not None:
                    taken = True
                    final = self._take(stream, message) or final
        except grpc.RpcError as error:
            return taken, final, self._channel.explain(error, 0)
        except (ValueError, IndexError) as error:
            return taken, True, make_error(
                Code.DATA_LOSS, f"a message of the session is damaged: {error}"
            )
        return taken, final, make_error(Code.FAILED_PRECONDITION, "the session has ended")

    def _take(self, stream: _Stream, view: memoryview) -> bool:
        """Whether it says that the session is over."""
        for field, kind, _, value, end in fields(view):
            if field == _DONE and kind == BYTES:
                self._take_done(stream, view[value:end])
                return False
        message = pb.ClientDown.FromString(bytes(view))
        body = message.WhichOneof("body")
        if body == "opened":
            self._go_live(stream, message.opened)
        elif body == "actor_done":
            self._actor_asks.settle(message.actor_done.id, message.actor_done)
        elif body == "failed":
            error = error_of_wire(message.failed.error)
            if not self._actor_asks.settle(message.failed.id, error):
                self._settle(stream, message.failed.id, 0, error)
        return bool(body == "end")

    def _take_done(self, stream: _Stream, view: memoryview) -> None:
        from ._tensors import assemble

        done, tiles = _answer_of(view)
        result: Any
        try:
            result = Answer(done.step, done.seconds, dict(done.values), assemble(tiles))
        except Error as error:
            result = error
        self._settle(stream, done.id, size_of(tiles), result)

    def _settle(self, stream: _Stream, number: int, answer_bytes: int, result: Any) -> None:
        with self._changed:
            future = self._table.answered(number, answer_bytes)
            acks = self._table.due_acks()
            self._changed.notify_all()
        if acks is not None:
            stream.write(acks)
            with self._changed:
                self._table.acks_sent()
                self._changed.notify_all()
        if future is None:
            return
        if isinstance(result, Error):
            future.set_exception(result)
        else:
            future.set_result(result)

    def _go_live(self, stream: _Stream, opened: Any) -> None:
        """What is unanswered and did not arrive is sent again, before anything new."""
        self._opening = pb.SessionOpen(
            job_id=opened.job_id, session=self._opening.session, again=True
        )
        with self._order:
            with self._changed:
                messages = [
                    self._table.message_of(number)
                    for number in self._table.to_repeat(list(opened.held))
                ]
                if self._closing is not None and len(self._table) == 0:
                    messages.append([pb.ClientUp(close=self._closing).SerializeToString()])
                self._live = stream
                self._opened = opened
                self._types = {
                    program.name: {
                        tensor.name: TensorType(tensor.dtype, tuple(tensor.dims))
                        for tensor in program.inputs
                    }
                    for program in opened.programs
                }
                self._changed.notify_all()
            for message in messages:
                stream.write(message)
