"""The segments of a partition, oldest first, and searches in them.

Every search takes the same steps: the names select the segment, its sparse index gives a start, and a walk over the
entries finds the result. All keys (sequence number, position, enqueued time) grow together, so each can be searched.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tidegate.durable_files import Files
from tidegate.log.acknowledged import Acknowledged
from tidegate.log.entry import EntryDamaged, EntryView, ReadAt, walk_past_damage
from tidegate.log.errors import LogDamaged
from tidegate.log.segment import (
    SEGMENT_HEADER_BYTES,
    IndexRecord,
    SegmentForeign,
    SegmentHeader,
    SegmentName,
    SparseIndex,
    decode_header,
    decode_index,
    list_segments,
    start_position,
)

EVENTS_MISSING = "its end or the segment after it is missing"


def _by_sequence(sequence_number: int, index: SparseIndex) -> IndexRecord | None:
    return index.by_sequence(sequence_number)


def _by_position(position: int, index: SparseIndex) -> IndexRecord | None:
    return index.by_position(position)


def _by_time(enqueued_time_ms: int, index: SparseIndex) -> IndexRecord | None:
    return index.by_time(enqueued_time_ms)


class SegmentTable:
    """A snapshot of the segments.

    Attributes:
        directory: The directory of the segments.
        files: The file operations they are read with.
        names: The segments, oldest first.
        indexes: The indexes read so far, by segment.
        headers: The headers read so far, by segment; None for a damaged one.
        begin: The oldest retained segment, None if it is not known. If it is not the first of `names`,
            segments are missing.
        log_id: The identity of the log, which its segments must have; None accepts any.
        own_headers: The bytes of headers that were found to be this log's.
    """

    def __init__(
        self,
        directory: Path,
        files: Files,
        names: list[SegmentName],
        indexes: dict[SegmentName, SparseIndex],
        headers: dict[SegmentName, SegmentHeader | None],
        begin: SegmentName | None = None,
        log_id: bytes | None = None,
    ) -> None:
        self.directory = directory
        self.files = files
        self.names = names
        self.indexes = indexes
        self.headers = headers
        self.begin = begin
        self.log_id = log_id
        self.own_headers: dict[SegmentName, bytes] = {}

    @classmethod
    def read_directory(cls, directory: Path, files: Files) -> SegmentTable:
        """Return the segments in the directory."""
        return cls(directory, files, list_segments(directory), {}, {})

    @property
    def begin_sequence_number(self) -> int:
        """The sequence number of the oldest retained event."""
        first = self.names[0].base_sequence_number
        return first if self.begin is None else min(first, self.begin.base_sequence_number)

    @contextmanager
    def reading(self, name: SegmentName) -> Iterator[tuple[ReadAt, int]]:
        """Return a function that reads a segment by positions in the log, and where its file ends.

        Raises FileNotFoundError if it was deleted.
        """
        files, base = self.files, name.base_position
        fd = files.open_to_read(self.directory / name.file_name)
        try:
            yield lambda position, size: files.read_at(fd, position - base, size), base + files.size(fd)
        finally:
            files.close(fd)

    def header(self, name: SegmentName) -> SegmentHeader | None:
        """Return the segment's header, None if it is damaged or another segment's. Raises LogError."""
        if name not in self.headers:
            with self.reading(name) as (read_at, _):
                try:
                    self.headers[name] = self._decode_header(read_at, name)
                except EntryDamaged:
                    self.headers[name] = None
        return self.headers[name]

    def _decode_header(self, read_at: ReadAt, name: SegmentName) -> SegmentHeader:
        return decode_header(read_at(name.base_position, SEGMENT_HEADER_BYTES), name, self.log_id)

    def foreign(self, name: SegmentName, read_at: ReadAt) -> SegmentForeign | None:
        """Return what shows that a file is not the segment it stands for, None if nothing does. Raises LogError.

        Each walk asks, since files may be exchanged while the log is open.
        """
        data = read_at(name.base_position, SEGMENT_HEADER_BYTES)
        if data == self.own_headers.get(name):
            return None
        try:
            decode_header(data, name, self.log_id)
            self.own_headers[name] = data
        except SegmentForeign as foreign:
            return foreign
        except EntryDamaged:
            pass  # the entries carry checksums of their own
        return None

    def index(self, name: SegmentName, end: int) -> SparseIndex:
        """Return the segment's index as far as its file goes; empty if there is none."""
        known = self.indexes.get(name)
        if known is not None:
            return known
        try:
            data = (self.directory / name.index_name).read_bytes()
        except OSError:  # missing or unreadable: it is only a hint
            data = b""
        index = decode_index(data, name, end)
        if name != self.names[-1]:  # the last one grows
            self.indexes[name] = index
        return index

    def rebuild_index(self, name: SegmentName, read_at: ReadAt, end: int) -> SparseIndex:
        """Rebuild the index of a sealed segment whose index file was lost."""
        index = SparseIndex()
        for entry in walk_past_damage(read_at, name.first_entry_position, end):
            if isinstance(entry, EntryView):
                index.add(entry)
        self.indexes[name] = index
        return index

    def _walk(
        self,
        at: int,
        end_position: int | None,
        hint: Callable[[SparseIndex], IndexRecord | None],
        position: int | None = None,
    ) -> Iterator[EntryView | EntryDamaged]:
        name = self.names[at]
        sealed = at + 1 < len(self.names)
        with self.reading(name) as (read_at, file_end):
            foreign = self.foreign(name, read_at)
            if foreign is not None:
                yield foreign
                return
            end = self.names[at + 1].base_position if sealed else file_end if end_position is None else end_position
            if position is None:
                index = self.index(name, end)
                if sealed and not index.positions:
                    index = self.rebuild_index(name, read_at, end)
                position = start_position(read_at, name, hint(index), end)
            yield from walk_past_damage(read_at, max(position, name.first_entry_position), end)

    def intact_entries(self, at: int, end_position: int | None = None) -> Iterator[EntryView]:
        """Yield the readable entries of one segment."""
        for entry in self._walk(at, end_position, SparseIndex.last, self.names[at].first_entry_position):
            if isinstance(entry, EntryView):
                yield entry

    def last_intact_sequence_number(self) -> int:
        """Return the sequence number of the last readable event in the last segment's file, -1 if there is none."""
        last = -1
        for entry in self._walk(len(self.names) - 1, None, SparseIndex.last):
            if isinstance(entry, EntryView):
                last = entry.next_sequence_number - 1
        return last

    def entries(
        self,
        sequence_number: int,
        next_sequence_number: int | None = None,
        end_position: int | None = None,
        position: int | None = None,
    ) -> Iterator[EntryView]:
        """Yield the entries of all segments from the one that holds sequence_number, up to next_sequence_number.

        `position` is where that first entry is known to begin. Raises LogDamaged at entries that cannot be read.
        Without a next_sequence_number, bytes that fail the check at the end of the last file are a write in progress
        and end the walk.
        """
        limit = 2**63 if next_sequence_number is None else next_sequence_number
        missing = self.missing_at_the_beginning(sequence_number)
        if missing is not None:
            raise missing
        at = max(bisect_right(self.names, sequence_number, key=lambda name: name.base_sequence_number) - 1, 0)
        wanted = max(sequence_number, self.names[at].base_sequence_number)
        while at < len(self.names) and wanted < limit:
            name = self.names[at]
            damage: EntryDamaged | None = None
            for entry in self._walk(at, end_position, partial(_by_sequence, wanted), position):
                if isinstance(entry, EntryDamaged):
                    damage = entry
                elif entry.next_sequence_number <= wanted:
                    damage = None
                elif entry.base_sequence_number >= limit:
                    return
                elif damage is not None and entry.base_sequence_number > wanted:
                    raise self._damaged(name, damage, wanted, entry.base_sequence_number)
                else:
                    yield entry
                    wanted, damage = entry.next_sequence_number, None
            at, position = at + 1, None
            beyond = self.names[at].base_sequence_number if at < len(self.names) else next_sequence_number
            if beyond is not None and wanted < min(beyond, limit):
                damage = damage or EntryDamaged(name.base_position, EVENTS_MISSING)
                raise self._damaged(name, damage, wanted, beyond)

    def missing_at_the_beginning(self, sequence_number: int = 0) -> LogDamaged | None:
        """Return which events from sequence_number on are missing before the first segment, None if none are."""
        first = max(sequence_number, self.begin_sequence_number)
        resume = self.names[0].base_sequence_number
        if self.begin is None or first >= resume:
            return None
        return LogDamaged(self.directory / self.begin.file_name, 0, "the file is missing", first, resume)

    def missing_after(self, at: int) -> LogDamaged | None:
        """Return which events are missing between the segment `at` and the next one, None if the files meet.

        Reads only the files' headers and sizes, unless they differ. Raises LogError, OSError.
        """
        name, following = self.names[at], self.names[at + 1]
        with self.reading(name) as (read_at, file_end):
            foreign = self.foreign(name, read_at)
            if foreign is not None:
                return self._damaged(name, foreign, name.base_sequence_number, following.base_sequence_number)
            if file_end >= following.base_position:
                return None
        last = name.base_sequence_number
        for entry in self._walk(at, None, SparseIndex.last):
            if isinstance(entry, EntryView):
                last = entry.next_sequence_number
        if last >= following.base_sequence_number:
            return None
        damage = EntryDamaged(file_end, EVENTS_MISSING)
        return self._damaged(name, damage, last, following.base_sequence_number)

    def _damaged(self, name: SegmentName, damage: EntryDamaged, sequence_number: int, resume: int) -> LogDamaged:
        path = self.directory / name.file_name
        return LogDamaged(path, damage.position - name.base_position, damage.reason, sequence_number, resume)

    def sequence_after_offset(self, offset: int, inclusive: bool, end_position: int | None) -> int | None:
        """Return the first sequence number with a greater (or equal, if inclusive) offset, None if there is none."""
        least = offset if inclusive else offset + 1
        at = max(bisect_right(self.names, least, key=lambda name: name.base_position) - 1, 0)
        for segment in range(at, len(self.names)):
            for entry in self._walk(segment, end_position, partial(_by_position, least)):
                if isinstance(entry, EntryView):
                    skipped = max(0, -((entry.first_offset - least) // 4))  # offsets are 4 apart
                    if skipped < entry.count:
                        return entry.base_sequence_number + skipped
        return None

    def sequence_at_time(self, enqueued_time_ms: int, inclusive: bool, end_position: int | None) -> int | None:
        """Return the first sequence number enqueued after the time (or at it when inclusive), None if there is none."""
        least = enqueued_time_ms if inclusive else enqueued_time_ms + 1
        at = max(bisect_right(self.names, least, key=self._certainly_after) - 1, 0)
        for segment in range(at, len(self.names)):
            for entry in self._walk(segment, end_position, partial(_by_time, least)):
                if isinstance(entry, EntryView) and entry.enqueued_time_ms >= least:
                    return entry.base_sequence_number
        return None

    def _certainly_after(self, name: SegmentName) -> int:
        """Return a time at or below every time in the segment. Searches below it start in an earlier segment."""
        header = self.header(name)
        # a damaged header gives no bound: the search then begins further back
        return header.last_enqueued_time_ms + 1 if header is not None else 2**63


def as_events(entry: EntryView, directory: Path) -> EntryView:
    """Return an entry of either kind with its events as AMQP messages. Raises LogDamaged."""
    try:
        return entry.as_events()
    except EntryDamaged as damage:
        raise LogDamaged(
            directory, damage.position, damage.reason, entry.base_sequence_number, entry.next_sequence_number
        ) from damage


class LogState:
    """The segments, oldest first, and the durable end, which is all that readers may see.

    Attributes:
        directory: The directory of the segments.
        files: The operations they are read and written with.
        lock: Held while any field below changes. Taken after the writer's lock, never before.
        names: The segments. The list is replaced and never changed, so that a reader can keep it.
        end: Where the durable events begin and end. Replaced whole.
        in_flight_ms: The enqueued time of the group being written, None if none is.
    """

    def __init__(self, table: SegmentTable, end: Acknowledged, tail_index: SparseIndex | None) -> None:
        """Show what was found; without a tail_index, the index of the last segment is read from its file."""
        self.directory: Path = table.directory
        self.files: Files = table.files
        self.lock = threading.Lock()
        self.names: list[SegmentName] = table.names
        self.end = end
        self.in_flight_ms: int | None = None
        self._indexes = {} if tail_index is None else {table.names[-1]: tail_index}
        self._headers = table.headers
        self._own_headers = table.own_headers

    def snapshot(self) -> tuple[SegmentTable, Acknowledged]:
        """Return a consistent snapshot of the segments and the durable end."""
        with self.lock:
            table = SegmentTable(self.directory, self.files, self.names, self._indexes, self._headers)
            table.begin, table.log_id = self.end.begin, self.end.log_id
            table.own_headers = self._own_headers
            return table, self.end

    def position_at_or_before(self, sequence_number: int) -> int:
        """Return where an entry begins that is not after the event, from what is in memory."""
        with self.lock:
            at = max(bisect_right(self.names, sequence_number, key=lambda name: name.base_sequence_number) - 1, 0)
            name = self.names[at]
            index = self._indexes.get(name)
            found = None if index is None else index.by_sequence(sequence_number)
            return name.base_position if found is None else found.position

    def replace(self, table: SegmentTable, end: Acknowledged, tail_index: SparseIndex | None) -> None:
        """Show what recovery has found, in place of what could be read before."""
        with self.lock:
            self.names, self.end = table.names, end
            self._indexes = {} if tail_index is None else {table.names[-1]: tail_index}
            self._headers = table.headers

    def extend(self, end: Acknowledged, index: SparseIndex, entries: Sequence[EntryView]) -> None:
        """Make a group visible: its entries are durable in the last segment."""
        with self.lock:
            self.end = end
            self.in_flight_ms = None
            for entry in entries:
                index.add(entry)

    def add_segment(self, header: SegmentHeader, index: SparseIndex) -> None:
        """Continue in a new segment, which begins where the last one ends."""
        name = header.name
        with self.lock:
            self.names = [*self.names, name]
            self._indexes[name] = index
            self._headers[name] = header
            self.end = self.end._replace(end_position=name.first_entry_position)

    def move_begin(self, begin: SegmentName) -> list[SegmentName]:
        """Forget the segments before `begin`, and return their names."""
        with self.lock:
            removed = [name for name in self.names if name < begin]
            self.names = [name for name in self.names if name >= begin]
            self.end = self.end._replace(begin=begin)
            for name in removed:
                self._indexes.pop(name, None)
                self._headers.pop(name, None)
                self._own_headers.pop(name, None)
            return removed
