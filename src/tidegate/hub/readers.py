"""Where a reader begins, and which readers a partition has in a consumer group.

The rules of owner levels (epochs): https://learn.microsoft.com/azure/event-hubs/event-hubs-event-processor-host#epoch
A reader with an owner level is alone. It evicts readers without one and those of a lower or the same level; where one
of a higher level reads, nobody else gets in. Without owner levels there are at most five.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tidegate.hub.errors import ArgumentError, HubError, LinkStolen, QuotaExceeded
from tidegate.log import PartitionLog

MAX_READERS = 5
_SELECTOR = re.compile(
    r"\s*amqp\.annotation\.x-opt-(offset|sequence-number|enqueued-time(?:-utc)?)\s*(>=?)\s*(?:'([^']{0,64})'|(-?[0-9]{1,19}))\s*"
)
_INTEGER = re.compile(r"-?[0-9]{1,19}")


class Key(Enum):
    """What a position is given by."""

    OFFSET = "offset"
    SEQUENCE_NUMBER = "sequence-number"
    ENQUEUED_TIME = "enqueued-time"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a partition: after the event with the value, or at it when inclusive.

    Value None: after the last event.
    """

    key: Key
    value: int | None
    inclusive: bool


START = Position(Key.OFFSET, -1, False)
"""Where a reader begins that says nothing."""


def parse_selector(selector: str | None) -> Position:
    """Read the text of a selector filter, like `amqp.annotation.x-opt-offset > '-1'`. Raises ArgumentError."""
    if selector is None:
        return START
    match = _SELECTOR.fullmatch(selector)
    if match is None:
        raise ArgumentError(
            "a selector filter must compare x-opt-offset, x-opt-sequence-number or x-opt-enqueued-time by > or >= "
            f"with a value, as in amqp.annotation.x-opt-offset > '-1'; got {selector[:100]!r}"
        )
    name, operator, quoted, bare = match.groups()
    key = Key(name.removesuffix("-utc"))
    text = (bare if quoted is None else quoted).strip()
    if key is Key.OFFSET and text.lower() == "@latest":
        return Position(key, None, False)
    if not _INTEGER.fullmatch(text):
        raise ArgumentError(f"{text[:100]!r} is no {key.value}: expected a whole number")
    return Position(key, int(text), operator == ">=")


def first_sequence_number(position: Position, log: PartitionLog) -> int:
    """The sequence number of the first event to deliver. A position that retention has overtaken is the oldest event.

    Raises ArgumentError for an offset or sequence number that was never given out, LogError.
    """
    value = position.value
    if value is None:
        return log.next_sequence_number
    if position.key is Key.ENQUEUED_TIME:
        return log.sequence_at_time(value, inclusive=position.inclusive)
    last = log.last_offset if position.key is Key.OFFSET else log.next_sequence_number - 1
    if value > last + 1 or (value > last >= 0 and position.key is Key.OFFSET):
        raise ArgumentError(
            f"the supplied {position.key.value} {value} is not valid: the last one in the partition is {last}"
        )
    if value < 0:
        return log.begin_sequence_number
    if position.key is Key.OFFSET:
        return log.sequence_after_offset(value, inclusive=position.inclusive)
    return max(min(value if position.inclusive else value + 1, log.next_sequence_number), log.begin_sequence_number)


@dataclass(eq=False, slots=True)
class Seat:
    """A reader's place among those of a partition and consumer group. on_stolen is called once when it loses it."""

    epoch: int | None
    name: str
    on_stolen: Callable[[HubError], None]


class Seats:
    """The readers of one partition in one consumer group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seats: list[Seat] = []

    def __len__(self) -> int:
        return len(self._seats)

    def take(self, epoch: int | None, name: str, on_stolen: Callable[[HubError], None]) -> Seat:
        """Let a reader in, and those go that it evicts. Raises LinkStolen, QuotaExceeded."""
        newcomer = Seat(epoch, name, on_stolen)
        with self._lock:
            highest = max((seat.epoch for seat in self._seats if seat.epoch is not None), default=None)
            evicted: list[Seat] = []
            if epoch is None:
                if highest is not None:
                    raise LinkStolen(
                        f"a reader with owner level {highest} has this partition; one without a level cannot join it"
                    )
                if len(self._seats) >= MAX_READERS:
                    raise QuotaExceeded(
                        f"a partition has at most {MAX_READERS} readers without owner level in a consumer group"
                    )
            else:
                if highest is not None and highest > epoch:
                    raise LinkStolen(f"a reader with the higher owner level {highest} has this partition")
                evicted, self._seats = self._seats, []
            self._seats.append(newcomer)
        for seat in evicted:
            seat.on_stolen(LinkStolen(f"a reader with owner level {epoch} has taken this partition"))
        return newcomer

    def leave(self, seat: Seat) -> None:
        """Free a seat; again is harmless."""
        with self._lock:
            if seat in self._seats:
                self._seats.remove(seat)
