"""How far a partition's events were acknowledged, beside its segments.

Bytes at the end of the last segment that do not check may be a write that a crash cut off, or damage to events that
somebody was promised. What follows them tells (see `entry`); behind the last group nothing does. So the end of what is
acknowledged stands in a file of its own, written after every group's sync and before its first acknowledgement, and
synced when the log is closed. It never names more than is durable. After a clean end and after the death of the process
it names all of it; after a power failure it may be older by as long as the system keeps written pages back (half a
minute or so), and what lies between is told apart as without it.

    position  size  field
           0     8  mark, the bytes "TGACK" 0 0 1
           8     8  position behind the last entry
          16     8  sequence number of the next event
          24     8  offset of the last event, -1 if there never was one
          32     8  enqueued time of the last event, ms
          40     4  CRC-32C of all before this field
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from google_crc32c import value as crc32c

from tidegate.durable_files import Files

_FILES = Files()
_logger = logging.getLogger(__name__)
FILE_NAME = "acknowledged"
_RECORD = Struct("<8sqqqq")
_MARK = b"TGACK\0\0\1"
_BYTES = _RECORD.size + 4


class Acknowledged(NamedTuple):
    """Everything before `end_position` was durable."""

    end_position: int
    next_sequence_number: int
    last_offset: int
    last_enqueued_time_ms: int


class AcknowledgedFile:
    """The file of one partition."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError."""
        self._path = directory / FILE_NAME
        self._fd = _FILES.open(self._path)
        self._failed = False

    def read(self) -> Acknowledged | None:
        """What was written last; None if there is nothing that checks. Raises OSError."""
        data = _FILES.read_at(self._fd, 0, _BYTES)
        if len(data) < _BYTES or crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
            if data:
                _logger.warning("%s is damaged: the end of the log is told from its entries alone", self._path)
            return None
        mark, *fields = _RECORD.unpack_from(data)
        return Acknowledged(*fields) if mark == _MARK else None

    def write(self, acknowledged: Acknowledged) -> None:
        """Nothing that is durable depends on it: if it cannot be written that is said once, and the log goes on."""
        record = _RECORD.pack(_MARK, *acknowledged)
        try:
            _FILES.write_at(self._fd, 0, [record + crc32c(record).to_bytes(4, "little")])
        except OSError as error:
            if not self._failed:
                _logger.warning("%s cannot be written: %s", self._path, error)
            self._failed = True
        else:
            self._failed = False

    def close(self, *, durable: bool = True) -> None:
        """Sync what was written last, and give the file up."""
        try:
            if durable:
                os.fsync(self._fd)
        except OSError as error:
            _logger.warning("%s cannot be synced: %s", self._path, error)
        finally:
            os.close(self._fd)
