"""How events lie in a topic.

Three kinds of records are found there, in any order:

- **Messages.** What AMQP and HTTPS publishers send is the value of a record, byte for byte, and the header `amqp`
  without a value says so.
- **Records of Kafka's clients**, through Tidegate's Kafka endpoint or written to the topic by anybody else. Readers of
  other protocols get them translated (`tidegate.kafka.translation`).
- **Markers**, with the header `tidegate-marker` and a value of the layout below. They are no events: every reader
  leaves them out, and sequence numbers have a gap in their place. The time of a marker is what tells that an idle
  partition gets no earlier events any more.

The value of a marker, big-endian: version (1 byte), number and enqueued time of the last event that its writer knew
(two int64, -1 and 0 if there never was one), and up to where the writer knew the partition (int64). What lies between
that place and the marker has to be looked at to find the last event; everything between the last event and that place
is markers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from tidegate.kafka.records import (
    BatchError,
    RecordBatch,
    RecordColumns,
    decode,
    encode,
    encode_alike,
    parse_batches,
    values_alike,
)
from tidegate.kafka.translation import MARKER, MESSAGE, event_of
from tidegate.log import EventBatch

_MARKER = Struct(">bqqq")
_MARKER_VERSION = 1


TakeApart = Callable[[Sequence[RecordBatch]], Sequence[Sequence[bytes] | None]]
"""Returns the values of each batch that holds nothing but messages, and None for any other batch."""


class Marker(NamedTuple):
    """What a marker says about the events before it."""

    last_sequence_number: int
    last_enqueued_time_ms: int
    known_to: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Records that were read, as events.

    Attributes:
        batches: The events.
        next_offset: Where to read on.
        floor_ms: The running maximum of the append time up to there.
        marker: The last marker, if the last record is one.
        untranslated: By the first number of a batch of events, the record batch that it was, if nothing but records of
            Kafka's clients is in it.
    """

    batches: list[EventBatch]
    next_offset: int
    floor_ms: int
    marker: Marker | None
    untranslated: Mapping[int, RecordBatch] = field(default_factory=dict)


def encode_messages(events: Sequence[bytes], time_ms: int, producer: tuple[int, int, int]) -> bytes:
    """Return messages as a record batch of one producer (its id, its epoch, the number of the first record)."""
    return encode_alike(events, timestamp_ms=time_ms, headers=MESSAGE, producer=producer)


def encode_marker(marker: Marker, time_ms: int, producer: tuple[int, int, int]) -> bytes:
    """Return a record batch that holds nothing but a marker."""
    value = _MARKER.pack(_MARKER_VERSION, *marker)
    return encode([value], timestamps_ms=[time_ms], headers=[MARKER], producer=producer)


def read_records(
    records: bytes | memoryview,
    offset: int,
    floor_ms: int,
    stop: int | None = None,
    take_apart: TakeApart | None = None,
) -> Stretch:
    """Return the events of fetched records.

    Args:
        records: Record batches; the first may begin before the offset, and the last may be cut off.
        offset: The first offset wanted.
        floor_ms: The running maximum of the append time before it.
        stop: Batches that begin at this offset or later are left out; None for none.
        take_apart: A quicker way to the values of batches of messages; None: there is none.

    Raises:
        BatchError: The records are damaged.
    """
    batches: list[EventBatch] = []
    marker: Marker | None = None
    untranslated: dict[int, RecordBatch] = {}
    fetched = [
        batch
        for batch in parse_batches(records, partial_end=True)
        if batch.next_offset > offset and (stop is None or batch.base_offset < stop)
    ]
    every: Sequence[Sequence[bytes] | None] = [None] * len(fetched) if take_apart is None else take_apart(fetched)
    for batch, values in zip(fetched, every, strict=True):
        batch.check()
        floor_ms = max(floor_ms, batch.max_timestamp_ms)
        if batch.is_control:
            offset = batch.next_offset
            continue
        marker = None
        if values is None:
            values = values_alike(batch, MESSAGE)
        if values is not None:
            batches += _from(offset, EventBatch(batch.base_offset, floor_ms, range(0), values))
            offset = batch.next_offset
            continue
        columns = decode(batch)
        if not any(some in (MESSAGE, MARKER) for some in columns.headers) and isinstance(columns.offsets, range):
            untranslated[max(offset, batch.base_offset)] = batch
        for start, events, found in _runs(columns):
            if found is not None:
                marker = found
                continue
            marker = None
            batches += _from(offset, EventBatch(columns.offsets[start], floor_ms, range(0), events))
        offset = batch.next_offset
    return Stretch(batches, offset, floor_ms, marker, untranslated)


def _from(offset: int, batch: EventBatch) -> Iterator[EventBatch]:
    """Yield the events of a batch from an offset on, if there are any."""
    skipped = max(0, offset - batch.base_sequence_number)
    first, stop = batch.base_sequence_number + skipped, batch.base_sequence_number + len(batch.events)
    if first < stop:
        events = batch.events[skipped:] if skipped else batch.events
        yield EventBatch(first, batch.enqueued_time_ms, range(first, stop), events)


def _runs(columns: RecordColumns) -> Iterator[tuple[int, list[bytes], Marker | None]]:
    """Yield the records as runs of consecutive offsets: where a run begins, and its events or its marker."""
    headers = columns.headers
    if headers and isinstance(columns.offsets, range) and headers.count(MESSAGE) == len(headers):
        yield 0, [value or b"" for value in columns.values], None
        return
    start, run = 0, list[bytes]()
    for index, (key, value, some) in enumerate(zip(columns.keys, columns.values, headers, strict=True)):
        if some == MARKER:
            if run:
                yield start, run, None
            yield index, [], parse_marker(value)
            run = []
            continue
        event = value or b"" if some == MESSAGE else event_of(key, value, some)
        if run and columns.offsets[index] == columns.offsets[index - 1] + 1:
            run.append(event)
        else:
            if run:
                yield start, run, None
            start, run = index, [event]
    if run:
        yield start, run, None


def parse_marker(value: bytes | None) -> Marker:
    """Return what a marker says; one that cannot be read says that nothing is known."""
    if value is not None and len(value) == _MARKER.size and value[0] == _MARKER_VERSION:
        return Marker(*_MARKER.unpack(value)[1:])
    return Marker(-1, 0, 0)


def last_append_time_ms(records: bytes | memoryview, offset: int) -> int | None:
    """Return the append time of the batch that holds an offset, None if it is not among these records."""
    for batch in parse_batches(records, partial_end=True):
        if batch.base_offset <= offset < batch.next_offset:
            return batch.max_timestamp_ms
    return None


def limited(
    batches: Sequence[EventBatch], sequence_number: int, max_bytes: int, max_events: int, last: int
) -> list[EventBatch]:
    """Return the batches from a number on, within limits, but one event at least."""
    found: list[EventBatch] = []
    for batch in batches:
        first = max(0, sequence_number - batch.base_sequence_number)
        stop = min(len(batch.events), first + max_events, last + 1 - batch.base_sequence_number)
        if stop <= first:
            continue
        events = batch.events
        size = sum(map(len, events)) if first == 0 and stop == len(events) else sum(map(len, events[first:stop]))
        if size > max_bytes:
            stop = first
            while stop < len(events) and max_bytes >= len(events[stop]):
                max_bytes -= len(events[stop])
                stop += 1
            if stop == first and not found:
                stop += 1
            max_bytes = 0
        else:
            max_bytes -= size
        if stop > first:
            if first or stop < len(events):
                events = events[first:stop]
            base = batch.base_sequence_number + first
            found.append(EventBatch(base, batch.enqueued_time_ms, range(base, base + len(events)), events))
            max_events -= len(events)
        if max_bytes <= 0 or max_events <= 0:
            break
    return found


__all__ = [
    "MARKER",
    "MESSAGE",
    "BatchError",
    "Marker",
    "Stretch",
    "encode_marker",
    "encode_messages",
    "last_append_time_ms",
    "limited",
    "parse_marker",
    "read_records",
]
