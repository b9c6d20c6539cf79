"""Browsing an event hub: its partitions' events in the order of their arrival, forwards or backwards, some at a time.

Partitions are merged by enqueued time. A cursor says for each partition where to continue, so that following, paging
back and a search that takes several requests neither skip nor repeat an event. One request reads no more than its
budget, however long the log is; its answer says how far it came.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tidegate.hub.errors import ArgumentError
from tidegate.hub.event_hub import EventHub
from tidegate.hub.partition import Partition
from tidegate.log import LogDamaged
from tidegate.portal.events.description import StoredEvent
from tidegate.portal.events.matching import Match

MAX_EVENTS = 500
_CHUNK_BYTES = 4 << 20
_SEARCH_CHUNK = 1000

Cursor = Mapping[str, int]
"""Of each partition, the sequence number to continue at (forwards) or before (backwards)."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What one request may read: events, and seconds."""

    events: int = 200_000
    seconds: float = 0.6
    monotonic_s: Callable[[], float] = time.monotonic


@dataclass(slots=True)
class Browsed:
    """What a request found.

    Attributes:
        events: In the order of arrival.
        forward: Where to continue reading forwards.
        backward: Where to continue reading backwards.
        searched: How many events were looked at.
        is_complete: True if there is nothing more in the direction that was read.
        damages: Events that cannot be read, as texts.
    """

    events: list[StoredEvent]
    forward: dict[str, int]
    backward: dict[str, int]
    searched: int
    is_complete: bool
    damages: list[str] = field(default_factory=list)


def chosen_partitions(hub: EventHub, partition_id: str) -> Sequence[Partition]:
    """Return one partition, or all for "". Raises ArgumentOutOfRange."""
    return [hub.partition(partition_id)] if partition_id else hub.partitions


def parse_cursor(text: str) -> dict[str, int]:
    """Return the cursor that `cursor_text` wrote. Raises ArgumentError."""
    cursor = {}
    for part in filter(None, text.split("_")):
        partition, _, number = part.partition("-")
        if not (partition.isdecimal() and number.isdecimal()) or len(part) > 40:
            raise ArgumentError(f"cursor: expected PARTITION-NUMBER_PARTITION-NUMBER…, got {text[:60]!r}")
        cursor[partition] = int(number)
    return cursor


def cursor_text(cursor: Cursor) -> str:
    """Return a cursor in the form of a query parameter."""
    return "_".join(f"{partition}-{number}" for partition, number in cursor.items())


def starting_cursor(partitions: Sequence[Partition], start: str) -> dict[str, int]:
    """Return where to read forwards from.

    Args:
        partitions: The partitions to read.
        start: `earliest`, `latest` (only what is yet to come), `sequence:N`, `offset:N`, or `time:` and an ISO 8601
            time, without an offset in UTC.

    Raises:
        ArgumentError: The position is of no such form.
        LogError: A log cannot be read.
    """
    kind, _, value = start.partition(":")
    if kind == "earliest":
        return {one.partition_id: one.log.begin_sequence_number for one in partitions}
    if kind == "latest":
        return {one.partition_id: one.log.next_sequence_number for one in partitions}
    if kind == "sequence":
        number = _whole(kind, value)
        return {one.partition_id: max(number, one.log.begin_sequence_number) for one in partitions}
    if kind == "offset":
        number = _whole(kind, value)
        return {one.partition_id: one.log.sequence_after_offset(number, inclusive=True) for one in partitions}
    if kind == "time":
        time_ms = parse_time_ms(value)
        return {one.partition_id: one.log.sequence_at_time(time_ms, inclusive=True) for one in partitions}
    raise ArgumentError(
        f"from: expected earliest, latest, sequence:N, offset:N or time:2026-01-31T12:00:00Z, got {start[:60]!r}"
    )


def _whole(kind: str, value: str) -> int:
    if not value.isdecimal() or len(value) > 18:
        raise ArgumentError(f"{kind}: expected a whole number, got {value[:40]!r}")
    return int(value)


def parse_time_ms(value: str) -> int:
    """Return an ISO 8601 time in milliseconds since 1970, in UTC unless it says otherwise. Raises ArgumentError."""
    try:
        when = datetime.fromisoformat(value.strip().replace(" ", "T", 1))
    except ValueError:
        raise ArgumentError(
            f"time: expected an ISO 8601 time such as 2026-01-31T12:00:00Z, got {value[:40]!r}"
        ) from None
    if when.tzinfo is None:
        when = datetime.fromisoformat(f"{when.isoformat()}+00:00")
    return int(when.timestamp() * 1000)


def read_forwards(
    partitions: Sequence[Partition], cursor: Cursor, limit: int, match: Match | None, budget: Budget
) -> Browsed:
    """Return the first `limit` matching events from a cursor on. Raises LogError."""
    reading = _Reading(match, budget)
    positions = {one.partition_id: cursor.get(one.partition_id, one.log.begin_sequence_number) for one in partitions}
    ends = {one.partition_id: one.log.next_sequence_number for one in partitions}
    chunk = limit if match is None else _SEARCH_CHUNK
    found: list[StoredEvent] = []
    while len(found) < limit and not reading.is_over:
        open_ones = [one for one in partitions if positions[one.partition_id] < ends[one.partition_id]]
        if not open_ones:
            break
        for one in open_ones:
            first = max(positions[one.partition_id], one.log.begin_sequence_number)
            stop = min(first + chunk, ends[one.partition_id])
            events, positions[one.partition_id] = reading.between(one, first, stop)
            found += events
    found.sort(key=_by_arrival)
    is_complete = len(found) <= limit and all(positions[name] >= end for name, end in ends.items())
    for event in reversed(found[limit:]):  # the first that is left for later, of each partition
        positions[event.partition] = event.sequence_number
    found = found[:limit]
    backward = {name: cursor.get(name, 0) for name in positions}
    return Browsed(found, positions, backward, reading.searched, is_complete, reading.damages)


def read_backwards(
    partitions: Sequence[Partition], before: Cursor, limit: int, match: Match | None, budget: Budget
) -> Browsed:
    """Return the last `limit` matching events before a cursor; a partition without one is read from its end.

    Raises LogError.
    """
    reading = _Reading(match, budget)
    ends = {one.partition_id: one.log.next_sequence_number for one in partitions}
    forward = {name: min(before.get(name, end), end) for name, end in ends.items()}
    positions = dict(forward)
    chunk = limit if match is None else _SEARCH_CHUNK
    found: list[StoredEvent] = []
    while len(found) < limit and not reading.is_over:
        open_ones = [one for one in partitions if positions[one.partition_id] > one.log.begin_sequence_number]
        if not open_ones:
            break
        for one in open_ones:
            stop = positions[one.partition_id]
            first = max(stop - chunk, one.log.begin_sequence_number)
            events, _ = reading.between(one, first, stop)
            positions[one.partition_id] = first
            found += events
    found.sort(key=_by_arrival)
    at_begin = all(positions[one.partition_id] <= one.log.begin_sequence_number for one in partitions)
    is_complete = len(found) <= limit and at_begin
    if len(found) > limit:
        # In each partition, continue before the oldest event shown, or where a newer one was left out.
        left_out = {event.partition: event.sequence_number + 1 for event in found[:-limit]}
        positions.update(left_out)
        found = found[-limit:]
    return Browsed(found, forward, positions, reading.searched, is_complete, reading.damages)


class _Reading:
    """One request's reads, counted against its budget."""

    def __init__(self, match: Match | None, budget: Budget) -> None:
        self._match = match
        self._budget = budget
        self._deadline_s = budget.monotonic_s() + budget.seconds
        self.searched = 0
        self.damages: list[str] = []

    @property
    def is_over(self) -> bool:
        return self.searched >= self._budget.events or self._budget.monotonic_s() > self._deadline_s

    def between(self, partition: Partition, first: int, stop: int) -> tuple[list[StoredEvent], int]:
        """Return the matching events of a range, and where reading has come to. Raises LogError."""
        found = []
        for event in self._events(partition, first, stop):
            self.searched += 1
            if self._match is None or self._match(event):
                found.append(event)
        return found, stop

    def _events(self, partition: Partition, first: int, stop: int) -> Iterator[StoredEvent]:
        position = first
        while position < stop:
            try:
                batches = partition.log.read_batches(position, max_bytes=_CHUNK_BYTES, max_events=stop - position)
            except LogDamaged as damage:
                resume = damage.resume_sequence_number
                self.damages.append(
                    f"partition {partition.partition_id}: events {position} to {resume - 1} are damaged"
                )
                position = resume
                continue
            if not batches:
                return
            for batch in batches:
                for at, (offset, encoded) in enumerate(zip(batch.offsets, batch.events, strict=True)):
                    number = batch.base_sequence_number + at
                    if number >= stop:
                        return
                    yield StoredEvent(partition.partition_id, number, offset, batch.enqueued_time_ms, encoded)
                    position = number + 1


def _by_arrival(event: StoredEvent) -> tuple[int, int, int]:
    return event.order
