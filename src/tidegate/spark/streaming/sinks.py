"""Where the steps of a query go: what `DataStreamWriter` calls a format, or a function.

A sink takes a step again after a crash, with the same rows under the same number. Each kind says what it makes of that:

- files (parquet, json, csv, orc, avro, text): each step once, by names and a manifest (`step_files`);
- delta and eventhubs: each step once, by their transaction identifiers;
- jdbc: each step once, by a table of steps in the same transaction (`jdbc`);
- foreachBatch: the function is called again with the same rows and number;
- everything else that Spark writes: at least once, with the same rows.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions

from tidegate.connectors.model.errors import JobError
from tidegate.spark.streaming.jdbc import JdbcSink
from tidegate.spark.streaming.step_files import StepFiles, folder_at

FILE_FORMATS = ("parquet", "json", "csv", "orc", "avro", "text", "xml")
_WITH_TRANSACTIONS = ("delta", "eventhubs")
_KEEPS_NOTHING = ("memory", "console", "noop")
_KNOWN = ("parquet", "json", "csv", "orc", "text", "xml", "jdbc", *_KEEPS_NOTHING)
_NOT_FOUND = ("DATA_SOURCE_NOT_FOUND", "Failed to find data source", "Failed to find the data source")


class UnknownFormat(JobError):
    """Spark has no format of the name that was given, or lacks the package with it."""

    code = "FORMAT_UNKNOWN"


class Sink(Protocol):
    """Takes steps."""

    @property
    def description(self) -> str:
        """The sink's name and place, for progress."""

    def write(self, rows: DataFrame, step: int) -> None:
        """Make the rows of a step durable; a step that was written before changes nothing where that can be known."""

    def interrupt(self) -> None:
        """Cancel what `write` waits for in another thread, if it is not a job of Spark."""


@dataclass(frozen=True, slots=True)
class SinkChoice:
    """What a writer was asked for.

    Attributes:
        format: the name of a format; None: the session's default.
        options: by name as the user spelled it.
        partition_by: columns.
        path, table: where; at most one of them.
        function: what to call with each step instead.
        query_name: the name of a table in memory.
    """

    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    path: str | None = None
    table: str | None = None
    function: Callable[[DataFrame, int], Any] | None = None
    query_name: str | None = None

    @property
    def keeps_nothing(self) -> bool:
        """Whether a new checkpoint would do no harm, so that nobody needs to name one."""
        return self.function is not None or (self.format or "").lower() in _KEEPS_NOTHING


def sink_of(spark: SparkSession, choice: SinkChoice, owner: str) -> Sink:
    """Return the sink that a writer was asked for.

    Args:
        owner: the name of the query's output in all the world; the same after a restart.

    Raises:
        JobError: the choice is incomplete or contradicts itself.
        UnknownFormat: Spark does not know the format.
    """
    if choice.function is not None:
        return FunctionSink(choice.function)
    format_ = _format_of(spark, choice).lower()
    if format_ not in _KNOWN:
        _check_known(spark, format_)
    if choice.table is not None:
        return TableSink(spark, choice, owner)
    path = choice.path or _option(choice.options, "path")
    match format_:
        case "memory":
            if not choice.query_name:
                raise JobError("format('memory') needs queryName(NAME): the name of the table in memory")
            return MemorySink(spark, choice.query_name)
        case "console":
            return ConsoleSink(choice.options)
        case "jdbc":
            return JdbcSink(spark, choice.options, owner)
        case _ if format_ in FILE_FORMATS:
            if path is None:
                raise JobError(f"format('{format_}') needs a path: start(PATH), or option('path', PATH)")
            return FileSink(choice, format_, StepFiles(folder_at(spark, path), owner))
        case _:
            return FormatSink(choice, owner)


def _check_known(spark: SparkSession, format_: str) -> None:
    """Check that Spark has a format, which it otherwise finds out in the first step; nothing is read.

    Raises:
        UnknownFormat: it has not.
    """
    try:
        # Other errors are about options that only a reader needs. Over Connect, only the columns are looked up.
        _ = spark.read.format(format_).load().columns
    except (PySparkException, Py4JError) as error:
        said = str(error)
        if not any(mark in said for mark in _NOT_FOUND):
            return
        close = difflib.get_close_matches(format_, [*_KNOWN, *_WITH_TRANSACTIONS, "iceberg", "kafka"], n=1)
        hint = f"did you mean '{close[0]}'?" if close else "check the name, or add its package (spark.jars.packages)"
        raise UnknownFormat(f"Spark has no format '{format_}' to write to; {hint}") from None


class _SparkSink:
    """A sink that waits for nothing but jobs of Spark and the user's function."""

    def interrupt(self) -> None:
        """See ``Sink.interrupt``."""


class FileSink(_SparkSink):
    """A folder of files in one of Spark's own formats."""

    def __init__(self, choice: SinkChoice, format_: str, files: StepFiles) -> None:
        self._choice = choice
        self._format = format_
        self._files = files

    @property
    def description(self) -> str:
        return f"FileSink[{self._files.folder.uri}]"

    def write(self, rows: DataFrame, step: int) -> None:
        options = {name: value for name, value in self._choice.options.items() if name.lower() != "path"}
        writer = rows.write.format(self._format).options(**options).partitionBy(*self._choice.partition_by)
        self._files.write(step, writer.save)


class FormatSink(_SparkSink):
    """Any other format of Spark's batch writers."""

    def __init__(self, choice: SinkChoice, owner: str) -> None:
        self._choice = choice
        self._owner = owner

    @property
    def description(self) -> str:
        return f"{self._choice.format}[{self._choice.path or _option(self._choice.options, 'path') or ''}]"

    def write(self, rows: DataFrame, step: int) -> None:
        choice = self._choice
        options = {**choice.options, **transaction(choice.format or "", self._owner, step)}
        writer = rows.write.format(choice.format or "").mode("append").options(**options)
        writer.partitionBy(*choice.partition_by).save(choice.path)


class TableSink(_SparkSink):
    """A table of the session's catalog, created if it does not exist."""

    def __init__(self, spark: SparkSession, choice: SinkChoice, owner: str) -> None:
        assert choice.table is not None
        self._spark = spark
        self._choice = choice
        self._table = choice.table
        self._owner = owner

    @property
    def description(self) -> str:
        return f"Table[{self._table}]"

    def write(self, rows: DataFrame, step: int) -> None:
        if not self._spark.catalog.tableExists(self._table):
            self._create(rows)
        provider, location, partitions = self._described()
        choice = self._choice
        if provider in FILE_FORMATS:
            files = StepFiles(folder_at(self._spark, location), self._owner)
            writer = rows.write.format(provider).options(**choice.options)
            files.write(step, writer.partitionBy(*partitions).save)
            if partitions:
                self._spark.catalog.recoverPartitions(self._table)
            self._spark.catalog.refreshTable(self._table)
            return
        if provider in _WITH_TRANSACTIONS:
            options = {**choice.options, **transaction(provider, self._owner, step)}
            rows.write.format(provider).mode("append").options(**options).saveAsTable(self._table)
            return
        append = rows.writeTo(self._table)
        for name, value in choice.options.items():
            append = append.option(name, value)
        append.append()

    def _create(self, rows: DataFrame) -> None:
        choice = self._choice
        writer = rows.limit(0).writeTo(self._table).using(_format_of(self._spark, choice))
        for name, value in choice.options.items():
            writer = writer.option(name, value)
        if choice.partition_by:
            first, *others = (functions.col(name) for name in choice.partition_by)
            writer = writer.partitionedBy(first, *others)
        writer.create()

    def _described(self) -> tuple[str, str, list[str]]:
        """Return the table's format, its place, and the columns that it is partitioned by."""
        rows = self._spark.sql(f"DESCRIBE TABLE EXTENDED {self._table}").collect()
        found = {row["col_name"].strip(): row["data_type"] for row in reversed(rows)}
        partitions = [column.name for column in self._spark.catalog.listColumns(self._table) if column.isPartition]
        return found.get("Provider", "").lower(), found.get("Location", ""), partitions


class FunctionSink(_SparkSink):
    """A function of the user's, called with a DataFrame and the number of the step."""

    description = "ForeachBatchSink"

    def __init__(self, function: Callable[[DataFrame, int], Any]) -> None:
        self._function = function

    def write(self, rows: DataFrame, step: int) -> None:
        self._function(rows, step)


class ConsoleSink(_SparkSink):
    """Prints the first rows of each step, as Spark's console sink does."""

    description = "ConsoleSink"

    def __init__(self, options: Mapping[str, str]) -> None:
        self._rows = int(_option(options, "numRows") or 20)
        self._truncate = (_option(options, "truncate") or "true").lower() != "false"

    def write(self, rows: DataFrame, step: int) -> None:
        line = "-------------------------------------------"
        print(f"{line}\nBatch: {step}\n{line}")
        rows.show(self._rows, self._truncate)


class MemorySink(_SparkSink):
    """A table in memory under the query's name, for tests and notebooks."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name
        self._steps: dict[int, pa.Table] = {}

    @property
    def description(self) -> str:
        return f"MemorySink[{self._name}]"

    def write(self, rows: DataFrame, step: int) -> None:
        self._steps[step] = rows.toArrow()
        whole = pa.concat_tables(self._steps.values())
        self._spark.createDataFrame(whole, rows.schema).createOrReplaceTempView(self._name)


def transaction(format_: str, owner: str, step: int) -> dict[str, str]:
    """Return the options by which a format recognizes a step that it has."""
    if format_.lower() not in _WITH_TRANSACTIONS:
        return {}
    return {"txnAppId": f"tidegate/{owner}", "txnVersion": str(step)}


def _format_of(spark: SparkSession, choice: SinkChoice) -> str:
    return choice.format or str(spark.conf.get("spark.sql.sources.default"))


def _option(options: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)
