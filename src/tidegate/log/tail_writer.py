"""Writing to the last segment.

After a failed write or sync, nothing is known about the bytes of its group. Before the next group, the file is
reopened and truncated to its durable end. (A page that could not be written may be dropped from the page cache
and marked clean, so that a second sync "succeeds": https://lwn.net/Articles/752063/.)
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial

from tidegate.durable_files import Files
from tidegate.log.acknowledged import Acknowledged, AcknowledgedFile
from tidegate.log.entry import EntryView, walk_past_damage
from tidegate.log.errors import LogError
from tidegate.log.group import CommitGroup
from tidegate.log.recovery import Tail, create_segment, log_recovery, recover_log
from tidegate.log.segment import INDEX_RECORD_BYTES, SegmentHeader, SegmentName, SparseIndex
from tidegate.log.segment_table import LogState

_logger = logging.getLogger(__name__)
_INDEX_RECORDS = 4
"""Records are written to the index file in batches. A look-up reads the log for records not yet written."""


class TailWriter:
    """Stores groups in the last segment and begins the next one. Callers hold the writer's lock."""

    def __init__(
        self, state: LogState, tail: Tail | None, acknowledged: AcknowledgedFile, *, segment_bytes: int, durable: bool
    ) -> None:
        """Continue at `tail`; None: the log has yet to be recovered, because its disk took no writes.

        The writer owns the tail's descriptor and `acknowledged` from now on.
        """
        self.segment_bytes = segment_bytes
        self.durable = durable
        self._state = state
        self._acknowledged = acknowledged
        self._fd, self._index, self._index_written = -1, SparseIndex(), 0
        self._suspect = self._index_failed = False
        if tail is not None:
            self._continue_at(tail)

    @property
    def is_recovered(self) -> bool:
        """Whether the log was recovered, which needs a disk that takes writes."""
        return self._fd >= 0

    def make_ready(self) -> None:
        """Ensure that the file can be trusted and has room. Raises OSError, LogError."""
        if self._fd < 0:
            self._recover()
        if self._suspect:
            self._reopen()
        if self._state.end.end_position - self._state.names[-1].base_position >= self.segment_bytes:
            self.begin_segment()

    def _continue_at(self, tail: Tail) -> None:
        self._fd, self._index, self._index_written = tail.fd, tail.index, tail.indexed
        self.write_index()

    def _recover(self) -> None:
        state = self._state
        known = self._acknowledged.read()
        table, tail, end = recover_log(state.directory, state.files, self._acknowledged, known, again=True)
        state.replace(table, end, tail.index)
        self._continue_at(tail)
        log_recovery(state.directory, known, tail.recovery, end)
        _logger.warning("%s can be written again", state.directory)

    def try_to_write(self, size: int) -> None:
        """Write so many bytes behind the end, sync them, and cut them off again. Raises OSError, LogError."""
        self.make_ready()
        self._suspect = True
        state, files = self._state, self._state.files
        position = state.end.end_position - state.names[-1].base_position
        files.write_at(self._fd, position, [bytes(size)])
        if self.durable:
            files.sync(self._fd)
        self._reopen()

    def store(self, group: CommitGroup) -> None:
        """Make the group's bytes durable. Raises OSError."""
        self._suspect = True  # until everything is known to have succeeded
        state, files = self._state, self._state.files
        files.write_at(self._fd, state.end.end_position - state.names[-1].base_position, group.buffers)
        if self.durable:
            files.sync(self._fd)
        self._suspect = False

    def publish(self, group: CommitGroup) -> None:
        """Record that the group is about to be acknowledged, and make it visible."""
        last = group.results[-1][1]
        before = self._state.end
        end = Acknowledged(
            group.end_position,
            group.next_sequence_number,
            last.last_offset,
            last.enqueued_time_ms,
            before.begin,
            before.log_id,
        )
        self._acknowledged.write(end)
        self._state.extend(end, self._index, group.entries)
        if len(self._index.positions) >= self._index_written + _INDEX_RECORDS:
            self.write_index()

    def begin_segment(self) -> None:
        """Continue in a new segment. Raises OSError."""
        self.write_index()
        end = self._state.end
        header = SegmentHeader(
            SegmentName(end.end_position, end.next_sequence_number),
            end.last_offset,
            end.last_enqueued_time_ms,
            end.log_id,
        )
        fd = create_segment(self._state.directory, self._state.files, header)
        index = SparseIndex()
        self._state.add_segment(header, index)
        old, self._fd = self._fd, fd
        self._index, self._index_written = index, 0
        self._state.files.close(old)

    def move_begin(self, begin: SegmentName) -> list[SegmentName]:
        """Record durably that the log begins with a later segment, and return the earlier ones, to be deleted.

        Raises OSError, in which case nothing has changed.
        """
        self._acknowledged.write_durably(self._state.end._replace(begin=begin))
        return self._state.move_begin(begin)

    def write_index(self) -> None:
        """Bring the index file up to date. It is only a hint: without it reading is slower, nothing else."""
        if 0 < self._index_written == len(self._index.positions):
            return
        path = self._state.directory / self._state.names[-1].index_name
        try:
            with path.open("r+b" if self._index_written else "wb") as file:
                file.seek(INDEX_RECORD_BYTES * self._index_written)
                file.write(self._index.records(self._index_written))
            self._index_written = len(self._index.positions)
            self._index_failed = False
        except OSError as error:
            if not self._index_failed:
                _logger.warning("%s cannot be written: %s", path, error)
            self._index_failed = True

    def _reopen(self) -> None:
        """Cut the file to the durable end through a new descriptor, and read that end back."""
        state, files, name = self._state, self._state.files, self._state.names[-1]
        fd = files.open(state.directory / name.file_name)
        try:
            end = state.end.end_position
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

    def close(self) -> None:
        """Finish the files."""
        is_recovered = self.is_recovered
        if is_recovered:
            self.write_index()
            self._state.files.close(self._fd)
        self._acknowledged.close(durable=self.durable and is_recovered)


def _read_at(files: Files, fd: int, name: SegmentName, position: int, size: int) -> bytes:
    return files.read_at(fd, position - name.base_position, size)
