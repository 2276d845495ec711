"""What a session has asked and not heard the answer of: as client/ask_table.h."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ._proto import meshwright_pb2 as pb
from ._wire import Buffer, field_of

_MOST_UNACKNOWLEDGED = 16
_MOST_UNACKNOWLEDGED_BYTES = 256 << 10


@dataclass
class Ask:
    """A call, a read or a write. It is kept until its answer comes, to be sent again."""

    field: int  # of ClientUp
    message: Any  # CallProgram, ReadState or WriteState, without id and tensors
    tensors: list[Buffer]  # as fields of the message
    future: "Future[Any]"


class AskTable:
    """One thread at a time; ids count up from 1."""

    def __init__(self) -> None:
        self._next = 1
        self._asks: dict[int, Ask] = {}
        self._to_acknowledge: list[int] = []
        self._unacknowledged_bytes = 0
        self._acks_on_their_way = 0

    def __len__(self) -> int:
        return len(self._asks)

    @property
    def open(self) -> int:
        """What the controller may count as not settled."""
        return len(self._asks) + self._acks_on_their_way

    def next_id(self) -> int:
        """An id that no ask of this session has."""
        self._next += 1
        return self._next - 1

    def add(self, ask: Ask) -> int:
        """The id of the ask."""
        number = self.next_id()
        self._asks[number] = ask
        return number

    def message_of(self, number: int) -> list[Buffer]:
        """To send, with what is to be acknowledged; that counts as sent."""
        ask = self._asks[number]
        head = type(ask.message)()
        head.CopyFrom(ask.message)
        head.id = number
        head.acked.extend(self._to_acknowledge)
        self._to_acknowledge, self._unacknowledged_bytes = [], 0
        return field_of(ask.field, [head.SerializeToString(), *ask.tensors])

    def answered(self, number: int, answer_bytes: int) -> "Future[Any] | None":
        """Who waits for the answer; None: it came before."""
        self._to_acknowledge.append(number)
        self._unacknowledged_bytes += answer_bytes
        ask = self._asks.pop(number, None)
        return ask.future if ask else None

    def due_acks(self) -> list[Buffer] | None:
        """Acknowledgements to send now, without waiting for the next ask. They are open until
        acks_sent: an ask that overtook them would find the controller without credit for it."""
        if (
            len(self._to_acknowledge) < _MOST_UNACKNOWLEDGED
            and self._unacknowledged_bytes < _MOST_UNACKNOWLEDGED_BYTES
        ):
            return None
        message = pb.ClientUp(ack=pb.SessionAck(ids=self._to_acknowledge))
        self._acks_on_their_way = len(self._to_acknowledge)
        self._to_acknowledge, self._unacknowledged_bytes = [], 0
        return [message.SerializeToString()]

    def acks_sent(self) -> None:
        self._acks_on_their_way = 0

    def to_repeat(self, held: list[int]) -> list[int]:
        """Over a new connection: what is to be sent again. held: what the controller has."""
        there = set(held)
        repeat = [number for number in sorted(self._asks) if number not in there]
        self._to_acknowledge = sorted(there - set(self._asks))
        return repeat

    def take_all(self) -> "list[Future[Any]]":
        """Who waits for answers; nothing is unanswered then."""
        futures = [ask.future for ask in self._asks.values()]
        self._asks = {}
        return futures
