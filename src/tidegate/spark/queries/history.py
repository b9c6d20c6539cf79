"""A query over history as one lazy DataFrame, whose plan is the same whatever the query is:

    events of a DataFrame ─ mapInArrow(RunsStage) ─ repartition(partition), sort ─ mapInArrow(FrameStage) ─┐
    ranges of hubs, recorded logs, files ───────────────────────────────────────── mapInArrow(LogStage) ───┴─ union
      ─ repartition(shard), sort ─ mapInArrow(ShardsStage) ─ results
                                   (a further level for operators with other keys: once more)

Only Spark's DataFrame API takes part, so it is the same over Spark Connect. Spark moves and sorts blobs: runs of
thousands of events (`frame_runs`), and parcels of results (`parcels`). Only events in an order that Arrow does not have
are sorted by Spark, row by row. A task handles one partition or shard after the other, and labels keep those of
different tasks apart (`tidegate.spark.queries.hash_partitions`).

Instead of the rows of a DataFrame that is nothing but files of Parquet, tasks read the files (`parquet_files`). If
their rows are about in order, as in most tables of events, only parcels are exchanged (`file_parts`).
"""

from __future__ import annotations

import gc
import logging
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions, types

from tidegate.connectors.inputs.kinds import LogOpening, StreamInput
from tidegate.connectors.model.events import InputLog, LogRange, PartitionEnd
from tidegate.engine import Program
from tidegate.engine.sharding.keys import Division
from tidegate.engine.sharding.payloads import Sharding
from tidegate.job.prepare.loading import Job
from tidegate.job.prepare.opening import open_named
from tidegate.job.runtime.emission import END_OF_LOG, Timeline
from tidegate.job.runtime.merged import known_before
from tidegate.ordering import END_OF_TIME, NO_TIME, TICKS_PER_SECOND, Policy, read_from
from tidegate.spark.queries.data_error_shares import DataErrorShares
from tidegate.spark.queries.file_parts import SUMMARIES, PartStage, SummaryStage, stages_for
from tidegate.spark.queries.frame_events import EventsOfFrame, columns_for, for_runs
from tidegate.spark.queries.frame_runs import ORDER as ORDER_OF_RUNS
from tidegate.spark.queries.frame_runs import RUNS, RunsStage, SortedRows
from tidegate.spark.queries.hash_partitions import labels
from tidegate.spark.queries.merged_timelines import ARRIVALS, ArrivalsStage, MergedRun, MergedStage, runs_of_logs
from tidegate.spark.queries.merged_timelines import ORDER as ORDER_OF_ARRIVALS
from tidegate.spark.queries.parcels import ORDER, PARCELS, Found, HistoryRun, Runs, TimelineRun, rows_of, rows_of_task
from tidegate.spark.queries.parquet_files import FilesStage, files_of
from tidegate.spark.queries.rejections import REJECTIONS, rejections_of
from tidegate.spark.queries.result_schema import ResultSchema
from tidegate.spark.queries.shard_side import ShardsStage
from tidegate.spark.queries.shared_query import QueryOnShards, SharedProgram

# PySpark collects garbage after every task; what is imported here is not garbage and need not be looked at each time.
gc.freeze()

_logger = logging.getLogger(__name__)

BATCH_EVENTS = 65_536
_TASKS_AT_ONCE = 16
_PARTS_WITHOUT_EXCHANGE = 2
_COMPLETE = PartitionEnd(0, 0, END_OF_TIME, complete=True)
_CLOCK_SET_BACK = 3600 * TICKS_PER_SECOND
"""How far a broker's clock may go back within a partition of a DataFrame that is read from or up to a time."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which results are wanted, and what that says of the events to read. In ticks.

    Attributes:
        start, until: results from the one on and before the other.
        arrived_from: earlier events cannot matter.
        arrived_before: events from here on cannot matter.
    """

    start: int = NO_TIME
    until: int = END_OF_TIME
    arrived_from: int = NO_TIME
    arrived_before: int = END_OF_TIME

    @property
    def takes_everything(self) -> bool:
        """Whether no event is left out."""
        return self.arrived_from == NO_TIME and self.arrived_before == END_OF_TIME

    @classmethod
    def of(cls, program: Program, policy: Policy, start: int | None, until: int | None) -> Bounds:
        """Return the events to read for results of a time.

        An event that arrives at A is stamped A − late or later, so once that is past the watermark at which everything
        before ``until`` is complete, nothing that follows can change it.
        """
        begin, end = NO_TIME if start is None else start, END_OF_TIME if until is None else until
        arrived_from = None if begin == NO_TIME else read_from(begin, program.lookback_ticks, policy)
        arrived_before = END_OF_TIME
        if end != END_OF_TIME and policy.late_ticks is not None:
            arrived_before = program.watermark_for(end) + policy.late_ticks + 1
        return cls(begin, end, NO_TIME if arrived_from is None else arrived_from, arrived_before)


# what runs in the stages of Spark
# ------------------------------------------------------------------------------------------------------


def parcels_of(run: HistoryRun[Runs], runs: Iterable[Runs], end: PartitionEnd) -> Iterator[pa.RecordBatch]:
    """Yield the parcels of a timeline as rows of `PARCELS`.

    Raises:
        InputError: the events cannot be read.
    """
    yield from rows_of(run.parcels(runs, end))


@dataclass(frozen=True, slots=True)
class FrameStage:
    """Runs the partitions of a DataFrame that Spark has put into one of its own, one after the other.

    Attributes:
        name: of the input in the program.
    """

    query: QueryOnShards
    name: str
    rows: SortedRows
    found: Found = parcels_of

    @property
    def __name__(self) -> str:
        """The name that Spark's plans and UI show."""
        return f"events_of_{self.name}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows_of_task(self._rows(batches))

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        layout = self.rows.layout
        for partition, pieces in self.rows.partitions(batches):
            events = (layout.events(partition, rows, first) for first, rows in pieces)
            yield from self.found(TimelineRun(self.query, (self.name, partition)), events, _COMPLETE)


@dataclass(frozen=True, slots=True)
class LogTimeline:
    """A timeline to read on an executor.

    Attributes:
        ranges: by partition, what to read of it: of one, or of those that are merged.
    """

    timeline: Timeline
    ranges: tuple[tuple[str, LogRange], ...]
    end: PartitionEnd

    def found(self, query: QueryOnShards, found: Found, batch_events: int) -> Iterator[pa.RecordBatch]:
        """Read the events, and yield what is wanted of them.

        Raises:
            InputError: they cannot be read.
        """
        if query.policy.merged:
            before = END_OF_TIME if self.end.arrival_lower_bound is None else self.end.arrival_lower_bound
            merged = runs_of_logs(self.ranges, before, batch_events)
            return found(MergedRun(query, self.timeline), merged, self.end)
        runs = (events for _, one in self.ranges for events in one.read_events(batch_events))
        return found(TimelineRun(query, self.timeline), runs, self.end)


@dataclass(frozen=True, slots=True)
class LogStage:
    """Reads timelines of logs, each a pickled `LogTimeline`."""

    query: QueryOnShards
    found: Found = parcels_of

    @property
    def __name__(self) -> str:
        """The name that Spark's plans and UI show."""
        return "events_of_logs"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows_of_task(self._rows(batches))

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column("blob"):
                read: LogTimeline = pickle.loads(blob.as_buffer())
                yield from read.found(self.query, self.found, BATCH_EVENTS)


# the plan
# ------------------------------------------------------------------------------------------------------


def open_logs_of(job: Job, frames: Mapping[str, Any]) -> dict[str, InputLog]:
    """Open the inputs that are not DataFrames, by the name the program uses.

    Raises:
        InputError: one cannot be reached or read.
    """
    definition, program = job.definition, job.program
    sections = {name.lower(): one for name, one in definition.inputs.items() if isinstance(one, StreamInput)}
    by_source: dict[str, InputLog] = {}
    found = {}
    for name in program.input_names:
        source = program.source_of(name).lower()
        if source in frames:
            continue
        if source not in by_source:
            by_source[source] = open_named(sections[source], LogOpening(source, limits=definition.input_limits.limits))
        found[name] = by_source[source]
    return found


def timelines_of(logs: Mapping[str, InputLog], bounds: Bounds, policy: Policy) -> list[LogTimeline]:
    """Return the timelines of logs as they are now, with the events that matter.

    If none does, a warning says so: a time is wrong more often than a result is empty.

    Raises:
        InputError: a log cannot be reached.
    """
    found = []
    for name, log in logs.items():
        own: list[LogTimeline] = []
        ends: dict[str, PartitionEnd] = {}
        count = 0
        for partition, end in log.ends().items():
            begin, stop = end.begin, end.end
            count += stop - begin
            if bounds.arrived_from != NO_TIME:
                begin = max(begin, log.first_at(partition, bounds.arrived_from))
            if bounds.arrived_before != END_OF_TIME and (cut := log.first_at(partition, bounds.arrived_before)) < stop:
                stop, end = cut, replace(_COMPLETE, end=cut)
            ranges = ((partition, log.range(partition, begin, stop)),) if begin < stop else ()
            own.append(LogTimeline((name, partition), ranges, end))
            ends[partition] = end
        if count and not any(one.ranges for one in own):
            _logger.warning(
                "input '%s': none of its %s events arrived when it could matter for a result between start and until, "
                "so nothing is read; check these times, which are UTC unless they have an offset",
                name,
                f"{count:,}",
            )
        found += [_merged(name, log, own, ends)] if policy.merged else own
    return found


def _merged(
    name: str, log: InputLog, timelines: Sequence[LogTimeline], ends: Mapping[str, PartitionEnd]
) -> LogTimeline:
    """Return the partitions of a log as one timeline, which is read as far as all of them are known."""
    ranges = tuple(pair for one in timelines for pair in one.ranges)
    if all(end.complete for end in ends.values()):
        return LogTimeline((name, ""), ranges, _COMPLETE)
    return LogTimeline((name, ""), ranges, PartitionEnd(0, END_OF_LOG, known_before(log, ends)))


def sharding_of(spark: SparkSession, program: Program, shards: int | None) -> Sharding:
    """Divide a program among as many shards as are asked for, or as Spark can run at once; one if it has no keys."""
    count = _default_shards(spark) if shards is None else shards
    sharding = Sharding.of(program, count)
    divided = any(one.division is not Division.NONE for one in sharding.placements)
    return sharding if divided or shards is not None else Sharding.of(program, 1)


def _default_shards(spark: SparkSession) -> int:
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    return max(1, min(partitions, 2 * _tasks_at_once(spark)))


def _tasks_at_once(spark: SparkSession) -> int:
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except Exception:
        # Spark Connect has no context, and does not say how many cores there are.
        return _TASKS_AT_ONCE


def results(
    spark: SparkSession,
    query: QueryOnShards,
    frames: Mapping[str, EventsOfFrame],
    timelines: Sequence[LogTimeline],
    bounds: Bounds,
    struct: types.StructType,
    schema: ResultSchema,
) -> DataFrame:
    """Return the results of an output as a DataFrame; nothing is read before Spark needs it.

    Args:
        frames: by the name of the input in the job.
        timelines: those of other inputs.
        struct: the columns, as Spark has them.
        schema: the same columns.

    Raises:
        JobError: the query uses a column that a DataFrame does not have.
    """
    program = query.program.value()
    rows = _of_inputs(spark, query, frames, timelines, bounds, parcels_of, PARCELS)
    outputs = [output.name for output in program.query.outputs]
    last = query.sharding.outputs[outputs.index(schema.output)]
    shards = query.sharding.shards
    each = functions.array(*[functions.lit(label) for label in labels(shards)])
    for level in range(last + 1):
        rows = rows.repartition(shards, functions.get(each, functions.col("shard"))).sortWithinPartitions(*ORDER)
        rows = rows.mapInArrow(ShardsStage(query, level, last, schema), struct if level == last else PARCELS)
    return rows


def rejected_events(
    spark: SparkSession,
    query: QueryOnShards,
    frames: Mapping[str, EventsOfFrame],
    timelines: Sequence[LogTimeline],
    bounds: Bounds,
) -> DataFrame:
    """Return the events that the query cannot use as a DataFrame with the columns `REJECTIONS`; see `results`."""
    return _of_inputs(spark, query, frames, timelines, bounds, rejections_of, REJECTIONS)


def _of_inputs(
    spark: SparkSession,
    query: QueryOnShards,
    frames: Mapping[str, EventsOfFrame],
    timelines: Sequence[LogTimeline],
    bounds: Bounds,
    found: Found,
    columns: str,
) -> DataFrame:
    program = query.program.value()
    parts = [
        _of_frame(spark, frames[source], query, name, bounds, found, columns)
        for name in program.input_names
        if (source := program.source_of(name).lower()) in frames
    ]
    if timelines or not parts:
        blobs = [(pickle.dumps(one, protocol=5),) for one in timelines]
        read = spark.createDataFrame(blobs, "blob binary")
        parts.append(read.mapInArrow(LogStage(query, found), columns))
    rows = parts[0]
    for more in parts[1:]:
        rows = rows.union(more)
    return rows


def _of_frame(
    spark: SparkSession,
    events: EventsOfFrame,
    query: QueryOnShards,
    name: str,
    bounds: Bounds,
    found: Found,
    columns: str,
) -> DataFrame:
    program = query.program.value()
    selected, order, layout = columns_for(events, program.source_of(name), program.need(name))
    in_runs, merged = layout.order is not None, query.policy.merged
    at_once = _tasks_at_once(spark)
    files = files_of(events, layout) if in_runs and bounds.takes_everything else None
    if files is not None:
        stages = stages_for(layout, files, query, name, at_once) if found is parcels_of and not merged else None
        if stages is not None:
            return _of_parts(spark, *stages)
        rows = _numbered(spark, files.stage(RunsStage(layout, labels(at_once)), at_once), RUNS)
    else:
        rows = events.frame.select(*(for_runs(events, selected, layout) if in_runs else selected))
        rows = _arrived(rows, bounds)
        rows = rows.mapInArrow(RunsStage(layout, labels(at_once)), RUNS) if in_runs else rows
    if in_runs:
        rows = rows.repartition(at_once, "label").sortWithinPartitions(*ORDER_OF_RUNS)
    else:
        rows = rows.repartition("partition").sortWithinPartitions("partition", *order)
    own = SortedRows(layout, in_runs, bounds.arrived_from, bounds.arrived_before)
    if not merged:
        return rows.mapInArrow(FrameStage(query, name, own, found), columns)
    rows = rows.mapInArrow(ArrivalsStage(own), ARRIVALS).repartition(1).sortWithinPartitions(*ORDER_OF_ARRIVALS)
    return rows.mapInArrow(MergedStage(query, name, layout, found), columns)


def _arrived(rows: DataFrame, bounds: Bounds) -> DataFrame:
    """Return the rows that can matter, and those without an arrival, which are an error."""
    arrival = functions.col("arrival")
    if bounds.arrived_from != NO_TIME:
        rows = rows.where((arrival >= _timestamp(bounds.arrived_from - _CLOCK_SET_BACK)) | arrival.isNull())
    if bounds.arrived_before != END_OF_TIME:
        rows = rows.where((arrival < _timestamp(bounds.arrived_before + _CLOCK_SET_BACK)) | arrival.isNull())
    return rows


def _of_parts(spark: SparkSession, summaries: SummaryStage, parts: PartStage) -> DataFrame:
    """Return the parcels of files whose events are in order."""
    count = len(parts.parts)
    if count <= _PARTS_WITHOUT_EXCHANGE:
        return _numbered(spark, replace(parts, summaries=summaries), PARCELS)
    each = functions.array(*[functions.lit(label) for label in labels(count)])
    rows = _numbered(spark, summaries, SUMMARIES)
    return rows.repartition(count, functions.get(each, functions.col("part"))).mapInArrow(parts, PARCELS)


def _numbered(spark: SparkSession, stage: FilesStage | SummaryStage | PartStage, columns: str) -> DataFrame:
    """Return what a stage makes of its parts, each of which is a task."""
    count = len(stage.parts)
    return spark.range(0, count, 1, count).mapInArrow(stage, columns)


def _timestamp(ticks: int) -> Any:
    return functions.timestamp_micros(functions.lit(-(-ticks // 10)))


def query_on_shards(
    job: Job, sharding: Sharding, bounds: Bounds, data_errors: DataErrorShares | None = None
) -> QueryOnShards:
    """Return a job's query as executors get it."""
    program = SharedProgram.of(job.program.sharded())
    shares = data_errors or DataErrorShares()
    return QueryOnShards(program, job.policy, sharding, bounds.start, bounds.until, data_errors=shares)
