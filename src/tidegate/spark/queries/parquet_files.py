"""Files of Parquet behind a DataFrame, which tasks of a query over history read themselves.

Spark reads Parquet in Java and converts every row to Arrow for Python, which takes longer than the query. A DataFrame
that is nothing but files of Parquet is read by Arrow in the tasks instead: the same rows, and no conversion. Whatever
Spark would change on the way is left to Spark: a DataFrame with a filter, a column of its own or a cache, options of
the reader, partition columns, other formats and tables, files that are not in a file system, and columns that Arrow and
Spark do not read alike, such as times of a calendar that Spark converts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, types

from tidegate.connectors.model.errors import InputError
from tidegate.spark.queries.frame_events import EventsOfFrame, Layout
from tidegate.spark.queries.frame_runs import RunsPlace
from tidegate.spark.queries.parcels import in_one_line

_MOST_FILES = 256
_MOST_ROWS_A_TASK = 8_000_000
_BATCH_ROWS = 65_536
_BATCH_BYTES = 16 << 20
_UTC = pa.timestamp("us", "UTC")
_RELATION = "org.apache.spark.sql.execution.datasources.LogicalRelation"
_ALIAS = "org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias"
_OF_FILES = {
    "relation": "org.apache.spark.sql.execution.datasources.HadoopFsRelation",
    "location": "org.apache.spark.sql.execution.datasources.InMemoryFileIndex",
    "fileFormat": "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat",
}
# Settings with which Spark reads something else than what is in the files, and the value with which it does not.
_SETTINGS = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.parquet.int96TimestampConversion": "false",
}
_ARROW_TYPES: dict[type[types.DataType], tuple[pa.DataType, ...]] = {
    types.BooleanType: (pa.bool_(),),
    types.ByteType: (pa.int8(),),
    types.ShortType: (pa.int16(),),
    types.IntegerType: (pa.int32(),),
    types.LongType: (pa.int64(),),
    types.FloatType: (pa.float32(),),
    types.DoubleType: (pa.float64(),),
    types.StringType: (pa.string(), pa.large_string()),
    types.BinaryType: (pa.binary(), pa.large_binary()),
    types.TimestampType: (_UTC, pa.timestamp("ms", "UTC")),
    types.TimestampNTZType: (pa.timestamp("us"), pa.timestamp("ms")),
}
"""By type of a column in Spark, those in files of which Spark and Arrow read the same values; the first is Spark's."""


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column to read.

    Attributes:
        alias: its name in a `Layout`.
        name: its name in the files.
        type: what it is converted to.
    """

    alias: str
    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a file.

    Attributes:
        groups, file_rows: how many groups and rows the file had when the query was planned.
        batch_rows: how many rows are read at a time.
    """

    path: str
    number: int
    rows: int
    batch_rows: int
    groups: int
    file_rows: int


@dataclass(frozen=True, slots=True)
class FilesPlace:
    """Reads files of Parquet and makes runs of their rows; its rows are numbers of parts.

    Attributes:
        parts: the row groups that one task reads each.
    """

    runs: RunsPlace
    columns: tuple[FileColumn, ...]
    parts: tuple[tuple[RowGroup, ...], ...]

    @property
    def __name__(self) -> str:
        """The name that Spark's plans and UI show."""
        return f"files_of_{self.runs.layout.input}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.runs(in_one_line(self._rows(batches)))

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_pylist():
                yield from rows_of(self.parts[part], self.columns)


def rows_of(groups: Iterable[RowGroup], columns: Sequence[FileColumn]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of row groups in order.

    Raises:
        InputError: a file cannot be read, or was replaced since the query was planned.
    """
    names = [column.name for column in columns]
    schema = pa.schema([(column.alias, column.type) for column in columns])
    opened: tuple[str, pq.ParquetFile] | None = None
    for group in groups:
        try:
            if opened is None or opened[0] != group.path:
                opened = group.path, pq.ParquetFile(group.path, coerce_int96_timestamp_unit="us")
            found = opened[1].metadata
            if (found.num_row_groups, found.num_rows) != (group.groups, group.file_rows):
                raise InputError(f"{group.path}: the file was replaced after the query was made; make the query again")
            for batch in opened[1].iter_batches(group.batch_rows, [group.number], list(dict.fromkeys(names)), False):
                arrays = [batch.column(column.name).cast(column.type) for column in columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{group.path}: the file cannot be read: {error}") from error


# which files, and whether Arrow reads what Spark would
# ------------------------------------------------------------------------------------------------------


def place_for(found: EventsOfFrame, layout: Layout, runs: RunsPlace, tasks: int) -> FilesPlace | None:
    """Return what reads the files behind a DataFrame; None if Spark has to.

    Args:
        tasks: how many run at once.
    """
    try:
        names = _names(found, layout)
        paths = [] if names is None else _paths(found.frame)
        if names is None or not paths:
            return None
        columns = _columns(found.frame, names)
        files = None if columns is None else _row_groups(paths, columns, found.frame)
    except (Py4JError, PySparkException, OSError, pa.ArrowException):
        # What cannot be found out about a DataFrame or its files is for Spark to read, and to complain about.
        return None
    return None if columns is None or not files else FilesPlace(runs, columns, _parts(files, tasks))


def _names(found: EventsOfFrame, layout: Layout) -> dict[str, str] | None:
    """Return the columns of the DataFrame by those of the layout; None if one is an expression."""
    if layout.details:
        return None
    given: dict[str, Any] = {} if found.partition is None else {"partition": found.partition}
    given["arrival"] = found.arrival
    if layout.numbered:
        given["number"] = found.order
    if layout.fields is None:
        given["body"] = found.body
    else:
        given |= {f"field{place}": name for place, name in enumerate(layout.fields)}
    by_lower = {name.lower(): name for name in found.frame.columns}
    names = {alias: by_lower.get(name.lower()) for alias, name in given.items() if isinstance(name, str)}
    known = {alias: name for alias, name in names.items() if name is not None}
    return known if len(known) == len(given) and len(by_lower) == len(found.frame.columns) else None


def _paths(frame: DataFrame) -> list[str]:
    """Return the files that a DataFrame consists of; none if it is more than files of Parquet in a file system."""
    java = getattr(frame, "_jdf", None)
    if java is None or frame.storageLevel.useMemory or frame.storageLevel.useDisk:
        return []
    conf = frame.sparkSession.conf
    if any(str(conf.get(name)).lower() != value for name, value in _SETTINGS.items()):
        return []
    plan = java.queryExecution().analyzed()
    while _class(plan) == _ALIAS:
        plan = plan.child()
    if _class(plan) != _RELATION or _class(plan.relation()) != _OF_FILES["relation"]:
        return []
    relation = plan.relation()
    if any(_class(getattr(relation, part)()) != _OF_FILES[part] for part in ("location", "fileFormat")):
        return []
    options = relation.options()
    if not relation.partitionSchema().isEmpty() or options.size() != int(options.contains("path")):
        return []
    files = [urlsplit(uri) for uri in frame.inputFiles()]
    if len(files) > _MOST_FILES or any(one.scheme != "file" or one.netloc for one in files):
        return []
    return sorted(unquote(one.path) for one in files)


def _class(of: Any) -> str:
    return str(of.getClass().getName())


def _columns(frame: DataFrame, names: dict[str, str]) -> tuple[FileColumn, ...] | None:
    found = []
    for alias, name in names.items():
        of_spark = frame.schema[name].dataType
        if type(of_spark) not in _ARROW_TYPES or of_spark.simpleString().startswith("string "):
            return None  # a type that is not converted alike, or a text with a collation
        kind = {"number": pa.int64(), "body": pa.binary()}.get(alias, _ARROW_TYPES[type(of_spark)][0])
        found.append(FileColumn(alias, name, kind))
    return tuple(found)


def _row_groups(paths: Sequence[str], columns: Sequence[FileColumn], frame: DataFrame) -> list[RowGroup] | None:
    """Return the row groups of files; None if Arrow would read another value than Spark in one of them."""
    found = []
    for path in paths:
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            if not all(_reads_alike(file, column, frame) for column in columns):
                return None
            metadata = file.metadata
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            batch_rows = min(_BATCH_ROWS, max(1, _BATCH_BYTES * group.num_rows // max(1, group.total_byte_size)))
            sizes = (metadata.num_row_groups, metadata.num_rows)
            found.append(RowGroup(path, number, group.num_rows, batch_rows, *sizes))
    return [group for group in found if group.rows]


def _reads_alike(file: pq.ParquetFile, column: FileColumn, frame: DataFrame) -> bool:
    schema = file.schema_arrow
    if [name.lower() for name in schema.names].count(column.name.lower()) != 1 or column.name not in schema.names:
        return False
    of_spark, of_file = frame.schema[column.name].dataType, schema.field(column.name).type
    place = next(at for at in range(len(file.schema)) if file.schema.column(at).path == column.name)
    is_int96 = file.schema.column(place).physical_type == "INT96"
    if is_int96:
        return isinstance(of_spark, types.TimestampType) and _has_todays_calendar(file, frame, "int96", b"legacyINT96")
    if of_file not in _ARROW_TYPES[type(of_spark)]:
        return False
    return not pa.types.is_timestamp(of_file) or _has_todays_calendar(file, frame, "datetime", b"legacyDateTime")


def _has_todays_calendar(file: pq.ParquetFile, frame: DataFrame, kind: str, legacy: bytes) -> bool:
    """Return whether Spark takes times as they are, and not as those of the calendar that it once wrote."""
    notes = file.metadata.metadata or {}
    version = notes.get(b"org.apache.spark.version")
    if version is None:
        return str(frame.sparkSession.conf.get(f"spark.sql.parquet.{kind}RebaseModeInRead")).upper() == "CORRECTED"
    major = version.partition(b".")[0]
    return major.isdigit() and int(major) >= 3 and b"org.apache.spark." + legacy not in notes


def _parts(groups: Sequence[RowGroup], tasks: int) -> tuple[tuple[RowGroup, ...], ...]:
    """Return the row groups in parts of about as many rows, each of consecutive ones."""
    total = sum(group.rows for group in groups)
    count = min(len(groups), max(tasks, -(-total // _MOST_ROWS_A_TASK)))
    parts: list[list[RowGroup]] = [[] for _ in range(count)]
    before = 0
    for group in groups:
        parts[(before + group.rows // 2) * count // total].append(group)
        before += group.rows
    return tuple(tuple(part) for part in parts if part)
