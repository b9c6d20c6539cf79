"""Recovery: what the last segment holds and where it ends, after a clean stop or a crash.

Only the last segment can have been in use when the process or the machine died. Its first bytes that fail the check
are either a torn write, which was never acknowledged and is cut off, or damage to acknowledged events. They are damage
if a later entry says that they were synced (see `entry`), or if the acknowledged end (see `acknowledged`) lies beyond
them. Damage is left in place, and its sequence numbers and offsets are not reused: if nothing intact follows it, the
log continues in a new segment that begins after it.

Entries before the acknowledged end were intact once. Only the last stretch that the index names is read again, so that
opening a large log takes no longer than a small one; `check` reads the rest afterwards.

Recovery may have to write. On a disk that is full or read-only it is put off until the log is next written, and what is
known to be acknowledged can be read meanwhile (`read_only_log`).
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tidegate.durable_files import Files
from tidegate.log.acknowledged import Acknowledged, AcknowledgedFile
from tidegate.log.entry import ALIGNMENT, CUT_OFF, EntryDamaged, EntryView, ReadAt, next_intact, walk
from tidegate.log.errors import LogDamaged, LogError
from tidegate.log.segment import (
    SEGMENT_HEADER_BYTES,
    IndexRecord,
    SegmentHeader,
    SegmentName,
    SparseIndex,
    start_position,
)
from tidegate.log.segment_table import EVENTS_MISSING, SegmentTable

_logger = logging.getLogger(__name__)
_LOG_ID_BYTES = 16


class Recovery(NamedTuple):
    """What opening found at the end of the log.

    truncated_bytes > 0: a torn tail was cut, and `reason` says what was wrong with it; if it may be more than a torn
    write, it is kept beside the segments in a file `<position>.cut`. `damages`: acknowledged events that can no longer
    be read. `unread`: the sequence numbers of the last segment that were assumed intact without reading them.
    """

    truncated_bytes: int
    reason: str
    damages: tuple[LogDamaged, ...]
    unread: range


@dataclass(slots=True)
class Tail:
    """Where the log continues: in the last segment of the table, open for writing as `fd`."""

    fd: int
    end_position: int
    next_sequence_number: int
    last_offset: int
    last_enqueued_time_ms: int
    index: SparseIndex
    indexed: int  # the number of its records that are in its file
    recovery: Recovery

    def end(self, begin: SegmentName, log_id: bytes) -> Acknowledged:
        """Return what is acknowledged from now on, in a log that begins with the segment `begin`."""
        return Acknowledged(
            self.end_position, self.next_sequence_number, self.last_offset, self.last_enqueued_time_ms, begin, log_id
        )


def recover_log(
    directory: Path, files: Files, record: AcknowledgedFile, acknowledged: Acknowledged | None, *, again: bool = False
) -> tuple[SegmentTable, Tail, Acknowledged]:
    """Find missing segments and the end of the log, truncate it there, and make what is left durable.

    May begin a new last segment.

    Args:
        directory: The directory of the segments.
        files: The file operations.
        record: Where what is acknowledged is recorded.
        acknowledged: What it held.
        again: An earlier attempt has failed. If its sync did, the system may take unwritten pages for clean ones.

    Raises:
        LogError: The log cannot be read. OSError: It cannot be read or written.
    """
    table = _table(directory, files, acknowledged)
    if acknowledged is not None:
        _finish_retention(table, acknowledged.begin)
    tail = _recover_tail(table, acknowledged)
    try:
        assert table.log_id is not None
        table.begin = table.begin or table.names[0]
        tail.recovery = tail.recovery._replace(damages=_all_damages(table, tail.recovery.damages))
        end = tail.end(table.begin, table.log_id)
        if end != acknowledged:  # intact, though never acknowledged: readable from now on
            if again:
                _write_anew(table, tail, acknowledged)
            files.sync(tail.fd)
            record.write_durably(end)
            files.sync_directory(directory)
    except BaseException:
        files.close(tail.fd)
        raise
    return table, tail, end


def _write_anew(table: SegmentTable, tail: Tail, acknowledged: Acknowledged | None) -> None:
    name = table.names[-1]
    start = name.base_position if acknowledged is None else max(name.base_position, acknowledged.end_position)
    at = start - name.base_position
    table.files.write_at(tail.fd, at, [table.files.read_at(tail.fd, at, tail.end_position - start)])


def read_only_log(directory: Path, files: Files, acknowledged: Acknowledged) -> tuple[SegmentTable, Recovery]:
    """Return what can be read of a log that cannot be recovered now, because its disk takes no writes.

    That is what is known to be acknowledged. Raises LogError, OSError.
    """
    table = _table(directory, files, acknowledged)
    table.names = [name for name in table.names if name >= acknowledged.begin]
    if not table.names:
        raise LogError(f"{directory} has no segment")
    unread = range(table.names[-1].base_sequence_number, acknowledged.next_sequence_number)
    return table, Recovery(0, "", _all_damages(table, ()), unread)


def _table(directory: Path, files: Files, acknowledged: Acknowledged | None) -> SegmentTable:
    table = SegmentTable.read_directory(directory, files)
    if acknowledged is not None:
        table.begin, table.log_id = acknowledged.begin, acknowledged.log_id
    else:
        table.log_id = _log_id_of(table)
    return table


def _log_id_of(table: SegmentTable) -> bytes:
    """Return the identity that the segments' headers have, a new one for a log without any. Raises LogError."""
    for name in table.names:
        header = table.header(name)
        if header is not None:
            return header.log_id
    return secrets.token_bytes(_LOG_ID_BYTES)


def _all_damages(table: SegmentTable, of_tail: tuple[LogDamaged, ...]) -> tuple[LogDamaged, ...]:
    found = [table.missing_at_the_beginning(), *map(table.missing_after, range(len(table.names) - 1))]
    known = {damage.sequence_number for damage in of_tail}
    return (
        *(damage for damage in found if damage is not None and damage.sequence_number not in known),
        *of_tail,
    )


def _finish_retention(table: SegmentTable, begin: SegmentName) -> None:
    """Delete the segments that retention had dropped when the process ended."""
    for name in [name for name in table.names if name < begin]:
        remove_segment(table.directory, table.files, name)
    table.names = [name for name in table.names if name >= begin]


def remove_segment(directory: Path, files: Files, name: SegmentName) -> None:
    """Delete a segment's files. Raises OSError."""
    files.remove(directory / name.file_name)
    files.remove(directory / name.index_name)


def _recover_tail(table: SegmentTable, acknowledged: Acknowledged | None) -> Tail:
    files = table.files
    assert table.log_id is not None
    _set_aside_unused_foreign(table, acknowledged)
    if not table.names:
        end = acknowledged or Acknowledged(0, 0, -1, 0, SegmentName(0, 0), table.log_id)
        name = SegmentName(end.end_position, end.next_sequence_number)
        header = SegmentHeader(name, end.last_offset, end.last_enqueued_time_ms, table.log_id)
        files.close(create_segment(table.directory, files, header))
        table.names = [name]
    fd = files.open(table.directory / table.names[-1].file_name)
    try:
        return _recover(table, fd, acknowledged)
    except BaseException:
        files.close(fd)
        raise


def _set_aside_unused_foreign(table: SegmentTable, acknowledged: Acknowledged | None) -> None:
    """Rename last segments of other logs that no event of this log was in."""
    while table.names:
        name = table.names[-1]
        with table.reading(name) as (read_at, _):
            foreign = table.foreign(name, read_at)
        if foreign is None:
            return
        path = table.directory / name.file_name
        if acknowledged is None:
            raise LogError(
                f"{path}: {foreign.reason}. The record of what was acknowledged is missing too, so the end of the log "
                "is not known"
            )
        if acknowledged.end_position > name.first_entry_position:
            return
        table.files.replace(path, path.with_suffix(".foreign"))
        _logger.error("%s was set aside as .foreign: %s", path, foreign.reason)
        table.names = table.names[:-1]


def _recover(table: SegmentTable, fd: int, acknowledged: Acknowledged | None) -> Tail:
    files, name = table.files, table.names[-1]
    base = name.base_position
    read_at = partial(_read_at, files, fd, base)
    file_end = base + files.size(fd)
    foreign = table.foreign(name, read_at)
    if foreign is not None and acknowledged is not None:
        # all of its bytes are another log's, and stay as they are
        recovery = Recovery(0, foreign.reason, (), range(0))
        start = (name.first_entry_position, name.base_sequence_number)
        return _go_on_behind_damage(table, Tail(fd, *start, -1, 0, SparseIndex(), 0, recovery), 0, acknowledged)
    header = table.header(name)
    tail = _scan(read_at, table, fd, file_end, acknowledged)
    if (
        acknowledged is not None
        and acknowledged.end_position > max(tail.end_position, name.first_entry_position)
        and acknowledged.next_sequence_number > tail.next_sequence_number
    ):
        return _go_on_behind_damage(table, tail, file_end, acknowledged)
    if header is None and tail.end_position == name.first_entry_position:
        # the segment was being created: the header comes first and is synced before any entry
        _set_aside(table, read_at, base, file_end, SEGMENT_HEADER_BYTES)
        assert table.log_id is not None
        header = SegmentHeader(name, *_last_event_before(table), table.log_id)
        files.truncate(fd, 0)
        files.write_at(fd, 0, [header.encode()])
        files.sync(fd)
        table.headers[name] = header
        recovery = Recovery(file_end - base, "the segment's header is cut off or does not check", (), range(0))
        return replace(
            tail,
            last_offset=header.last_offset,
            last_enqueued_time_ms=header.last_enqueued_time_ms,
            recovery=recovery,
        )
    if tail.recovery.truncated_bytes:
        if tail.recovery.reason != CUT_OFF:
            _set_aside(table, read_at, tail.end_position, file_end, 0)
        files.truncate(fd, tail.end_position - base)
        files.sync(fd)
    return tail


def _read_at(files: Files, fd: int, base: int, position: int, size: int) -> bytes:
    return files.read_at(fd, position - base, size)


def _go_on_behind_damage(table: SegmentTable, tail: Tail, file_end: int, acknowledged: Acknowledged) -> Tail:
    """Leave the last segment unchanged, and begin another where its acknowledged events ended."""
    files, name = table.files, table.names[-1]
    if file_end > acknowledged.end_position:
        files.truncate(tail.fd, acknowledged.end_position - name.base_position)
        files.sync(tail.fd)
    new = SegmentName(acknowledged.end_position, acknowledged.next_sequence_number)
    header = SegmentHeader(new, acknowledged.last_offset, acknowledged.last_enqueued_time_ms, acknowledged.log_id)
    fd = create_segment(table.directory, files, header)
    files.close(tail.fd)
    table.names = [*table.names, new]
    damage = LogDamaged(
        table.directory / name.file_name,
        tail.end_position - name.base_position,
        tail.recovery.reason or EVENTS_MISSING,
        tail.next_sequence_number,
        new.base_sequence_number,
    )
    recovery = tail.recovery._replace(truncated_bytes=0, damages=(*tail.recovery.damages, damage))
    return Tail(
        fd,
        new.first_entry_position,
        new.base_sequence_number,
        acknowledged.last_offset,
        acknowledged.last_enqueued_time_ms,
        SparseIndex(),
        0,
        recovery,
    )


def _set_aside(table: SegmentTable, read_at: ReadAt, position: int, end: int, least_bytes: int) -> None:
    """Keep a copy of bytes that may be more than a torn write, for inspection."""
    if end - position > least_bytes:
        (table.directory / f"{position:020d}.cut").write_bytes(read_at(position, end - position))


def _known(
    read_at: ReadAt, table: SegmentTable, file_end: int, acknowledged: Acknowledged | None
) -> tuple[SparseIndex, IndexRecord]:
    """Return where to start reading: the last indexed acknowledged entry, and the index up to it."""
    name = table.names[-1]
    first = IndexRecord(name.base_sequence_number, name.first_entry_position, 0)
    if acknowledged is not None:
        index = table.index(name, min(file_end, acknowledged.end_position))
        hint = index.last()
        if hint is not None and start_position(read_at, name, hint, file_end) == hint.position:
            index.drop_last()
            return index, hint
    return SparseIndex(), first


def _scan(read_at: ReadAt, table: SegmentTable, fd: int, file_end: int, acknowledged: Acknowledged | None) -> Tail:
    name = table.names[-1]
    header = table.header(name)
    index, known = _known(read_at, table, file_end, acknowledged)
    indexed = len(index.positions) + 1 if known.position > name.first_entry_position else 0
    position, next_sequence = known.position, known.sequence_number
    last_offset, last_time_ms = (header.last_offset, header.last_enqueued_time_ms) if header else (-1, 0)
    damages: list[LogDamaged] = []
    reason = "" if header else "the segment's header does not check"
    while position < file_end:
        try:
            for entry in walk(read_at, position, file_end):
                index.add(entry)
                last_offset = entry.first_offset + 4 * (entry.count - 1)
                last_time_ms = entry.enqueued_time_ms
                position, next_sequence = entry.end_position, entry.next_sequence_number
        except EntryDamaged as damage:
            resume = _first_after_damage(read_at, damage.position, file_end)
            if resume is None:
                reason = damage.reason
                break
            path = table.directory / name.file_name
            damages.append(
                LogDamaged(
                    path,
                    damage.position - name.base_position,
                    damage.reason,
                    next_sequence,
                    resume.base_sequence_number,
                )
            )
            position = resume.first_offset
    unread = range(name.base_sequence_number, known.sequence_number)
    recovery = Recovery(max(0, file_end - position), reason, tuple(damages), unread)
    return Tail(fd, position, next_sequence, last_offset, last_time_ms, index, indexed, recovery)


def _first_after_damage(read_at: ReadAt, position: int, end: int) -> EntryView | None:
    """Return the first intact entry after `position`, if the bytes at `position` were once synced."""
    first = entry = next_intact(read_at, position + ALIGNMENT, end)
    while entry is not None:
        if entry.synced_position > position:
            return first
        entry = next_intact(read_at, entry.end_position, end)
    return None


def _last_event_before(table: SegmentTable) -> tuple[int, int]:
    """Return offset and enqueued time of the last event before the last segment, as far as known."""
    if len(table.names) < 2:
        return -1, 0
    last: EntryView | None = None
    for entry in table.intact_entries(len(table.names) - 2):
        last = entry
    if last is None:
        return -1, 0
    return last.first_offset + 4 * (last.count - 1), last.enqueued_time_ms


def create_segment(directory: Path, files: Files, header: SegmentHeader) -> int:
    """Create a segment with its header durably, and return its file descriptor.

    Raises OSError.
    """
    path = directory / header.name.file_name
    fd = files.open(path)
    try:
        files.truncate(fd, 0)
        files.write_at(fd, 0, [header.encode()])
        files.sync(fd)
        files.sync_directory(directory)
    except OSError:
        files.close(fd)
        files.remove(path)
        raise
    return fd


def log_recovery(path: Path, known: Acknowledged | None, recovery: Recovery, end: Acknowledged) -> None:
    """Log what opening found."""
    if known is None and end.next_sequence_number > 0:
        _logger.warning(
            "%s does not say what was acknowledged: events missing at either end of the log go unnoticed", path
        )
    for damage in recovery.damages:
        _logger.error("%s: %s", path, damage)
    if recovery.truncated_bytes:
        _logger.log(
            logging.WARNING if known is None else logging.INFO,
            "%s: cut %d bytes after event %d, %s (%s)",
            path,
            recovery.truncated_bytes,
            end.next_sequence_number - 1,
            "taken for a torn write" if known is None else "which were never acknowledged",
            recovery.reason,
        )
