"""Files of a folder or an object store as a log: each row an event, in the order in which the files were taken in.

The sequence numbers and order of a log never change. Files come and go, and a folder has no order except by
modification times, which change. So the order is fixed when files are taken in (sorted by modification time, then by
name) and recorded in the state folder: each file with its first sequence number and its arrival. The arrival is the
modification time, or the arrival before it if that is later. A file that is found afterwards comes after all files that
were taken in, whatever its time.

Files written by Capture have their own numbers, times and partitions, and are read in the order of their numbers.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from tidegate.blobs import Blob, BlobError, BlobSource, PathMatch, open_source
from tidegate.connectors.inputs.file_index import FileIndex, TakenFile
from tidegate.connectors.inputs.file_rows import Arrivals, FileRange, FileRows, captured_rows, file_rows, placed_rows
from tidegate.connectors.inputs.file_settings import FileSettings, has_settled
from tidegate.connectors.inputs.kinds import (
    INPUTS,
    ArrivalEstimate,
    EstimateArrival,
    FormatName,
    IdleAfter,
    LogOpening,
    StreamInput,
)
from tidegate.connectors.model.errors import InputError, InputUnavailableError
from tidegate.connectors.model.events import InputLog, PartitionEnd
from tidegate.connectors.model.section import Public, SecretUrl
from tidegate.engine import FORMATS, JSON, Format
from tidegate.ordering import NO_TIME, short_time

LOOK_EVERY_S = 1.0
_STORE_UNAVAILABLE_S = 600
_logger = logging.getLogger(__name__)
_MOST_MISPLACED = 0.1
_FOLDER = "files"
CAPTURE = "capture"
_ONLY_PARTITION = "0"


@INPUTS.register
class FilesInput(FileSettings, StreamInput):
    """Files of a folder or an object store. Each row is an event that arrived when its file was last modified; files
    are read in the order of that time, then of their names."""

    other_words: ClassVar[Mapping[str, str]] = {
        **{name: f'to read {name} files: type = "files", format = "{name}"' for name in FORMATS.names()},
        "capture": 'to read the files that Capture writes: type = "files", format = "capture"',
        **dict.fromkeys(("blob", "blobs", "blobstorage", "adls", "s3", "gs", "folder"), 'write type = "files"'),
    }

    type: Literal["files"]
    path: SecretUrl = Field(
        description="a file, a folder, or a pattern with `*`, `**`, `?`, `{date}`, `{time}` and `{partition}`; "
        "relative to the job file, or `az://CONTAINER/…`, `s3://…`, `gs://…`"
    )
    format: Annotated[Public, FormatName(others=("capture",))] = Field(
        default="json", description="the format of a file; capture: the files that an event hub's Capture writes"
    )
    body: Annotated[Public, FormatName(in_events=True)] = Field(
        default="json", description="the format of the bodies in files of Capture"
    )
    source: Literal["eventhub", "iothub"] = Field(
        default="eventhub",
        description="of which kind of input files of Capture hold the events: SELECT * then includes the columns of "
        "such an input, and a message of an IoT hub arrived when the IoT hub accepted it",
    )
    partitions: int | None = Field(
        default=None,
        ge=1,
        le=2048,
        description="how many there are, where names or files of Capture say which partition an event is from; "
        "default: those that have files when the job starts",
    )
    arrival_column: Public | None = Field(
        default=None, description="a column that says when a row arrived, instead of the time of its file"
    )
    watch: bool = Field(
        default=True,
        description="read files that appear while the job runs; false: the files present at the start are all",
    )
    settle_s: float = Field(
        default=2, ge=0, description="how old a file in a folder must be before it is considered complete"
    )
    changed_files: Literal["stop", "ignore"] = Field(
        default="stop", description="when a file that has been read changes: end the job, or ignore the change"
    )
    estimate_arrival: EstimateArrival = True
    idle_after_s: IdleAfter = 1

    @model_validator(mode="after")
    def _capture_has_its_own_times(self) -> FilesInput:
        if self.format == CAPTURE and self.arrival_column is not None:
            raise ValueError("files of Capture have arrival times of their own; remove arrival_column")
        if self.format != CAPTURE and self.source != "eventhub":
            raise ValueError('source is of files of Capture; remove it, or set format = "capture"')
        return self

    def open_log(self, opening: LogOpening) -> InputLog:
        return FilesLog(self, opening)

    def arrival_estimate(self) -> ArrivalEstimate | None:
        """None if arrivals are not modification times: those follow no clock."""
        if not self.estimate_arrival or self.format == CAPTURE or self.arrival_column is not None:
            return None
        return ArrivalEstimate(self.idle_after_s, seen_within_s=LOOK_EVERY_S)


class FilesLog:
    """The files of one input, seen from the driver."""

    def __init__(self, definition: FilesInput, opening: LogOpening) -> None:
        """
        Raises:
            InputError: the folder or store cannot be listed, or the record of files read earlier is damaged.
        """
        name, folder = opening.name, opening.state_folder
        self._definition = definition
        self._limits = opening.limits
        self._name = name or definition.path
        self._pattern = definition.pattern()
        try:
            self._source: BlobSource = open_source(self._pattern.root, definition.storage_environment)
        except BlobError as error:
            raise InputError(f"input '{self._name}': {error}") from error
        self._files: dict[str, list[TakenFile]] = {}
        self._known: dict[str, Blob] = {}
        self._rows_seen = self._misplaced = 0
        self._said_order = False
        index = None if folder is None else folder / _FOLDER / f"{name.lower()}.jsonl"
        self._index = FileIndex(index, live=opening.live)
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
        """Takes in new files."""
        if self._definition.watch and time.monotonic() - self._looked_at_s >= LOOK_EVERY_S:
            self._look()
        if not self._files:  # no file has been found, so the partitions are unknown
            return {_ONLY_PARTITION: PartitionEnd(0, 0, None)}
        return {
            partition: PartitionEnd(
                files[0].first if files else 0,
                files[-1].first + files[-1].count if files else 0,
                None,
                complete=self._complete,
                log_id=f"files of {self._pattern.root}",
            )
            for partition, files in self._files.items()
        }

    def first_at(self, partition: str, arrival: int) -> int:
        files = self._files[partition]
        place = bisect_left(files, arrival, key=lambda taken: taken.last)
        if place == len(files):
            return files[-1].first + files[-1].count if files else 0
        return files[place].first + self._rows_before(files[place], arrival)

    def range(self, partition: str, start: int, end: int) -> FileRange:
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
        """Close the record of files."""
        self._index.close()

    # reading

    def _rows(self, taken: TakenFile, first: int, stop: int) -> FileRows:
        arrivals = (taken.floor, self._definition.arrival_column)
        return FileRows(
            self._source,
            taken.blob,
            self._format(taken.blob),
            first,
            first - taken.first,
            stop - first,
            arrivals,
            self._definition.source == "iothub",
        )

    def _rows_before(self, taken: TakenFile, arrival: int) -> int:
        """Return how many rows of a file arrived before a time."""
        if taken.floor >= arrival:
            return 0
        # A place in the log is found by when the hub enqueued its events, whenever their devices sent them.
        rows = replace(self._rows(taken, taken.first, taken.first + taken.count), of_devices=False)
        return sum(int((events.arrivals < arrival).sum()) for events in rows.read_events(1 << 20))

    def _format(self, blob: Blob) -> Format | None:
        return None if self._definition.format == CAPTURE else self._definition.file_format(blob.name, self._limits)

    def _body_format(self) -> Format:
        one = self._definition
        if one.format != CAPTURE:
            return JSON
        return Format(one.body, one.delimiter, one.columns, one.encoding, limits=self._limits)

    # taking in

    def _look(self) -> None:
        """Take in the files that are present and not yet known."""
        self._looked_at_s = time.monotonic()
        try:
            found = self._pattern.find(self._source)
        except BlobError as error:
            if self._looked_at_s - self._listed_at_s < _STORE_UNAVAILABLE_S:
                _logger.warning("input '%s': %s; trying again", self._name, error)
                return
            self._looked_at_s = float("-inf")
            raise InputUnavailableError(str(error)) from error
        self._listed_at_s = self._looked_at_s
        new: list[tuple[Blob, PathMatch]] = []
        for blob, place in found:
            known = self._known.get(blob.name)
            if known is None:
                new.append((blob, place))
            elif known != blob and self._definition.changed_files == "stop":
                raise InputError(
                    f"input '{self._name}': {blob.name} has changed since it was taken in ({known.size:,} bytes of "
                    f"{short_time(known.modified)} then, {blob.size:,} of {short_time(blob.modified)} now), so its "
                    "events can neither be read again nor added to; write new events to a new file, or set "
                    'changed_files = "ignore"'
                )
        new.sort(key=lambda item: (item[0].modified, item[0].name))
        settled = [item for item in new if self._has_settled(item[0])]
        if not self._files:
            partitions = sorted({self._partition(*item) for item in settled}) or self._declared()
            if self._definition.watch and not partitions:
                return
            self._begin(sorted({*partitions, *self._declared()}, key=int) or [_ONLY_PARTITION])
        taken = list(self._captured(settled) if self._definition.format == CAPTURE else self._in_order(settled))
        self._index.add(taken)
        if not self._definition.watch:
            self._complete = True
            if not found and not self._known:
                _logger.warning(
                    "input '%s': there is nothing to read: %s has no file that fits '%s', and with watch = false later "
                    "ones are not read; correct path",
                    self._name,
                    self._pattern.root,
                    self._definition.path,
                )

    def _has_settled(self, blob: Blob) -> bool:
        """Return whether a file is complete; without `watch`, all of them are."""
        definition = self._definition
        return not definition.watch or has_settled(self._pattern.root, blob, definition.settle_s)

    def _begin(self, partitions: list[str]) -> None:
        for partition in partitions:
            self._files[partition] = []
        self._index.begin(partitions)

    def _declared(self) -> list[str]:
        """Return the partitions that exist whether or not they have files."""
        if self._definition.partitions is not None:
            return [str(number) for number in range(self._definition.partitions)]
        named = self._pattern.has_partition or self._definition.format == CAPTURE
        return [] if named else [_ONLY_PARTITION]

    def _partition(self, blob: Blob, place: PathMatch) -> str:
        if place.partition is not None:
            return str(int(place.partition))
        if self._definition.format != CAPTURE:
            return _ONLY_PARTITION
        below = blob.name[len(self._pattern.prefix) :].strip("/") if self._pattern.prefix else blob.name
        first = below.partition("/")[0]
        if not (first.isascii() and first.isdigit()):
            raise InputError(
                f"input '{self._name}': {blob.name} does not say which partition it belongs to; name the folder that "
                "has a folder for each partition, or show where the names have the partition: …/{partition}/**/*.avro"
            )
        return str(int(first))

    def _of_partition(self, blob: Blob, place: PathMatch) -> tuple[str, list[TakenFile]]:
        partition = self._partition(blob, place)
        if partition not in self._files:
            raise InputError(
                f"input '{self._name}': {blob.name} is of partition {partition}, which did not exist when the job "
                f"began (it has {', '.join(self._files)}), and results that it would change have been emitted; set the "
                "number of partitions with 'partitions' before the job begins"
            )
        return partition, self._files[partition]

    def _in_order(self, settled: Iterable[tuple[Blob, PathMatch]]) -> Iterator[TakenFile]:
        for blob, place in settled:
            partition, before = self._of_partition(blob, place)
            form = self._definition.file_format(blob.name, self._limits)
            rows = file_rows(self._source, blob, form)
            reached = before[-1].last if before else NO_TIME
            column = self._definition.arrival_column
            floor = reached if column is not None else max(reached, blob.modified)
            arrivals: Arrivals = (floor, column)
            last = floor
            if column is not None and len(rows):
                times, misplaced = placed_rows(rows, form, arrivals)
                last = int(times[-1])
                if last == NO_TIME:
                    raise InputError(
                        f"input '{self._name}': no row of {blob.name} says in '{column}' when it arrived; "
                        "that is a time such as 2019-01-01T12:07:00.0000000Z"
                    )
                self._note_order(blob, len(rows), misplaced)
            first = before[-1].first + before[-1].count if before else 0
            taken = TakenFile(blob, partition, first, len(rows), floor, last)
            self._add(taken)
            yield taken

    def _note_order(self, blob: Blob, rows: int, misplaced: int) -> None:
        """Warn once if files are read in another order than that in which their rows say they arrived."""
        self._rows_seen += rows
        self._misplaced += misplaced
        if self._said_order or self._misplaced <= _MOST_MISPLACED * self._rows_seen:
            return
        self._said_order = True
        _logger.warning(
            "input '%s': up to %s, %s of %s rows arrived before the row before them, by their column '%s', and are "
            "taken to have arrived with it. Files are read in the order of their modification; write them in the order "
            "of arrival, or leave out arrival_column",
            self._name,
            blob.name,
            f"{self._misplaced:,}",
            f"{self._rows_seen:,}",
            self._definition.arrival_column,
        )

    def _captured(self, settled: Iterable[tuple[Blob, PathMatch]]) -> Iterator[TakenFile]:
        """Yield files of Capture in the order of their own numbers, which must have no gaps."""
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
                    f"(before {one.blob.name}); a log must have every event once"
                )
            self._add(one)
            yield one

    def _add(self, taken: TakenFile) -> None:
        if taken.count:
            self._files.setdefault(taken.partition, []).append(taken)
        self._known[taken.blob.name] = taken.blob
