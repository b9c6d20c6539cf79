"""A partition's log as a process sees that does not write it: events from the files, everything else from its owner.

The files hold more than is durable, and only the owner knows how far it is. It passes on `LogFacts`, and readers see
what they show. Events never travel between the processes, so a reader costs the owner nothing.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from struct import Struct
from typing import NamedTuple, Protocol, TypeVar

from tidegate.durable_files import Files
from tidegate.kafka.records import RecordBatch
from tidegate.log.acknowledged import Acknowledged, Floor
from tidegate.log.errors import LogClosed, LogError
from tidegate.log.group import OnDurable
from tidegate.log.log_reader import EventBatch, LogReader, RecordBatches
from tidegate.log.log_writer import WriteFailure, call
from tidegate.log.partition_log import READERS, PartitionLog
from tidegate.log.protocol import ArrivalLowerBound, Numbering
from tidegate.log.recovery import Recovery
from tidegate.log.segment import SegmentName
from tidegate.log.segment_table import LogState, SegmentTable

_logger = logging.getLogger(__name__)
_FACTS = Struct("<qqqqqq16sqqq")
FACTS_BYTES = _FACTS.size
_Result = TypeVar("_Result")


class LogFacts(NamedTuple):
    """What is durable, the segment that is written to, and the number before which events were deleted on request."""

    end: Acknowledged
    last_segment: SegmentName
    floor: int = 0

    def encode(self) -> bytes:
        """Return the facts as FACTS_BYTES bytes."""
        return _FACTS.pack(*self.end[:4], *self.end.begin, self.end.log_id, *self.last_segment, self.floor)

    @classmethod
    def decode(cls, data: bytes | memoryview, at: int = 0) -> LogFacts:
        """Return the facts that `encode` was given."""
        fields = _FACTS.unpack_from(data, at)
        position, number, offset, time_ms, begin_position, begin, log_id, last_position, last, floor = fields
        end = Acknowledged(position, number, offset, time_ms, SegmentName(begin_position, begin), log_id)
        return cls(end, SegmentName(last_position, last), floor)


def facts_of(log: PartitionLog) -> LogFacts:
    """Return what is durable in an open log."""
    table, end = log.snapshot()
    return LogFacts(end, table.names[-1], log.floor.sequence_number)


class LogOwner(Protocol):
    """How a mirror reaches the process that writes its log. Each call but `append` waits for the answer."""

    def append(self, events: Sequence[bytes | memoryview], on_durable: OnDurable) -> None:
        """Store events; ``on_durable`` is called when they are on the owner's disk. Raises LogClosed."""

    def append_batch(self, batch: RecordBatch, on_durable: OnDurable) -> None:
        """Store a record batch of a client of Kafka in the same way."""

    def watch(self, is_watched: bool) -> None:
        """Pass on facts from now on whenever the log has grown, and at once; or no longer. Does not wait."""

    def facts(self) -> tuple[LogFacts, int]:
        """Return the lower bound on arrivals, and facts no older than it. Raises LogError."""


class LogMirror(PartitionLog):
    """A log that another process writes. All methods may be called from any thread."""

    def __init__(self, directory: str | os.PathLike[str], facts: LogFacts, owner: LogOwner) -> None:
        """Show the log in `directory` as far as `facts` say. Raises LogError."""
        self.recovery = Recovery(0, "", (), range(0))
        self._owner = owner
        self._files = Files()
        self._updating = threading.Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._is_closed = False
        self._state = LogState(self._segments(Path(directory), facts), facts.end, None)
        self._reader = LogReader(self._state)
        self.floor = Floor(facts.floor)

    def _segments(self, directory: Path, facts: LogFacts) -> SegmentTable:
        try:
            table = SegmentTable.read_directory(directory, self._files)
        except OSError as error:
            raise LogError(f"cannot read the segments in {directory}: {error}") from error
        table.names = [name for name in table.names if facts.end.begin <= name <= facts.last_segment]
        if not table.names:
            raise LogError(f"{directory} holds no segment between {facts.end.begin} and {facts.last_segment}")
        return table

    def update(self, facts: LogFacts) -> None:
        """Show what the owner has made durable since. Facts that are older than known ones change nothing."""
        state = self._state
        with self._updating:
            known = state.end
            self.floor.sequence_number = self.floor.above(facts.floor)
            if (facts.end.end_position, facts.end.begin) <= (known.end_position, known.begin):
                return
            if facts.last_segment != state.names[-1]:
                try:
                    table = self._segments(state.directory, facts)
                except LogError as error:  # what is known can be read all the same
                    _logger.warning("%s", error)
                    return
                state.replace(table, facts.end, None)
                self._reader.forget_positions()
            else:
                if facts.end.begin != known.begin:
                    state.move_begin(facts.end.begin)
                    self._reader.forget_positions()
                with state.lock:
                    state.end = facts.end
            grown = facts.end.next_sequence_number > known.next_sequence_number
        if grown:
            for listener in self._listeners:
                call(listener)

    def refresh(self) -> int:
        """Ask the owner what is durable now, and return the lower bound on arrivals. Raises LogError."""
        facts, lower_bound_ms = self._owner.facts()
        self.update(facts)
        return lower_bound_ms

    def catch_up(self) -> None:
        """Show all that is durable now. Waits for the owner. Raises LogError."""
        self.refresh()

    def arrival_lower_bound(self, *, is_awaited: bool = True) -> ArrivalLowerBound:
        """Return the lower bound on future arrivals. Waits for the owner."""
        lower_bound_ms = self.refresh()
        return ArrivalLowerBound(self.next_sequence_number, lower_bound_ms)

    @property
    def write_failure(self) -> WriteFailure | None:
        """None: the owner knows."""
        return None

    @property
    def refused_appends(self) -> int:
        """0: the owner counts them."""
        return 0

    @property
    def last_write_s(self) -> float:
        """0: the owner knows."""
        return 0

    def append(
        self, events: Sequence[bytes | memoryview], on_durable: OnDurable, numbering: Numbering | None = None
    ) -> None:
        """Have the owner store `events`; see `PartitionLog.append`."""
        if not events:
            raise ValueError("an append needs at least one event")
        if self._is_closed:
            raise LogClosed("the log is closed")
        self._owner.append(events, on_durable)

    def append_batch(self, batch: RecordBatch, on_durable: OnDurable) -> None:
        """Have the owner store a record batch; see `PartitionLog.append_batch`."""
        if self._is_closed:
            raise LogClosed("the log is closed")
        self._owner.append_batch(batch, on_durable)

    def on_grow(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever next_sequence_number has advanced; return the function that unsubscribes."""
        with self._updating:
            self._listeners += (callback,)
            is_first = len(self._listeners) == 1
        if is_first:
            self._owner.watch(True)

        def unsubscribe() -> None:
            with self._updating:
                had = bool(self._listeners)
                self._listeners = tuple(one for one in self._listeners if one != callback)
                is_last = had and not self._listeners
            if is_last:
                self._owner.watch(False)

        return unsubscribe

    def read_cached(
        self, sequence_number: int, *, max_bytes: int = 1 << 20, max_events: int = 1 << 20
    ) -> list[EventBatch] | None:
        """Return recent events, None if they are not; see `PartitionLog.read_cached`."""
        if not self._reader.is_recent(self.floor.above(sequence_number)):
            return None
        return self.read_batches(sequence_number, max_bytes=max_bytes, max_events=max_events)

    def start_read(
        self, sequence_number: int, *, max_bytes: int = 1 << 20, max_events: int = 1 << 20
    ) -> Future[list[EventBatch]]:
        """Begin what `read_batches` does in a thread that waits for the disk, and return its future."""
        return READERS.submit(self.read_batches, sequence_number, max_bytes=max_bytes, max_events=max_events)

    def read_batches(
        self, sequence_number: int, *, max_bytes: int = 1 << 20, max_events: int = 1 << 20
    ) -> list[EventBatch]:
        """Return durable events; see `PartitionLog.read_batches`."""
        return self._reading(
            lambda: super(LogMirror, self).read_batches(sequence_number, max_bytes=max_bytes, max_events=max_events)
        )

    def read_record_batches(self, sequence_number: int, *, max_bytes: int) -> RecordBatches:
        """Return durable events as record batches; see `PartitionLog.read_record_batches`."""
        return self._reading(partial(super().read_record_batches, sequence_number, max_bytes=max_bytes))

    def sequence_after_offset(self, offset: int, *, inclusive: bool) -> int:
        """Find a position; see `PartitionLog.sequence_after_offset`."""
        return self._reading(partial(super().sequence_after_offset, offset, inclusive=inclusive))

    def sequence_at_time(self, enqueued_time_ms: int, *, inclusive: bool) -> int:
        """Find a position; see `PartitionLog.sequence_at_time`."""
        return self._reading(partial(super().sequence_at_time, enqueued_time_ms, inclusive=inclusive))

    def _reading(self, read: Callable[[], _Result]) -> _Result:
        """Read, and read again if it failed because retention has deleted segments that were still known here."""
        while True:
            known = self._state.end.begin
            try:
                return read()
            except LogError:
                self.refresh()
                if self._state.end.begin == known:
                    raise

    def close(self) -> None:
        """Take no more appends. Idempotent."""
        self._is_closed = True
