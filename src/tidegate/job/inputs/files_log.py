"""Files of a folder or an object store as a log: each row an event, in the order in which the files were taken in.

A log is numbered and in order for ever; files come and go, and a folder has no order but the times that it shows at
the moment. So the order is made once, when files are taken in (sorted by the time they were last modified, then by
name), and written down in the state folder: each file with its first sequence number and its arrival, which is that
time, or the arrival before it where that was later already. A file that is found afterwards comes after all that were
taken in, whatever its time.

Files of Capture have their own numbers, times and partitions; they come in the order of their numbers.
"""

from __future__ import annotations

import json
import logging
import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tidegate.blobs import Blob, BlobError, BlobSource, Place, open_source
from tidegate.engine import JSON, Format
from tidegate.job.config.input_definitions import FilesInput
from tidegate.job.inputs.file_range import Arrivals, FileRange, FileRows, captured_rows, file_rows, row_arrivals
from tidegate.job.model.errors import InputError
from tidegate.job.model.events import PartitionEnd
from tidegate.ordering import NO_TIME, TICKS_PER_SECOND, short_time

LOOK_EVERY_S = 1.0
_STORE_MAY_BE_AWAY_S = 600
_logger = logging.getLogger(__name__)
_FOLDER = "files"
_ONLY_PARTITION = "0"


@dataclass(frozen=True, slots=True)
class TakenFile:
    """A file that is part of the log.

    Attributes:
        first: the sequence number of its first row. count: how many rows it has.
        floor: ticks; no row of it arrived earlier. last: the arrival of its last row.
    """

    blob: Blob
    partition: str
    first: int
    count: int
    floor: int
    last: int


class FilesLog:
    """The files of one input, seen from the driver."""

    def __init__(
        self, definition: FilesInput, name: str = "", folder: Path | None = None, *, live: bool = False
    ) -> None:
        """
        Args:
            folder: the state folder, where it is known what was taken in before.
            live: whether what is taken in is written down there.

        Raises:
            InputError: the folder or store cannot be listed, or what is written down is damaged.
        """
        self._definition = definition
        self._name = name or definition.path
        self._pattern = definition.pattern()
        try:
            self._source: BlobSource = open_source(self._pattern.root)
        except BlobError as error:
            raise InputError(f"input '{self._name}': {error}") from error
        self._files: dict[str, list[TakenFile]] = {}
        self._known: dict[str, Blob] = {}
        self._index = _Index(folder / _FOLDER / f"{name.lower()}.jsonl" if folder is not None else None, live=live)
        for partitions, taken in self._index.read():
            for partition in partitions:
                self._files.setdefault(partition, [])
            if taken is not None:
                self._add(taken)
        self._looked_at_s = self._listed_at_s = float("-inf")
        self._complete = False
        self._look()

    # InputLog

    def ends(self) -> dict[str, PartitionEnd]:
        """See ``InputLog.ends``; takes in new files."""
        if self._definition.watch and time.monotonic() - self._looked_at_s >= LOOK_EVERY_S:
            self._look()
        if not self._files:  # nothing has been there yet to tell what partitions there are
            return {_ONLY_PARTITION: PartitionEnd(0, 0, None)}
        return {
            partition: PartitionEnd(
                files[0].first if files else 0,
                files[-1].first + files[-1].count if files else 0,
                None,
                complete=self._complete,
            )
            for partition, files in self._files.items()
        }

    def first_at(self, partition: str, arrival: int) -> int:
        """See ``InputLog.first_at``."""
        files = self._files[partition]
        place = bisect_left(files, arrival, key=lambda taken: taken.last)
        if place == len(files):
            return files[-1].first + files[-1].count if files else 0
        return files[place].first + self._rows_before(files[place], arrival)

    def range(self, partition: str, start: int, end: int) -> FileRange:
        """See ``InputLog.range``."""
        parts = []
        files = self._files[partition]
        for place in range(max(0, bisect_right(files, start, key=lambda taken: taken.first) - 1), len(files)):
            taken = files[place]
            first, stop = max(start, taken.first), min(end, taken.first + taken.count)
            if taken.first >= end:
                break
            if first < stop:
                parts.append(self._rows(taken, first, stop))
        return FileRange(start, end, tuple(parts), self._body_format())

    def close(self) -> None:
        """Close what is written to."""
        self._index.close()

    # reading

    def _rows(self, taken: TakenFile, first: int, stop: int) -> FileRows:
        arrivals = (taken.floor, self._definition.arrival_column)
        return FileRows(
            self._source, taken.blob, self._format(taken.blob), first, first - taken.first, stop - first, arrivals
        )

    def _rows_before(self, taken: TakenFile, arrival: int) -> int:
        """How many rows of a file arrived before a time."""
        if taken.floor >= arrival:
            return 0
        rows = self._rows(taken, taken.first, taken.first + taken.count)
        return sum(int((events.arrivals < arrival).sum()) for events in rows.read(1 << 20))

    def _format(self, blob: Blob) -> Format | None:
        return None if self._definition.format == "capture" else self._definition.file_format(blob.name)

    def _body_format(self) -> Format:
        one = self._definition
        return Format(one.body, one.delimiter, one.columns, one.encoding) if one.format == "capture" else JSON

    # taking in

    def _look(self) -> None:
        """Take in the files that are there and are not known."""
        self._looked_at_s = time.monotonic()
        try:
            found = self._pattern.find(self._source)
        except BlobError as error:
            if self._looked_at_s - self._listed_at_s < _STORE_MAY_BE_AWAY_S:
                _logger.warning("input '%s': %s; trying again", self._name, error)
                return
            raise InputError(f"input '{self._name}': {error}") from error
        self._listed_at_s = self._looked_at_s
        new: list[tuple[Blob, Place]] = []
        for blob, place in found:
            known = self._known.get(blob.name)
            if known is None:
                new.append((blob, place))
            elif known != blob and self._definition.changed_files == "stop":
                raise InputError(
                    f"input '{self._name}': {blob.name} has changed since it was taken in ({known.size:,} bytes of "
                    f"{short_time(known.modified)} then, {blob.size:,} of {short_time(blob.modified)} now), so its "
                    "events can neither be read again nor added to; put what is new into a file of its own, or set "
                    'changed_files = "ignore"'
                )
        new.sort(key=lambda item: (item[0].modified, item[0].name))
        settled = [item for item in new if self._has_settled(item[0])]
        if not self._files:
            partitions = sorted({self._partition(*item) for item in settled}) or self._declared()
            if self._definition.watch and not partitions:
                return
            self._begin(sorted({*partitions, *self._declared()}, key=int) or [_ONLY_PARTITION])
        taken = list(self._captured(settled) if self._definition.format == "capture" else self._in_order(settled))
        self._index.add(taken)
        if not self._definition.watch:
            self._complete = True

    def _has_settled(self, blob: Blob) -> bool:
        """Whether a file of a folder is old enough to be whole; objects of a store are there whole or not at all."""
        if not self._definition.watch or "://" in self._pattern.root:
            return True
        age = time.time_ns() // 100 - blob.modified
        return not 0 <= age < self._definition.settle_s * TICKS_PER_SECOND

    def _begin(self, partitions: list[str]) -> None:
        for partition in partitions:
            self._files[partition] = []
        self._index.begin(partitions)

    def _declared(self) -> list[str]:
        """The partitions that there are whether they have files or not."""
        if self._definition.partitions is not None:
            return [str(number) for number in range(self._definition.partitions)]
        named = self._pattern.has_partition or self._definition.format == "capture"
        return [] if named else [_ONLY_PARTITION]

    def _partition(self, blob: Blob, place: Place) -> str:
        if place.partition is not None:
            return str(int(place.partition))
        if self._definition.format != "capture":
            return _ONLY_PARTITION
        below = blob.name[len(self._pattern.prefix) :].strip("/") if self._pattern.prefix else blob.name
        first = below.partition("/")[0]
        if not (first.isascii() and first.isdigit()):
            raise InputError(
                f"input '{self._name}': {blob.name} does not say of which partition it is; name the folder that has a "
                "folder for each partition, or say where the partition stands in the names: …/{partition}/**/*.avro"
            )
        return str(int(first))

    def _of_partition(self, blob: Blob, place: Place) -> tuple[str, list[TakenFile]]:
        partition = self._partition(blob, place)
        if partition not in self._files:
            raise InputError(
                f"input '{self._name}': {blob.name} is of partition {partition}, which was not there when the job "
                f"began (it has {', '.join(self._files)}), and results that it belongs to have left; say how many "
                "there are with 'partitions', before the job begins"
            )
        return partition, self._files[partition]

    def _in_order(self, settled: Iterable[tuple[Blob, Place]]) -> Iterator[TakenFile]:
        for blob, place in settled:
            partition, before = self._of_partition(blob, place)
            form = self._definition.file_format(blob.name)
            rows = file_rows(self._source, blob, form)
            reached = before[-1].last if before else NO_TIME
            column = self._definition.arrival_column
            floor = reached if column is not None else max(reached, blob.modified)
            arrivals: Arrivals = (floor, column)
            last = floor
            if column is not None and len(rows):
                last = int(row_arrivals(rows, form, arrivals)[-1])
                if last == NO_TIME:
                    raise InputError(
                        f"input '{self._name}': no row of {blob.name} says in '{column}' when it arrived; "
                        "that is a time such as 2019-01-01T12:07:00.0000000Z"
                    )
            first = before[-1].first + before[-1].count if before else 0
            taken = TakenFile(blob, partition, first, len(rows), floor, last)
            self._add(taken)
            yield taken

    def _captured(self, settled: Iterable[tuple[Blob, Place]]) -> Iterator[TakenFile]:
        """Files of Capture by their own numbers, which must go on without a gap."""
        found = []
        for blob, place in settled:
            partition, _ = self._of_partition(blob, place)
            captured = captured_rows(self._source, blob)
            numbers, arrivals = captured.sequence_numbers, captured.arrivals
            if not len(numbers):
                found.append(TakenFile(blob, partition, -1, 0, NO_TIME, NO_TIME))
                continue
            span = (int(numbers[0]), len(numbers), int(arrivals[0]), int(arrivals[-1]))
            found.append(TakenFile(blob, partition, *span))
        for one in sorted(found, key=lambda one: (int(one.partition), one.first)):
            before = self._files[one.partition]
            end = before[-1].first + before[-1].count if before else one.first
            if not one.count:
                one = TakenFile(one.blob, one.partition, max(end, 0), 0, one.floor, one.last)
            elif one.first != end:
                what = "are in no file" if one.first > end else "are in two files"
                low, high = sorted((one.first, end))
                raise InputError(
                    f"input '{self._name}': events {low} to {high - 1} of partition {one.partition} {what} "
                    f"(before {one.blob.name}); a log has every event once"
                )
            self._add(one)
            yield one

    def _add(self, taken: TakenFile) -> None:
        if taken.count:
            self._files.setdefault(taken.partition, []).append(taken)
        self._known[taken.blob.name] = taken.blob


class _Index:
    """What was taken in, a line each, in the order in which it was."""

    def __init__(self, path: Path | None, *, live: bool) -> None:
        self._path = path
        self._live = live
        self._file: BinaryIO | None = None

    def read(self) -> Iterator[tuple[list[str], TakenFile | None]]:
        """The partitions, then the files. What a crash left of a last line is cut off when more is written."""
        if self._path is None or not self._path.exists():
            return
        content = self._path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                entry: Mapping[str, Any] = json.loads(line)
                if "partitions" in entry:
                    yield list(map(str, entry["partitions"])), None
                else:
                    yield [], TakenFile(**{**entry, "blob": Blob(**entry["blob"])})
            except (ValueError, TypeError, KeyError) as error:
                raise InputError(
                    f"{self._path}, line {number}, is damaged ({error}); move the state folder away to start afresh"
                ) from error
        if self._live and len(whole) < len(content):
            os.truncate(self._path, len(whole))

    def begin(self, partitions: list[str]) -> None:
        """The partitions there are."""
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
            self._file.write(b"".join(json.dumps(entry).encode() + b"\n" for entry in entries))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InputError(f"cannot write {self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
