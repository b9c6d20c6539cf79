"""The rows of a DataFrame as a log in the checkpoint of a query, so that a restart reads the same events.

A DataFrame is computed anew whenever it is used, and Spark cuts a stream into batches whose rows have no order. A query
that runs needs events that never change. So rows are sorted, as `sql` would, and written once: executors write
*segments*, runs of a partition's events in Arrow, to files of names that no other attempt uses. What they have written
becomes part of the log when the driver replaces the *list* of a batch. Theory:

- A list names the segments of a batch; once it is there it is durable and never changes, and neither do its files.
  Files that no list names are of attempts that did not end, and are deleted when the log is opened.
- A DataFrame is one batch, after which the log is complete. A stream's batches have Spark's numbers. A batch that Spark
  repeats after a crash is left out if its list is there; if it is not, nobody has seen its rows.
- Spark notes the offsets of a batch before it runs, and its end after that. So the newest list is of the newest batch
  that has ended, or of the one after that. Anything else means that a part of the checkpoint was restored, and that
  events would be missing or repeated.
"""

from __future__ import annotations

import gc
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.connectors.model.errors import InputError, JobError
from tidegate.connectors.model.events import Events, PartitionEnd
from tidegate.connectors.model.state_file import DamagedStateError, read_state, write_state
from tidegate.durable_files import FileDamaged, Files, make_folders, read_checked, write_checked
from tidegate.ordering import END_OF_TIME
from tidegate.spark.queries.arrival_order import ArrivalOrder
from tidegate.spark.queries.frame_events import RowLayout, partitions_in
from tidegate.spark.queries.frame_runs import encoded, merged_runs
from tidegate.spark.queries.parcels import arrow_schema, rows_of_task
from tidegate.spark.streaming.step_source import StepPart

# PySpark collects garbage after every task; what is imported here is not garbage and need not be looked at each time.
gc.freeze()

SEGMENTS = "partition string, file string, offset bigint, length bigint, first bigint, end bigint, arrived bigint"
"""Rows that say what executors have written."""

ONLY_PARTITION = "0"
_ARROW = arrow_schema(SEGMENTS)
_SEGMENT_ROWS = 65_536
_LIST, _ROWS = ".list", ".rows"
_LOG_FILE = "log.json"
_VERSION = 1
_SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of a partition's events: an Arrow stream in a file of the log's folder.

    Attributes:
        first, end: the sequence number of its first event, and the one after that of its last.
        arrived: ticks; the latest arrival of an event in it.
    """

    partition: str
    file: str
    offset: int
    length: int
    first: int
    end: int
    arrived: int


# where rows are written and read
# ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SegmentsStage:
    """Writes the rows of a task, sorted by partition, as segments; the result says where they are.

    Attributes:
        layout: by which rows are sorted. kept: the one by which segments are read.
        batch: the number of the batch, with which the names of files begin.
        in_runs: whether rows come in runs (`frame_runs`) or one by one, sorted by Spark.
    """

    layout: RowLayout
    kept: RowLayout
    folder: str
    batch: int
    in_runs: bool

    @property
    def __name__(self) -> str:
        """The name that Spark's plans and UI show."""
        return f"log_of_{self.layout.input}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows_of_task(self._rows(batches))

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces = (
            merged_runs(batches, self.layout, _SEGMENT_ROWS) if self.in_runs else partitions_in(batches, _SEGMENT_ROWS)
        )
        first = next(pieces, None)
        if first is not None:
            found = self._written(first, pieces)
            columns = [pa.array([getattr(one, field.name) for one in found], field.type) for field in _ARROW]
            yield pa.RecordBatch.from_arrays(columns, schema=_ARROW)

    def _written(self, first: tuple[str, pa.Table], more: Iterator[tuple[str, pa.Table]]) -> list[Segment]:
        path = Path(self.folder) / f"{self.batch:012d}-{uuid.uuid4().hex}{_ROWS}"
        found: list[Segment] = []
        ends: dict[str, int] = {}
        orders: dict[str, ArrivalOrder] = {}
        try:
            with path.open("wb") as file:
                for partition, rows in chain((first,), more):
                    # Bodies are looked at when they are read.
                    events = self.kept.placed(partition, rows, ends.get(partition, 0))
                    if self.layout.ordered:
                        orders.setdefault(partition, ArrivalOrder(self.layout.input, partition)).check(events)
                    kept = rows.drop_columns("partition") if "partition" in rows.column_names else rows
                    content = encoded(kept, "zstd")
                    begin = file.tell()
                    file.write(content)
                    end = ends[partition] = int(events.sequence_numbers[-1]) + 1
                    arrived = int(events.arrivals.max())
                    place = int(events.sequence_numbers[0])
                    found.append(Segment(partition, path.name, begin, content.size, place, end, arrived))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"input '{self.layout.input}': cannot write {path}: {error.strerror}") from error
        return found


@dataclass(frozen=True, slots=True)
class SegmentsRange:
    """Events of a partition, in one or more segments; shipped to the task that reads them."""

    start: int
    end: int
    folder: str
    layout: RowLayout
    segments: tuple[Segment, ...]

    def read_events(self, batch_events: int) -> Iterator[Events]:
        for segment in self.segments:
            rows = _rows_of(self.folder, segment)
            placed = self.layout.placed(segment.partition, rows, segment.first)
            begin, stop = np.searchsorted(placed.sequence_numbers, [self.start, self.end]).tolist()
            for first in range(begin, stop, batch_events):
                count = min(batch_events, stop - first)
                yield self.layout.events(segment.partition, rows.slice(first, count), segment.first + first)


@lru_cache(maxsize=2)
def _rows_of(folder: str, segment: Segment) -> pa.Table:
    """Return the rows of a segment. The most recent ones are kept, as steps read a large one piece by piece.

    Raises:
        InputError: its file cannot be read.
    """
    path = Path(folder) / segment.file
    try:
        return StepPart(path, segment.offset, segment.length).read()
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"cannot read {path}: {error}; restore the checkpoint from a backup") from error


# the log
# ------------------------------------------------------------------------------------------------------


class FrameLog:
    """The log of one DataFrame, seen from the driver, whose process alone writes it.

    Attributes:
        newest: the number of its newest batch; None if it has none.
        is_complete: whether nothing will be added.
        failure: why nothing more is added, although the log is not complete; None if it may be.
    """

    def __init__(self, folder: Path, name: str, columns: str, layout: RowLayout, *, streaming: bool) -> None:
        """Open the log in a folder, or create it, and delete what belongs to no batch.

        Args:
            name: the input's, for messages.
            columns: those of the DataFrame and what they are for; a log belongs to one such text.
            layout: of the rows in segments.

        Raises:
            JobError: the log was written from a DataFrame with other columns, is damaged, or cannot be used.
        """
        self.folder = folder
        self.name = name
        self.newest: int | None = None
        self.is_complete = False
        self.failure: JobError | None = None
        self._layout = layout
        self._streaming = streaming
        self._partitions: dict[str, tuple[Segment, ...]] = {}
        try:
            make_folders(folder)
            self._id = self._begun(columns)
            for batch, path in self._lists():
                self._take(batch, path)
            named = {segment.file for segments in self._partitions.values() for segment in segments}
            for path in folder.glob(f"*{_ROWS}"):
                if path.name not in named:
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise JobError(f"input '{name}': cannot use {folder}: {error.strerror}") from error

    @property
    def of_spark(self) -> Path:
        """The checkpoint of the query of Spark that writes a stream's batches."""
        return self.folder / _SPARK

    def check_spark(self) -> None:
        """Check that the query of Spark is about to repeat the newest batch, or to take the one after it.

        Raises:
            JobError: its checkpoint and the log do not belong together.
        """
        begun, ended = (_newest_in(self.of_spark / name) for name in ("offsets", "commits"))
        newest = -1 if self.newest is None else self.newest
        if not (ended <= newest <= begun and newest - ended <= 1):
            raise JobError(
                f"input '{self.name}': {self.folder} has the batches up to {newest}, and {self.of_spark} has begun "
                f"{begun} and ended {ended}: a part of the checkpoint was restored or deleted, and events would be "
                "missing. Restore it as a whole, or choose another checkpointLocation"
            )

    def add(self, batch: int, segments: Iterable[Segment], *, complete: bool) -> None:
        """Make the segments of a batch part of the log, and return when they are.

        Args:
            complete: whether it is the only one.

        Raises:
            OSError: the folder cannot be written.
        """
        placed = sorted(segments, key=lambda one: (one.partition, one.first))
        if not complete:
            placed = list(self._continued(placed))
        # The names of files, which executors have written.
        Files().sync_directory(self.folder)
        content = {"version": _VERSION, "complete": complete, "segments": [[*asdict(one).values()] for one in placed]}
        write_checked(self.folder / f"{batch:012d}{_LIST}", content)
        self._add(batch, placed, complete=complete)

    def forget_before(self, arrival: int) -> None:
        """Delete the batches before the one that a restart reads first, but one: it shows that nothing is missing.

        Args:
            arrival: ticks; no restart reads events that arrived earlier.
        """
        lists = self._lists()
        segments = self._partitions.get(ONLY_PARTITION, ())
        kept = next((place for place, one in enumerate(segments) if one.arrived >= arrival), len(segments))
        if kept < 2:
            return
        oldest = int(segments[kept - 1].file[:12])
        self._partitions = {ONLY_PARTITION: tuple(one for one in segments if int(one.file[:12]) >= oldest)}
        for batch, path in lists:
            if batch < oldest:
                # Without its list, a file is deleted at the next start at the latest.
                path.unlink(missing_ok=True)
        for one in segments:
            if int(one.file[:12]) < oldest:
                (self.folder / one.file).unlink(missing_ok=True)

    def ends(self) -> dict[str, PartitionEnd]:
        if self.failure is not None:
            raise self.failure
        partitions = self._partitions
        if self._streaming and not partitions:
            return {ONLY_PARTITION: PartitionEnd(0, 0, None, log_id=self._id)}
        bound = END_OF_TIME if self.is_complete else None
        return {
            partition: PartitionEnd(self._begin(segments), segments[-1].end, bound, self.is_complete, self._id)
            for partition, segments in partitions.items()
        }

    def first_at(self, partition: str, arrival: int) -> int:
        segments = self._partitions.get(partition, ())
        for one in segments:
            if one.arrived >= arrival:
                placed = self._layout.placed(partition, _rows_of(str(self.folder), one), one.first)
                return int(placed.sequence_numbers[int((placed.arrivals >= arrival).argmax())])
        return segments[-1].end if segments else 0

    def range(self, partition: str, start: int, end: int) -> SegmentsRange:
        segments = tuple(one for one in self._partitions.get(partition, ()) if one.end > start and one.first < end)
        return SegmentsRange(start, end, str(self.folder), self._layout, segments)

    def close(self) -> None:
        """Do nothing: no resource is open."""

    def _begin(self, segments: Sequence[Segment]) -> int:
        # Positions need not begin with 0; nothing was removed before the first.
        return min(0, segments[0].first) if self.is_complete else segments[0].first

    def _begun(self, columns: str) -> str:
        """Return the identity of the log, which a new one gets."""
        path = self.folder / _LOG_FILE
        found: Mapping[str, Any] | None = read_state(path, _VERSION)
        if found is None:
            found = {"version": _VERSION, "id": uuid.uuid4().hex, "columns": columns}
            write_state(path, found)
        if found["columns"] != columns:
            raise JobError(
                f"input '{self.name}': the DataFrame has other columns than the one that the checkpoint has the rows "
                f"of: it had {found['columns']}, and has {columns}. Pass one with the same columns, or choose another "
                "checkpointLocation"
            )
        return str(found["id"])

    def _lists(self) -> list[tuple[int, Path]]:
        paths = (path for path in self.folder.glob(f"*{_LIST}") if path.stem.isdecimal())
        return sorted((int(path.stem), path) for path in paths)

    def _take(self, batch: int, path: Path) -> None:
        try:
            content = read_checked(path)
            assert content is not None
            segments = [Segment(*one) for one in content["segments"]]
            complete = bool(content["complete"])
        except (FileDamaged, TypeError, KeyError, json.JSONDecodeError) as error:
            raise DamagedStateError(path, str(error)) from error
        self._add(batch, segments, complete=complete)

    def _continued(self, segments: Sequence[Segment]) -> Iterator[Segment]:
        """Yield the segments of a batch, numbered after those before it."""
        ends = {partition: own[-1].end for partition, own in self._partitions.items()}
        for one in segments:
            begin = ends.get(one.partition, 0)
            ends[one.partition] = begin + one.end - one.first
            yield replace(one, first=begin, end=ends[one.partition])

    def _add(self, batch: int, segments: Iterable[Segment], *, complete: bool) -> None:
        partitions = dict(self._partitions)
        for one in segments:
            partitions[one.partition] = (*partitions.get(one.partition, ()), one)
        # Another thread reads them.
        self._partitions = partitions
        self.newest, self.is_complete = batch, complete


def _newest_in(folder: Path) -> int:
    """Return the number of the newest batch in a folder of Spark's; -1 if there is none."""
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    return max((int(name) for name in names if name.isdecimal()), default=-1)
