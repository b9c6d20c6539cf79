"""Where the rows of a query go: what `DataStreamWriter` was asked for, and Spark's writer that does it.

Sinks are Spark's, with Spark's guarantees: a batch that is repeated after a crash has the same rows and the same
number. Spark has no streaming JDBC, so that is a function that takes each batch once (`jdbc`).
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegate.connectors.model.errors import JobError
from tidegate.spark.streaming.causes import cause_of
from tidegate.spark.streaming.jdbc import JdbcSink
from tidegate.spark.streaming.query import UserFunction

_KEEPS_NOTHING = ("memory", "console", "noop")
_KNOWN = ("parquet", "json", "csv", "orc", "text", "xml", "jdbc", *_KEEPS_NOTHING)
_OF_PACKAGES = ("delta", "eventhubs", "iceberg", "kafka", "avro")
_ATTEMPTS = 6
_LOOK_EVERY_S = 0.02
_TOO_LATE = "Python worker failed to connect back"
_NOT_FOUND = ("DATA_SOURCE_NOT_FOUND", "Failed to find data source", "Failed to find the data source")


class UnknownFormat(JobError):
    """Spark has no format of the name that was given, or lacks the package with it."""

    code = "FORMAT_UNKNOWN"


def _lacks_its_planner(query: Any) -> bool:
    """Wait until Spark has initialized a query, and return whether the Python process that plans it came too late.

    Spark waits for it for ten seconds, which a busy machine may need for the imports.
    """
    while query.isActive and query.status["message"].startswith("Initializing"):
        time.sleep(_LOOK_EVERY_S)
    return not query.isActive and _TOO_LATE in str(query.exception())


@dataclass(frozen=True, slots=True)
class SinkChoice:
    """What a writer was asked for.

    Attributes:
        format: the name of a format; None: the session's default.
        options: by name as the user spelled it.
        partition_by, cluster_by: columns.
        path, table: where; at most one of them.
        function: what to call with each batch instead. row_function: what to call with each row instead.
    """

    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    path: str | None = None
    table: str | None = None
    function: Callable[[DataFrame, int], Any] | None = None
    row_function: Any = None

    @property
    def keeps_nothing(self) -> bool:
        """Whether a new checkpoint would do no harm, so that nobody needs to name one."""
        called = self.function is not None or self.row_function is not None
        return called or (self.format or "").lower() in _KEEPS_NOTHING

    def user_function(self, spark: SparkSession, owner: str) -> UserFunction | None:
        """Return the function that takes the batches in this process; None if Spark writes them.

        Args:
            owner: the name of the query's output in all the world; the same after a restart.

        Raises:
            JobError: the choice is incomplete or contradicts itself.
        """
        if self.function is not None:
            return UserFunction(self.function)
        if (self.format or "").lower() == "jdbc" and self.row_function is None:
            sink = JdbcSink(spark, self.options, owner)
            return UserFunction(sink.write, sink.interrupt)
        return None

    def start(self, rows: DataFrame, name: str | None, checkpoint: str, trigger: Mapping[str, Any], call: Any) -> Any:
        """Start the query of Spark that writes a streaming DataFrame.

        Args:
            checkpoint: where Spark keeps its own files.
            trigger: arguments of ``trigger``; none for the default.
            call: the function that takes the batches; None if Spark writes them.

        Raises:
            UnknownFormat: Spark does not know the format.
            JobError: Spark refuses what was asked for; the message is Spark's.
        """
        writer = rows.writeStream.option("checkpointLocation", checkpoint)
        writer = writer.options(**self.options) if call is None else writer
        if name is not None:
            writer = writer.queryName(name)
        if trigger:
            writer = writer.trigger(**trigger)
        if self.format is not None and call is None:
            writer = writer.format(self.format)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        if self.cluster_by:
            writer = writer.clusterBy(*self.cluster_by)
        if call is not None:
            writer = writer.foreachBatch(call)
        elif self.row_function is not None:
            writer = writer.foreach(self.row_function)
        for attempt in range(_ATTEMPTS):
            try:
                query = writer.start(self.path) if self.table is None else writer.toTable(self.table)
            except (PySparkException, Py4JError) as error:
                raise self._refusal(error) from error
            if attempt + 1 == _ATTEMPTS or not _lacks_its_planner(query):
                break
        return query

    def _refusal(self, error: Exception) -> JobError:
        if self.format is None or not any(mark in str(error) for mark in _NOT_FOUND):
            return JobError(f"Spark does not start the query: {cause_of(error).text}")
        close = difflib.get_close_matches(self.format, [*_KNOWN, *_OF_PACKAGES], n=1)
        hint = f"did you mean '{close[0]}'?" if close else "check the name, or add its package (spark.jars.packages)"
        if close == [self.format]:
            hint = "add its package (spark.jars.packages)"
        return UnknownFormat(f"Spark has no format '{self.format}' to write to; {hint}")
