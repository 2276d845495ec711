"""Host actors: objects of a user's own worker binary, asked from a session."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ._errors import Code, Error, error_of_wire, make_error
from ._proto import meshwright_pb2 as pb

_MOST_ASKS = 256


@dataclass(frozen=True)
class ActorRef:
    """One life of an actor. generation 0: whichever there is."""

    worker: str
    id: int
    generation: int


class ActorFate(enum.Enum):
    """What became of an actor."""

    RESTARTED = 1
    STOPPED = 2
    GAVE_UP = 3


@dataclass(frozen=True)
class ActorNews:
    """What became of an actor, once. next: its new life, where it was restarted."""

    fate: ActorFate
    next: ActorRef | None
    why: Error | None


def _ref(wire: Any) -> ActorRef:
    return ActorRef(wire.worker, wire.id, wire.generation)


def _wire(ref: ActorRef) -> Any:
    return pb.HostActorRef(worker=ref.worker, id=ref.id, generation=ref.generation)


class ActorAsks:
    """Questions of a session that are unanswered; thread-safe."""

    def __init__(self, write: Callable[[Any], None], next_id: Callable[[], int]) -> None:
        self._write = write
        self._next_id = next_id
        self._changed = threading.Condition()
        self._asks: dict[int, tuple["Future[Any]", bool]] = {}
        self._unanswered = 0
        self._end: Error | None = None

    def ask(self, message: Any, timeout: float, watch: bool = False) -> "Future[Any]":
        """The answer as an ActorDone of the wire."""
        future: Future[Any] = Future()
        due = time.monotonic() + timeout
        with self._changed:
            while self._end is None and not watch and self._unanswered >= _MOST_ASKS:
                if not self._changed.wait(due - time.monotonic()):
                    future.set_exception(
                        make_error(
                            Code.DEADLINE_EXCEEDED,
                            f"{self._unanswered} questions to actors are unanswered, the most at "
                            f"once, for {timeout:g} s",
                        )
                    )
                    return future
            if self._end is not None:
                future.set_exception(self._end)
                return future
            message.id = self._next_id()
            self._asks[message.id] = (future, watch)
            self._unanswered += 0 if watch else 1
        try:
            self._write(message)
        except Error as error:
            self.settle(message.id, error)
        return future

    def settle(self, number: int, result: Any) -> bool:
        """result: an ActorDone or an Error. Whether it was a question to an actor."""
        with self._changed:
            entry = self._asks.pop(number, None)
            if entry is None:
                return False
            self._unanswered -= 0 if entry[1] else 1
            self._changed.notify_all()
        if isinstance(result, Error):
            entry[0].set_exception(result)
        else:
            entry[0].set_result(result)
        return True

    def lose(self, why: Error) -> None:
        """Whether an actor got a question is not known: it is not asked again."""
        with self._changed:
            left, self._asks, self._unanswered = self._asks, {}, 0
            self._changed.notify_all()
        for future, _ in left.values():
            future.set_exception(why)

    def end(self, why: Error) -> None:
        """Nothing can be asked any more."""
        with self._changed:
            self._end = self._end or why
        self.lose(why)


def mapped(future: "Future[Any]", convert: Callable[[Any], Any]) -> "Future[Any]":
    """A future of what `convert` makes of the result."""
    result: Future[Any] = Future()

    def pass_on(done: "Future[Any]") -> None:
        error = done.exception()
        if error is not None:
            result.set_exception(error)
            return
        try:
            result.set_result(convert(done.result()))
        except BaseException as problem:  # noqa: BLE001 - it belongs to who waits
            result.set_exception(problem)

    future.add_done_callback(pass_on)
    return result


class Actors:
    """The actors of a session's job: `session.actors`."""

    def __init__(self, asks: ActorAsks, timeout: float) -> None:
        self._asks = asks
        self._timeout = timeout

    def _wait(self, message: Any, what: str) -> Any:
        future = self._asks.ask(message, self._timeout)
        try:
            return future.result(self._timeout)
        except TimeoutError:
            raise make_error(
                Code.DEADLINE_EXCEEDED, f"no answer to '{what}' within {self._timeout:g} s"
            ) from None

    def spawn(self, kind: str, args: bytes = b"", worker: str = "") -> ActorRef:
        """A new actor of a type of the worker binary. worker: where; "": where there are fewest."""
        done = self._wait(
            pb.SpawnHostActor(type=kind, args=args, worker=worker), f"spawn {kind}"
        )
        return _ref(done.ref)

    def ask(self, actor: ActorRef, payload: bytes, timeout: float = 10.0) -> "Future[bytes]":
        """The actor's reply, or why there is none: exactly once."""
        message = pb.AskHostActor(
            ref=_wire(actor), payload=payload, deadline_ms=int(timeout * 1000)
        )
        return mapped(self._asks.ask(message, self._timeout), lambda done: done.payload)

    def tell(self, actor: ActorRef, payload: bytes, timeout: float = 10.0) -> "Future[None]":
        """Done once the message is in the actor's mailbox."""
        message = pb.AskHostActor(
            ref=_wire(actor), payload=payload, deadline_ms=int(timeout * 1000), tell=True
        )
        return mapped(self._asks.ask(message, self._timeout), lambda done: None)

    def watch(self, actor: ActorRef) -> "Future[ActorNews]":
        """Told once, when this life of the actor is over."""

        def news(done: Any) -> ActorNews:
            fate = ActorFate(done.fate)
            again = fate is ActorFate.RESTARTED
            why = error_of_wire(done.why) if done.HasField("why") and done.why.kind else None
            return ActorNews(fate, _ref(done.ref) if again else None, why)

        message = pb.WatchHostActor(ref=_wire(actor))
        return mapped(self._asks.ask(message, self._timeout, watch=True), news)

    def stop(self, actor: ActorRef) -> None:
        """Ends this life of it for good."""
        self._wait(pb.StopHostActor(ref=_wire(actor)), "stop")
