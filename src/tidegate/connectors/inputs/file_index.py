"""The record of the files that are part of a log, in the state folder: each with its sequence numbers and arrivals.

The order of a log is fixed when files are taken in, because neither names nor modification times keep it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tidegate.blobs import Blob
from tidegate.connectors.model.errors import InputUnavailableError
from tidegate.connectors.model.state_file import DamagedStateError
from tidegate.durable_files import decode_checked, encode_checked


@dataclass(frozen=True, slots=True)
class TakenFile:
    """A file that is part of the log.

    Attributes:
        first: the sequence number of its first row. count: the number of its rows.
        floor: ticks; no row of it arrived earlier. last: the arrival of its last row.
    """

    blob: Blob
    partition: str
    first: int
    count: int
    floor: int
    last: int


class FileIndex:
    """The files that were taken in, a line each, in order."""

    def __init__(self, path: Path | None, *, live: bool) -> None:
        self._path = path
        self._live = live
        self._file: BinaryIO | None = None

    def read(self) -> Iterator[tuple[list[str], TakenFile | None]]:
        """Yield the partitions, then the files. A last line that a crash cut short is removed by the next write."""
        if self._path is None or not self._path.exists():
            return
        content = self._path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        lines = whole.splitlines()
        for number, line in enumerate(lines, start=1):
            try:
                entry: Mapping[str, Any] = decode_checked(line)
                if "partitions" in entry:
                    yield list(map(str, entry["partitions"])), None
                else:
                    yield [], TakenFile(**{**entry, "blob": Blob(**entry["blob"])})
            except (ValueError, TypeError, KeyError) as error:
                raise DamagedStateError(self._path, f"line {number}: {error}") from error
        if self._live and len(whole) < len(content):
            os.truncate(self._path, len(whole))

    def begin(self, partitions: list[str]) -> None:
        """Record the partitions that exist."""
        self._write([{"partitions": partitions}])

    def add(self, taken: list[TakenFile]) -> None:
        """Make files part of the log, durably. Raises InputError."""
        if taken:
            self._write([asdict(one) for one in taken])

    def _write(self, entries: list[dict[str, Any]]) -> None:
        if not self._live or self._path is None:
            return
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("ab")
            self._file.write(b"".join(encode_checked(entry) + b"\n" for entry in entries))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InputUnavailableError(f"cannot write {self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
