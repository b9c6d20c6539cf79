"""Parquet files; only the columns that a query wants are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from tidegate.engine.decoding.decoded import Problem
from tidegate.engine.decoding.formats import FORMATS, Format, Unreadable
from tidegate.engine.decoding.limits import ContentLimits
from tidegate.engine.decoding.table_decoder import TableKind
from tidegate.engine.decoding.tables import Table


@FORMATS.register
class ParquetFormat(TableKind):
    """A format of files only, as in the service."""

    name = "parquet"
    compresses = True
    in_events = False

    def table(self, content: bytes, format_: Format, most: ContentLimits) -> Table:
        return _table(content, most)


class _ParquetColumns(Mapping[str, Any]):
    """The columns of a Parquet file, each read on demand."""

    def __init__(self, content: bytes, most_bytes: int) -> None:
        file = pa.parquet.ParquetFile(pa.BufferReader(content))
        self._file = _with_dictionaries(file, content) if _may_be_large(file.metadata, most_bytes) else file
        self._names: list[str] = file.schema_arrow.names
        self._most_bytes = most_bytes
        self._read: dict[str, Any] = {}
        self.metadata: pa.parquet.FileMetaData = file.metadata

    def __getitem__(self, name: str) -> Any:
        if name not in self._read:
            try:
                found = self._file.read(columns=[name], use_threads=False)
                if name not in found.column_names:  # a name with a dot in it means something else to the reader
                    found = self._file.read(use_threads=False)
                column = found.column(name)
                # Texts inside records and lists that are not UTF-8, and places beyond a dictionary, show only here.
                column.validate(full=True)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise Unreadable(Problem.MALFORMED) from error
            except MemoryError as error:
                raise Unreadable(Problem.LIMIT_EXCEEDED) from error
            if len(column) != self.metadata.num_rows:
                raise Unreadable(Problem.MALFORMED)
            self._read[name] = self._expanded(column)
        return self._read[name]

    def _expanded(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if not pa.types.is_dictionary(column.type):
            return column
        size = 0
        for chunk in column.chunks:
            lengths = pc.cast(pc.binary_length(chunk.dictionary), pa.int64())
            size += pc.sum(pc.take(lengths, chunk.indices)).as_py() or 0
        if size > self._most_bytes:
            raise Unreadable(Problem.LIMIT_EXCEEDED)
        return column.cast(pa.large_string() if pa.types.is_string(column.type.value_type) else column.type.value_type)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _may_be_large(metadata: pa.parquet.FileMetaData, most_bytes: int) -> bool:
    """Return whether texts could exceed a limit if every row had a copy of everything in its row group."""
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    return bool(sum(group.num_rows * group.total_byte_size for group in groups) > most_bytes)


def _with_dictionaries(file: pa.parquet.ParquetFile, content: bytes) -> pa.parquet.ParquetFile:
    """Return the same file with texts as dictionaries, which hold a text once however many rows refer to it.

    The metadata of a column tells whether it has a dictionary, but damaged metadata makes pyarrow end the process.
    """
    texts = [field.name for field in file.schema_arrow if _is_text(field.type)]
    return pa.parquet.ParquetFile(pa.BufferReader(content), read_dictionary=texts) if texts else file


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _table(content: bytes, most: ContentLimits) -> Table:
    try:
        columns = _ParquetColumns(content, most.data_bytes)
        metadata = columns.metadata
        rows = metadata.num_rows
        groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise Unreadable(Problem.MALFORMED) from error
    if rows > most.rows or sum(group.total_byte_size for group in groups) > most.data_bytes:
        raise Unreadable(Problem.LIMIT_EXCEEDED)
    if rows < 0 or sum(group.num_rows for group in groups) != rows:
        raise Unreadable(Problem.MALFORMED)
    if len(set(columns)) < len(columns):
        raise Unreadable(Problem.INVALID_HEADER)
    return Table(columns, np.arange(rows), rows, content_bytes=len(content))
