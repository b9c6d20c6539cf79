"""Past ticks: those that no restart reads, kept for questions about rows that left long ago.

They are lines of a file that only grows: a checksum, and the input, partition, place and arrival of a tick. A line is
durable before the tick leaves the file of the present ones, so a crash may leave a tick in both, and never in neither.
What a crash left half written at the end is ignored, and overwritten by the next lines.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

from tidegate.connectors.model.errors import JobError, UnavailableError
from tidegate.durable_files import Files

PastTick = tuple[str, str, int, int]
"""An input in lower case, a partition, and a tick: its place and its arrival."""

_FILE = "ticks.past"
_CHECKSUM_DIGITS = 8
_logger = logging.getLogger(__name__)


class PastTicks:
    """The file in a state folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self._files = Files()
        self._size: int | None = None

    def read(self) -> list[PastTick]:
        """Return the ticks in the order in which they were added; one may be there twice.

        Raises:
            JobError: the file cannot be read.
        """
        return self._read()[0]

    def add(self, ticks: Iterable[PastTick]) -> None:
        """Append ticks, and return once they are durable.

        Raises:
            UnavailableError: the disk refuses; a later attempt may succeed.
        """
        lines = b"".join(map(_line, ticks))
        if not lines:
            return
        if self._size is None:
            self._size = self._read()[1]
        try:
            is_new = not self._path.exists()
            file = self._files.open(self._path)
            try:
                self._files.truncate(file, self._size)
                self._files.write_at(file, self._size, [lines])
                self._files.sync(file)
            finally:
                self._files.close(file)
            if is_new:
                self._files.sync_directory(self._path.parent)
        except OSError as error:
            raise UnavailableError(f"cannot write {self._path}: {error.strerror}") from error
        self._size += len(lines)

    def _read(self) -> tuple[list[PastTick], int]:
        """Return the ticks and the number of bytes that hold them."""
        try:
            content = self._path.read_bytes() if self._path.exists() else b""
        except OSError as error:
            raise JobError(f"cannot read {self._path}: {error.strerror}") from error
        ticks: list[PastTick] = []
        size = 0
        for line in content.splitlines(keepends=True):
            tick = _tick(line)
            if tick is None:
                lost = len(content) - size
                _logger.warning("%s: the last %d bytes are not whole and are ignored", self._path, lost)
                break
            ticks.append(tick)
            size += len(line)
        return ticks, size


def _line(tick: PastTick) -> bytes:
    text = json.dumps(tick).encode()
    return f"{crc32(text):0{_CHECKSUM_DIGITS}x} ".encode() + text + b"\n"


def _tick(line: bytes) -> PastTick | None:
    """Return the tick that a line holds; None if the line is not as it was written."""
    checksum, text = line[:_CHECKSUM_DIGITS], line[_CHECKSUM_DIGITS + 1 : -1]
    if not line.endswith(b"\n") or checksum != f"{crc32(text):0{_CHECKSUM_DIGITS}x}".encode():
        return None
    name, partition, place, arrival = json.loads(text)
    return name, partition, place, arrival
