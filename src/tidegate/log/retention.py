"""Retention: deleting the oldest segments by the age of their events or the size of the log."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.log.errors import LogError
from tidegate.log.log_reader import LogReader
from tidegate.log.log_writer import LogWriter
from tidegate.log.recovery import remove_segment
from tidegate.log.segment import SegmentName
from tidegate.log.segment_table import LogState

SEGMENTS = 8
"""Retention deletes whole segments and keeps this many or more, so that it comes close to its limits."""
SEGMENT_BYTES = 32 << 20
MIN_SEGMENT_BYTES = 64 << 10


def segment_bytes_for(retention_bytes: int | None) -> int:
    """Return the size at which a segment is begun, small enough to spread a burst over several."""
    if retention_bytes is None:
        return SEGMENT_BYTES
    return max(MIN_SEGMENT_BYTES, min(SEGMENT_BYTES, retention_bytes // SEGMENTS))


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """The limits of retention; see PartitionLog.apply_retention."""

    before_ms: int | None
    max_bytes: int | None
    at_least_bytes: int
    keep_from: int | None


class Retention:
    """Deletes segments of one log, and begins new ones so that old ones can be deleted."""

    def __init__(self, state: LogState, writer: LogWriter, reader: LogReader) -> None:
        self._state = state
        self._writer = writer
        self._reader = reader

    def apply(self, limits: RetentionLimits) -> int:
        state = self._state
        with self._writer.writing:
            if self._writer.is_closed:  # the numbers of its descriptors may be other files' by now
                return 0
            try:
                self._forget_missing(limits)
                deleted = 0
                while True:
                    name = state.names[0]
                    if len(state.names) == 1 and not self._close_last_segment(limits):
                        break
                    following = state.names[1]
                    if not self._is_due(limits, name, following, self._last_time_of(following)):
                        break
                    deleted += following.base_sequence_number - name.base_sequence_number
                    self._begin_with(following)
                return deleted
            except OSError as error:
                raise LogError(f"retention in {state.directory} failed: {error}") from error

    def _close_last_segment(self, limits: RetentionLimits) -> bool:
        """Begin a new segment if every event of the last one is too old. Return whether one was begun."""
        end = self._state.end
        name = self._state.names[-1]
        if name.base_sequence_number == end.next_sequence_number:
            return False
        if limits.before_ms is None or end.last_enqueued_time_ms >= limits.before_ms:
            return False
        following = SegmentName(end.end_position, end.next_sequence_number)
        if not self._is_due(limits, name, following, end.last_enqueued_time_ms):
            return False
        tail = self._writer.tail
        tail.make_ready()
        tail.begin_segment()
        return True

    def _is_due(self, limits: RetentionLimits, name: SegmentName, following: SegmentName, last_time_ms: int) -> bool:
        if limits.keep_from is not None and following.base_sequence_number > limits.keep_from:
            return False
        end = self._state.end.end_position
        too_old = limits.before_ms is not None and last_time_ms < limits.before_ms
        too_much = limits.max_bytes is not None and end - name.base_position > limits.max_bytes
        return too_old or (too_much and end - following.base_position >= limits.at_least_bytes)

    def roll(self, before_ms: int | None, max_bytes: int | None) -> bool:
        with self._writer.writing:
            try:
                table, end = self._state.snapshot()
                name = table.names[-1]
                if name.base_sequence_number == end.next_sequence_number or self._writer.is_closed:
                    return False
                first = next(table.intact_entries(len(table.names) - 1, end.end_position), None)
                old = before_ms is not None and first is not None and first.enqueued_time_ms < before_ms
                if not old and (max_bytes is None or end.end_position - name.base_position <= max_bytes):
                    return False
                tail = self._writer.tail
                tail.make_ready()
                if self._state.names[-1] is name:
                    tail.begin_segment()
                return True
            except OSError as error:
                raise LogError(f"a new segment in {self._state.directory} cannot be begun: {error}") from error

    def _last_time_of(self, following: SegmentName) -> int:
        """Return the enqueued time of the last event before the segment `following`, or a later one."""
        table, end = self._state.snapshot()
        header = table.header(following)
        if header is not None:
            return header.last_enqueued_time_ms
        first = next(table.intact_entries(table.names.index(following), end.end_position), None)
        return end.last_enqueued_time_ms if first is None else first.enqueued_time_ms

    def _begin_with(self, segment: SegmentName) -> None:
        # durable before anything is deleted: a segment found missing later was not deleted by retention
        removed = self._writer.tail.move_begin(segment)
        self._reader.forget_positions()
        for name in removed:
            remove_segment(self._state.directory, self._state.files, name)

    def _forget_missing(self, limits: RetentionLimits) -> None:
        """Move the beginning to the first segment once the events missing before it would be due for deletion."""
        state = self._state
        begin, first = state.end.begin, state.names[0]
        if begin >= first:
            return
        if self._is_due(limits, begin, first, self._last_time_of(first)):
            self._begin_with(first)
