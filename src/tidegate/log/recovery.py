"""Opening after anything: what the last segment holds, and where it ends.

Only the last segment can have been written when the process or the machine died, so only it is read in full. The first
bytes of it that do not check are either a torn write, which was never acknowledged and is cut off, or damage to what
was. The entries behind them decide (see entry.py): if one of them says that those bytes were synced, they are damage,
stay where they are, and their sequence numbers and offsets stay taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from tidegate.log.entry import ALIGNMENT, CUT_OFF, EntryDamaged, EntryView, ReadAt, next_intact, walk
from tidegate.log.errors import LogDamaged
from tidegate.log.files import Files
from tidegate.log.segment import SEGMENT_HEADER_BYTES, SegmentHeader, SparseIndex
from tidegate.log.segment_table import SegmentTable


class Recovery(NamedTuple):
    """What opening found in the last segment.

    truncated_bytes > 0: a torn tail was cut, `reason` says what was wrong with it; what was more than cut off short is
    kept beside the segments in a file `<position>.cut`. `damages`: acknowledged events that can no longer be read.
    """

    entries: int
    events: int
    truncated_bytes: int
    reason: str
    damages: tuple[LogDamaged, ...]


@dataclass(slots=True)
class Tail:
    """Where the log goes on."""

    end_position: int
    next_sequence_number: int
    last_offset: int
    last_enqueued_time_ms: int
    index: SparseIndex
    recovery: Recovery


def recover_tail(table: SegmentTable, fd: int) -> Tail:
    """Read the last segment, open for writing as `fd`, and cut it after its last event. Raises OSError."""
    files, name = table.files, table.names[-1]
    base = name.base_position

    def read_at(position: int, size: int) -> bytes:
        return files.read_at(fd, position - base, size)

    file_end = base + files.size(fd)
    header = table.header(name)
    tail = _scan(read_at, table, file_end, header)
    if header is None and not tail.recovery.entries:
        # the segment was being created: the header comes first and is synced before any entry
        _set_aside(table, read_at, base, file_end, SEGMENT_HEADER_BYTES)
        header = SegmentHeader(name, *_last_event_before(table))
        files.truncate(fd, 0)
        files.write_at(fd, 0, [header.encode()])
        files.sync(fd)
        table.headers[name] = header
        recovery = Recovery(0, 0, file_end - base, "the segment's header is cut off or does not check", ())
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


def _set_aside(table: SegmentTable, read_at: ReadAt, position: int, end: int, least_bytes: int) -> None:
    """Keep bytes that may not be a mere torn write for a person to look at."""
    if end - position > least_bytes:
        (table.directory / f"{position:020d}.cut").write_bytes(read_at(position, end - position))


def _scan(read_at: ReadAt, table: SegmentTable, file_end: int, header: SegmentHeader | None) -> Tail:
    name = table.names[-1]
    index = SparseIndex()
    entries = events = 0
    last_offset, last_time_ms = (header.last_offset, header.last_enqueued_time_ms) if header else (-1, 0)
    position, next_sequence = name.first_entry_position, name.base_sequence_number
    damages: list[LogDamaged] = []
    reason = "" if header else "the segment's header does not check"
    while position < file_end:
        try:
            for entry in walk(read_at, position, file_end):
                index.add(entry)
                entries += 1
                events += entry.count
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
    recovery = Recovery(entries, events, max(0, file_end - position), reason, tuple(damages))
    return Tail(position, next_sequence, last_offset, last_time_ms, index, recovery)


def _first_after_damage(read_at: ReadAt, position: int, end: int) -> EntryView | None:
    """The first intact entry behind `position`, if what lies at `position` was once synced."""
    first = entry = next_intact(read_at, position + ALIGNMENT, end)
    while entry is not None:
        if entry.synced_position > position:
            return first
        entry = next_intact(read_at, entry.end_position, end)
    return None


def _last_event_before(table: SegmentTable) -> tuple[int, int]:
    """Offset and enqueued time of the last event before the last segment, as far as they can be known."""
    if len(table.names) < 2:
        return -1, 0
    last: EntryView | None = None
    for entry in table.intact_entries(len(table.names) - 2):
        last = entry
    if last is None:
        return -1, 0
    return last.first_offset + 4 * (last.count - 1), last.enqueued_time_ms


def create_segment(directory: Path, files: Files, header: SegmentHeader) -> int:
    """Begin a segment, durably: the header is on the disk and so is the name.

    Returns its descriptor. Raises OSError.
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
