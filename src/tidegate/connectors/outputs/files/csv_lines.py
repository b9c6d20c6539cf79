"""Lines of CSV: RFC 4180, UTF-8, NULL as nothing, times and nested values as JSON writes them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from tidegate.connectors.outputs.output import COLUMN_NAME_INVALID, RejectedRow, example_of
from tidegate.connectors.outputs.values import json_text
from tidegate.engine import Kind, ResultRows, Vector
from tidegate.engine.values.json_lines import plain_values


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
