"""Writing DataFrames to event hubs: ``df.write.format("eventhubs")`` and ``df.writeStream.format("eventhubs")``.

Each task publishes its own rows while Spark computes them, in batches up to the hub's limit. There is nothing to
commit: an event is there for readers once it is stored. `tidegate.spark.publication` says how a repeated task stores
nothing twice.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.types import StructType

from tidegate.client import ClientError, ConnectionString
from tidegate.connectors.model.errors import OutputError
from tidegate.spark.executors import ReachesExecutors
from tidegate.spark.options import named_options
from tidegate.spark.publication import BatchOrigin, TaskPublication
from tidegate.spark.queries.plain_errors import plain_errors
from tidegate.spark.sink_rows import SinkColumns

_OPTIONS = ("connectionString", "eventHub", "tokenProvider", "consumerGroup", "txnAppId", "txnVersion")
# What Spark passes on of its own.
_SPARK_OPTIONS = ("path", "paths", "checkpointlocation", "queryname")
_QUERY_ID, _BATCH_NUMBER = "sql.streaming.queryId", "streaming.sql.batchId"
# PySpark 4.0 gives a stream's writer Row objects, later ones give it Arrow record batches.
if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as _StreamWriter
else:
    _StreamWriter = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one write.

    Attributes:
        connection: the hub.
        consumer_group: the group for reading back what an interrupted attempt has stored.
        origin: the identity of a batch write; of a stream's batches, Spark's query id and batch number are it.
    """

    connection: ConnectionString
    consumer_group: str
    origin: BatchOrigin

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
        """Check the options of a writer.

        Raises:
            OutputError: an option is missing, unknown, or has an invalid value.
        """
        options = named_options(given, _OPTIONS, _SPARK_OPTIONS, OutputError)
        if "connectionString" not in options:
            raise OutputError(
                "option connectionString is missing: Endpoint=…;SharedAccessKeyName=…;SharedAccessKey=…;EntityPath=…"
            )
        try:
            connection = ConnectionString.parse(
                options["connectionString"], options.get("eventHub"), token_provider=options.get("tokenProvider")
            )
        except ClientError as error:
            raise OutputError(str(error)) from error
        return cls(connection, options.get("consumerGroup", "$Default"), _origin(options, streaming))


def _origin(options: Mapping[str, str], streaming: bool) -> BatchOrigin:
    application, version = options.get("txnAppId"), options.get("txnVersion")
    if streaming and (application or version):
        raise OutputError("options txnAppId and txnVersion are for df.write; a stream numbers its batches itself")
    if (application is None) != (version is None):
        raise OutputError("options txnAppId and txnVersion belong together: give both, or neither")
    if application is None or version is None:
        return BatchOrigin(f"write/{uuid.uuid4().hex}", 0)
    if not version.strip().isdecimal():
        raise OutputError(f"option txnVersion: expected a whole number that grows with every write, got {version!r}")
    return BatchOrigin(f"transaction/{application}", int(version))


@dataclass
class Published(datasource.WriterCommitMessage):
    """How many events a task has published."""

    events: int


class EventHubsWriter(ReachesExecutors, datasource.DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterable[Any]) -> Published:
        """Publish the rows of one task."""
        return _published(self._options, self._columns, self._options.origin, _task(), iterator)


class EventHubsStreamWriter(ReachesExecutors, _StreamWriter):
    """Writes the batches of a stream."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterable[Any]) -> Published:
        """Publish the rows of one task of a batch."""
        context = _task()
        query, number = (context.getLocalProperty(name) for name in (_QUERY_ID, _BATCH_NUMBER))
        if query is None or number is None:
            raise OutputError("Spark does not say which batch of which query this is; is it a streaming query?")
        return _published(self._options, self._columns, BatchOrigin(f"query/{query}", int(number)), context, iterator)


def writer_for(options: dict[str, str], schema: StructType, overwrite: bool) -> EventHubsWriter:
    """Return the writer of a DataFrame.

    Raises:
        OutputError: the options or columns are wrong, or the write is to overwrite the hub.
    """
    if overwrite:
        raise OutputError("an event hub cannot be overwritten; use mode('append')")
    return EventHubsWriter(SinkOptions.parse(options, streaming=False), SinkColumns(schema))


def stream_writer_for(options: dict[str, str], schema: StructType, overwrite: bool) -> EventHubsStreamWriter:
    """Return the writer of a stream.

    Raises:
        OutputError: the options or columns are wrong, or the stream's output mode is complete.
    """
    if overwrite:
        raise OutputError("an event hub cannot be overwritten; use outputMode('append') or outputMode('update')")
    return EventHubsStreamWriter(SinkOptions.parse(options, streaming=True), SinkColumns(schema))


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise OutputError("rows are written by tasks of Spark only")
    return context


def _published(
    options: SinkOptions, columns: SinkColumns, origin: BatchOrigin, context: TaskContext, given: Iterable[Any]
) -> Published:
    with (
        plain_errors(),
        contextlib.closing(
            TaskPublication(options.connection, options.consumer_group, origin, context.partitionId())
        ) as publication,
    ):
        for rows in columns.rows(given):
            publication.add(rows)
        return Published(publication.finish())
