"""Partitions that are merged into one timeline, in a query over history; `tidegate.job.runtime.merged` has the rule.

One task of an input stamps the events of all its partitions in the order of their arrivals, and of their partitions
where those tie. It gets them as *partition runs*, sorted by the arrival of their first event, and holds only runs that
overlap: what precedes the next run precedes everything that follows. So its memory depends on how many partitions there
are, and not on the length of history.

The task reads the partitions of logs side by side. The rows of a DataFrame are first put in order in each partition, by
as many tasks as Spark has; only there is it known by which arrival an event is merged, the latest of its partition:

    sorted rows of partitions ─ mapInArrow(ArrivalsStage) ─ repartition(1), sort ─ mapInArrow(MergedStage) ─ parcels
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidegate.connectors.model.events import Events, HeldRange, Int64Array, LogRange, PartitionEnd
from tidegate.job.runtime.batch import RangeResult, RangeTask, Task
from tidegate.job.runtime.emission import END_OF_LOG, OPEN_END, Reached, Timeline
from tidegate.job.runtime.task import run_task
from tidegate.ordering import END_OF_TIME, NO_TIME, running_arrival
from tidegate.spark.queries.frame_events import RowLayout
from tidegate.spark.queries.frame_runs import SortedRows, decoded, encoded
from tidegate.spark.queries.parcels import (
    Found,
    HistoryRun,
    Piece,
    arrow_schema,
    in_pieces,
    put_together,
    rows_of_task,
)
from tidegate.spark.queries.shared_query import QueryOnShards

# PySpark collects garbage after every task; what is imported here is not garbage and need not be looked at each time.
gc.freeze()

ARRIVALS = "arrival bigint, place bigint, partition string, first bigint, piece int, blob binary"
"""Rows of partition runs, a large one in pieces: the arrival by which the first event is merged, the partition as a
number, and how many rows of the partition there are before."""

ORDER = ("arrival", "place", "partition", "first", "piece")

_ARROW = arrow_schema(ARRIVALS)
_RUN_ROWS = 16_384
_RUN_BYTES = 1 << 20
_FEWEST_ROWS = 1024
_COMPLETE = PartitionEnd(0, 0, END_OF_TIME, complete=True)


@dataclass(frozen=True, slots=True)
class PartitionRun:
    """Some events of a partition, in order.

    Attributes:
        arrivals: int64[n], ticks: the arrival by which each event is merged, which never decreases.
    """

    partition: str
    events: Events
    arrivals: Int64Array

    @property
    def key(self) -> tuple[int, int]:
        """By which runs are sorted."""
        return int(self.arrivals[0]), int(self.partition)

    def part(self, first: int, stop: int) -> PartitionRun:
        """Return a stretch of the events."""
        return PartitionRun(self.partition, self.events.part(first, stop), self.arrivals[first:stop])

    def before(self, following: PartitionRun) -> int:
        """Return how many of the events precede those of a run that is sorted after this one, and of all later ones."""
        if self.partition == following.partition:
            return len(self.arrivals)
        arrival, place = following.key
        # Nothing that follows has the same arrival and a lower place.
        return int(np.searchsorted(self.arrivals, arrival, side="right" if int(self.partition) < place else "left"))


# logs
# ------------------------------------------------------------------------------------------------------


def runs_of_logs(ranges: Sequence[tuple[str, LogRange]], before: int, batch_events: int) -> Iterator[PartitionRun]:
    """Yield the events of partitions as sorted runs.

    Args:
        ranges: partitions, and what to read of them.
        before: ticks; only events that are merged by an earlier arrival are yielded.
        batch_events: how many events are read at a time, over all partitions.

    Raises:
        InputError: a log cannot be read.
    """
    each = max(min(batch_events, _FEWEST_ROWS), batch_events // max(1, len(ranges)))
    partitions = (_runs_of(partition, log_range, before, each) for partition, log_range in ranges)
    return heapq.merge(*partitions, key=lambda run: run.key)


def _runs_of(partition: str, log_range: LogRange, before: int, batch_events: int) -> Iterator[PartitionRun]:
    known = NO_TIME
    for events in log_range.read_events(batch_events):
        if not len(events.arrivals):
            continue
        arrivals = running_arrival(events.arrivals, max(known, events.reached))
        known = int(arrivals[-1])
        count = len(arrivals) if known < before else int(np.searchsorted(arrivals, before))
        for first in range(0, count, batch_events):
            yield PartitionRun(partition, events, arrivals).part(first, min(first + batch_events, count))
        if count < len(arrivals):
            return


# DataFrames
# ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArrivalsStage:
    """Makes partition runs of the rows of a task."""

    rows: SortedRows

    @property
    def __name__(self) -> str:
        """The name that Spark's plans and UI show."""
        return f"partitions_of_{self.rows.layout.input}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows_of_task(self._rows(batches))

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        layout = self.rows.layout
        for partition, pieces in self.rows.partitions(batches):
            known = NO_TIME
            for first, rows in pieces:
                arrivals = running_arrival(layout.placed(partition, rows, first).arrivals, known)
                known = int(arrivals[-1])
                each = max(_FEWEST_ROWS, min(_RUN_ROWS, _RUN_BYTES * len(rows) // max(1, rows.nbytes)))
                for begin in range(0, len(rows), each):
                    yield _run_rows(partition, int(arrivals[begin]), first + begin, rows.slice(begin, each))


def _run_rows(partition: str, arrival: int, first: int, rows: pa.Table) -> pa.RecordBatch:
    content = rows.drop_columns("partition") if "partition" in rows.column_names else rows
    return in_pieces((arrival, int(partition), partition, first), memoryview(encoded(content)), _ARROW)


@dataclass(frozen=True, slots=True)
class MergedStage:
    """Runs the one timeline of a DataFrame, whose partition runs Spark has sorted.

    Attributes:
        name: of the input in the program.
    """

    query: QueryOnShards
    name: str
    layout: RowLayout
    found: Found

    @property
    def __name__(self) -> str:
        """The name that Spark's plans and UI show."""
        return f"events_of_{self.name}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        run = MergedRun(self.query, (self.name, ""))
        yield from rows_of_task(self.found(run, self._runs(batches), _COMPLETE))

    def _runs(self, batches: Iterator[pa.RecordBatch]) -> Iterator[PartitionRun]:
        for (arrival, _, partition, first), blob in put_together(batches):
            events = self.layout.events(partition, decoded(blob), first)
            yield PartitionRun(partition, events, running_arrival(events.arrivals, arrival))


# the timeline
# ------------------------------------------------------------------------------------------------------


class MergedRun(HistoryRun[PartitionRun]):
    """The run of a timeline that is all partitions of an input; its events come in sorted runs."""

    def __init__(self, query: QueryOnShards, timeline: Timeline) -> None:
        super().__init__(query, timeline)
        self._held: list[PartitionRun] = []
        self._held_count = 0
        self._enough = 0

    def _piece_before(self, events: PartitionRun, most_events: int) -> Piece | None:
        piece = None
        if self._held_count and self._held_count + len(events.arrivals) > max(most_events, self._enough):
            piece = self._preceding(events)
        self._held.append(events)
        self._held_count += len(events.arrivals)
        return piece

    def _preceding(self, following: PartitionRun) -> Piece | None:
        """Return what precedes a run and all later ones, and hold the rest."""
        ready, rest = [], []
        for one in self._held:
            count = one.before(following)
            ready += [one.part(0, count)] if count else []
            rest += [one.part(count, len(one.arrivals))] if count < len(one.arrivals) else []
        self._held, self._held_count = rest, sum(len(one.arrivals) for one in rest)
        # Runs that all overlap are not looked at again for each of them.
        self._enough = 2 * self._held_count
        arrival, _ = following.key
        return _piece(ready, PartitionEnd(0, END_OF_LOG, arrival)) if ready else None

    def _last_piece(self, end: PartitionEnd) -> Piece | None:
        held, self._held, self._held_count = self._held, [], 0
        return _piece(held, end) if held else None

    def _reached(self, end: PartitionEnd) -> Reached:
        if not end.complete and end.arrival_lower_bound is not None:
            self._carry = self._carry.advance(end.arrival_lower_bound)
        return super()._reached(end)

    def _results(self, piece: Piece, *, report: bool, most_samples: int) -> list[RangeResult]:
        name, _ = self._timeline
        count_from = NO_TIME if report else END_OF_LOG
        ranges = [
            RangeTask(name, partition, HeldRange(held), self._carry, count_from, OPEN_END, piece.reached[partition])
            for partition, held in piece.held.items()
        ]
        task = Task(ranges, self._query.parcel_events, most_samples=most_samples)
        results = run_task(task, self._program, self._query.policy)
        # All have the carry after the last event of all.
        self._carry = results[0].carry
        there = self._reached(piece.end)
        return [replace(result, partition="", settled=there) for result in results]


def _piece(runs: Iterable[PartitionRun], end: PartitionEnd) -> Piece:
    held: dict[str, list[PartitionRun]] = {}
    for run in runs:
        held.setdefault(run.partition, []).append(run)
    ordered = dict(sorted(held.items()))
    return Piece(
        {partition: [run.events for run in own] for partition, own in ordered.items()},
        min(int(own[0].arrivals[0]) for own in ordered.values()),
        max(int(own[-1].arrivals[-1]) for own in ordered.values()),
        end,
        {partition: int(own[0].arrivals[0]) for partition, own in ordered.items()},
    )
