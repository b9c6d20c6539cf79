"""Rows as a lake's table has its columns: on executors, and where the job runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.connectors.outputs.arrow_tables import ARROW_TYPES, arrow_table
from tidegate.connectors.outputs.output import (
    COLUMN_NAME_INVALID,
    REQUIRED_COLUMN_MISSING,
    SAMPLES,
    TYPE_CONVERSION_ERROR,
    RejectedRow,
    example_of,
    rows_at,
)
from tidegate.engine import ResultRows
from tidegate.engine.values.json_lines import dicts
from tidegate.sql.plan.nodes import Type

_TYPE_OF_ARROW = {
    pa.int64(): Type.BIGINT,
    pa.float64(): Type.FLOAT,
    pa.string(): Type.NVARCHAR,
    pa.large_string(): Type.NVARCHAR,
    pa.string_view(): Type.NVARCHAR,
    pa.bool_(): Type.BIT,
}


@dataclass(frozen=True, slots=True)
class Converted:
    """Rows that were converted.

    Attributes:
        table: those that the table can hold; None if there are none.
        rejected: samples of the others; ``dropped``: how many there are.
    """

    table: pa.Table | None
    rejected: list[RejectedRow]
    dropped: int


@dataclass(slots=True)
class LakeRows:
    """What converts rows for one table.

    Attributes:
        name: the table's, for messages.
        types: of columns, by their names in lower case: the table's, and those that it may get.
        adds_columns: whether columns that the table lacks are kept.
        fields: the table's columns, by their names in lower case.
    """

    name: str
    types: dict[str, Type]
    adds_columns: bool
    fields: dict[str, pa.Field] = field(default_factory=dict)

    def learn(self, schema: pa.Schema) -> None:
        """Note the columns that the table has."""
        for one in schema:
            self.fields.setdefault(one.name.lower(), one)
            type_ = Type.DATETIME if pa.types.is_timestamp(one.type) else _TYPE_OF_ARROW.get(one.type)
            if type_ is not None:
                self.types[one.name.lower()] = type_

    def convert(self, rows: ResultRows, number: int) -> Converted:
        """Convert rows, whose first one has a number; the samples of rejected rows are numbered from it."""
        if not len(rows):
            return Converted(None, [], 0)
        table, problems = self._converted(rows)
        if not problems:
            return Converted(table, [], 0)
        kept = rows_at(rows, np.setdiff1d(np.arange(len(rows)), list(problems)))
        rejected = []
        for place in sorted(problems)[:SAMPLES]:
            kind, message = problems[place]
            (record,) = dicts(rows.names, rows_at(rows, np.array([place])).columns, 1, plainly=False)
            time = int(rows.timestamps[place])
            rejected.append(RejectedRow(kind, message, number + place, time, example_of(record)))
        return Converted(self._converted(kept)[0] if len(kept) else None, rejected, len(problems))

    def _converted(self, rows: ResultRows) -> tuple[pa.Table, Mapping[int, tuple[str, str]]]:
        """Return rows as the table has its columns, and what is wrong with which of them."""
        table, misfits = arrow_table(rows, self.types)
        problems: dict[int, tuple[str, str]] = {}
        for misfit in misfits:
            problems.setdefault(misfit.place, (TYPE_CONVERSION_ERROR, misfit.message))
        arrays, fields = [], []
        for one, column in zip(table.schema, table.columns, strict=True):
            known = self.fields.get(one.name.lower())
            if known is None and not self.adds_columns:
                for place in pc.indices_nonzero(column.is_valid()).to_pylist():
                    message = f"{self.name} has no column '{one.name}'"
                    problems.setdefault(place, (COLUMN_NAME_INVALID, message))
                continue
            if one.name:
                arrays.append(column)
                fields.append(one if known is None else pa.field(known.name, one.type, known.nullable))
        given = dict(zip([one.name for one in fields], arrays, strict=True))
        for lowered, known in self.fields.items():
            column = given.get(known.name)
            if not known.nullable:
                missing = range(len(rows)) if column is None else pc.indices_nonzero(column.is_null()).to_pylist()
                for place in missing:
                    message = f"column '{known.name}' has no value and does not accept NULL"
                    problems.setdefault(place, (REQUIRED_COLUMN_MISSING, message))
            if column is None and lowered in self.types:
                type_ = ARROW_TYPES[self.types[lowered]]
                arrays.append(pa.nulls(len(rows), type_))
                fields.append(pa.field(known.name, type_, known.nullable))
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields)), problems
