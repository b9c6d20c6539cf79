"""Readers of event hubs for Spark: a batch, a batch that leaves out what filters leave out, and a stream.

One Spark partition reads one hub partition, or a part of it if the backlog is long; the order within a hub partition is
kept. The offset of a stream is the next sequence number of each partition, so a query restarted from its checkpoint
resumes where it was. It also has the identities of the partitions' logs: a hub that was deleted and created again
counts from 0, and a stream that went on from its old numbers would leave out the first events of the new hub.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from tidegate.connectors.inputs.hub_log import HubLog, HubRange
from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.events import PartitionEnd
from tidegate.spark.executors import ReachesExecutors
from tidegate.spark.options import Options, SourcePosition
from tidegate.spark.queries.plain_errors import plain_errors
from tidegate.spark.source_columns import record_batch
from tidegate.spark.source_filters import SelectedEvents, filters_are_offered
from tidegate.spark.streaming.read_limits import (
    BATCHES_CAN_BE_LIMITED,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

Offset: TypeAlias = dict[str, Any]
"""The next sequence number of each partition; and ``logs``: by partition, the identity of its log, where it has one."""

_BATCH_EVENTS = 16_384
_LOGS = "logs"
_logger = logging.getLogger(__name__)


class HubPartitionRange(InputPartition):
    """The range that one Spark task reads."""

    def __init__(self, hub_range: HubRange) -> None:
        super().__init__(hub_range)
        self.hub_range = hub_range


class EventHubsReader(ReachesExecutors, DataSourceReader):
    """A batch: from the starting position to the ending position, fixed when the query is planned."""

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns
        self._selected = SelectedEvents()

    def partitions(self) -> Sequence[InputPartition]:
        """Return a range for each hub partition, cut if it is long."""
        with plain_errors(), contextlib.closing(self._options.open_log()) as log:
            start = _resolve(log, self._options.starting_position)
            end = _resolve(log, self._options.ending_position)
            if self._selected != SelectedEvents():
                start, end = self._selected.cut(log, start, end)
            return _ranges(log, start, end, self._options.events_per_task)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of one range."""
        return _read(partition, self._columns)


class FilteringReader(EventHubsReader):
    """A batch of the events that the filters of a query leave."""

    def pushFilters(self, filters: Iterable[Any]) -> Iterator[Any]:
        """Read only what the filters leave, and yield those that Spark has to evaluate."""
        for each in filters:
            self._selected, taken = self._selected.with_filter(each)
            if not taken:
                yield each


def reader_for(options: dict[str, str], columns: Sequence[str]) -> EventHubsReader:
    """Return the reader for ``spark.read``. Raises InputError: an option is wrong."""
    kind = FilteringReader if filters_are_offered() else EventHubsReader
    return kind(Options.parse(options, streaming=False), columns)


def stream_reader_for(options: dict[str, str], columns: Sequence[str]) -> EventHubsStreamReader:
    """Return the reader for ``spark.readStream``. Raises InputError: an option is wrong."""
    return EventHubsStreamReader(Options.parse(options, streaming=True), columns)


class EventHubsStreamReader(ReachesExecutors, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream; see the module."""

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns
        self._log: HubLog | None = None
        self._target: Offset | None = None
        self._has_resumed = False
        if options.max_events_per_trigger is not None and not BATCHES_CAN_BE_LIMITED:
            _logger.warning(
                "option maxEventsPerTrigger is ignored: it needs PySpark 4.2 or newer, this is %s", pyspark.__version__
            )

    def initialOffset(self) -> Offset:
        """Return the starting position as sequence numbers."""
        log = self._open()
        return _offset(_resolve(log, self._options.starting_position), log.ends())

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxEventsPerTrigger``."""
        limit = self._options.max_events_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end: events that arrive later are left for the next run."""
        self._target = self.reportLatestOffset()

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Return the end of the next batch within the limit, which partitions share in proportion to their backlogs.

        PySpark before 4.2 says neither where the batch begins nor how long it may be.

        Raises:
            InputError: the log of a partition is not the one that the stream has read.
        """
        ends = self._open().ends()
        end = _end_of(ends) if self._target is None else self._target
        if start is None:
            return end
        self._check(ends, start)
        waiting = {name: max(0, stop - start.get(name, 0)) for name, stop in end.items() if name != _LOGS}
        total = sum(waiting.values())
        if not isinstance(limit, ReadMaxRows) or total <= limit.max_rows:
            shares = waiting
        else:
            shares = {partition: count * limit.max_rows // total for partition, count in waiting.items()}
            left = limit.max_rows - sum(shares.values())
            for partition in sorted(waiting, key=lambda partition: shares[partition] - waiting[partition]):
                more = min(left, waiting[partition] - shares[partition], 1)
                shares[partition] += more
                left -= more
        return _offset({partition: start.get(partition, 0) + share for partition, share in shares.items()}, ends)

    def reportLatestOffset(self) -> Offset:
        """Return the ends of the hub's partitions, for the query's progress."""
        return _end_of(self._open().ends())

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return a range for each hub partition with new events, cut if it is long.

        Raises:
            InputError: the log of a partition is not the one that the stream has read.
        """
        log = self._open()
        self._check(log.ends(), start, end)
        numbers = {partition: stop for partition, stop in end.items() if partition != _LOGS}
        return _ranges(log, start, numbers, self._options.events_per_task)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of one range."""
        return _read(partition, self._columns)

    def stop(self) -> None:
        """Close the connection."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _open(self) -> HubLog:
        if self._log is None:
            self._log = self._options.open_log()
        return self._log

    def _check(self, ends: Mapping[str, PartitionEnd], *offsets: Offset) -> None:
        """Check that a hub has the logs that offsets are of, and has not lost their end when a query resumes."""
        for offset in offsets:
            for partition, end in ends.items():
                known, number = offset.get(_LOGS, {}).get(partition), offset.get(partition, 0)
                if known is not None and end.log_id is not None and known != end.log_id:
                    why = "its log was replaced by another one, as when a hub is deleted and created again"
                elif number > end.end and not self._has_resumed:
                    why = f"its log ends before event {end.end:,}: it was replaced, or restored from an older backup"
                else:
                    continue
                raise InputError(
                    f"the stream has read partition {partition} up to event {number:,}, and {why}. Restore the hub, or "
                    "read it as it is now with another checkpointLocation"
                )
        self._has_resumed = True

    def __getstate__(self) -> dict[str, Any]:
        # Spark ships the reader to its tasks; they read ranges and do not need the planner's connection.
        return {**self.__dict__, "_log": None}


def _offset(numbers: Mapping[str, int], ends: Mapping[str, PartitionEnd]) -> Offset:
    logs = {partition: end.log_id for partition, end in ends.items() if end.log_id is not None}
    return {**numbers, **({_LOGS: logs} if logs else {})}


def _end_of(ends: Mapping[str, PartitionEnd]) -> Offset:
    return _offset({partition: end.end for partition, end in ends.items()}, ends)


def _resolve(log: HubLog, positions: dict[str, SourcePosition] | SourcePosition) -> dict[str, int]:
    """Return the sequence numbers of positions, limited to events that the hub still has.

    Raises:
        InputError: a position is of a partition that the hub does not have, or the hub cannot be reached.
    """
    resolved = {}
    ends = log.ends()
    unknown = [] if isinstance(positions, SourcePosition) else [name for name in positions if name not in ends]
    if unknown:
        raise InputError(
            f"options startingPositions, endingPositions: the hub has no partition '{unknown[0]}'; there are "
            f"{', '.join(ends)}"
        )
    for partition, end in ends.items():
        position = (
            positions if isinstance(positions, SourcePosition) else positions.get(partition, SourcePosition.earliest())
        )
        resolved[partition] = min(max(position.resolve(log, partition, end), end.begin), end.end)
    return resolved


def _ranges(log: HubLog, start: dict[str, int], end: dict[str, int], events_per_task: int) -> list[InputPartition]:
    ranges: list[InputPartition] = []
    for partition in sorted(end, key=lambda name: (len(name), name)):
        for first in range(start.get(partition, 0), end[partition], events_per_task):
            stop = min(first + events_per_task, end[partition])
            ranges.append(HubPartitionRange(log.range(partition, first, stop)))
    return ranges


def _read(partition: InputPartition, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, HubPartitionRange):
        # If there is nothing to read, Spark passes a partition of its own making.
        return
    hub_range = partition.hub_range
    with plain_errors():
        for messages in hub_range.read_messages(_BATCH_EVENTS):
            yield record_batch(messages, hub_range.partition, columns)
