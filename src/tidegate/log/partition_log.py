"""One partition's commit log: the facade of its writer, its reader and its retention.

The owner mark of a partition's folder shows that the folder is missing or was swapped (`prepare_folder`). The log in a
folder describes itself, but cannot show that the whole folder is gone or belongs to another partition. So a file in the
folder names the event hub's folder and the partition. It is written before the hub is first served.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from tidegate.durable_files import (
    DirectoryLock,
    FileDamaged,
    Files,
    decode_checked,
    make_folders,
    read_checked,
    refuses_writes,
    write_checked,
)
from tidegate.kafka.records import RecordBatch
from tidegate.log.acknowledged import Acknowledged, AcknowledgedFile, Floor
from tidegate.log.clock import Clock
from tidegate.log.entry import EntryView, JoinedEvents
from tidegate.log.errors import LogDamaged, LogError
from tidegate.log.group import Committer, OnDurable
from tidegate.log.log_reader import EventBatch, LogReader, RecordBatches
from tidegate.log.log_writer import LogWriter, WriteFailure
from tidegate.log.protocol import ArrivalLowerBound, Numbering
from tidegate.log.recovery import Recovery, Tail, log_recovery, read_only_log, recover_log
from tidegate.log.retention import SEGMENTS, Retention, RetentionLimits, segment_bytes_for
from tidegate.log.segment import SparseIndex
from tidegate.log.segment_table import LogState, SegmentTable
from tidegate.log.tail_writer import TailWriter

_logger = logging.getLogger(__name__)


READERS = ThreadPoolExecutor(max_workers=4, thread_name_prefix="log-reader")
"""Wait for the disk in place of event loops."""


class PartitionLog:
    """One partition's commit log: a `PartitionStore`. All methods may be called from any thread."""

    def __init__(
        self,
        state: LogState,
        writer: LogWriter,
        clock: Clock,
        recovery: Recovery,
        directory_lock: DirectoryLock | None,
    ) -> None:
        """Use `open`."""
        self.recovery = recovery
        self._state = state
        self._clock = clock
        self._directory_lock = directory_lock
        self._writer = writer
        self._reader = LogReader(state)
        self._retention = Retention(state, writer, self._reader)
        self.floor = Floor.read(state.directory, state.end.next_sequence_number)

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

        Args:
            directory: The directory of the segments.
            clock: The clock that stamps arrival.
            committer: The threads that write.
            segment_bytes: The size at which a new segment is begun; may be changed later.
            durable: False leaves syncing to the operating system, for measurements.
            exclusive: False if the caller holds a DirectoryLock above.
            files: The file operations; tests substitute their own.

        Raises:
            DirectoryLocked: Another process has the log open.
            FileDamaged: The record of what was acknowledged, or deleted, is damaged; the message says what to do.
            LogError: The log cannot be read or written.
        """
        path = Path(directory)
        try:
            path.mkdir(parents=True, exist_ok=True)
            directory_lock = DirectoryLock(path) if exclusive else None
            with ExitStack() as opened:
                if directory_lock is not None:
                    opened.callback(directory_lock.release)
                acknowledged = AcknowledgedFile(path)
                opened.callback(acknowledged.close, durable=False)
                known = acknowledged.read()
                tail: Tail | None = None
                try:
                    table, tail, end = recover_log(path, files or Files(), acknowledged, known)
                    recovery = tail.recovery
                except OSError as error:
                    if known is None or not refuses_writes(error):
                        raise
                    end = known
                    table, recovery = read_only_log(path, files or Files(), known)
                    _logger.error("%s can only be read: %s", path, error)
                opened.pop_all()
        except OSError as error:
            raise LogError(f"cannot open the log in {path}: {error}") from error
        state = LogState(table, end, SparseIndex() if tail is None else tail.index)
        tail_writer = TailWriter(state, tail, acknowledged, segment_bytes=segment_bytes, durable=durable)
        log_recovery(path, known, recovery, end)
        writer = LogWriter(state, tail_writer, clock, committer)
        if tail is None:
            writer.try_again()
        return cls(state, writer, clock, recovery, directory_lock)

    # -- what is visible

    @property
    def directory(self) -> Path:
        """The directory of the segments."""
        return self._state.directory

    def is_assigned(self, task: str) -> bool:
        """Return True: nobody else has the log."""
        return True

    def unassign(self, task: str) -> None:
        """Do nothing: nobody else has the log."""

    @property
    def topic(self) -> None:
        """None: the events are in segments."""

    @property
    def segment_bytes(self) -> int:
        """The size at which a new segment is begun."""
        return self._writer.tail.segment_bytes

    @segment_bytes.setter
    def segment_bytes(self, segment_bytes: int) -> None:
        self._writer.tail.segment_bytes = segment_bytes

    @property
    def begin_sequence_number(self) -> int:
        """The sequence number of the oldest retained event; next_sequence_number if there is none."""
        return max(self._state.end.begin.base_sequence_number, self.floor.sequence_number)

    @property
    def next_sequence_number(self) -> int:
        """The sequence number of the next event to become durable; only events below it can be read."""
        return self._state.end.next_sequence_number

    @property
    def last_offset(self) -> int:
        """The offset of the last event, -1 if there never was one. Kept when retention deletes that event."""
        return self._state.end.last_offset

    @property
    def last_enqueued_time_ms(self) -> int:
        """The enqueued time of the last event, 0 if there never was one."""
        return self._state.end.last_enqueued_time_ms

    @property
    def log_id(self) -> str:
        """The identity of the log, drawn when it was created: another log in the same place has another one."""
        return self._state.end.log_id.hex()

    @property
    def write_failure(self) -> WriteFailure | None:
        """Why the log takes no events now; None if it does."""
        return self._writer.failure

    @property
    def refused_appends(self) -> int:
        """How many appends could not be stored since the log was opened."""
        return self._writer.refused_appends

    @property
    def last_write_s(self) -> float:
        """When events were last made durable since the log was opened, Unix time; 0 if none were."""
        return self._writer.last_write_s

    def catch_up(self) -> None:
        """Do nothing: all that is appended is seen here."""

    def try_again(self) -> None:
        """Find out whether a log that took no events can be written again. Waits for the disk."""
        self._writer.try_again()

    @property
    def is_empty(self) -> bool:
        """Whether the log holds no event."""
        return self.begin_sequence_number == self.next_sequence_number

    @property
    def size_bytes(self) -> int:
        """The total size of all segments."""
        return self._state.end.end_position - self._state.names[0].base_position

    def snapshot(self) -> tuple[SegmentTable, Acknowledged]:
        """Return the segments and what is durable of them, consistently."""
        return self._state.snapshot()

    def arrival_lower_bound(self, *, is_awaited: bool = True) -> ArrivalLowerBound:
        """Return the lower bound on future arrivals as of now. Does not wait for the disk."""
        state = self._state
        with state.lock:
            lower_bound_ms = self._clock.arrival_lower_bound_ms()
            if state.in_flight_ms is not None:
                lower_bound_ms = min(lower_bound_ms, state.in_flight_ms)
            return ArrivalLowerBound(state.end.next_sequence_number, lower_bound_ms)

    # -- appending

    def append(
        self,
        events: Sequence[bytes | memoryview],
        on_durable: OnDurable,
        numbering: Numbering | None = None,
    ) -> None:
        """Store `events` (at least one) atomically.

        on_durable is called once, from a committer thread, after the sync. Takes about a microsecond and never waits
        for the disk. The events themselves carry an idempotent producer's numbers, so `numbering` is not needed.
        Raises ValueError for no events, LogClosed.
        """
        self._writer.append(events, on_durable)

    def append_joined(self, events: JoinedEvents, on_durable: OnDurable) -> None:
        """Store events that another process has joined; see `append`."""
        self._writer.append(events, on_durable)

    def append_batch(self, batch: RecordBatch, on_durable: OnDurable) -> None:
        """Store a record batch of a client of Kafka as it came, but for its offset and time; see `append`.

        Its records must have been checked, and have offsets without a gap.
        """
        self._writer.append_batch(batch, on_durable)

    def on_grow(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` from a committer thread whenever next_sequence_number has advanced.

        It is called after the on_durable calls of the group and must be quick; an exception is logged and not
        propagated. Returns the function that unsubscribes.
        """
        return self._writer.on_grow(callback)

    # -- reading

    def entries(self, sequence_number: int) -> Generator[EntryView, None, None]:
        """Yield the durable entries as they are stored, from the one that holds sequence_number (or the oldest) on.

        Raises LogDamaged, LogError.
        """
        return self._reader.entries(self.floor.above(sequence_number))

    def read_cached(
        self, sequence_number: int, *, max_bytes: int = 1 << 20, max_events: int = 1 << 20
    ) -> list[EventBatch] | None:
        """Return what `read_batches` would if the events are so recent that the page cache has them, else None.

        Raises LogDamaged, LogError.
        """
        sequence_number = self.floor.above(sequence_number)
        if not self._reader.is_recent(sequence_number):
            return None
        return self._reader.read_events(sequence_number, max_bytes, max_events)

    def start_read(
        self, sequence_number: int, *, max_bytes: int = 1 << 20, max_events: int = 1 << 20
    ) -> Future[list[EventBatch]]:
        """Begin what `read_batches` does in a thread that waits for the disk, and return its future."""
        return READERS.submit(self._reader.read_events, self.floor.above(sequence_number), max_bytes, max_events)

    def read_batches(
        self, sequence_number: int, *, max_bytes: int = 1 << 20, max_events: int = 1 << 20
    ) -> list[EventBatch]:
        """Return durable events from sequence_number on, or from begin_sequence_number if that is later; [] at the end.

        However small max_bytes is, at least one event is returned if there is one.

        Raises:
            LogDamaged: The event at sequence_number cannot be read. Intact events before damage are returned first.
            LogError: The log cannot be read.
        """
        return self._reader.read_events(self.floor.above(sequence_number), max_bytes, max_events)

    def read_record_batches(self, sequence_number: int, *, max_bytes: int) -> RecordBatches:
        """Return durable events as record batches, those that came as such untouched.

        The first batch may begin before sequence_number, as clients of Kafka expect. However small max_bytes is, one
        batch is returned if there is one. Raises LogDamaged, LogError.
        """
        return self._reader.read_record_batches(self.floor.above(sequence_number), max_bytes)

    def sequence_after_offset(self, offset: int, *, inclusive: bool) -> int:
        """Return the sequence number of the first event with an offset > `offset` (>= when inclusive).

        next_sequence_number if there is none.
        """
        return self.floor.above(self._reader.sequence_after_offset(offset, inclusive))

    def sequence_at_time(self, enqueued_time_ms: int, *, inclusive: bool) -> int:
        """Return the sequence number of the first event enqueued after the time (at it or after when inclusive).

        next_sequence_number if there is none.
        """
        return self.floor.above(self._reader.sequence_at_time(enqueued_time_ms, inclusive))

    # -- retention and closing

    def apply_retention(
        self,
        *,
        before_ms: int | None = None,
        max_bytes: int | None = None,
        at_least_bytes: int = 0,
        keep_from: int | None = None,
    ) -> int:
        """Delete the whole segments that are due, and return how many events were deleted.

        If the last segment is due too, a new one is begun first. Numbering continues, and last_offset and
        last_enqueued_time_ms stay. From a closed log nothing is deleted.

        Args:
            before_ms: Delete segments whose events were all enqueued before this time. None: no limit of age.
            max_bytes: Delete the oldest segments while the log takes more. None: no limit of size.
            at_least_bytes: Keep this much of a log that takes more than max_bytes.
            keep_from: Keep events from this sequence number on in any case.

        Raises:
            LogError: A segment could not be deleted; the rest of retention is left for the next call.
        """
        return self._retention.apply(RetentionLimits(before_ms, max_bytes, at_least_bytes, keep_from))

    def roll(self, *, before_ms: int | None = None, max_bytes: int | None = None) -> bool:
        """Begin a new segment if the last one has an event enqueued before before_ms, or more than max_bytes.

        Retention deletes whole segments, so smaller ones let it keep closer to its limits. Raises LogError.
        """
        return self._retention.roll(before_ms, max_bytes)

    def retain(
        self, *, now_ms: int, retention_ms: int | None, retention_bytes: int | None, keep_from: int | None = None
    ) -> int:
        """Delete the segments that a hub's retention no longer keeps, and return how many events were deleted.

        Segments are begun so that there are SEGMENTS of them or more. An event may outlive its retention time by an
        eighth, and at least three quarters of a size limit are kept, however much arrived since the last call. Waits
        for the disk.

        Args:
            now_ms: The time, by the log's clock.
            retention_ms: Events enqueued longer ago than this are due. None: no limit of age.
            retention_bytes: The oldest events are due while all take more than this. None: no limit of size.
            keep_from: Keep events from this sequence number on in any case.

        Raises:
            LogError: A segment could not be begun or deleted; the rest is left for the next call.
        """
        if retention_ms is None and retention_bytes is None:
            return 0
        self.segment_bytes = segment_bytes_for(retention_bytes)
        not_rolled: LogError | None = None
        try:
            self.roll(
                before_ms=None if retention_ms is None else now_ms - retention_ms // SEGMENTS,
                max_bytes=None if retention_bytes is None else retention_bytes // SEGMENTS,
            )
        except LogError as error:  # a full disk has no room for a new segment, and needs old ones to be deleted
            not_rolled = error
        deleted = self.apply_retention(
            before_ms=None if retention_ms is None else now_ms - retention_ms,
            max_bytes=retention_bytes,
            at_least_bytes=0 if retention_bytes is None else retention_bytes * 3 // 4,
            keep_from=keep_from,
        )
        if not_rolled is not None:
            raise not_rolled
        return deleted

    def delete_before(self, sequence_number: int) -> None:
        """Delete the events before a number: they can no longer be read, and whole segments of them go at once.

        Raises LogError.
        """
        self.apply_retention(max_bytes=0, keep_from=sequence_number)  # a full disk has no room for a new segment
        self.roll(max_bytes=0)
        try:
            self.floor.rise(min(sequence_number, self.next_sequence_number))
        except OSError as error:
            raise LogError(f"events of {self.directory} cannot be deleted: {error}") from error
        self.apply_retention(max_bytes=0, keep_from=sequence_number)

    def document(self, name: str, *, advice: str) -> FolderDocument:
        """Return a document in the log's directory.

        Args:
            name: The path of its file, from the directory.
            advice: What a person can do about a damaged one; it ends the message of FileDamaged.
        """
        return FolderDocument(self.directory / name, advice)

    @property
    def work_folder(self) -> Path:
        """The directory of the segments, as there is room for what the hub works on."""
        return self._state.directory

    @property
    def damages(self) -> Sequence[LogDamaged]:
        """The acknowledged events that were found unreadable when the log was opened."""
        return self.recovery.damages

    def check(self) -> Iterator[LogDamaged | None]:
        """Check the events that opening did not read: yield each damage, and None between pieces. Raises LogError."""
        return check(self, self.recovery.unread)

    def close(self) -> None:
        """Finish the current group, fail pending appends, and release the directory. Idempotent."""
        self._writer.close(self._release)

    def _release(self) -> None:
        if self._directory_lock is not None:
            self._directory_lock.release()


PIECE_BYTES = 1 << 18


def check(log: PartitionLog, unread: range) -> Iterator[LogDamaged | None]:
    """Yield the damage among the events `unread`, and None after every PIECE_BYTES or so, when the caller may pause.

    Raises LogError.
    """
    sequence, end = unread.start, unread.stop
    read = 0
    while sequence < end:
        try:
            with closing(log.entries(sequence)) as entries:
                for entry in entries:
                    sequence = entry.next_sequence_number
                    if sequence >= end:
                        return
                    read += entry.length
                    if read >= PIECE_BYTES:
                        read = 0
                        yield None
                return
        except LogDamaged as damage:
            sequence = damage.resume_sequence_number
            yield damage


class FolderDocument:
    """A document in a file of its own, with a checksum. The first write creates its folder."""

    def __init__(self, path: Path, advice: str) -> None:
        """`advice` says what a person can do about a damaged file; it ends the message of FileDamaged."""
        self.path = path
        self._advice = advice

    def __str__(self) -> str:
        return str(self.path)

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self.path.exists()

    def read(self) -> Mapping[str, Any] | None:
        """Return what was last written, None if there is no file, {} if it is empty. Raises FileDamaged, OSError."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        if not data:
            return {}
        try:
            return decode_checked(data)
        except ValueError as error:
            raise self.damaged(str(error)) from None

    def write(self, document: Mapping[str, Any]) -> None:
        """Replace the file, atomically and durably. Raises OSError, or ValueError if JSON has no form for it."""
        make_folders(self.path.parent)
        write_checked(self.path, document)

    def damaged(self, reason: str) -> FileDamaged:
        """Return the error to raise for content that makes no sense."""
        return FileDamaged(self.path, reason, self._advice)


FILE_NAME = "partition.json"
ACCEPT_LOSS = "accept-loss"
_VERSION = 1


class PartitionFolderWrong(LogError):
    """A partition's folder is missing, empty, or another partition's. The message says what to do."""


def prepare_folder(folder: Path, partition_id: str, *, is_new: bool) -> None:
    """Check that `folder` belongs to the partition, and mark it if it is new or was never marked.

    Args:
        folder: The partition's folder, inside its event hub's folder.
        partition_id: The partition.
        is_new: True if the event hub is being created: the folder may be missing.

    Raises:
        PartitionFolderWrong: The partition's events are not there.
        FileDamaged: The mark is damaged.
        OSError: The mark cannot be read or written.
    """
    mark = {"version": _VERSION, "event_hub_folder": folder.parent.name, "partition_id": partition_id}
    path = folder / FILE_NAME
    found = read_checked(path, advice="restore it from a backup, or delete it if the folder is the right one")
    has_events = any(folder.glob("*.log")) or (folder / "acknowledged").exists()
    if found is None or not has_events:
        _check_is_not_lost(folder, is_new=is_new, has_events=has_events)
    if found is None:
        make_folders(folder)
        write_checked(path, mark)
        (folder / ACCEPT_LOSS).unlink(missing_ok=True)
    elif found.get("version") != _VERSION:
        raise FileDamaged(path, "it is not of a known version", "start the version of Tidegate that wrote it")
    elif found != mark:
        raise PartitionFolderWrong(
            f"{folder} holds partition {found.get('partition_id')} of {found.get('event_hub_folder')}: folders were "
            "swapped or copied; move each back to its place"
        )


def _check_is_not_lost(folder: Path, *, is_new: bool, has_events: bool) -> None:
    if is_new or has_events:
        return
    accepted = folder / ACCEPT_LOSS
    if not accepted.exists():
        raise PartitionFolderWrong(
            f"{folder} is missing or empty, though its event hub was served before: restore it from a backup; or, to "
            f"lose its events and begin again at sequence number 0, create an empty file {accepted}"
        )
    _logger.error("%s: the events of the partition are lost, as %s accepts", folder, ACCEPT_LOSS)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path != accepted:
            path.unlink()
