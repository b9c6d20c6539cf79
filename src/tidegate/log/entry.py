"""The stored unit: an entry, which holds the events of one or more appends that arrived together.

There are two kinds. This is the layout of events that came as AMQP messages or by HTTPS.

Layout, little-endian, entries one after the other, each beginning at a multiple of 8:

    position  size  field
           0     4  mark, the bytes "TGE1" (the last is the layout's version)
           4     4  length of the entry, header and padding included, a multiple of 8
           8     4  CRC-32C of everything after this field
          12     4  count of events, at least 1
          16     8  sequence number of the first event
          24     8  enqueued time, ms since 1970, of all events
          32     8  position of this entry in the partition's log: an entry that lies elsewhere is not this log's
          40     8  synced position: everything before it was on the disk when this entry was written
          48   4*n  end of each event in the payload (uint32), padded to 8
           …     …  payload: the events joined, padded to 8

Event i of an entry at position p has the offset p + 4 * i: a byte position inside the entry (it has 4 bytes of table
for every event), unique and increasing even for events without bytes.

An entry of the other kind holds one record batch as a client of Kafka sent it, with the offset of its first record
set to the sequence number and its time to the enqueued time. Its mark is "TGK1", it has no table, and it is padded to
4 bytes for every event at least, so that offsets are inside it here too.

The synced position tells a torn write from damage. Bytes that fail the check are a torn, never acknowledged write
unless a later entry says otherwise: an intact entry whose synced position lies beyond them proves that they were
synced, so they are damage.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from struct import Struct

from google_crc32c import value as crc32c

from tidegate.kafka.records import BATCH_LENGTH_END, BatchError, RecordBatch, parse_batch, rebase
from tidegate.kafka.translation import events_of

MARK = b"TGE1"
BATCH_MARK = b"TGK1"
_ANY_MARK = re.compile(b"TG[EK]1")
ALIGNMENT = 8
MAX_ENTRY_BYTES = 1 << 30
CUT_OFF = "the entry is cut off"
_HEADER = Struct("<4sIIIqqqq")
_CHECKED = Struct("<Iqqqq")
_PREFIX = Struct("<4sII")
HEADER_BYTES = _HEADER.size
_CHECKED_FROM = _PREFIX.size
_PADDING = [bytes((ALIGNMENT - n) % ALIGNMENT) for n in range(ALIGNMENT)]

ReadAt = Callable[[int, int], bytes]  # (position in the log, size) -> that many bytes, fewer at the end of the file


@dataclass(slots=True)
class EntryView:
    """One stored entry: `count` events of one arrival time, as they lie on disk.

    With numpy: `np.frombuffer(view.ends, "<u4")` is where each event ends in `payload`, `first_offset + 4 *
    np.arange(count)` are the offsets. The views keep the chunk of the file they point into alive.
    """

    base_sequence_number: int
    enqueued_time_ms: int
    first_offset: int  # also the position of the entry in the log
    count: int
    ends: memoryview
    payload: memoryview
    length: int
    synced_position: int
    is_record_batch: bool = False
    """Whether `payload` is a record batch. Such an entry has no table of ends; `as_events` returns one that has."""

    def as_events(self) -> EntryView:
        """Return the entry with its events as AMQP messages. Raises EntryDamaged."""
        if not self.is_record_batch:
            return self
        try:
            events = events_of(parse_batch(self.payload))
        except BatchError as error:
            raise EntryDamaged(self.first_offset, str(error)) from error
        if len(events) != self.count:
            raise EntryDamaged(self.first_offset, f"a record batch of {len(events)} records counts as {self.count}")
        joined = JoinedEvents.of([events])
        payload = memoryview(joined.payload)
        return replace(self, ends=memoryview(joined.ends), payload=payload, is_record_batch=False)

    @property
    def next_sequence_number(self) -> int:
        return self.base_sequence_number + self.count

    @property
    def end_position(self) -> int:
        return self.first_offset + self.length

    def end_table(self) -> Sequence[int]:
        """Return where each event ends in the payload."""
        return _native(self.ends.tobytes())

    def events(self, first: int = 0, last: int | None = None) -> list[bytes]:
        """Return copies of the events from index `first` up to, but not including, `last`."""
        ends = self.end_table()
        payload = self.payload.tobytes()
        stops = ends[first:last]
        starts = [ends[first - 1] if first else 0, *stops[:-1]] if stops else []
        return [payload[start:stop] for start, stop in zip(starts, stops, strict=True)]


@dataclass(slots=True)
class JoinedEvents:
    """Events one after the other, as another process passes them on, so that nobody cuts them up to join them again."""

    ends: bytes | memoryview
    """Where each event ends in the payload: uint32, little-endian, as an entry has them."""
    pieces: Sequence[bytes | memoryview]
    """The payload, cut anywhere."""
    size: int
    """The bytes of the payload."""

    def __len__(self) -> int:
        return len(self.ends) // 4

    @property
    def payload(self) -> bytes:
        """The events, joined."""
        return b"".join(self.pieces)

    @classmethod
    def of(cls, parts: Sequence[Sequence[bytes | memoryview] | JoinedEvents]) -> JoinedEvents:
        """Return the events of several publications as one."""
        tables: list[bytes | memoryview] = []
        pieces: list[bytes | memoryview] = []
        size = 0
        for part in parts:
            if isinstance(part, JoinedEvents):
                pieces.extend(part.pieces)
                tables.append(_moved(part.ends, size))
                size += part.size
            else:
                pieces.extend(part)
                ends = array("I", accumulate(map(len, part), initial=size))
                size = ends[-1]
                tables.append(_little_endian(ends[1:]))
        return cls(b"".join(tables), pieces, size)


def _moved(ends: bytes | memoryview, size: int) -> bytes | memoryview:
    """Return a table of ends that begins so many bytes later.

    The table is one long integer here, and so is what is added, since no end exceeds 32 bits.
    """
    if not size:
        return ends
    moved = int.from_bytes(ends, "little") + size * _ones(len(ends) // 4)
    return moved.to_bytes(len(ends), "little")


@lru_cache(maxsize=128)
def _ones(count: int) -> int:
    """Return the integer that is a table of so many ones."""
    return int.from_bytes(b"\1\0\0\0" * count, "little")


def _native(ends: bytes) -> array[int]:
    table = array("I", ends)
    if sys.byteorder == "big":
        table.byteswap()
    return table


def _little_endian(table: array[int]) -> bytes:
    if sys.byteorder == "big":
        table.byteswap()
    return table.tobytes()


class EntryDamaged(Exception):
    """The bytes at `position` are not an intact entry; `reason` is a text for people."""

    def __init__(self, position: int, reason: str) -> None:
        self.position = position
        self.reason = reason
        super().__init__(f"position {position}: {reason}")


def encode_entry(
    events: Sequence[bytes | memoryview] | JoinedEvents,
    base_sequence_number: int,
    enqueued_time_ms: int,
    position: int,
    synced_position: int,
) -> tuple[bytes, bytes]:
    """Return the entry in two parts, to be written one after the other.

    Raises ValueError if it would exceed MAX_ENTRY_BYTES.
    """
    count = len(events)
    table: bytes | memoryview
    payloads: Sequence[bytes | memoryview]
    if isinstance(events, JoinedEvents):
        table, payloads, payload_bytes = events.ends, events.pieces, events.size
    else:
        ends = array("I", accumulate(map(len, events)))
        payloads, payload_bytes = events, ends[-1]
        table = _little_endian(ends)
    body = b"".join(
        (
            _CHECKED.pack(count, base_sequence_number, enqueued_time_ms, position, synced_position),
            table,
            _PADDING[len(table) % ALIGNMENT],
            *payloads,
            _PADDING[payload_bytes % ALIGNMENT],
        )
    )
    length = _CHECKED_FROM + len(body)
    if length > MAX_ENTRY_BYTES:
        raise ValueError(f"{length} bytes are more than an entry may have ({MAX_ENTRY_BYTES})")
    return _PREFIX.pack(MARK, length, crc32c(body)), body


def encode_batch_entry(
    batch: RecordBatch, base_sequence_number: int, enqueued_time_ms: int, position: int, synced_position: int
) -> tuple[bytes, bytes]:
    """Return the entry of a record batch, moved to its place and time, like `encode_entry`."""
    payload = rebase(batch, base_sequence_number, enqueued_time_ms)
    room = max(len(payload), 4 * batch.count)
    body = b"".join(
        (
            _CHECKED.pack(batch.count, base_sequence_number, enqueued_time_ms, position, synced_position),
            payload,
            bytes((room + 7 & ~7) - len(payload)),
        )
    )
    length = _CHECKED_FROM + len(body)
    if length > MAX_ENTRY_BYTES:
        raise ValueError(f"{length} bytes are more than an entry may have ({MAX_ENTRY_BYTES})")
    return _PREFIX.pack(BATCH_MARK, length, crc32c(body)), body


def parse_entry(chunk: bytes, at: int, position: int) -> EntryView | int:
    """Return the entry at index `at` of `chunk`, or the number of bytes from `at` needed to parse it.

    The entry lies at `position` in the log.

    Raises EntryDamaged.
    """
    if len(chunk) - at < HEADER_BYTES:
        return HEADER_BYTES
    mark, length, crc, count, sequence, time_ms, own_position, synced = _HEADER.unpack_from(chunk, at)
    if mark not in (MARK, BATCH_MARK):
        raise EntryDamaged(position, "no entry begins here")
    payload_at = HEADER_BYTES + (4 * count + 7 & ~7)
    if length % ALIGNMENT or length > MAX_ENTRY_BYTES or not count or payload_at > length:
        raise EntryDamaged(position, "impossible length or count")
    if own_position != position:
        raise EntryDamaged(position, f"the entry belongs to position {own_position}")
    if len(chunk) - at < length:
        return int(length)
    if crc32c(chunk[at + _CHECKED_FROM : at + length]) != crc:
        raise EntryDamaged(position, "checksum differs")
    view = memoryview(chunk)
    if mark == BATCH_MARK:
        payload_at = at + HEADER_BYTES
        batch_bytes = BATCH_LENGTH_END + int.from_bytes(chunk[payload_at + 8 : payload_at + BATCH_LENGTH_END], "big")
        if HEADER_BYTES + batch_bytes > length:
            raise EntryDamaged(position, "a record batch is longer than its entry")
        payload = view[payload_at : payload_at + batch_bytes]
        return EntryView(sequence, time_ms, position, count, view[:0], payload, length, synced, True)
    table_at = at + HEADER_BYTES
    ends = view[table_at : table_at + 4 * count]
    payload_bytes = int.from_bytes(ends[-4:], "little")
    if payload_at + (payload_bytes + 7 & ~7) != length:
        raise EntryDamaged(position, "table and length differ")
    payload = view[at + payload_at : at + payload_at + payload_bytes]
    return EntryView(sequence, time_ms, position, count, ends, payload, length, synced)


def walk(read_at: ReadAt, position: int, end: int, chunk_bytes: int = 1 << 20) -> Iterator[EntryView]:
    """Yield the entries from `position` to `end` in order, each checked.

    Raises EntryDamaged at the first that is not intact.
    """
    while position < end:
        size = min(chunk_bytes, end - position)
        chunk = read_at(position, size)
        at = 0
        while at < size:
            entry = parse_entry(chunk, at, position + at)
            if isinstance(entry, int):  # continues after this chunk
                if position + at + entry > end or len(chunk) < size:
                    raise EntryDamaged(position + at, CUT_OFF)
                if at == 0:
                    chunk = read_at(position, max(entry, size))
                    size = max(entry, size)
                    if len(chunk) < size:
                        raise EntryDamaged(position, CUT_OFF)
                    continue
                break
            yield entry
            at += entry.length
        position += at


def next_intact(read_at: ReadAt, position: int, end: int, chunk_bytes: int = 1 << 20) -> EntryView | None:
    """Return the first intact entry that begins at or after `position` (any multiple of 8) and ends by `end`."""
    while position < end:
        chunk = read_at(position, min(chunk_bytes, end - position))
        for found in _ANY_MARK.finditer(chunk):
            start = position + found.start()
            if start % ALIGNMENT == 0:
                try:
                    return next(walk(read_at, start, end, chunk_bytes=HEADER_BYTES))
                except EntryDamaged:
                    pass  # the mark was part of a payload, or this entry is damaged too
        if len(chunk) <= len(MARK):
            return None
        position += len(chunk) - len(MARK) + 1
    return None


def walk_past_damage(
    read_at: ReadAt, position: int, end: int, chunk_bytes: int = 1 << 20
) -> Iterator[EntryView | EntryDamaged]:
    """Yield the intact entries from `position` to `end`, and before each gap the EntryDamaged that explains it."""
    while position < end:
        try:
            for entry in walk(read_at, position, end, chunk_bytes):
                position = entry.end_position
                yield entry
        except EntryDamaged as damage:
            yield damage
            found = next_intact(read_at, damage.position + ALIGNMENT, end)
            if found is None:
                return
            position = found.first_offset
