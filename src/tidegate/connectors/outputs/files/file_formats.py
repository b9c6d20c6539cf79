"""The formats of files that are written whole: JSON, CSV, Avro and Parquet.

Rows become durable as *chunks* before there are enough of them for a file; a file is made of one or more chunks. A
chunk of text holds lines, one of columns an Arrow stream, so that a file has one header and one schema.
"""

from __future__ import annotations

import csv
import io
import json
import secrets
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs.arrow_tables import Misfit, arrow_table, named_columns
from tidegate.connectors.outputs.output import COLUMN_NAME_INVALID, RejectedRow, example_of
from tidegate.connectors.outputs.values import json_text
from tidegate.engine import Kind, ResultRows, Vector
from tidegate.engine.values.json_lines import plain_values
from tidegate.sql.plan.nodes import Type


class CsvLines:
    """Writes rows below a header."""

    def __init__(self, delimiter: str, columns: Sequence[str]) -> None:
        self._delimiter = delimiter
        self._columns = list(columns)

    def header(self) -> bytes:
        """Return the header."""
        return self._text([self._columns])

    def encode(self, rows: ResultRows) -> tuple[bytes, list[RejectedRow]]:
        """Return the lines of rows, and the rows with a column that the header lacks, numbered from the first."""
        whole = self._by_column(rows)
        return (whole, []) if whole is not None else self._by_row(rows)

    def _by_column(self, rows: ResultRows) -> bytes | None:
        """Return the lines of rows that have the same columns, all of them in the header; None of other rows."""
        places: dict[str, int] = {}
        for place, name in enumerate(rows.names):
            if name is None or name.lower() in places:
                return None
            places[name.lower()] = place
        if not places.keys() <= {column.lower() for column in self._columns}:
            return None
        nothing = [None] * len(rows)
        found = [places.get(column.lower()) for column in self._columns]
        fields = [nothing if place is None else csv_fields(rows.columns[place]) for place in found]
        return self._text(zip(*fields, strict=True))

    def _by_row(self, rows: ResultRows) -> tuple[bytes, list[RejectedRow]]:
        known = {column.lower() for column in self._columns}
        rejected: list[RejectedRow] = []
        kept: list[list[Any]] = []
        for place, row in enumerate(rows.to_dicts()):
            unknown = next((name for name in row if name.lower() not in known), None)
            if unknown is not None:
                message = f"the column '{unknown}' is not in the header"
                time = int(rows.timestamps[place])
                rejected.append(RejectedRow(COLUMN_NAME_INVALID, message, place, time, example_of(row)))
                continue
            lowered = {name.lower(): value for name, value in row.items()}
            kept.append([_field(lowered.get(column.lower())) for column in self._columns])
        return self._text(kept), rejected

    def _text(self, lines: Iterable[Iterable[Any]]) -> bytes:
        text = io.StringIO()
        csv.writer(text, delimiter=self._delimiter, lineterminator="\r\n").writerows(lines)
        return text.getvalue().encode()


def csv_fields(vector: Vector) -> Iterable[Any]:
    """Return the values of a column as `csv.writer` takes them."""
    if not vector.present() - {Kind.BIGINT, Kind.NVARCHAR, Kind.DATETIME, Kind.NULL}:
        return plain_values(vector)
    return [value if value is None or type(value) is str else json_text(value) for value in plain_values(vector)]


def _field(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_ROWS_OF_A_BLOCK = 4_000
_NULL_BRANCH, _VALUE_BRANCH = 0, 2  # 0 and 1, each written as a long

Bytes = npt.NDArray[np.uint8]
Lengths = npt.NDArray[np.int64]

TYPES: dict[pa.DataType, Any] = {
    pa.int64(): "long",
    pa.float64(): "double",
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.timestamp("us", tz="UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.null(): "string",
}
"""The types of columns that can be written, and what they are in Avro."""


@dataclass(frozen=True, slots=True)
class _Encoded:
    """The values of a column: how many bytes each has, and all of them one after the other."""

    lengths: Lengths
    content: Bytes


def avro_file(table: pa.Table, names: list[str]) -> bytes:
    """Return a table as a file, compressed by deflate.

    Args:
        names: of the fields, which are valid in Avro.
    """
    fields = [{"name": name, "type": ["null", TYPES[one.type]]} for name, one in zip(names, table.schema, strict=True)]
    schema = json.dumps({"type": "record", "name": "Result", "fields": fields}).encode()
    sync = secrets.token_bytes(_SYNC_BYTES)
    parts = [_MAGIC, _avro_header({"avro.schema": schema, "avro.codec": b"deflate"}), sync]
    for first in range(0, table.num_rows, _ROWS_OF_A_BLOCK):
        block = table.slice(first, _ROWS_OF_A_BLOCK)
        compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        body = compressor.compress(_records(block)) + compressor.flush()
        parts += [_long(block.num_rows), _long(len(body)), body, sync]
    return b"".join(parts)


def _avro_header(entries: dict[str, bytes]) -> bytes:
    pairs = [_sized(name.encode()) + _sized(value) for name, value in entries.items()]
    return _long(len(pairs)) + b"".join(pairs) + _long(0)


def _sized(content: bytes) -> bytes:
    return _long(len(content)) + content


def _long(value: int) -> bytes:
    encoded = _longs(np.array([value], np.int64))
    return encoded.content.tobytes()


def _records(table: pa.Table) -> bytes:
    """Return the fields of each row, row by row."""
    columns = [_in_union(column.combine_chunks()) for column in table.columns]
    lengths = np.stack([column.lengths for column in columns], axis=1)
    starts = np.cumsum(lengths) - lengths.ravel()
    found = np.empty(int(lengths.sum()), np.uint8)
    for column, place in zip(columns, starts.reshape(lengths.shape).T, strict=True):
        found[_places(place, column.lengths)] = column.content
    return found.tobytes()


def _places(starts: Lengths, lengths: Lengths) -> Lengths:
    """Return where each byte goes of values that begin at ``starts``."""
    before = np.cumsum(lengths) - lengths
    places: Lengths = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    return places


def _in_union(array: Any) -> _Encoded:
    """Return a column with the branch of the union before each value."""
    valid = np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False), bool)
    values = _values(array.drop_null() if not valid.all() else array)
    lengths = np.ones(len(array), np.int64)
    lengths[valid] += values.lengths
    content = np.full(int(lengths.sum()), _NULL_BRANCH, np.uint8)
    starts = (np.cumsum(lengths) - lengths)[valid]
    content[starts] = _VALUE_BRANCH
    content[_places(starts + 1, values.lengths)] = values.content
    return _Encoded(lengths, content)


def _values(array: Any) -> _Encoded:
    """Return values, none of which is NULL."""
    if pa.types.is_null(array.type):
        return _Encoded(np.zeros(0, np.int64), np.zeros(0, np.uint8))
    if pa.types.is_boolean(array.type):
        return _Encoded(np.ones(len(array), np.int64), array.cast(pa.uint8()).to_numpy())
    if pa.types.is_float64(array.type):
        numbers = np.ascontiguousarray(array.to_numpy(), "<f8")
        return _Encoded(np.full(len(array), 8, np.int64), numbers.view(np.uint8))
    if pa.types.is_string(array.type):
        return _texts(array)
    return _longs(array.cast(pa.int64()).to_numpy())


def _texts(array: Any) -> _Encoded:
    binary = array.cast(pa.binary())
    _, offsets_buffer, content_buffer = binary.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    content = np.frombuffer(content_buffer, np.uint8) if content_buffer is not None else np.zeros(0, np.uint8)
    content = content[offsets[0] : offsets[-1]]
    sizes = np.diff(offsets)
    prefixes = _longs(sizes)
    lengths = prefixes.lengths + sizes
    found = np.empty(int(lengths.sum()), np.uint8)
    starts = np.cumsum(lengths) - lengths
    found[_places(starts, prefixes.lengths)] = prefixes.content
    found[_places(starts + prefixes.lengths, sizes)] = content
    return _Encoded(lengths, found)


def _longs(numbers: npt.NDArray[np.int64]) -> _Encoded:
    """Return whole numbers as variable-length zigzag."""
    zigzag = (numbers.astype(np.uint64) << np.uint64(1)) ^ (numbers >> np.int64(63)).astype(np.uint64)
    longest = max(1, -(-int(zigzag.max(initial=0)).bit_length() // 7))
    digits = np.empty((len(numbers), longest), np.uint8)
    lengths = np.ones(len(numbers), np.int64)
    for place in range(longest):
        digit = zigzag & np.uint64(0x7F)
        zigzag = zigzag >> np.uint64(7)
        more = zigzag > 0
        digits[:, place] = digit | (more.astype(np.uint64) << np.uint64(7))
        lengths += more
    return _Encoded(lengths, digits[np.arange(longest) < lengths[:, None]])


class ResultFormat(StrEnum):
    """How results are written."""

    JSON = "json"
    CSV = "csv"
    AVRO = "avro"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class FormatSettings:
    """A format and its options.

    Attributes:
        array: one JSON array instead of lines. delimiter: of CSV.
        types: of columns, by name in lower case, for Avro and Parquet.
    """

    kind: ResultFormat
    array: bool = False
    delimiter: str = ","
    types: Mapping[str, Type] = field(default_factory=dict)

    def opened(self) -> FileFormat:
        """Return the format."""
        match self.kind:
            case ResultFormat.JSON:
                return JsonFiles(array=self.array)
            case ResultFormat.CSV:
                return CsvFiles(self.delimiter)
            case ResultFormat.AVRO:
                return AvroFiles(self.types)
            case ResultFormat.PARQUET:
                return ParquetResults(self.types)
        assert_never(self.kind)


class FileFormat(ABC):
    """How rows become files."""

    suffix: str

    def misfits(self, rows: ResultRows) -> list[Misfit]:
        """Return the values that have no counterpart in the format."""
        return []

    @abstractmethod
    def chunk(self, rows: ResultRows) -> bytes:
        """Return rows in durable form; values that do not fit are NULL."""

    def joins(self, chunks: Sequence[bytes], chunk: bytes) -> bool:
        """Return whether a chunk goes into one file with others."""
        return True

    @abstractmethod
    def file(self, chunks: Sequence[bytes]) -> bytes:
        """Return a whole file of chunks that go into one."""

    def file_of_rows(self, rows: ResultRows) -> bytes:
        """Return a whole file of rows."""
        return self.file([self.chunk(rows)])


class JsonFiles(FileFormat):
    """A line of JSON for each row, or one array of them all."""

    def __init__(self, *, array: bool) -> None:
        self._array = array
        self.suffix = ".json" if array else ".jsonl"

    def chunk(self, rows: ResultRows) -> bytes:
        return rows.to_json_lines()

    def file(self, chunks: Sequence[bytes]) -> bytes:
        lines = b"".join(chunks)
        return b"[\n" + lines[:-1].replace(b"\n", b",\n") + b"\n]\n" if self._array else lines


class CsvFiles(FileFormat):
    """RFC 4180 with a header: UTF-8, NULL as nothing, times and nested values as JSON writes them."""

    suffix = ".csv"

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter

    def chunk(self, rows: ResultRows) -> bytes:
        columns = named_columns(rows)
        text = io.StringIO()
        writer = csv.writer(text, delimiter=self._delimiter, lineterminator="\r\n")
        writer.writerow(columns)
        writer.writerows(zip(*map(csv_fields, columns.values()), strict=True))
        header, _, lines = text.getvalue().encode().partition(b"\r\n")
        # A header may have line breaks of its own, inside quotes: its length says where it ends.
        if b'"' in header:
            alone = io.StringIO()
            csv.writer(alone, delimiter=self._delimiter, lineterminator="\r\n").writerow(columns)
            header = alone.getvalue().encode().removesuffix(b"\r\n")
            lines = text.getvalue().encode()[len(header) + 2 :]
        return len(header).to_bytes(4, "big") + header + lines

    def joins(self, chunks: Sequence[bytes], chunk: bytes) -> bool:
        return _header(chunks[0]) == _header(chunk)

    def file(self, chunks: Sequence[bytes]) -> bytes:
        header = _header(chunks[0])
        return b"".join([header, b"\r\n", *(chunk[4 + len(header) :] for chunk in chunks)])


def _header(chunk: bytes) -> bytes:
    return chunk[4 : 4 + int.from_bytes(chunk[:4], "big")]


class ColumnFiles(FileFormat):
    """Formats with a schema; a chunk is an Arrow stream."""

    def __init__(self, types: Mapping[str, Type]) -> None:
        self._types = types

    def misfits(self, rows: ResultRows) -> list[Misfit]:
        return arrow_table(rows, self._types)[1] if self._types else []

    def chunk(self, rows: ResultRows) -> bytes:
        table, _ = arrow_table(rows, self._types)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return bytes(sink.getvalue())

    def joins(self, chunks: Sequence[bytes], chunk: bytes) -> bool:
        try:
            _common_schema([*chunks, chunk])
        except pa.ArrowException:
            return False
        return True

    def file(self, chunks: Sequence[bytes]) -> bytes:
        return self.encoded(self.table(chunks))

    def file_of_rows(self, rows: ResultRows) -> bytes:
        """The way by a chunk would copy the columns twice."""
        return self.encoded(arrow_table(rows, self._types)[0])

    @abstractmethod
    def encoded(self, table: pa.Table) -> bytes:
        """Return a file of a table."""

    def table(self, chunks: Sequence[bytes]) -> pa.Table:
        """Return the rows of chunks as one table."""
        tables = [pa.ipc.open_stream(chunk).read_all() for chunk in chunks]
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")


def _common_schema(chunks: Sequence[bytes]) -> pa.Schema:
    return pa.unify_schemas([pa.ipc.open_stream(chunk).schema for chunk in chunks], promote_options="permissive")


class ParquetResults(ColumnFiles):
    """Parquet, compressed by Snappy; times in microseconds, UTC."""

    suffix = ".parquet"

    def encoded(self, table: pa.Table) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, coerce_timestamps="us", compression="snappy")
        return bytes(sink.getvalue())


class AvroFiles(ColumnFiles):
    """Avro, compressed by deflate; every field may be null, times are timestamp-micros."""

    suffix = ".avro"

    def encoded(self, table: pa.Table) -> bytes:
        return avro_file(table, [_avro_name(name) for name in table.column_names])


def _avro_name(name: str) -> str:
    if not (name.isascii() and name.isidentifier()):
        raise OutputError(
            f"Avro has no column '{name}': its names are letters, digits and underscores; rename the column with AS"
        )
    return name
