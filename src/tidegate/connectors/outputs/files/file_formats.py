"""The formats of files that are written whole: JSON, CSV, Avro and Parquet.

Rows become durable as *chunks* before there are enough of them for a file; a file is made of one or more chunks. A
chunk of text holds lines, one of columns an Arrow stream, so that a file has one header and one schema.
"""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs.arrow_tables import Misfit, arrow_table, named_columns
from tidegate.connectors.outputs.files.avro_columns import avro_file
from tidegate.connectors.outputs.files.csv_lines import csv_fields
from tidegate.engine import ResultRows
from tidegate.sql.plan.nodes import Type


class FormatKind(StrEnum):
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

    kind: FormatKind
    array: bool = False
    delimiter: str = ","
    types: Mapping[str, Type] = field(default_factory=dict)

    def opened(self) -> FileFormat:
        """Return the format."""
        match self.kind:
            case FormatKind.JSON:
                return JsonFiles(array=self.array)
            case FormatKind.CSV:
                return CsvFiles(self.delimiter)
            case FormatKind.AVRO:
                return AvroFiles(self.types)
            case FormatKind.PARQUET:
                return ParquetFiles(self.types)
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
        """See ``FileFormat.file_of_rows``; the way by a chunk would copy the columns twice."""
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


class ParquetFiles(ColumnFiles):
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
