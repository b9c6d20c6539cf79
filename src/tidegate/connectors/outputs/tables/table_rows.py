"""Rows of a table on their way to it: results with each value as the database accepts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.connectors.outputs.output import (
    COLUMN_NAME_INVALID,
    REQUIRED_COLUMN_MISSING,
    TYPE_CONVERSION_ERROR,
    RejectedRow,
    example_of,
)
from tidegate.connectors.outputs.values import Converter, converted
from tidegate.engine import Kind, ResultRows
from tidegate.engine.values.json_lines import dicts


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table.

    Attributes:
        type: the database's name for it, for people.
        required: it rejects NULL and has no default. writable: it can be given a value.
    """

    name: str
    type: str
    convert: Converter
    required: bool = False
    writable: bool = True


@dataclass(slots=True)
class Batch:
    """Consecutive rows that have the same columns: a value for each, as the database accepts them."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, first: int, stop: int) -> Batch:
        """Return the rows ``first`` ≤ index < ``stop``."""
        return Batch(self.columns, self.rows[first:stop], self.numbers[first:stop], self.times[first:stop])

    def rejected_row(self, kind: str, message: str) -> RejectedRow:
        """Return the report on a batch of one row that the database rejected."""
        row = dict(zip(self.columns, self.rows[0], strict=True))
        return RejectedRow(kind, message, self.numbers[0], self.times[0], example_of(row))


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive rows in staging tables.

    Attributes:
        place: of the first among all rows of the step there; the others follow it, and rejected ones are left out.
        number: of the first among all rows of the output.
    """

    place: int
    rows: int
    number: int


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Consecutive rows that executors have put into staging tables, all with the same columns."""

    tables: tuple[str, ...]
    columns: tuple[str, ...]
    runs: tuple[Run, ...]

    def __len__(self) -> int:
        return sum(run.rows for run in self.runs)

    @property
    def begin(self) -> int:
        """The place of the first row."""
        return self.runs[0].place

    @property
    def end(self) -> int:
        """The place after the last row."""
        return self.runs[-1].place + self.runs[-1].rows

    def part(self, first: int, stop: int) -> StagedRows:
        """Return the rows ``first`` ≤ index < ``stop``."""
        found = []
        index = 0
        for run in self.runs:
            begin, end = max(first - index, 0), min(stop - index, run.rows)
            if begin < end:
                found.append(Run(run.place + begin, end - begin, run.number + begin))
            index += run.rows
        return replace(self, runs=tuple(found))


class TableRows:
    """Converts results to rows of a table."""

    def __init__(self, columns: Mapping[str, TableColumn], table: str) -> None:
        """
        Args:
            columns: of the table, by name in lower case.
        """
        self._columns = columns
        self._table = table

    def convert(self, rows: ResultRows, number: int) -> tuple[list[Batch], list[RejectedRow]]:
        """Return results, of which the first has a number, as rows of the table, and those that it cannot hold."""
        if not len(rows):
            return [], []
        whole = self._by_column(rows, number)
        if whole is not None:
            return [whole], []
        batches: list[Batch] = []
        rejected = []
        records = dicts(rows.names, rows.columns, len(rows), plainly=False)
        for place, (record, time) in enumerate(zip(records, rows.timestamps.tolist(), strict=True), start=number):
            refused = self._take(record, place, time, batches)
            if refused is not None:
                rejected.append(RejectedRow(*refused, place, time, example_of(record)))
        return batches, rejected

    def _by_column(self, rows: ResultRows, number: int) -> Batch | None:
        """Return a batch of all rows, or None if one of them has to be looked at by itself."""
        names = [name for name in rows.names if name is not None]
        columns = [column for name in names if (column := self._columns.get(name.lower())) is not None]
        given = {column.name for column in columns if column.writable}
        if (
            not names
            or len(given) != len(rows.names)
            or any(one.required and one.name not in given for one in self._columns.values())
        ):
            return None
        found: list[list[Any]] = []
        for column, vector in zip(columns, rows.columns, strict=True):
            if column.required and Kind.NULL in vector.present():
                return None
            try:
                found.append(converted(column.convert, vector))
            except ValueError:
                return None
        return Batch(
            tuple(column.name for column in columns),
            list(zip(*found, strict=True)),
            list(range(number, number + len(rows))),
            rows.timestamps.tolist(),
        )

    def _take(self, record: Mapping[str, Any], number: int, time: int, batches: list[Batch]) -> tuple[str, str] | None:
        """Add one row to the batches, or return what is wrong with it."""
        values: list[Any] = []
        names: list[str] = []
        for name, value in record.items():
            column = self._columns.get(name.lower())
            if column is None or not column.writable:
                return COLUMN_NAME_INVALID, f"the table {self._table} has no column '{name}' to write to"
            names.append(column.name)
            try:
                values.append(None if value is None else column.convert(value))
            except ValueError as error:
                return TYPE_CONVERSION_ERROR, f"column '{name}': {error}"
        given = {name for name, value in zip(names, values, strict=True) if value is not None}
        for column in self._columns.values():
            if column.required and column.name not in given:
                return REQUIRED_COLUMN_MISSING, f"column '{column.name}' has no value and does not accept NULL"
        if not batches or batches[-1].columns != tuple(names):
            batches.append(Batch(tuple(names)))
        batches[-1].rows.append(tuple(values))
        batches[-1].numbers.append(number)
        batches[-1].times.append(time)
        return None


def by_name(columns: Sequence[TableColumn], key: Sequence[str]) -> dict[str, TableColumn]:
    """Return columns by lower-case name; of names that differ only in case the first counts. A key rejects NULL."""
    found: dict[str, TableColumn] = {}
    keys = {name.lower() for name in key}
    for column in columns:
        name = column.name.lower()
        found.setdefault(name, replace(column, required=True) if name in keys else column)
    return found
