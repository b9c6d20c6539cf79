"""One partition's commit log: appends in groups, durable reads, retention.

Writers hand appends over and go on; a committer thread takes all that wait, stamps them with one arrival time, joins
them into entries, writes them in one call, syncs, and only then lets them be seen and acknowledges them. What is
visible is always durable.

After a write or sync that failed nothing is known about the bytes of its group: its appends get the error, and before
the next group the file is opened anew and cut to what was durable before. (A page that could not be written may be
dropped from the page cache and marked clean, so that a second sync "succeeds": https://lwn.net/Articles/752063/.)
"""

from __future__ import annotations

import logging
import os
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tidegate.durable_files import DirectoryLock, Files
from tidegate.log.acknowledged import Acknowledged, AcknowledgedFile
from tidegate.log.clock import Clock
from tidegate.log.committer import Committer
from tidegate.log.entry import EntryView, walk_past_damage
from tidegate.log.errors import LogClosed, LogError
from tidegate.log.group import Append, Group, OnDurable, encode_group, first_group
from tidegate.log.recovery import Recovery, Tail, create_segment, recover_tail
from tidegate.log.segment import SegmentHeader, SegmentName, SparseIndex
from tidegate.log.segment_table import SegmentTable

_logger = logging.getLogger(__name__)
_KNOWN_POSITIONS = 256
_INDEX_RECORDS = 4
"""Written to the index file together: a look-up reads the log for those that are not there yet."""


class EventBatch(NamedTuple):
    """Consecutive events of one arrival time: event i has sequence number base_sequence_number + i and offset
    offsets[i].
    """

    base_sequence_number: int
    enqueued_time_ms: int
    offsets: Sequence[int]
    events: list[bytes]


class ArrivalLowerBound(NamedTuple):
    """A guarantee: every event from next_sequence_number on is enqueued at lower_bound_ms or later, even after a crash.

    This is what lets the watermark of an idle partition advance.
    """

    next_sequence_number: int
    lower_bound_ms: int


class PartitionLog:
    """One partition's commit log. All methods may be called from any thread."""

    recovery: Recovery

    def __init__(
        self,
        table: SegmentTable,
        tail: Tail,
        acknowledged: AcknowledgedFile,
        clock: Clock,
        committer: Committer,
        segment_bytes: int,
        durable: bool,
        directory_lock: DirectoryLock | None,
    ) -> None:
        """Use `open`."""
        self.recovery = tail.recovery
        self._directory = table.directory
        self._files = table.files
        self._clock = clock
        self._committer = committer
        self.segment_bytes = segment_bytes
        self._durable = durable
        self._directory_lock = directory_lock
        # held while the files are written; taken before _lock, never after
        self._writing = threading.Lock()
        self._fd = tail.fd
        self._acknowledged = acknowledged
        self._index = tail.index
        self._index_written = tail.indexed
        self._suspect = False
        # guards what follows
        self._lock = threading.Lock()
        self._names = table.names
        self._indexes = {table.names[-1]: tail.index}
        self._headers = table.headers
        self._pending: list[Append] = []
        self._submitted = False
        self._closed = False
        self._end_position = tail.end_position
        self._next_sequence_number = tail.next_sequence_number
        self._last_offset = tail.last_offset
        self._last_time_ms = tail.last_enqueued_time_ms
        self._in_flight_ms: int | None = None
        self._known_positions: dict[int, int] = {}
        self._listeners: tuple[Callable[[], None], ...] = ()

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        *,
        clock: Clock,
        committer: Committer,
        segment_bytes: int = 32 << 20,
        durable: bool = True,
        exclusive: bool = True,
        files: Files | None = None,
    ) -> PartitionLog:
        """Open or create the log in `directory`, and recover it.

        segment_bytes is when a new segment is begun (and may be set later); durable=False leaves syncing to the system
        (for measurements); exclusive=False when the caller holds a DirectoryLock above. Raises DirectoryLocked,
        LogError.
        """
        path = Path(directory)
        files = files or Files()
        try:
            path.mkdir(parents=True, exist_ok=True)
            directory_lock = DirectoryLock(path) if exclusive else None
            with ExitStack() as opened:
                if directory_lock is not None:
                    opened.callback(directory_lock.release)
                acknowledged = AcknowledgedFile(path)
                opened.callback(acknowledged.close, durable=False)
                table = SegmentTable.of_directory(path, files)
                known = acknowledged.read()
                tail = recover_tail(table, known)
                end = tail.end()
                if end != known:  # found intact, though nobody was promised it: from now on it can be read
                    opened.callback(files.close, tail.fd)
                    files.sync(tail.fd)
                    acknowledged.write(end)
                opened.pop_all()
        except OSError as error:
            raise LogError(f"cannot open the log in {path}: {error}") from error
        log = cls(table, tail, acknowledged, clock, committer, segment_bytes, durable, directory_lock)
        log._write_index()
        for damage in tail.recovery.damages:
            _logger.error("%s: %s", path, damage)
        if tail.recovery.truncated_bytes:
            _logger.log(
                logging.WARNING if known is None else logging.INFO,
                "%s: cut %d bytes after event %d, %s (%s)",
                path,
                tail.recovery.truncated_bytes,
                tail.next_sequence_number - 1,
                "taken for a torn write" if known is None else "which were never acknowledged",
                tail.recovery.reason,
            )
        return log

    # -- what is visible

    @property
    def directory(self) -> Path:
        """Where the segments are."""
        return self._directory

    @property
    def begin_sequence_number(self) -> int:
        """Of the oldest event still there; next_sequence_number if there is none."""
        return self._names[0].base_sequence_number

    @property
    def next_sequence_number(self) -> int:
        """Of the next event to become durable; only events below it can be read."""
        return self._next_sequence_number

    @property
    def last_offset(self) -> int:
        """-1 if there never was an event. Kept when retention has deleted that event."""
        return self._last_offset

    @property
    def last_enqueued_time_ms(self) -> int:
        """0 if there never was an event."""
        return self._last_time_ms

    @property
    def is_empty(self) -> bool:
        """No event is there (any more)."""
        return self.begin_sequence_number == self._next_sequence_number

    @property
    def size_bytes(self) -> int:
        """What the segments take on the disk."""
        return self._end_position - self._names[0].base_position

    def arrival_lower_bound(self) -> ArrivalLowerBound:
        """Return the lower bound on future arrivals as of now. Does not wait for the disk."""
        with self._lock:
            lower_bound_ms = self._clock.arrival_lower_bound_ms()
            if self._in_flight_ms is not None:
                lower_bound_ms = min(lower_bound_ms, self._in_flight_ms)
            return ArrivalLowerBound(self._next_sequence_number, lower_bound_ms)

    def on_grow(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` from a committer thread whenever next_sequence_number moved, after the on_durable calls of
        the group.

        Returns the function that unsubscribes. Callbacks must be quick; an exception is logged and goes no further.
        """
        with self._lock:
            self._listeners += (callback,)

        def unsubscribe() -> None:
            with self._lock:
                listeners = list(self._listeners)
                if callback in listeners:
                    listeners.remove(callback)
                self._listeners = tuple(listeners)

        return unsubscribe

    # -- appending

    def append(self, events: Sequence[bytes | memoryview], on_durable: OnDurable) -> None:
        """Store `events` (at least one) all or nothing. on_durable is called once, from a committer thread, after the
        sync.

        Takes about a microsecond and never waits for the disk. Raises ValueError for no events, LogClosed.
        """
        if not events:
            raise ValueError("an append needs at least one event")
        with self._lock:
            if self._closed:
                raise LogClosed("the log is closed")
            self._pending.append(Append(events, on_durable))
            if self._submitted:
                return
            self._submitted = True
        self._committer.submit(self._commit)

    def _commit(self) -> None:
        """Store one group (in a committer thread)."""
        with self._writing:
            with self._lock:
                waiting, self._pending = self._pending, []
            runs = first_group(waiting)
            count = sum(map(len, runs))
            appends, later = waiting[:count], waiting[count:]
            if later:
                with self._lock:
                    self._pending[:0] = later
            if appends:
                try:
                    self._ready_file()
                    with self._lock:
                        time_ms = self._in_flight_ms = max(self._clock.now_ms(), self._last_time_ms)
                    group = encode_group(runs, self._next_sequence_number, time_ms, self._end_position)
                    self._store(group)
                except (OSError, LogError, ValueError) as error:
                    with self._lock:
                        # whoever appends one after the other must not find the later one stored without the earlier
                        behind, self._pending = self._pending, []
                    self._refuse([*appends, *behind], error)
                else:
                    self._publish(group)
        with self._lock:
            if not self._pending:
                self._submitted = False
                return
        self._committer.submit(self._commit)

    def _ready_file(self) -> None:
        """A file that can be trusted and has room. Raises OSError, LogError."""
        if self._suspect:
            self._reopen()
        if self._end_position - self._names[-1].base_position >= self.segment_bytes:
            self._begin_segment()

    def _store(self, group: Group) -> None:
        self._suspect = True  # until it is known that all went well
        files = self._files
        files.write_at(self._fd, self._end_position - self._names[-1].base_position, group.buffers)
        if self._durable:
            files.sync(self._fd)
        self._suspect = False

    def _publish(self, group: Group) -> None:
        last = group.results[-1][1]
        self._acknowledged.write(
            Acknowledged(group.end_position, group.next_sequence_number, last.last_offset, last.enqueued_time_ms)
        )
        with self._lock:
            self._end_position = group.end_position
            self._next_sequence_number = group.next_sequence_number
            self._last_offset = last.last_offset
            self._last_time_ms = last.enqueued_time_ms
            self._in_flight_ms = None
            for entry in group.entries:
                self._index.add(entry)
        if len(self._index.positions) >= self._index_written + _INDEX_RECORDS:
            self._write_index()
        for on_durable, appended in group.results:
            _call(on_durable, appended)
        for callback in self._listeners:
            _call(callback)

    def _refuse(self, appends: Sequence[Append], error: Exception) -> None:
        with self._lock:
            self._in_flight_ms = None
        _logger.error("%s: %d appends were not stored: %s", self._directory, len(appends), error)
        failure = LogError(f"the events could not be stored: {error}")
        failure.__cause__ = error
        for append in appends:
            _call(append.on_durable, failure)

    def _reopen(self) -> None:
        """Trust nothing that was not synced: cut the file to the durable end through a new descriptor, and read that
        end back.
        """
        files, name = self._files, self._names[-1]
        fd = files.open(self._directory / name.file_name)
        try:
            end = self._end_position
            if name.base_position + files.size(fd) < end:
                raise LogError(f"{name.file_name} is shorter than what was acknowledged")
            files.truncate(fd, end - name.base_position)
            files.sync(fd)
            last = self._index.last()
            if last is not None:
                found = deque(walk_past_damage(partial(_read_at, files, fd, name), last.position, end), maxlen=1)
                if not found or not isinstance(found[0], EntryView) or found[0].end_position != end:
                    raise LogError(f"the end of {name.file_name} cannot be read back")
        except (OSError, LogError):
            files.close(fd)
            raise
        old, self._fd = self._fd, fd
        self._suspect = False
        files.close(old)
        _logger.warning("%s: opened anew at event %d after a failed write", self._directory, self._next_sequence_number)

    def _begin_segment(self) -> None:
        self._write_index()
        header = SegmentHeader(
            SegmentName(self._end_position, self._next_sequence_number), self._last_offset, self._last_time_ms
        )
        fd = create_segment(self._directory, self._files, header)
        index = SparseIndex()
        with self._lock:
            self._names = [*self._names, header.name]
            self._indexes[header.name] = index
            self._headers[header.name] = header
            self._end_position = header.name.first_entry_position
        old, self._fd = self._fd, fd
        self._index, self._index_written = index, 0
        self._files.close(old)

    def _write_index(self) -> None:
        """Bring the index file up to date. A hint only: if it cannot be written, reading is slower and nothing else."""
        if 0 < self._index_written == len(self._index.positions):
            return
        path = self._directory / self._names[-1].index_name
        try:
            with path.open("r+b" if self._index_written else "wb") as file:
                file.seek(24 * self._index_written)
                file.write(self._index.records(self._index_written))
            self._index_written = len(self._index.positions)
        except OSError as error:
            _logger.warning("%s cannot be written: %s", path, error)

    # -- reading

    def _table(self) -> tuple[SegmentTable, int, int]:
        with self._lock:
            table = SegmentTable(self._directory, self._files, self._names, self._indexes, self._headers)
            return table, self._next_sequence_number, self._end_position

    def entries(self, sequence_number: int) -> Generator[EntryView, None, None]:
        """The durable entries from the one that holds sequence_number on (or the first there is).

        Raises LogDamaged, LogError.
        """
        while True:
            table, next_sequence, end = self._table()
            if sequence_number >= next_sequence:
                return
            position = self._known_positions.get(sequence_number)
            try:
                for entry in table.entries(sequence_number, next_sequence, end, position):
                    sequence_number = entry.next_sequence_number
                    yield entry
                return
            except FileNotFoundError as error:  # retention was faster
                if self._names is table.names:
                    raise LogError(f"a segment of {self._directory} was removed by somebody else: {error}") from error
            except OSError as error:
                raise LogError(f"cannot read from {self._directory}: {error}") from error

    def read(self, sequence_number: int, *, max_bytes: int = 1 << 20, max_events: int = 1 << 20) -> list[EventBatch]:
        """Durable events from sequence_number on; from begin_sequence_number if that is later; [] at the end.

        At least one event if there is one, however small max_bytes. Raises LogDamaged when the event at sequence_number
        cannot be read (events before a damaged one are returned first), LogError.
        """
        batches: list[EventBatch] = []
        if sequence_number >= self._next_sequence_number:
            return batches
        try:
            with closing(self.entries(sequence_number)) as entries:
                for entry in entries:
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

    def _remember(self, sequence_number: int, position: int) -> None:
        """Where a reader that goes on will begin."""
        with self._lock:
            known = self._known_positions
            known[sequence_number] = position
            if len(known) > _KNOWN_POSITIONS:
                del known[next(iter(known))]

    def sequence_after_offset(self, offset: int, *, inclusive: bool) -> int:
        """Sequence number of the first event with an offset > `offset` (>= when inclusive); next_sequence_number if
        none.
        """
        return self._search(lambda table, end: table.sequence_after_offset(offset, inclusive, end))

    def sequence_at_time(self, enqueued_time_ms: int, *, inclusive: bool) -> int:
        """Sequence number of the first event enqueued after the time (at or after when inclusive); next_sequence_number
        if none.
        """
        return self._search(lambda table, end: table.sequence_at_time(enqueued_time_ms, inclusive, end))

    def _search(self, search: Callable[[SegmentTable, int], int | None]) -> int:
        while True:
            table, next_sequence, end = self._table()
            try:
                found = search(table, end)
            except FileNotFoundError as error:
                if self._names is table.names:
                    raise LogError(f"a segment of {self._directory} was removed by somebody else: {error}") from error
                continue
            except OSError as error:
                raise LogError(f"cannot read from {self._directory}: {error}") from error
            return next_sequence if found is None else found

    # -- retention and end

    def apply_retention(
        self,
        *,
        before_ms: int | None = None,
        max_bytes: int | None = None,
        at_least_bytes: int = 0,
        keep_from: int | None = None,
    ) -> int:
        """Delete whole segments: those whose events were all enqueued before before_ms, and the oldest while the log
        takes more than max_bytes and at_least_bytes are left without them; never one that holds sequence numbers >=
        keep_from. Returns how many events went. Raises LogError.

        The last segment is closed for it if all of it is due. Numbering goes on, and last_offset and
        last_enqueued_time_ms stay.
        """

        def due(name: SegmentName, following: SegmentName, last_time_ms: int) -> bool:
            if keep_from is not None and following.base_sequence_number > keep_from:
                return False
            too_old = before_ms is not None and last_time_ms < before_ms
            too_much = max_bytes is not None and self._end_position - name.base_position > max_bytes
            return too_old or (too_much and self._end_position - following.base_position >= at_least_bytes)

        with self._writing:
            try:
                deleted = 0
                while True:
                    name = self._names[0]
                    if len(self._names) == 1:
                        end = SegmentName(self._end_position, self._next_sequence_number)
                        idle = before_ms is not None and self._last_time_ms < before_ms
                        if self.is_empty or not idle or not due(name, end, self._last_time_ms):
                            break
                        self._ready_file()
                        self._begin_segment()
                    following = self._names[1]
                    if not due(name, following, self._last_time_of(following)):
                        break
                    self._remove_first(name)
                    deleted += following.base_sequence_number - name.base_sequence_number
                return deleted
            except OSError as error:
                raise LogError(f"retention in {self._directory} failed: {error}") from error

    def roll(self, *, before_ms: int | None = None, max_bytes: int | None = None) -> bool:
        """Begin a new segment if the last one has an event that was enqueued before before_ms, or more bytes.

        So retention, which deletes whole segments, comes near to what is asked. Raises LogError.
        """
        with self._writing:
            try:
                table, next_sequence, end = self._table()
                name = table.names[-1]
                if name.base_sequence_number == next_sequence or self._closed:
                    return False
                first = next(table.intact_entries(len(table.names) - 1, end), None)
                old = before_ms is not None and first is not None and first.enqueued_time_ms < before_ms
                if not old and (max_bytes is None or end - name.base_position <= max_bytes):
                    return False
                self._ready_file()
                if self._names[-1] is name:
                    self._begin_segment()
                return True
            except OSError as error:
                raise LogError(f"a new segment in {self._directory} cannot be begun: {error}") from error

    def _last_time_of(self, following: SegmentName) -> int:
        """Enqueued time of the last event before the segment `following`, or a later one."""
        table, _, end = self._table()
        header = table.header(following)
        if header is not None:
            return header.last_enqueued_time_ms
        first = next(table.intact_entries(table.names.index(following), end), None)
        return self._last_time_ms if first is None else first.enqueued_time_ms

    def _remove_first(self, name: SegmentName) -> None:
        with self._lock:
            self._names = self._names[1:]
            self._indexes.pop(name, None)
            self._headers.pop(name, None)
            self._known_positions.clear()
        self._files.remove(self._directory / name.file_name)
        self._files.remove(self._directory / name.index_name)

    def close(self) -> None:
        """Finish the group under way, fail what waits behind it, release the directory. Again is harmless."""
        with self._writing:
            with self._lock:
                if self._closed:
                    return
                self._closed = True
                waiting, self._pending = self._pending, []
            self._write_index()
            self._files.close(self._fd)
            self._acknowledged.close(durable=self._durable)
            if self._directory_lock is not None:
                self._directory_lock.release()
        closed = LogClosed("the log was closed before the events were stored")
        for append in waiting:
            _call(append.on_durable, closed)


def _read_at(files: Files, fd: int, name: SegmentName, position: int, size: int) -> bytes:
    return files.read_at(fd, position - name.base_position, size)


def _fitting(entry: EntryView, first: int, max_bytes: int, max_events: int, at_least_one: bool) -> int:
    """The index before which to stop, so that the events from `first` on keep to the limits."""
    last = min(entry.count, first + max_events)
    if len(entry.payload) > max_bytes:
        ends = entry.end_table()
        last = min(last, bisect_right(ends, (ends[first - 1] if first else 0) + max_bytes))
    return max(last, first + 1) if at_least_one else max(last, first)


def _call(function: Callable[..., None], *arguments: object) -> None:
    try:
        function(*arguments)
    except Exception:
        _logger.exception("a callback of the log failed")
