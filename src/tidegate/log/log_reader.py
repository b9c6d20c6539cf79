"""Reading a log: durable events by sequence number, offset or enqueued time.

`LogReader` reads the log that this process writes, `SegmentReader` a partition's directory from another process, while
the hub appends to it. Files are append-only and entries carry checksums, so reading needs no coordination. But only the
hub knows what is durable: bytes after its next sequence number may still be cut off (after a failed sync or a crash).
Ask the hub for that number and pass it as `to_sequence`.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tidegate.durable_files import FileDamaged, Files
from tidegate.kafka.translation import batch_of
from tidegate.log.acknowledged import Floor, read_acknowledged
from tidegate.log.entry import EntryView
from tidegate.log.errors import LogError
from tidegate.log.segment_table import LogState, SegmentTable, as_events

_KNOWN_POSITIONS = 256
RECENT_BYTES = 16 << 20
"""What was written last is in the page cache, so reading it does not wait for the disk."""


class EventBatch(NamedTuple):
    """Consecutive events of one arrival time.

    Event i has sequence number base_sequence_number + i and offset offsets[i].
    """

    base_sequence_number: int
    enqueued_time_ms: int
    offsets: Sequence[int]
    events: Sequence[bytes]


class RecordBatches(NamedTuple):
    """Events as encoded record batches.

    Attributes:
        batches: One after the other.
        event_count: How many events there are from the requested one on.
        next_sequence_number: The event after them.
    """

    batches: list[bytes]
    event_count: int
    next_sequence_number: int


class LogReader:
    """Reads what `state` shows. Safe to call from any thread."""

    def __init__(self, state: LogState) -> None:
        self._state = state
        # where readers will continue, by sequence number, which saves them a search
        self._known_positions: dict[int, int] = {}

    def forget_positions(self) -> None:
        """Forget remembered positions, because a segment was removed."""
        with self._state.lock:
            self._known_positions.clear()

    def is_recent(self, sequence_number: int) -> bool:
        """Return whether the event is among the last RECENT_BYTES of the log, or yet to come."""
        state = self._state
        end = state.end
        if sequence_number >= end.next_sequence_number:
            return True
        position = self._known_positions.get(sequence_number)
        if position is None:
            position = state.position_at_or_before(sequence_number)
        return end.end_position - position <= RECENT_BYTES

    def entries(self, sequence_number: int) -> Generator[EntryView, None, None]:
        while True:
            table, end = self._state.snapshot()
            if sequence_number >= end.next_sequence_number:
                return
            position = self._known_positions.get(sequence_number)
            try:
                for entry in table.entries(sequence_number, end.next_sequence_number, end.end_position, position):
                    sequence_number = entry.next_sequence_number
                    yield entry
                return
            except FileNotFoundError as error:
                self._check_retention_removed_it(table, error)
            except OSError as error:
                raise LogError(f"cannot read from {self._state.directory}: {error}") from error

    def read_events(self, sequence_number: int, max_bytes: int, max_events: int) -> list[EventBatch]:
        batches: list[EventBatch] = []
        if sequence_number >= self._state.end.next_sequence_number:
            return batches
        try:
            with closing(self.entries(sequence_number)) as entries:
                for stored in entries:
                    entry = as_events(stored, self._state.directory)
                    first = max(0, sequence_number - entry.base_sequence_number)
                    last = _fitting(entry, first, max_bytes, max_events, not batches)
                    if last > first:
                        offset = entry.first_offset
                        offsets = range(offset + 4 * first, offset + 4 * last, 4)
                        batches.append(
                            EventBatch(
                                entry.base_sequence_number + first,
                                entry.enqueued_time_ms,
                                offsets,
                                entry.events(first, last),
                            )
                        )
                    if last < entry.count:
                        self._remember(entry.base_sequence_number + last, entry.first_offset)
                        break
                    self._remember(entry.next_sequence_number, entry.end_position)
                    max_events -= last - first
                    max_bytes -= len(entry.payload)
                    if max_events <= 0 or max_bytes <= 0:
                        break
        except LogError:
            if not batches:
                raise
        return batches

    def read_record_batches(self, sequence_number: int, max_bytes: int) -> RecordBatches:
        batches: list[bytes] = []
        size = count = 0
        try:
            with closing(self.entries(sequence_number)) as entries:
                for entry in entries:
                    batch = _record_batch(entry, sequence_number)
                    if batches and size + len(batch) > max_bytes:
                        break
                    batches.append(batch)
                    size += len(batch)
                    count += entry.next_sequence_number - max(sequence_number, entry.base_sequence_number)
                    sequence_number = entry.next_sequence_number
                    self._remember(sequence_number, entry.end_position)
                    if size >= max_bytes:
                        break
        except LogError:
            if not batches:
                raise
        return RecordBatches(batches, count, sequence_number)

    def _remember(self, sequence_number: int, position: int) -> None:
        with self._state.lock:
            known = self._known_positions
            known[sequence_number] = position
            if len(known) > _KNOWN_POSITIONS:
                del known[next(iter(known))]

    def sequence_after_offset(self, offset: int, inclusive: bool) -> int:
        return self._search(lambda table, end: table.sequence_after_offset(offset, inclusive, end))

    def sequence_at_time(self, enqueued_time_ms: int, inclusive: bool) -> int:
        return self._search(lambda table, end: table.sequence_at_time(enqueued_time_ms, inclusive, end))

    def _search(self, search: Callable[[SegmentTable, int], int | None]) -> int:
        while True:
            table, end = self._state.snapshot()
            try:
                found = search(table, end.end_position)
            except FileNotFoundError as error:
                self._check_retention_removed_it(table, error)
                continue
            except OSError as error:
                raise LogError(f"cannot read from {self._state.directory}: {error}") from error
            return end.next_sequence_number if found is None else found

    def _check_retention_removed_it(self, table: SegmentTable, error: FileNotFoundError) -> None:
        if self._state.names is table.names:
            message = f"a segment of {self._state.directory} was removed by another program: {error}"
            raise LogError(message) from error


def _record_batch(entry: EntryView, sequence_number: int) -> bytes:
    """Return an entry as one record batch; events that came as messages begin at sequence_number."""
    if entry.is_record_batch:
        return bytes(entry.payload)
    first = max(0, sequence_number - entry.base_sequence_number)
    return batch_of(entry.events(first), entry.base_sequence_number + first, entry.enqueued_time_ms)


def _fitting(entry: EntryView, first: int, max_bytes: int, max_events: int, at_least_one: bool) -> int:
    """Return the index before which to stop, so that the events from `first` on stay within the limits."""
    last = min(entry.count, first + max_events)
    if len(entry.payload) > max_bytes:
        ends = entry.end_table()
        last = min(last, bisect_right(ends, (ends[first - 1] if first else 0) + max_bytes))
    return max(last, first + 1) if at_least_one else max(last, first)


class SegmentReader:
    """Reads the log in `directory`; see `PartitionLog` for the terms. Holds no file open between calls."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self._files = Files()

    def _table(self) -> SegmentTable:
        table = SegmentTable.read_directory(self._directory, self._files)
        if not table.names:
            raise LogError(f"{self._directory} holds no log")
        # after the listing: retention moves the beginning before it deletes
        acknowledged = read_acknowledged(self._directory)
        if acknowledged is not None:
            table.begin, table.log_id = acknowledged.begin, acknowledged.log_id
        return table

    def read_entries(self, from_sequence: int, to_sequence: int | None = None) -> Iterator[EntryView]:
        """Yield the entries that hold any event from from_sequence up to, but not including, to_sequence.

        Record batches of Kafka's clients are events here like all others. Entries are whole, so the first and the last
        may reach beyond. If retention has deleted the first events, the first entry begins later.

        Args:
            from_sequence: The first sequence number wanted.
            to_sequence: Where to end. None: after all that is intact in the files.

        Raises:
            LogDamaged: Acknowledged events cannot be read. To continue, call again from its resume_sequence_number.
            LogError: The log cannot be read.
        """
        while to_sequence is None or from_sequence < to_sequence:
            table = self._table()
            # a segment begun after the listing is found by the next listing; this one ends where the listed ones end
            sealed = len(table.names) > 1
            limit = to_sequence
            try:
                if sealed and from_sequence < table.names[-1].base_sequence_number:
                    last = table.names[-1].base_sequence_number
                    limit = last if limit is None else min(last, limit)
                for entry in table.entries(from_sequence, limit):
                    from_sequence = entry.next_sequence_number
                    yield as_events(entry, self._directory)
                if limit == to_sequence:
                    return
            except FileNotFoundError:
                continue  # retention deleted it: list again

    def deleted_before(self) -> int:
        """Return the number before which events were deleted on request. Raises LogError."""
        try:
            return Floor.read(self._directory).sequence_number
        except (FileDamaged, OSError) as error:
            raise LogError(f"which events of {self._directory} were deleted cannot be read: {error}") from error

    def begin_sequence_number(self) -> int:
        """Return the sequence number of the oldest retained event, or of the next event if there is none."""
        return self._table().begin_sequence_number

    def end_sequence_number(self) -> int:
        """Return the sequence number after the last intact entry in the files, durable or not."""
        table = self._table()
        return max(table.last_intact_sequence_number() + 1, table.names[-1].base_sequence_number)

    def sequence_at_time(self, enqueued_time_ms: int) -> int:
        """Return the first sequence number enqueued at or after the time; end_sequence_number if there is none."""
        while True:
            try:
                found = self._table().sequence_at_time(enqueued_time_ms, True, None)
            except FileNotFoundError:
                continue
            return self.end_sequence_number() if found is None else found
