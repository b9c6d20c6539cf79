"""The range of a partition's events that were acknowledged and not deleted since, in a file beside its segments.

Without it, a torn write could not be told from damage at the very end of the log, where no later group proves that the
bytes were synced (see `entry`), nor a deleted segment from one that never existed. The file is written after every
group's sync and before its first acknowledgement, and synced when retention moves the beginning and when the log is
closed. It never names more than is durable. The record lies within one sector, which a disk writes whole, so a crash
leaves the old record or the new one (SQLite calls this assumption powersafe overwrite:
https://www.sqlite.org/psow.html). After a power failure it may lag by as long as the operating system delays writing
dirty pages (half a minute or so); the entries themselves cover the difference.

    position  size  field
           0     8  mark, the bytes "TGACK" 0 0 3 (the last is the layout's version)
           8     8  position behind the last entry
          16     8  sequence number of the next event
          24     8  offset of the last event, -1 if there never was one
          32     8  enqueued time of the last event, ms
          40     8  position of the oldest segment that retention kept
          48     8  sequence number of its first event
          56    16  identity of the log, drawn when it was created
          72     4  CRC-32C of all before this field
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from google_crc32c import value as crc32c

from tidegate.durable_files import FileDamaged, Files, read_checked, write_checked
from tidegate.log.errors import LogError
from tidegate.log.segment import SegmentName

_FILES = Files()
_logger = logging.getLogger(__name__)
FILE_NAME = "acknowledged"
_RECORD = Struct("<8sqqqqqq16s")
_MARK = b"TGACK\0\0\3"
_BYTES = _RECORD.size + 4
_ADVICE = (
    "restore it from a backup, or delete it: the end of the log is then determined from its entries, and events "
    "missing at either end go unnoticed"
)


class Acknowledged(NamedTuple):
    """Everything from the segment `begin` to before `end_position` was durable, in the log `log_id`."""

    end_position: int
    next_sequence_number: int
    last_offset: int
    last_enqueued_time_ms: int
    begin: SegmentName
    log_id: bytes


class AcknowledgedFile:
    """The file of one partition."""

    def __init__(self, directory: Path) -> None:
        """Open the file, creating it if it is missing; only to be read where it cannot be written. Raises OSError."""
        self._path = directory / FILE_NAME
        self._failed = self._is_read_only = False
        try:
            self._fd = _FILES.open(self._path)
        except OSError:
            if not self._path.exists():
                raise
            self._fd = _FILES.open_to_read(self._path)
            self._is_read_only = True

    def read(self) -> Acknowledged | None:
        """Return the last record written, None if there is none. Raises FileDamaged, LogError, OSError."""
        data = _FILES.read_at(self._fd, 0, _BYTES + 1)
        if not data:
            return None
        found = _decode(data)
        if found is not None:
            return found
        is_whole = crc32c(data[:-4]) == int.from_bytes(data[-4:], "little")
        if is_whole and data[: len(_MARK) - 1] == _MARK[:-1]:
            raise LogError(
                f"{self._path} was written by another version of Tidegate (its format is {data[len(_MARK) - 1]}, this "
                f"one reads {_MARK[-1]}): start the version that wrote it, or begin with an empty data directory"
            )
        raise FileDamaged(self._path, "its checksum differs from its content", _ADVICE)

    def write(self, acknowledged: Acknowledged) -> None:
        """Write without syncing. No durable event depends on it, so a failure is only logged, and only once."""
        try:
            self._write(acknowledged)
        except OSError as error:
            if not self._failed:
                _logger.warning("%s cannot be written: %s", self._path, error)
            self._failed = True
        else:
            self._failed = False

    def write_durably(self, acknowledged: Acknowledged) -> None:
        """Write and sync. Raises OSError."""
        self._write(acknowledged)
        _FILES.sync(self._fd)

    def _write(self, acknowledged: Acknowledged) -> None:
        if self._is_read_only:
            former, self._fd = self._fd, _FILES.open(self._path)
            self._is_read_only = False
            _FILES.close(former)
        record = _RECORD.pack(_MARK, *acknowledged[:4], *acknowledged.begin, acknowledged.log_id)
        _FILES.write_at(self._fd, 0, [record + crc32c(record).to_bytes(4, "little")])

    def close(self, *, durable: bool = True) -> None:
        """Sync the last record and close the file."""
        try:
            if durable:
                _FILES.sync(self._fd)
        except OSError as error:
            _logger.warning("%s cannot be synced: %s", self._path, error)
        finally:
            _FILES.close(self._fd)


def read_acknowledged(directory: Path) -> Acknowledged | None:
    """Return what the log in a directory has acknowledged, None if it is not recorded. For readers in other processes.

    Raises OSError.
    """
    try:
        data = (directory / FILE_NAME).read_bytes()
    except FileNotFoundError:
        return None
    return _decode(data)


def _decode(data: bytes) -> Acknowledged | None:
    """Return the record in `data`, None if it is not intact or not of this version."""
    if len(data) != _BYTES or data[: len(_MARK)] != _MARK or crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
        return None
    _, position, sequence_number, offset, time_ms, base_position, base_number, log_id = _RECORD.unpack_from(data)
    begin = SegmentName(base_position, base_number)
    return Acknowledged(position, sequence_number, offset, time_ms, begin, log_id)


class Floor:
    """The number before which events were deleted on request, whichever segments they are in.

    A segment goes once all of its events are below the floor or too old; until then nobody is given those below it.
    """

    def __init__(self, sequence_number: int, path: Path | None = None) -> None:
        """Begin at a number; without a path it is not kept."""
        self.sequence_number = sequence_number
        self._path = path
        self._rising = threading.Lock()

    @classmethod
    def read(cls, directory: Path, next_sequence_number: int | None = None) -> Floor:
        """Return what was kept in the folder of a log. Raises FileDamaged, OSError."""
        path = directory / "deleted.json"
        advice = "delete it, and events that were deleted on request may be read again until retention deletes them"
        found = (read_checked(path, advice=advice) or {}).get("before", 0)
        if type(found) is not int or found < 0:
            raise FileDamaged(path, f"before is {found!r}", advice)
        return cls(found if next_sequence_number is None else min(found, next_sequence_number), path)

    def above(self, sequence_number: int) -> int:
        """Return the number, or the floor if that is higher."""
        return max(sequence_number, self.sequence_number)

    def rise(self, sequence_number: int) -> None:
        """Raise the floor durably; a lower number changes nothing. Raises OSError."""
        with self._rising:
            if sequence_number > self.sequence_number:
                if self._path is not None:
                    write_checked(self._path, {"before": sequence_number})
                self.sequence_number = sequence_number
