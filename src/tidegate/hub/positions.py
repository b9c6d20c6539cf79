"""Starting positions: where a receiving link begins to read.

A client names an offset, a sequence number or an enqueued time in a selector filter:
https://learn.microsoft.com/azure/event-hubs/event-hubs-amqp-protocol-guide#event-filters
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from tidegate.hub.errors import ArgumentError
from tidegate.log import PartitionStore

_SELECTOR = re.compile(
    r"\s*amqp\.annotation\.x-opt-(offset|sequence-number|enqueued-time(?:-utc)?)\s*(>=?)\s*(?:'([^']{0,64})'|(-?[0-9]{1,19}))\s*"
)
_INTEGER = re.compile(r"-?[0-9]{1,19}")


class PositionKey(Enum):
    """The property of an event that a position compares with."""

    OFFSET = "offset"
    SEQUENCE_NUMBER = "sequence-number"
    ENQUEUED_TIME = "enqueued-time"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a partition: after the event with the value, or at it if inclusive. None: after the last event."""

    key: PositionKey
    value: int | None
    inclusive: bool


START = Position(PositionKey.OFFSET, -1, False)
"""Where a reader without a filter begins."""


def parse_selector(selector: str | None) -> Position:
    """Parse a selector filter such as `amqp.annotation.x-opt-offset > '-1'`. Raises ArgumentError."""
    if selector is None:
        return START
    match = _SELECTOR.fullmatch(selector)
    if match is None:
        raise ArgumentError(
            "a selector filter compares x-opt-offset, x-opt-sequence-number or x-opt-enqueued-time with a value by > "
            f"or >=, as in amqp.annotation.x-opt-offset > '-1'; got {selector[:100]!r}"
        )
    name, operator, quoted, bare = match.groups()
    key = PositionKey(name.removesuffix("-utc"))
    text = (bare if quoted is None else quoted).strip()
    if key is PositionKey.OFFSET and text.lower() == "@latest":
        return Position(key, None, False)
    if not _INTEGER.fullmatch(text):
        raise ArgumentError(f"{text[:100]!r} is not a valid {key.value}: expected a whole number")
    return Position(key, int(text), operator == ">=")


def first_sequence_number(position: Position, log: PartitionStore) -> int:
    """Return the sequence number of the first event to deliver.

    If retention has deleted the event, the position becomes that of the oldest one.

    Raises:
        ArgumentError: The offset or sequence number is beyond the last event.
        LogError: The log cannot be read.
    """
    found = known_sequence_number(position, log)
    if found is not None or position.value is None:
        return log.next_sequence_number if found is None else found
    if position.key is PositionKey.ENQUEUED_TIME:
        return log.sequence_at_time(position.value, inclusive=position.inclusive)
    return log.sequence_after_offset(position.value, inclusive=position.inclusive)


def depends_on_end(position: Position, log: PartitionStore) -> bool:
    """Return whether a position stands for something else once the log has been seen to go on."""
    if position.value is None or position.key is PositionKey.ENQUEUED_TIME:
        return True
    return position.value > (log.last_offset if position.key is PositionKey.OFFSET else log.next_sequence_number - 1)


def known_sequence_number(position: Position, log: PartitionStore) -> int | None:
    """Return what `first_sequence_number` would if the log need not be searched for it, which may wait, else None.

    Raises ArgumentError: The offset or sequence number is beyond the last event.
    """
    value = position.value
    if value is None:
        return log.next_sequence_number
    if position.key is PositionKey.ENQUEUED_TIME:
        return _after_the_last(value, position.inclusive, log)
    last = log.last_offset if position.key is PositionKey.OFFSET else log.next_sequence_number - 1
    if value > last + 1 or (value > last >= 0 and position.key is PositionKey.OFFSET):
        raise ArgumentError(
            f"the supplied {position.key.value} {value} is not valid: the last one in the partition is {last}"
        )
    if value < 0:
        return log.begin_sequence_number
    if position.key is PositionKey.OFFSET:
        return None
    return max(min(value if position.inclusive else value + 1, log.next_sequence_number), log.begin_sequence_number)


def _after_the_last(time_ms: int, inclusive: bool, log: PartitionStore) -> int | None:
    """Return the number of the next event if every event is older, None if one may not be."""
    number = log.next_sequence_number
    last_ms = log.last_enqueued_time_ms
    is_after = last_ms < time_ms or (last_ms == time_ms and not inclusive)
    return number if is_after and log.next_sequence_number == number else None
