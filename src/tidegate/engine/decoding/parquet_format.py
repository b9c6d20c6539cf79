"""Parquet files, of which only the columns that a query wants are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from tidegate.engine.decoding.decoded import Problem
from tidegate.engine.decoding.formats import FORMATS, Format, Unreadable
from tidegate.engine.decoding.table_decoder import TableKind
from tidegate.engine.decoding.tables import Table


@FORMATS.register
class ParquetFormat(TableKind):
    """A format of files only, as in the service."""

    name = "parquet"
    in_events = False

    def table(self, content: bytes, format_: Format) -> Table:
        """See ``TableKind.table``."""
        return _table(content)


class _ParquetColumns(Mapping[str, Any]):
    """The columns of a Parquet file, each read when it is asked for."""

    def __init__(self, file: pa.parquet.ParquetFile) -> None:
        self._file = file
        self._names: list[str] = file.schema_arrow.names
        self._read: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._read:
            try:
                found = self._file.read(columns=[name], use_threads=False)
                if name not in found.column_names:  # a name with a dot in it means something else to the reader
                    found = self._file.read(use_threads=False)
                self._read[name] = found.column(name)
            except (pa.ArrowException, OSError) as error:
                raise Unreadable(Problem.MALFORMED) from error
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _table(content: bytes) -> Table:
    try:
        file = pa.parquet.ParquetFile(pa.BufferReader(content))
        columns = _ParquetColumns(file)
        rows = file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise Unreadable(Problem.MALFORMED) from error
    if len(set(columns)) < len(columns):
        raise Unreadable(Problem.INVALID_HEADER)
    return Table(columns, np.arange(rows), rows, content_bytes=len(content))
