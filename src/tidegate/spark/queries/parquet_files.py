"""Files of Parquet behind a DataFrame, which tasks of a query over history read themselves.

Spark reads Parquet in Java and converts every row to Arrow for Python, which takes longer than the query. A DataFrame
that is nothing but files of Parquet is read by Arrow in the tasks instead: the same rows, and no conversion. Whatever
Spark would change on the way is left to Spark: a DataFrame with a filter, a column of its own or a cache, options of
the reader, partition columns, other formats and tables, files that are not in a file system, and columns that Arrow and
Spark do not read alike, such as times of a calendar that Spark converts.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, types

from tidegate.connectors.model.errors import InputError
from tidegate.spark.queries.frame_events import EventsOfFrame, RowLayout
from tidegate.spark.queries.frame_runs import RunsStage
from tidegate.spark.queries.parcels import rows_of_task

_MOST_FILES = 256
_FOOTERS_HELD = 16
_MOST_ROWS_A_TASK = 8_000_000
# A text that is not a number of a dictionary has four bytes and more.
_REPETITIVE_BYTES = 3
_BATCH_ROWS = 65_536
_BATCH_BYTES = 16 << 20
# The years 1 to 9999, in microseconds.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_800_000_000
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
        alias: its name in a `RowLayout`.
        name: its name in the files.
        type: what it is converted to.
        repetitive: whether there are few distinct texts, as far as their size in the files tells; `rows_of_group`
            leaves them as numbers of a dictionary.
    """

    alias: str
    name: str
    type: pa.DataType
    repetitive: bool = False

    @property
    def is_field(self) -> bool:
        """Whether the query may use it, and nothing else does."""
        return self.alias.startswith("field")


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a file.

    Attributes:
        groups, file_rows: how many groups and rows the file had when the query was planned.
        batch_rows: how many rows are read at a time.
        bytes: about what the columns that are read take in memory.
        keys: the smallest and largest key by which events are sorted; None if the footer does not say.
        partition: the partition of all rows, if it is a whole number, and the footer says that it is one.
        partitions: the smallest and the largest partition, if they are whole numbers, and the footer says so.
        latest: by column of times in the file, its largest value in microseconds, where the footer says it.
    """

    path: str
    number: int
    rows: int
    batch_rows: int
    groups: int
    file_rows: int
    bytes: int = 0
    keys: tuple[int, int] | None = None
    partition: int | None = None
    partitions: tuple[int, int] | None = None
    latest: Mapping[str, int] = field(default_factory=dict)

    @property
    def low(self) -> int:
        """The smallest key."""
        assert self.keys is not None
        return self.keys[0]

    @property
    def high(self) -> int:
        """The largest key."""
        assert self.keys is not None
        return self.keys[1]


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """The files behind a DataFrame.

    Attributes:
        columns: those that a query reads.
        unproven: the aliases of columns of which the footers do not exclude values that no type of a query represents,
            such as an infinite number.
    """

    columns: tuple[FileColumn, ...]
    groups: tuple[RowGroup, ...]
    unproven: frozenset[str] = frozenset()

    def stage(self, runs: RunsStage, tasks: int) -> FilesStage:
        """Return what makes runs of the rows.

        Args:
            tasks: how many run at once.
        """
        return FilesStage(runs, self.columns, _parts(self.groups, tasks))


@dataclass(frozen=True, slots=True)
class FilesStage:
    """Reads files of Parquet and makes runs of their rows; its rows are numbers of parts.

    Attributes:
        parts: the row groups that one task reads each.
    """

    runs: RunsStage
    columns: tuple[FileColumn, ...]
    parts: tuple[tuple[RowGroup, ...], ...]

    @property
    def __name__(self) -> str:
        """The name that Spark's plans and UI show."""
        return f"files_of_{self.runs.layout.input}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.runs(rows_of_task(self._rows(batches)))

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_pylist():
                yield from rows_of(self.parts[part], self.columns)


def rows_of(groups: Iterable[RowGroup], columns: Sequence[FileColumn]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of row groups in order.

    Raises:
        InputError: a file cannot be read, or was replaced since the query was planned.
    """
    names, schema = _names_in_files(columns), pa.schema([(column.alias, column.type) for column in columns])
    opened: tuple[str, pq.ParquetFile] | None = None
    for group in groups:
        with _read_errors(group.path):
            if opened is None or opened[0] != group.path:
                opened = group.path, pq.ParquetFile(group.path, coerce_int96_timestamp_unit="us")
            _check_unchanged(group, opened[1])
            for batch in opened[1].iter_batches(group.batch_rows, [group.number], names, False):
                arrays = [batch.column(column.name).cast(column.type) for column in columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_of_group(group: RowGroup, columns: Sequence[FileColumn]) -> pa.Table:
    """Return the rows of a row group; those of repetitive columns as numbers of a dictionary.

    Raises:
        InputError: the file cannot be read, or was replaced since the query was planned.
    """
    repetitive = [column.name for column in columns if column.repetitive]
    with _read_errors(group.path), _opened(group.path, repetitive) as file:
        _check_unchanged(group, file)
        table = file.read_row_group(group.number, _names_in_files(columns), use_threads=False)
        return pa.table({column.alias: _as_planned(table.column(column.name), column) for column in columns})


def _as_planned(values: pa.ChunkedArray, column: FileColumn) -> pa.ChunkedArray:
    """Return values with the type of their column, or those of a field as numbers of a dictionary."""
    if pa.types.is_dictionary(values.type):
        # Unlike texts, numbers are not checked as they are read.
        values.validate(full=True)
        if column.repetitive:
            return values
    return values.cast(column.type)


def _opened(path: str, as_dictionaries: Sequence[str]) -> pq.ParquetFile:
    """Open a file, whose footer is read once for all of its row groups."""
    status = os.stat(path)
    metadata = _footer(path, status.st_mtime_ns, status.st_size)
    return pq.ParquetFile(
        path, metadata=metadata, read_dictionary=list(as_dictionaries), coerce_int96_timestamp_unit="us"
    )


@lru_cache(_FOOTERS_HELD)
def _footer(path: str, modified_ns: int, size: int) -> pq.FileMetaData:
    return pq.read_metadata(path)


def _names_in_files(columns: Sequence[FileColumn]) -> list[str]:
    return list(dict.fromkeys(column.name for column in columns))


@contextlib.contextmanager
def _read_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: the file cannot be read: {error}") from error


def _check_unchanged(group: RowGroup, file: pq.ParquetFile) -> None:
    if (file.metadata.num_row_groups, file.metadata.num_rows) != (group.groups, group.file_rows):
        raise InputError(f"{group.path}: the file was replaced after the query was made; make the query again")


# which files, and whether Arrow reads what Spark would
# ------------------------------------------------------------------------------------------------------


def files_of(found: EventsOfFrame, layout: RowLayout) -> ParquetFiles | None:
    """Return the files behind a DataFrame; None if Spark has to read them."""
    try:
        names = _names(found, layout)
        paths = [] if names is None else _paths(found.frame)
        if names is None or not paths:
            return None
        columns = _columns(found.frame, names)
        if columns is None or not all(_are_read_alike(path, columns, found.frame) for path in paths):
            return None
        files = footers_of(paths, columns)
    except (Py4JError, PySparkException, OSError, pa.ArrowException):
        # What cannot be found out about a DataFrame or its files is for Spark to read, and to complain about.
        return None
    return files if files.groups else None


def _names(found: EventsOfFrame, layout: RowLayout) -> dict[str, str] | None:
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


def footers_of(paths: Sequence[str], columns: tuple[FileColumn, ...]) -> ParquetFiles:
    """Return files with what their footers say.

    Raises:
        OSError, pa.ArrowException: one cannot be read.
    """
    found: list[RowGroup] = []
    unproven: set[str] = set()
    sizes = Counter[str]()
    key = next((column for column in columns if column.alias == "number"), None)
    key = key or next(column for column in columns if column.alias == "arrival")
    partition = next((column for column in columns if column.alias == "partition"), None)
    for path in paths:
        with pq.ParquetFile(path) as file:
            metadata = file.metadata
            places = {column.alias: _place(file, column.name) for column in columns}
            units = {column.alias: _units(file, column.name) for column in columns}
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            if not group.num_rows:
                continue
            batch_rows = min(_BATCH_ROWS, max(1, _BATCH_BYTES * group.num_rows // max(1, group.total_byte_size)))
            chunks = {alias: group.column(place) for alias, place in places.items()}
            bounds = {alias: _bounds(chunk, units[alias]) for alias, chunk in chunks.items()}
            unproven |= {column.alias for column in columns if not _is_proven(column.type, bounds[column.alias])}
            in_one = partition is not None and pa.types.is_integer(partition.type)
            partitions = bounds["partition"] if in_one else None
            if partitions is not None and chunks["partition"].statistics.null_count != 0:
                partitions = None
            latest = {
                column.name: known[1]
                for column in columns
                if pa.types.is_timestamp(column.type) and (known := bounds[column.alias]) is not None
            }
            for alias, chunk in chunks.items():
                sizes[alias] += chunk.total_uncompressed_size
            found.append(
                RowGroup(
                    path,
                    number,
                    group.num_rows,
                    batch_rows,
                    metadata.num_row_groups,
                    metadata.num_rows,
                    2 * sum(chunk.total_uncompressed_size for chunk in chunks.values()),
                    bounds[key.alias],
                    partitions[0] if partitions is not None and partitions[0] == partitions[1] else None,
                    partitions,
                    latest,
                )
            )
    total = sum(group.rows for group in found)
    # Events without numbers are sorted by content, which is compared as texts.
    repetitive = {
        column
        for column in columns
        if pa.types.is_string(column.type) and column.is_field and key.alias == "number"
        if sizes[column.alias] < _REPETITIVE_BYTES * total
    }
    marked = tuple(replace(column, repetitive=True) if column in repetitive else column for column in columns)
    return ParquetFiles(marked, tuple(found), frozenset(unproven))


def _place(file: pq.ParquetFile, name: str) -> int:
    return next(at for at in range(len(file.schema)) if file.schema.column(at).path == name)


def _units(file: pq.ParquetFile, name: str) -> int:
    """Return how many microseconds a time of a column counts; 1 for other columns."""
    of_file = file.schema_arrow.field(name).type
    return 1000 if pa.types.is_timestamp(of_file) and of_file.unit == "ms" else 1


def _bounds(chunk: pq.ColumnChunkMetaData, units: int) -> tuple[Any, Any] | None:
    """Return the smallest and the largest value, times in microseconds; None if the footer does not say."""
    statistics = chunk.statistics if chunk.is_stats_set else None
    if statistics is None or not statistics.has_min_max or chunk.physical_type == "INT96":
        return None
    if chunk.physical_type in ("INT32", "INT64"):
        return statistics.min_raw * units, statistics.max_raw * units
    return statistics.min, statistics.max


def _is_proven(type_: pa.DataType, bounds: tuple[Any, Any] | None) -> bool:
    """Return whether a query has a type for every value of a column, given the smallest and the largest."""
    if pa.types.is_floating(type_):
        return bounds is not None and math.isfinite(bounds[0]) and math.isfinite(bounds[1])
    if pa.types.is_timestamp(type_):
        return bounds is not None and bounds[0] >= _FIRST_US and bounds[1] < _LAST_US
    return True


def _are_read_alike(path: str, columns: Sequence[FileColumn], frame: DataFrame) -> bool:
    """Return whether Arrow reads the values of a file that Spark would."""
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        return all(_reads_alike(file, column, frame) for column in columns)


def _reads_alike(file: pq.ParquetFile, column: FileColumn, frame: DataFrame) -> bool:
    schema = file.schema_arrow
    if [name.lower() for name in schema.names].count(column.name.lower()) != 1 or column.name not in schema.names:
        return False
    of_spark, of_file = frame.schema[column.name].dataType, schema.field(column.name).type
    is_int96 = file.schema.column(_place(file, column.name)).physical_type == "INT96"
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
