"""A segment: one file of consecutive entries, and its sparse index.

The file's name holds the position of its first byte in the log and the sequence number of its first event, so a
directory listing is the table of segments, and numbering survives any damage to content. A segment ends where the next
one begins. Its header records what an emptied log must still know:

    position  size  field
           0     8  mark, the bytes "TGSEG" 0 0 2 (the last is the layout's version)
           8     4  CRC-32C of everything after this field
          12     4  zero
          16     8  position of the segment in the log, as in the name
          24     8  sequence number of its first event, as in the name
          32     8  offset of the last event before it, -1 if there is none
          40     8  enqueued time of the last event before it, ms, 0 if there is none
          48    16  identity of the log, drawn when it was created: a segment of another log is never read as this one's

The index is a file of its own: records of three int64 (sequence number, position, enqueued time) of one entry every
INDEX_BYTES or so, written as the segment grows and never synced. It is only a hint: each entry records its own
position, so a wrong record or a lost file costs no more than a scan.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from google_crc32c import value as crc32c

from tidegate.log.entry import EntryDamaged, EntryView, ReadAt, walk
from tidegate.log.errors import LogError

SEGMENT_MARK = b"TGSEG\0\0\2"
_HEADER = Struct("<8sIIqqqq16s")
_MARK_WITHOUT_VERSION = SEGMENT_MARK[:-1]
_CHECKED_FROM = 12
SEGMENT_HEADER_BYTES = _HEADER.size
INDEX_BYTES = 1 << 16
INDEX_RECORD_BYTES = 24


class SegmentName(NamedTuple):
    """Where a segment begins."""

    base_position: int
    base_sequence_number: int

    @property
    def file_name(self) -> str:
        return f"{self.base_position:020d}-{self.base_sequence_number:020d}.log"

    @property
    def index_name(self) -> str:
        return f"{self.base_position:020d}-{self.base_sequence_number:020d}.index"

    @property
    def first_entry_position(self) -> int:
        return self.base_position + SEGMENT_HEADER_BYTES


def list_segments(directory: Path) -> list[SegmentName]:
    """Return the segments of a partition's directory, oldest first."""
    names = []
    for path in directory.glob("*.log"):
        position, _, sequence = path.stem.partition("-")
        if len(position) == len(sequence) == 20 and position.isdecimal() and sequence.isdecimal():
            names.append(SegmentName(int(position), int(sequence)))
    return sorted(names)


class SegmentHeader(NamedTuple):
    """The state of the log when the segment was begun."""

    name: SegmentName
    last_offset: int
    last_enqueued_time_ms: int
    log_id: bytes

    def encode(self) -> bytes:
        """Return the encoded header, with which a segment file begins."""
        body = _HEADER.pack(b"", 0, 0, *self.name, *self[1:])[_CHECKED_FROM:]
        crc: int = crc32c(body)
        return SEGMENT_MARK + crc.to_bytes(4, "little") + body


class SegmentForeign(EntryDamaged):
    """An intact segment that is not the one its name and place say: it was swapped, renamed or copied here."""


def decode_header(data: bytes, name: SegmentName, log_id: bytes | None) -> SegmentHeader:
    """Return the header of the segment called `name` of the log `log_id`; None accepts any log.

    Raises:
        EntryDamaged: The bytes are not a header. SegmentForeign: They are another segment's.
        LogError: Another version of Tidegate wrote the segment.
    """
    if len(data) < SEGMENT_HEADER_BYTES:
        raise EntryDamaged(name.base_position, "the segment's header is cut off")
    mark, crc, _, position, sequence, last_offset, last_time_ms, found_id = _HEADER.unpack_from(data)
    if mark != SEGMENT_MARK and mark[:-1] == _MARK_WITHOUT_VERSION and mark[-1]:
        raise LogError(
            f"{name.file_name} was written by another version of Tidegate (its format is {mark[-1]}, this one reads "
            f"{SEGMENT_MARK[-1]}): start the version that wrote it, or begin with an empty data directory"
        )
    if mark != SEGMENT_MARK or crc32c(data[_CHECKED_FROM:SEGMENT_HEADER_BYTES]) != crc:
        raise EntryDamaged(name.base_position, "the segment's header does not check")
    if log_id is not None and found_id != log_id:
        raise SegmentForeign(name.base_position, "the file belongs to another partition: move each back to its place")
    if SegmentName(position, sequence) != name:
        raise SegmentForeign(name.base_position, "the file is another segment: give it back its name")
    return SegmentHeader(name, last_offset, last_time_ms, found_id)


class IndexRecord(NamedTuple):
    """One indexed entry."""

    sequence_number: int
    position: int
    enqueued_time_ms: int


class SparseIndex:
    """Sequence number, position and enqueued time of some entries of a segment, in order."""

    def __init__(self) -> None:
        self.sequences = array("q")
        self.positions = array("q")
        self.times_ms = array("q")

    def add(self, entry: EntryView) -> None:
        """Index the entry if it lies far enough after the last one indexed."""
        if self.positions and entry.first_offset - self.positions[-1] < INDEX_BYTES:
            return
        # positions last: readers in other threads size the index by it
        self.sequences.append(entry.base_sequence_number)
        self.times_ms.append(entry.enqueued_time_ms)
        self.positions.append(entry.first_offset)

    def by_sequence(self, sequence_number: int) -> IndexRecord | None:
        """Return the last indexed entry that begins at or before the sequence number."""
        return self._record(bisect_right(self.sequences, sequence_number) - 1)

    def by_position(self, position: int) -> IndexRecord | None:
        """Return the last indexed entry at or before the position."""
        return self._record(bisect_right(self.positions, position) - 1)

    def by_time(self, enqueued_time_ms: int) -> IndexRecord | None:
        """Return the last indexed entry enqueued before the time; all entries before it are earlier too."""
        return self._record(bisect_left(self.times_ms, enqueued_time_ms) - 1)

    def last(self) -> IndexRecord | None:
        return self._record(len(self.positions) - 1)

    def drop_last(self) -> None:
        """Remove the last record. Only safe while there are no other readers of the index."""
        for column in (self.positions, self.times_ms, self.sequences):
            column.pop()

    def _record(self, at: int) -> IndexRecord | None:
        at = min(at, len(self.positions) - 1)
        return IndexRecord(self.sequences[at], self.positions[at], self.times_ms[at]) if at >= 0 else None

    def records(self, first: int = 0) -> bytes:
        """Return the bytes of the index file from record `first` on."""
        table = array("q")
        for at in range(first, len(self.positions)):
            table.extend((self.sequences[at], self.positions[at], self.times_ms[at]))
        if sys.byteorder == "big":
            table.byteswap()
        return table.tobytes()


def decode_index(data: bytes, name: SegmentName, end: int) -> SparseIndex:
    """Return the usable records of an index file: those before the first that is out of order or out of range."""
    table = array("q", data[: len(data) // INDEX_RECORD_BYTES * INDEX_RECORD_BYTES])
    if sys.byteorder == "big":
        table.byteswap()
    index = SparseIndex()
    sequence, position, time_ms = name.base_sequence_number, name.first_entry_position, -(2**63)
    for at in range(0, len(table), 3):
        if not (sequence <= table[at] and position <= table[at + 1] < end and time_ms <= table[at + 2]):
            break
        sequence, position, time_ms = table[at], table[at + 1], table[at + 2]
        index.sequences.append(sequence)
        index.positions.append(position)
        index.times_ms.append(time_ms)
        sequence, position = sequence + 1, position + 1
    return index


def start_position(read_at: ReadAt, name: SegmentName, hint: IndexRecord | None, end: int) -> int:
    """Return where to begin walking: the hinted entry if it matches its record, else the segment's first entry."""
    if hint is not None and hint.position < end:
        try:
            entry = next(walk(read_at, hint.position, end, chunk_bytes=4096))
        except EntryDamaged:
            return name.first_entry_position
        if (entry.base_sequence_number, entry.enqueued_time_ms) == (hint.sequence_number, hint.enqueued_time_ms):
            return hint.position
    return name.first_entry_position
