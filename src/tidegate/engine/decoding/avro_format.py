"""Avro object container files, as event bodies and as files."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import numpy as np

from tidegate.engine.decoding.decoded import Problem
from tidegate.engine.decoding.formats import FORMATS, Format, Unreadable
from tidegate.engine.decoding.table_decoder import TableKind
from tidegate.engine.decoding.tables import Table


@FORMATS.register
class AvroFormat(TableKind):
    """A container carries its schema; its records are the rows."""

    name = "avro"

    def table(self, content: bytes, format_: Format) -> Table:
        """See ``TableKind.table``."""
        return _table(content)


def _table(content: bytes) -> Table:
    try:
        records = list(fastavro.reader(io.BytesIO(content)))
    except Exception as error:  # fastavro reports what it meets: a dozen kinds, KeyError and IndexError among them
        raise Unreadable(Problem.MALFORMED) from error
    if not all(isinstance(record, dict) for record in records):
        raise Unreadable(Problem.MALFORMED)
    rows: list[dict[str, Any]] = [record for record in records if isinstance(record, dict)]
    names = list(rows[0]) if rows else []
    columns = {name: [row.get(name) for row in rows] for name in names}
    return Table(columns, np.arange(len(rows)), len(rows), content_bytes=len(content))
