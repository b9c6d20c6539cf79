"""From the events of timelines to parcels for shards: what tasks do for a query over history.

A timeline is read to its end by one task, which stamps and evaluates some of its events at a time and sends every shard
a *parcel*: the shard's share of the partial results, and how far the timeline has come. So no task holds a timeline,
and no shard has to.

Spark delivers the parcels of all timelines to a shard sorted by *key*: the arrival of a parcel's first event. Before
them is a *header* from each timeline, so a shard knows from the start for which timelines it has to wait. As a task
looks one batch ahead, a parcel advances its timeline to the arrival of the next event, and not only to its own last.
"""

from __future__ import annotations

import io
import pickle
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.events import Events, HeldRange, PartitionEnd
from tidegate.connectors.model.metrics import INPUT_EVENTS, DataError
from tidegate.engine import Program
from tidegate.job.runtime.batch import RangeResult, RangeTask, Task
from tidegate.job.runtime.emission import OPEN_END, AnyCarry, Reached, Timeline, reached
from tidegate.job.runtime.shards import ShardInput, deliveries_of_task
from tidegate.job.runtime.task import run_task
from tidegate.ordering import DATA_ERRORS, INVALID_TIMESTAMP, NO_TIME, Policy
from tidegate.spark.queries.data_error_shares import TimelineErrors, place_of
from tidegate.spark.queries.plain_errors import plain_errors
from tidegate.spark.queries.shared_query import QueryOnShards

PARCELS = "shard int, key bigint, sender string, number bigint, piece int, blob binary"
"""Rows of parcels; one is sorted by shard, key, sender, number and piece."""

ORDER = ("shard", "key", "sender", "number", "piece")

_ARROW_TYPES = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
}
_SIZE = struct.Struct("<q")
_CODEC = "lz4"
_PIECE_BYTES = 32_768
"""Spark hands rows to Python 10,000 at a time, however large they are, so no row is large."""

_NO_READABLE_TIME = DATA_ERRORS[INVALID_TIMESTAMP]
_FEWEST_WITHOUT_TIME = 100

# Texts are alike if there are few distinct ones among the first.
_FEWEST_TEXTS, _MOST_DISTINCT = 1024, 256

HEADER = -1
"""The number of a header."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """What a shard is sent at a time.

    Attributes:
        sender: a timeline or a shard, as a text that orders senders.
        number: the parcels of a sender count from 0; `HEADER` before them.
        content: a `ShardInput`; of a header, how far timelines have come before their first events.
    """

    shard: int
    key: int
    sender: str
    number: int
    content: ShardInput | dict[Timeline, Reached]


def rows_of(parcels: Iterable[Parcel]) -> Iterator[pa.RecordBatch]:
    """Yield parcels as rows, a large one in pieces."""
    for parcel in parcels:
        place = parcel.shard, parcel.key, parcel.sender, parcel.number
        yield in_pieces(place, _packed(parcel.content), _ARROW)


class _Pickler(pickle.Pickler):
    """Pickles texts of which many are alike as a dictionary: all that a parcel holds passes through Java."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not pa.LargeStringArray or len(value) < _FEWEST_TEXTS:
            return NotImplemented
        if len(value[:_FEWEST_TEXTS].unique()) > _MOST_DISTINCT:
            return NotImplemented
        encoded = value.dictionary_encode()
        if 4 * len(encoded.dictionary) > len(value):
            return NotImplemented
        kind = pa.uint16() if len(encoded.dictionary) < 2**16 else pa.int32()
        return _texts, (encoded.indices.cast(kind), encoded.dictionary)


def _texts(indices: pa.Array, distinct: pa.LargeStringArray) -> pa.LargeStringArray:
    return distinct.take(indices)


def _packed(content: ShardInput | dict[Timeline, Reached]) -> memoryview:
    """Pickle what a parcel holds, and compress it to about a third, which is faster than to move it through Java."""
    stream = io.BytesIO()
    _Pickler(stream, protocol=5).dump(content)
    pickled = stream.getbuffer()
    return memoryview(_SIZE.pack(len(pickled)) + pa.compress(pickled, _CODEC, asbytes=True))


def _unpacked(blob: bytes) -> ShardInput | dict[Timeline, Reached]:
    (size,) = _SIZE.unpack_from(blob)
    content: ShardInput | dict[Timeline, Reached] = pickle.loads(
        pa.decompress(pa.py_buffer(blob)[_SIZE.size :], size, _CODEC)
    )
    return content


def parcels_in(batches: Iterable[pa.RecordBatch]) -> Iterator[Parcel]:
    """Yield the parcels in sorted rows."""
    for (shard, key, sender, number), blob in put_together(batches):
        yield Parcel(shard, key, sender, number, _unpacked(blob))


def arrow_schema(columns: str) -> pa.Schema:
    """Return columns as Arrow has them, given as Spark has them."""
    return pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in map(str.split, columns.split(","))])


def in_pieces(place: tuple[Any, ...], blob: memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """Return a blob as rows of which none is large: its place, the number of the piece, and the piece."""
    pieces = [blob[first : first + _PIECE_BYTES] for first in range(0, len(blob), _PIECE_BYTES)]
    columns = [*([value] * len(pieces) for value in place), range(len(pieces)), pieces]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def put_together(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[tuple[Any, ...], bytes]]:
    """Yield the blobs in sorted rows of pieces, each after its place."""
    rows = (row for batch in batches for row in zip(*(one.to_pylist() for one in batch.columns), strict=True))
    for place, pieces in groupby(rows, key=lambda row: row[:-2]):
        yield place, b"".join(row[-1] for row in pieces)


_ARROW = arrow_schema(PARCELS)


def rows_of_task(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a task makes; an error that its message explains loses the traceback, which Spark prints."""
    if TaskContext.get() is not None and pa.default_memory_pool().backend_name != "system":
        # What Arrow's own allocator returns between batches, the kernel clears anew: a fifth of the time of a task.
        pa.set_memory_pool(pa.system_memory_pool())
    with plain_errors():
        yield from rows


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a task begins to read a timeline whose earlier events others have.

    Attributes:
        carry: the carry before the first event.
        key: of the first parcel: the latest arrival before.
        number: of the first parcel, larger than those of earlier events.
    """

    carry: AnyCarry
    key: int
    number: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Events of a timeline that are evaluated together.

    Attributes:
        held: by partition, its events in order; one partition, unless several are merged into the timeline.
        reached: by partition, ticks: the latest arrival that counts for its first event. Only of merged partitions.
        first, last: ticks; the earliest arrival, and the latest.
        end: where the timeline is after them.
    """

    held: Mapping[str, list[Events]]
    first: int
    last: int
    end: PartitionEnd
    reached: Mapping[str, int] = field(default_factory=dict)


Runs = TypeVar("Runs")
"""Some events of a timeline that follow each other."""


class HistoryRun(ABC, Generic[Runs]):
    """A timeline that is read from its beginning, or from where a start time requires, to its end; or a part of it."""

    def __init__(self, query: QueryOnShards, timeline: Timeline, beginning: Beginning | None = None) -> None:
        self._query = query
        self._timeline = timeline
        self._sender = f"{timeline[0]}/{timeline[1]}"
        self._program: Program = query.program.value()
        self._is_whole = self._is_first = beginning is None
        self._begun = not self._is_first
        self._carry: AnyCarry = self._program.new_carry(timeline[0])
        self._number, self._key = 0, NO_TIME
        if beginning is not None:
            self._carry, self._key, self._number = beginning.carry, beginning.key, beginning.number
        shares = query.data_errors
        self._data_errors = TimelineErrors(timeline, shares) if shares.counts else None

    @property
    def policy(self) -> Policy:
        """By which the timeline is stamped."""
        return self._query.policy

    def parcels(self, runs: Iterable[Runs], end: PartitionEnd) -> Iterator[Parcel]:
        """Yield the parcels of the timeline.

        Args:
            runs: its events in order, each run short enough to be evaluated as a whole.
            end: the end of the log, by which its last parcel tells how far the timeline has come.

        Raises:
            InputError: the events cannot be read.
        """
        for events in runs:
            yield from self.take(events)
        yield from self.finish(end)

    def take(self, events: Runs, most_events: int | None = None) -> Iterator[Parcel]:
        """Take the next events, and yield the parcel of earlier ones once there are enough.

        Args:
            most_events: how many to hold, if not as many as the query says.
        """
        piece = self._piece_before(events, most_events or self._query.parcel_events)
        if piece is not None:
            yield from self._of_piece(piece)

    def finish(self, end: PartitionEnd) -> Iterator[Parcel]:
        """Yield the last parcel.

        Args:
            end: the end of the log; of a part, its ``end`` is not used.

        Raises:
            InputError: the events cannot be read, or too many of them cannot be used as they are.
        """
        piece = self._last_piece(end)
        if piece is not None:
            yield from self._of_piece(piece)
        elif not self._begun:
            yield from self._without_events(end)
        if self._data_errors is not None:
            self._data_errors.check(are_all=self._is_whole and end.complete)

    def data_errors(self, runs: Iterable[Runs], end: PartitionEnd) -> Iterator[tuple[list[Events], list[DataError]]]:
        """Yield the events, some of a partition at a time, each with every data error among them; see `parcels`."""
        for piece in self._pieces(runs, end):
            if not self._begun:
                self._begun = True
                self._carry = self._carry.advance(piece.first)
            results = self._results(piece, report=True, most_samples=sys.maxsize)
            for held, result in zip(piece.held.values(), results, strict=True):
                yield held, result.data_errors

    def _pieces(self, runs: Iterable[Runs], end: PartitionEnd) -> Iterator[Piece]:
        for events in runs:
            piece = self._piece_before(events, self._query.parcel_events)
            if piece is not None:
                yield piece
        piece = self._last_piece(end)
        if piece is not None:
            yield piece

    @abstractmethod
    def _piece_before(self, events: Runs, most_events: int) -> Piece | None:
        """Hold events; return what was held before if it would be too much together."""

    @abstractmethod
    def _last_piece(self, end: PartitionEnd) -> Piece | None:
        """Return what is held; None if nothing is."""

    @abstractmethod
    def _results(self, piece: Piece, *, report: bool, most_samples: int) -> list[RangeResult]:
        """Evaluate events, and return the result of each partition.

        Args:
            report: find data errors, which otherwise none are, with so many samples of each.
        """

    def _reached(self, end: PartitionEnd) -> Reached:
        """Return how far the timeline has come at an end, which becomes part of its carry."""
        self._carry, found = reached(self._carry, end.end, end, self._timeline[0], self._program, self._query.policy)
        return found

    def _of_piece(self, piece: Piece) -> Iterator[Parcel]:
        if not self._begun:
            self._begun = True
            yield from self._header(piece.first)
        yield from self._of_events(piece)

    def _check_times(self, results: Sequence[RangeResult]) -> None:
        """Check that some of the first events have a time.

        Raises:
            InputError: none has, so the query says TIMESTAMP BY something that is no time.
        """
        without = sum(result.data_error_counts.get(_NO_READABLE_TIME, 0) for result in results)
        if without < _FEWEST_WITHOUT_TIME or any(result.counts.get(INPUT_EVENTS, 0) for result in results):
            return
        errors = (one for result in results for one in result.data_errors)
        sample = next((one for one in errors if one.kind == _NO_READABLE_TIME), None)
        example = "" if sample is None else f", such as {sample.example}"
        raise InputError(
            f"{place_of(self._timeline)}: none of the first {without:,} events has a time that TIMESTAMP BY can "
            f"read{example}; a time is a datetime, or a text such as '2026-01-31T12:00:00Z'. Name another column, or "
            "CAST the text to datetime"
        )

    def _header(self, first_arrival: int) -> Iterator[Parcel]:
        """Yield what every shard needs before the first event; no event of the timeline arrives before it."""
        self._carry = self._carry.advance(first_arrival)
        name, _ = self._timeline
        _, before = reached(self._carry, 0, OPEN_END, name, self._program, self._query.policy)
        self._key = first_arrival
        for shard in range(self._query.sharding.shards):
            yield Parcel(shard, NO_TIME, self._sender, HEADER, {self._timeline: before})

    def _without_events(self, end: PartitionEnd) -> Iterator[Parcel]:
        there = self._reached(end)
        for shard in range(self._query.sharding.shards):
            yield Parcel(shard, NO_TIME, self._sender, HEADER, {self._timeline: there})

    def _of_events(self, piece: Piece) -> Iterator[Parcel]:
        counts = self._data_errors is not None
        results = self._results(piece, report=self._is_first or counts, most_samples=1)
        if self._data_errors is not None:
            for result in results:
                self._data_errors.add(result)
        if self._is_first:
            self._is_first = False
            self._check_times(results)
        _, deliveries = deliveries_of_task(0, results, self._program, self._query.sharding)
        key, number = self._key, self._number
        self._key = max(key, piece.last)
        self._number += 1
        for shard, delivery in enumerate(deliveries):
            yield Parcel(shard, key, self._sender, number, delivery)


Found = Callable[[HistoryRun[Any], Iterable[Any], PartitionEnd], Iterator[pa.RecordBatch]]
"""Returns what is wanted of the events of a run, as rows."""


class TimelineRun(HistoryRun[Events]):
    """The run of a timeline that is a partition."""

    def __init__(self, query: QueryOnShards, timeline: Timeline, beginning: Beginning | None = None) -> None:
        super().__init__(query, timeline, beginning)
        self._held: list[Events] = []
        self._held_count = 0

    def _piece_before(self, events: Events, most_events: int) -> Piece | None:
        count = len(events.arrivals)
        if not count:
            return None
        piece = None
        if self._held and self._held_count + count > most_events:
            piece = self._piece(PartitionEnd(0, 0, int(events.arrivals[0])))
        self._held.append(events)
        self._held_count += count
        return piece

    def _last_piece(self, end: PartitionEnd) -> Piece | None:
        return self._piece(end) if self._held else None

    def _piece(self, end: PartitionEnd) -> Piece:
        held, self._held, self._held_count = self._held, [], 0
        last = max(int(np.max(events.arrivals)) for events in held)
        there = replace(end, end=HeldRange(held).end)
        return Piece({self._timeline[1]: held}, int(held[0].arrivals[0]), last, there)

    def _results(self, piece: Piece, *, report: bool, most_samples: int) -> list[RangeResult]:
        name, partition = self._timeline
        count_from = NO_TIME if report else piece.end.end
        held = HeldRange(piece.held[partition])
        task_range = RangeTask(name, partition, held, self._carry, count_from, piece.end)
        task = Task([task_range], self._query.parcel_events, most_samples=most_samples)
        results = run_task(task, self._program, self._query.policy)
        self._carry = results[0].carry
        return results
