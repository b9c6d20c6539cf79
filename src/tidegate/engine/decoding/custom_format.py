"""Bodies and files that the user's own code reads."""

from __future__ import annotations

import logging

import numpy as np

from tidegate.engine.decoding.decoded import Problem, count_values
from tidegate.engine.decoding.formats import FORMATS, Deserializer, Format, Unreadable
from tidegate.engine.decoding.limits import ContentLimits
from tidegate.engine.decoding.table_decoder import TableKind
from tidegate.engine.decoding.tables import Table

_logger = logging.getLogger(__name__)
_reported: set[Deserializer] = set()


@FORMATS.register
class CustomFormat(TableKind):
    """A function returns the rows of each body or file. What it raises costs that body alone; the first is logged."""

    name = "custom"
    compresses = True

    def table(self, content: bytes, format_: Format, most: ContentLimits) -> Table:
        deserializer = format_.deserializer
        if deserializer is None:
            raise ValueError("the format custom needs a deserializer")
        try:
            records = []
            values = 0
            for row in deserializer(content):
                records.append(dict(row))
                values += count_values(records[-1], most.values - values)
                if len(records) > most.rows or values > most.values:
                    raise Unreadable(Problem.LIMIT_EXCEEDED)
        except Unreadable:
            raise
        except Exception as error:
            if deserializer not in _reported:
                _reported.add(deserializer)
                _logger.warning("%s: %s: %s (logged once)", deserializer, type(error).__name__, error)
            raise Unreadable(Problem.MALFORMED) from error
        names = dict.fromkeys(name for record in records for name in record)
        if len(names) * len(records) > most.values:
            raise Unreadable(Problem.LIMIT_EXCEEDED)
        columns = {str(name): [record.get(name) for record in records] for name in names}
        return Table(columns, np.arange(len(records)), len(records), content_bytes=len(content))
