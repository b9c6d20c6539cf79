"""Avro object container files, as event bodies and as files."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.engine.decoding.avro_container import read_container
from tidegate.engine.decoding.decoded import Problem
from tidegate.engine.decoding.formats import FORMATS, Format, Unreadable
from tidegate.engine.decoding.limits import ContentLimits
from tidegate.engine.decoding.table_decoder import TableKind
from tidegate.engine.decoding.tables import Table


@FORMATS.register
class AvroFormat(TableKind):
    """A container includes its schema; its records are the rows."""

    name = "avro"
    compresses = True

    def table(self, content: bytes, format_: Format, most: ContentLimits) -> Table:
        return _table(read_container(content, most), len(content))


def _table(records: list[Any], content_bytes: int) -> Table:
    if not all(isinstance(record, dict) for record in records):
        raise Unreadable(Problem.MALFORMED)
    names = list(records[0]) if records else []
    columns = {name: [record.get(name) for record in records] for name in names}
    return Table(columns, np.arange(len(records)), len(records), content_bytes=content_bytes)
