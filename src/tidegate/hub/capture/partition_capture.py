"""Capture: writes a partition's events to files, each event to exactly one.

A file holds consecutive events of one window of arrival times, [k·interval, (k+1)·interval), or fewer if it reaches
its size limit first. File boundaries follow from the log and the journal alone: the only clock involved is the one
that stamped the events, and a window is over when that clock guarantees that no later event will fall into it. This
makes a crash harmless:

1. Events are encoded into a spool file as they become durable. A spool is only work done ahead: it is discarded at
   every start and rebuilt with the same bytes.
2. A complete file is recorded in the journal as pending, with its name and its events' sequence numbers.
3. It is delivered to the destination atomically.
4. The journal advances past its events.

A crash before step 2 leaves no trace. After it, the next start finds the pending file. If the destination has a file of
that name with this partition's sync marker, step 3 was done; otherwise it is repeated with the same content. Changed
settings do not affect a pending file. A file of that name with another marker has another owner (such as an earlier hub
of the same name): it is not touched, and the pending file gets the next free name.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from tidegate.hub.capture.avro import SYNC_MARKER_BYTES, AvroFile, container_header
from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.capture.journal import CaptureJournal, CaptureState, JournalDamaged, PendingFile
from tidegate.hub.capture.store import CaptureStore, StoreError
from tidegate.log import DocumentReplaced, EventBatch, LogDamaged, LogError, PartitionStore

_logger = logging.getLogger(__name__)
_READ_BYTES = 1 << 20
_FIRST_RETRY_MS = 1_000
_LONGEST_RETRY_MS = 60_000
_UNLIMITED = 1 << 62
_HEADER_BYTES = len(container_header(bytes(SYNC_MARKER_BYTES)))


class _Spool:
    """The file being built: its events so far, on the local disk."""

    def __init__(self, path: Path, sync_marker: bytes, first_sequence_number: int, name_time_s: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.first_sequence_number = first_sequence_number
        self.name_time_s = name_time_s
        self._file: BinaryIO = path.open("wb")
        self._avro = AvroFile(self._file, sync_marker)

    @property
    def size_bytes(self) -> int:
        return self._avro.size_bytes

    def add(self, batch: EventBatch, size_limit_bytes: int) -> int:
        return self._avro.add(batch, size_limit_bytes)

    def finish(self) -> None:
        self._avro.finish()
        self._file.close()

    def discard(self) -> None:
        with suppress(OSError):  # closing writes the buffered block, which fails on a full disk
            self._file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


class CaptureWriter:
    """Captures one partition. `step` is for one thread; the figures and `keep_from` may be read by any.

    `names` holds Namespace, EventHub and PartitionId. The log's store keeps the journal. Empty windows that ended
    before the writer was created get no file, because nothing observed that they were empty.
    """

    def __init__(
        self,
        log: PartitionStore,
        names: Mapping[str, str],
        description: CaptureDescription,
        store: CaptureStore,
    ) -> None:
        """Continue from the journal, or begin with the next event if there is none.

        Raises JournalDamaged, LogError, OSError.
        """
        self.description = description
        self._log = log
        self._names = dict(names)
        self._store = store
        self._journal = CaptureJournal(log)
        self._spool_path = log.work_folder / "capture" / "spool.avro"
        log.catch_up()  # another process may have captured more than was seen here
        self._opened_ms = log.arrival_lower_bound().lower_bound_ms
        state = self._journal.read()
        if state is None:
            bound = log.arrival_lower_bound()
            state = CaptureState(
                archive_id=uuid.uuid4().hex,
                next_sequence_number=bound.next_sequence_number,
                window_start_ms=bound.lower_bound_ms,
            )
            self._journal.write(state)
        known = state.next_sequence_number if state.pending is None else state.pending.end_sequence_number
        if known > log.next_sequence_number:
            raise JournalDamaged(
                f"{self._journal} knows {known} events, the log has {log.next_sequence_number}: it belongs to "
                "another log; move it away to capture from now on"
            )
        self._state = state
        self._window_start_ms = state.window_start_ms
        self._next = state.next_sequence_number
        self._spool: _Spool | None = None
        self._pending = state.pending
        self._pending_is_journalled = True
        self.retry_at_ms = 0
        self._retry_after_ms = _FIRST_RETRY_MS
        self.files = 0
        self.events = 0
        self.size_bytes = 0
        """Of the files that this writer has put in their place."""
        self.failures = 0
        self.store_failures = 0
        self.events_lost = 0
        self.is_overtaken = False
        """Whether another process captures the partition, so that this writer must do nothing more."""

    def __str__(self) -> str:
        return f"{self._names['EventHub']}/{self._names['PartitionId']}"

    @property
    def keep_from(self) -> int:
        """The oldest sequence number not yet in a file. Retention must keep it and all later ones."""
        return self._state.next_sequence_number

    def step(self, now_ms: int) -> bool:
        """Do part of the work that is due, and return whether there is more. `now_ms` is the log's clock.

        A failing destination, disk or log raises nothing: it is logged, counted and retried later.
        """
        if now_ms < self.retry_at_ms or self.is_overtaken:
            return False
        try:
            if self._pending is not None:
                return self._deliver(self._pending)
            return self._take_events(now_ms)
        except DocumentReplaced as error:
            _logger.info("capture of %s: another gateway has taken over: %s", self, error)
            self.is_overtaken = True
            return False
        except (StoreError, LogError, OSError) as error:
            self._try_later(error, now_ms)
            return False

    def close(self) -> None:
        """Discard the spool."""
        if self._spool is not None:
            self._spool.discard()
            self._spool = None

    # -- events into the spool

    def _take_events(self, now_ms: int) -> bool:
        end_ms = self._window_end_ms()
        batches = self._read(self._log.next_sequence_number)
        for batch in batches:
            self._skip_to(batch.base_sequence_number)
            if batch.enqueued_time_ms >= end_ms:
                self._end_window(batch.enqueued_time_ms)
                return True
            if self._spool is None:
                self._spool = self._begin_spool(batch.enqueued_time_ms)
            taken = self._spool.add(batch, self.description.size_limit_in_bytes)
            self._next = batch.base_sequence_number + taken
            if self._spool.size_bytes >= self.description.size_limit_in_bytes:
                self._end_file(self._window_start_ms, window_has_file=True)
                return True
        if batches or now_ms < end_ms:
            return bool(batches)
        bound = self._log.arrival_lower_bound()
        if bound.next_sequence_number > self._next:
            return True
        if bound.lower_bound_ms < end_ms:
            return False
        self._end_window(bound.lower_bound_ms)
        return True

    def _read(self, end: int) -> Sequence[EventBatch]:
        """Return the next events, skipping any before `end` that cannot be read or were deleted."""
        while self._next < end:
            try:
                batches = self._log.read_batches(self._next, max_bytes=_READ_BYTES)
            except LogDamaged as damage:
                self._skip_to(min(max(damage.resume_sequence_number, self._next + 1), end))
                continue
            begin = self._log.begin_sequence_number
            if batches or begin <= self._next:
                return batches
            self._skip_to(min(begin, end))
        return ()

    def _skip_to(self, sequence_number: int) -> None:
        if self._log.topic is not None:  # where numbers have gaps, only retention loses events
            lost_to = min(sequence_number, self._log.begin_sequence_number)
            if lost_to <= self._next:
                self._next = max(self._next, sequence_number)
                return
        missing = sequence_number - self._next
        if missing > 0:
            self.events_lost += missing
            _logger.error(
                "capture of %s: events %d to %d are not captured: retention has removed them, or they are damaged",
                self,
                self._next,
                sequence_number - 1,
            )
            self._next = sequence_number

    def _begin_spool(self, enqueued_time_ms: int) -> _Spool:
        """Begin a file, named after its window's start or, after a file closed by size, after its first event.

        Names never repeat, so they run ahead of time if a partition fills more than one file per second.
        """
        begin_ms = enqueued_time_ms if self._window_has_file() else self._window_start_ms
        name_time_s = max(begin_ms // 1000, self._state.last_name_time_s + 1)
        return _Spool(self._spool_path, self._sync_marker(self._next), self._next, name_time_s)

    def _sync_marker(self, first_sequence_number: int) -> bytes:
        seed = f"{self._state.archive_id}/{first_sequence_number}"
        return blake2b(seed.encode("ascii"), digest_size=SYNC_MARKER_BYTES).digest()

    # -- windows

    def _window_end_ms(self) -> int:
        interval_ms = self.description.interval_in_seconds * 1000
        return (self._window_start_ms // interval_ms + 1) * interval_ms

    def _window_has_file(self) -> bool:
        return self._state.window_has_file and self._window_start_ms == self._state.window_start_ms

    def _end_window(self, next_time_ms: int) -> None:
        """End the window. The next event has an enqueued time of next_time_ms or later."""
        end_ms = self._window_end_ms()
        skipped = self.description.skip_empty_archives or end_ms <= self._opened_ms or self._window_has_file()
        if self._spool is None and not skipped:
            self._spool = self._begin_spool(self._window_start_ms)
        if self._spool is not None:
            self._end_file(end_ms, window_has_file=False)
            return
        interval_ms = self.description.interval_in_seconds * 1000
        empty_until_ms = next_time_ms if self.description.skip_empty_archives else min(next_time_ms, self._opened_ms)
        self._window_start_ms = max(end_ms, empty_until_ms // interval_ms * interval_ms)

    def _end_file(self, next_window_start_ms: int, *, window_has_file: bool) -> None:
        spool = self._spool
        assert spool is not None
        spool.finish()
        self._pending = PendingFile(
            name=self.description.archive_name(self._names, spool.name_time_s),
            name_time_s=spool.name_time_s,
            first_sequence_number=spool.first_sequence_number,
            end_sequence_number=self._next,
            next_window_start_ms=next_window_start_ms,
            next_window_has_file=window_has_file,
        )
        self._pending_is_journalled = False

    # -- delivering files

    def _deliver(self, pending: PendingFile) -> bool:
        if not self._pending_is_journalled:
            state = self._state.model_copy(update={"pending": pending})
            self._journal.write(state)
            self._state, self._pending_is_journalled = state, True
        head = self._store.head(pending.name, _HEADER_BYTES)
        if head is None:
            if self._spool is None:
                self._spool = self._spool_again(pending)
            self._store.put(pending.name, self._spool.path)
        elif self._sync_marker(pending.first_sequence_number) not in head:
            _logger.warning("capture of %s: %s has another owner and is not touched", self, pending.name)
            name_time_s = pending.name_time_s + 1
            name = self.description.archive_name(self._names, name_time_s)
            self._pending = pending.model_copy(update={"name": name, "name_time_s": name_time_s})
            self._pending_is_journalled = False
            return True
        self._commit(pending)
        return True

    def _spool_again(self, pending: PendingFile) -> _Spool:
        """Rebuild the pending file's content after a restart."""
        first, end = pending.first_sequence_number, pending.end_sequence_number
        spool = _Spool(self._spool_path, self._sync_marker(first), first, pending.name_time_s)
        self._next = first
        while self._next < end:
            for batch in self._read(end):
                if self._next >= end:
                    break
                self._skip_to(min(batch.base_sequence_number, end))
                count = min(len(batch.events), end - batch.base_sequence_number)
                if count > 0:
                    part = batch._replace(events=batch.events[:count], offsets=batch.offsets[:count])
                    spool.add(part, _UNLIMITED)
                    self._next = batch.base_sequence_number + count
        spool.finish()
        return spool

    def _commit(self, pending: PendingFile) -> None:
        state = self._state.model_copy(
            update={
                "next_sequence_number": pending.end_sequence_number,
                "window_start_ms": pending.next_window_start_ms,
                "window_has_file": pending.next_window_has_file,
                "last_name_time_s": pending.name_time_s,
                "pending": None,
            }
        )
        self._journal.write(state)
        self._state, self._pending = state, None
        self._next = pending.end_sequence_number
        self._window_start_ms = pending.next_window_start_ms
        self.size_bytes += 0 if self._spool is None else self._spool.size_bytes
        self.close()
        self.files += 1
        self.events += pending.end_sequence_number - pending.first_sequence_number
        self._retry_after_ms = _FIRST_RETRY_MS

    def _try_later(self, error: Exception, now_ms: int) -> None:
        self.failures += 1
        self.store_failures += isinstance(error, StoreError)
        self.retry_at_ms = now_ms + self._retry_after_ms
        _logger.warning("capture of %s waits %d s: %s", self, self._retry_after_ms // 1000, error)
        self._retry_after_ms = min(2 * self._retry_after_ms, _LONGEST_RETRY_MS)
        if self._pending is None:  # the spool may be incomplete
            self.close()
            self._next = self._state.next_sequence_number
            self._window_start_ms = self._state.window_start_ms
