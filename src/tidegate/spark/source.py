"""The ``eventhubs`` data source: event hubs in Spark, batch and streaming, without a jar.

Use ``spark.read.format("eventhubs")`` and ``spark.readStream.format("eventhubs")`` over Tidegate's hub or Azure's. One
Spark partition reads one hub partition, or a part of it if the backlog is long; the order within a hub partition is
kept. The offset of a stream is the next sequence number of each partition, so a query restarted from its checkpoint
resumes where it was.

The columns are those that Event Hubs users on Spark know. The interface is PySpark's Python Data Source API.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidegate.job.inputs.hub_log import HubLog, HubRange
from tidegate.job.model.messages import Messages, bodies, details
from tidegate.spark.options import Options, Position

SCHEMA = (
    "body binary, partition string, offset string, sequenceNumber bigint, enqueuedTime timestamp, publisher string, "
    "partitionKey string, properties map<string,string>, systemProperties map<string,string>"
)
_BATCH_EVENTS = 16_384
_TEXT_MAP = pa.map_(pa.string(), pa.string())


class EventHubsDataSource(DataSource):
    """The data source ``eventhubs``; options in ``docs/reference/spark-source.md``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(…)``."""
        return "eventhubs"

    def schema(self) -> str:
        """Return the columns."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for ``spark.read``."""
        return EventHubsReader(Options.parse(dict(self.options), streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader for ``spark.readStream``."""
        return EventHubsStreamReader(Options.parse(dict(self.options), streaming=True))


class HubPartitionRange(InputPartition):
    """The range that one Spark task reads."""

    def __init__(self, hub_range: HubRange) -> None:
        super().__init__(hub_range)
        self.hub_range = hub_range


class EventHubsReader(DataSourceReader):
    """A batch: from the starting position to the ending position, fixed when the query is planned."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return a range for each hub partition, cut if it is long."""
        log = self._options.open_log()
        try:
            start = _resolve(log, self._options.starting_position)
            end = _resolve(log, self._options.ending_position)
            return _ranges(log, start, end, self._options.events_per_task)
        finally:
            log.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of one range."""
        return _read(partition)


class EventHubsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream: offsets are next sequence numbers by partition."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._log: HubLog | None = None
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        """Return the starting position as sequence numbers."""
        return _resolve(self._open(), self._options.starting_position)

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxEventsPerTrigger``."""
        limit = self._options.max_events_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end: events that arrive later are left for the next run."""
        self._target = self._ends()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the end of the next batch within the limit, which partitions share in proportion to their backlogs."""
        end = self._ends() if self._target is None else self._target
        waiting = {partition: max(0, stop - start.get(partition, 0)) for partition, stop in end.items()}
        total = sum(waiting.values())
        if not isinstance(limit, ReadMaxRows) or total <= limit.max_rows:
            return {partition: start.get(partition, 0) + count for partition, count in waiting.items()}
        shares = {partition: count * limit.max_rows // total for partition, count in waiting.items()}
        left = limit.max_rows - sum(shares.values())
        for partition in sorted(waiting, key=lambda partition: shares[partition] - waiting[partition]):
            more = min(left, waiting[partition] - shares[partition], 1)
            shares[partition] += more
            left -= more
        return {partition: start.get(partition, 0) + share for partition, share in shares.items()}

    def reportLatestOffset(self) -> dict[str, int]:
        """Return the ends of the hub's partitions, for the query's progress."""
        return self._ends()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return a range for each hub partition with new events, cut if it is long."""
        log = self._open()
        log.ends()
        return _ranges(log, start, end, self._options.events_per_task)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of one range."""
        return _read(partition)

    def stop(self) -> None:
        """Close the connection."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _open(self) -> HubLog:
        if self._log is None:
            self._log = self._options.open_log()
        return self._log

    def _ends(self) -> dict[str, int]:
        return {partition: end.end for partition, end in self._open().ends().items()}

    def __getstate__(self) -> dict[str, Any]:
        # Spark ships the reader to its tasks; they read ranges and do not need the planner's connection.
        return {"_options": self._options, "_log": None, "_target": self._target}


def _resolve(log: HubLog, positions: dict[str, Position] | Position) -> dict[str, int]:
    """Return the sequence numbers of positions, limited to events that the hub still has."""
    resolved = {}
    for partition, end in log.ends().items():
        position = positions if isinstance(positions, Position) else positions.get(partition, Position.earliest())
        resolved[partition] = min(max(position.resolve(log, partition, end), end.begin), end.end)
    return resolved


def _ranges(log: HubLog, start: dict[str, int], end: dict[str, int], events_per_task: int) -> list[InputPartition]:
    ranges: list[InputPartition] = []
    for partition in sorted(end, key=lambda name: (len(name), name)):
        for first in range(start.get(partition, 0), end[partition], events_per_task):
            stop = min(first + events_per_task, end[partition])
            ranges.append(HubPartitionRange(log.range(partition, first, stop)))
    return ranges


def _read(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, HubPartitionRange):
        # If there is nothing to read, Spark passes a partition of its own making.
        return
    hub_range = partition.hub_range
    for messages in hub_range.read_messages(_BATCH_EVENTS):
        yield _record_batch(messages, hub_range.partition)


def _record_batch(messages: Messages, partition: str) -> pa.RecordBatch:
    count = len(messages.ends)
    more = details(messages)
    return pa.record_batch(
        {
            "body": pa.array(bodies(messages.buffer, messages.ends), pa.binary()),
            "partition": pa.array([partition] * count, pa.string()),
            "offset": pa.array(messages.offsets, pa.string()),
            "sequenceNumber": pa.array(messages.sequence_numbers, pa.int64()),
            "enqueuedTime": pa.array(messages.enqueued_times_ms * 1000, pa.timestamp("us", tz="UTC")),
            "publisher": pa.array([item.publisher for item in more], pa.string()),
            "partitionKey": pa.array([item.partition_key for item in more], pa.string()),
            "properties": pa.array([list(item.properties.items()) for item in more], _TEXT_MAP),
            "systemProperties": pa.array([list(item.system_properties.items()) for item in more], _TEXT_MAP),
        }
    )
