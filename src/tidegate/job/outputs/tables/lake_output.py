"""Rows as columns of an open table format: a commit of the table holds the results of a step and their mark.

Types belong to columns there, so a value converts without loss or its row is rejected. A column that the table lacks is
added to it, unless that is not wanted: in these formats a new column costs nothing and disturbs no reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from tidegate.engine import ResultRows
from tidegate.engine.values.json_lines import dicts
from tidegate.job.model.errors import OutputError
from tidegate.job.outputs.arrow_tables import ARROW_TYPES, arrow_table
from tidegate.job.outputs.column_types import ColumnType
from tidegate.job.outputs.kinds import OutputOpening, OutputSection
from tidegate.job.outputs.marks import MarkPlace, StoredMark, check_marks
from tidegate.job.outputs.output import (
    COLUMN_NAME_INVALID,
    REQUIRED_COLUMN_MISSING,
    SAMPLES,
    TYPE_CONVERSION_ERROR,
    Identity,
    Mark,
    OutputUnavailableError,
    RejectedRow,
    example_of,
    new_mark,
    rejection_error,
    rows_at,
    rows_from,
)
from tidegate.job.outputs.shape import Shape
from tidegate.saql.plan.nodes import Type

_TYPE_OF_ARROW = {
    pa.int64(): Type.BIGINT,
    pa.float64(): Type.FLOAT,
    pa.string(): Type.NVARCHAR,
    pa.large_string(): Type.NVARCHAR,
    pa.string_view(): Type.NVARCHAR,
    pa.bool_(): Type.BIT,
}


class LakeSettings(OutputSection):
    """Settings common to outputs in an open table format."""

    columns: dict[str, ColumnType] = Field(
        default_factory=dict, description="the types of columns to create, where the query does not determine them"
    )
    partition_by: tuple[str, ...] = Field(default=(), description="the columns that a new table is partitioned by")
    new_columns: Literal["add", "reject"] = Field(
        default="add", description="what happens to results with a column that the table does not have"
    )


class LakeTable(Protocol):
    """One table.

    Every method raises OutputError, or OutputUnavailableError when the same call may succeed later.
    """

    kind: str
    name: str

    def schema(self) -> pa.Schema | None:
        """Return the columns of the table; None if it does not exist."""

    def create(self, schema: pa.Schema) -> None:
        """Create the table."""

    def stored_mark(self, identity: Identity) -> StoredMark | None:
        """Return the mark of an output, as the table's latest commit has it."""

    def append(self, rows: pa.Table | None, identity: Identity, before: StoredMark | None, after: StoredMark) -> None:
        """Append rows, with columns that the table may lack, and advance the mark, in one commit.

        Raises:
            OutputError: the mark is not ``before``: another run writes.
        """

    def close(self) -> None:
        """Close connections."""


class LakeOutput:
    """A table; its mark counts rows."""

    def __init__(self, table: LakeTable, settings: LakeSettings, opening: OutputOpening) -> None:
        """
        Raises:
            OutputError: the table does not fit the query, or its mark does not fit the journal's.
        """
        self._table = table
        self._identity = opening.identity
        self._drop = opening.drop
        self._adds_columns = settings.new_columns == "add"
        self._declared = {name.lower(): Type(text) for name, text in settings.columns.items()}
        for column in opening.shape or ():
            if column.type is not Type.ANY:
                self._declared.setdefault(column.name.lower(), column.type)
        schema = table.schema()
        if schema is None:
            table.create(self._new_schema(opening.shape, settings))
            schema = table.schema()
            assert schema is not None
        self._fields: dict[str, pa.Field] = {}
        self._learn(schema)
        self._check(opening.shape)
        mark = opening.mark
        stored = table.stored_mark(self._identity)
        if stored is not None or (mark is not None and mark["rows"]):
            check_marks(mark, stored, self._identity, MarkPlace(table.name, table.name, "delete the table"))
        self._stored = stored
        self._mark = new_mark(table.kind) if mark is None else dict(mark)
        self._rows: int = self._mark["rows"]
        self._dropped = 0
        self._waiting: list[pa.Table] = []
        self._rejected_rows: list[RejectedRow] = []
        self._unsure = False

    @property
    def _held(self) -> StoredMark:
        is_own = self._stored is not None and self._stored.journal == self._identity.journal
        return self._stored if self._stored and is_own else StoredMark(self._identity.journal, 0, 0)

    # Columns ----------------------------------------------------------------------------------------------------------

    def _new_schema(self, shape: Shape | None, settings: LakeSettings) -> pa.Schema:
        names = list(settings.columns) if shape is None else [column.name for column in shape]
        unknown = [name for name in names if name.lower() not in self._declared]
        if unknown or not names:
            what = f"the types of {', '.join(unknown)}" if names else "the columns of SELECT *"
            example = f'columns = {{ {(unknown or ["name"])[0]} = "nvarchar(max)" }}'
            raise OutputError(
                f"{self._table.name} does not exist, and the query does not determine {what}: create the table, or "
                f"set the types in the output's section ({example})"
            )
        columns = [name.rpartition("(")[2].removesuffix(")") for name in settings.partition_by]
        missing = [name for name in columns if name.lower() not in {one.lower() for one in names}]
        if missing:
            raise OutputError(f"output '{self._identity.output}' is partitioned by {missing[0]}, which is no column")
        return pa.schema([pa.field(name, ARROW_TYPES[self._declared[name.lower()]]) for name in names])

    def _learn(self, schema: pa.Schema) -> None:
        for field in schema:
            self._fields.setdefault(field.name.lower(), field)
            type_ = Type.DATETIME if pa.types.is_timestamp(field.type) else _TYPE_OF_ARROW.get(field.type)
            if type_ is not None:
                self._declared[field.name.lower()] = type_

    def _check(self, shape: Shape | None) -> None:
        """Raise an error that names every way in which the query does not fit the table."""
        if shape is None:
            return
        given = {column.name.lower() for column in shape}
        wrong = [
            f"its column '{field.name}' has the type {field.type}, which results are not written as"
            for name, field in self._fields.items()
            if name in given and name not in self._declared
        ]
        wrong += [
            f"its column '{field.name}' does not accept NULL, and the query has no such column"
            for name, field in self._fields.items()
            if not field.nullable and name not in given
        ]
        new = [column for column in shape if column.name.lower() not in self._fields]
        if new and not self._adds_columns:
            wrong.append(f"it has no column '{new[0].name}'")
        wrong += [
            f"it has no column '{column.name}', whose type the query does not determine: set it in `columns`"
            for column in new
            if self._adds_columns and column.name.lower() not in self._declared
        ]
        if wrong:
            raise OutputError(f"output '{self._identity.output}' does not fit {self._table.name}: {'; '.join(wrong)}")

    # Rows -------------------------------------------------------------------------------------------------------------

    def write(self, rows: ResultRows) -> None:
        """See ``Output.write``."""
        first = min(max(self._held.rows - self._rows, 0), len(rows))
        new = rows_from(rows, first)
        if len(new):
            table, problems = self._converted(new)
            if problems:
                self._reject(new, self._rows + first, problems)
                new = rows_at(new, np.setdiff1d(np.arange(len(new)), list(problems)))
                table, _ = self._converted(new)
            if len(new):
                self._waiting.append(table)
        self._rows += len(rows)

    def _converted(self, rows: ResultRows) -> tuple[pa.Table, Mapping[int, tuple[str, str]]]:
        """Return rows as the table has its columns, and what is wrong with which of them."""
        table, misfits = arrow_table(rows, self._declared)
        problems: dict[int, tuple[str, str]] = {}
        for misfit in misfits:
            problems.setdefault(misfit.place, (TYPE_CONVERSION_ERROR, misfit.message))
        arrays, fields = [], []
        for field, column in zip(table.schema, table.columns, strict=True):
            known = self._fields.get(field.name.lower())
            if known is None and not self._adds_columns:
                for place in pc.indices_nonzero(column.is_valid()).to_pylist():
                    message = f"{self._table.name} has no column '{field.name}'"
                    problems.setdefault(place, (COLUMN_NAME_INVALID, message))
                continue
            if field.name:
                arrays.append(column)
                fields.append(field if known is None else pa.field(known.name, field.type, known.nullable))
        given = dict(zip([field.name for field in fields], arrays, strict=True))
        for lowered, known in self._fields.items():
            column = given.get(known.name)
            if not known.nullable:
                missing = range(len(rows)) if column is None else pc.indices_nonzero(column.is_null()).to_pylist()
                for place in missing:
                    message = f"column '{known.name}' has no value and does not accept NULL"
                    problems.setdefault(place, (REQUIRED_COLUMN_MISSING, message))
            if column is None and lowered in self._declared:
                type_ = ARROW_TYPES[self._declared[lowered]]
                arrays.append(pa.nulls(len(rows), type_))
                fields.append(pa.field(known.name, type_, known.nullable))
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields)), problems

    def _reject(self, rows: ResultRows, number: int, problems: Mapping[int, tuple[str, str]]) -> None:
        for place in sorted(problems):
            kind, message = problems[place]
            (record,) = dicts(rows.names, rows_at(rows, np.array([place])).columns, 1, plainly=False)
            row = RejectedRow(kind, message, number + place, int(rows.timestamps[place]), example_of(record))
            if not self._drop:
                raise rejection_error(row, self._identity.output)
            if len(self._rejected_rows) >= SAMPLES:
                break
            self._rejected_rows.append(row)
        self._dropped += len(problems)

    def commit(self) -> Mark:
        """See ``Output.commit``."""
        if self._rows > self._held.rows:
            after = StoredMark(self._identity.journal, self._rows, self._held.dropped + self._dropped)
            if not self._unsure or not self._was_stored(after):
                try:
                    self._table.append(_one_table(self._waiting), self._identity, self._stored, after)
                except OutputUnavailableError:
                    self._unsure = True
                    raise
                for table in self._waiting:
                    self._learn(table.schema)
            self._stored = after
            self._unsure = False
            self._waiting, self._dropped = [], 0
        self._mark["rows"] = self._rows
        if self._rows == self._held.rows:
            self._mark["dropped"] = self._held.dropped
        return dict(self._mark)

    def _was_stored(self, after: StoredMark) -> bool:
        """Return whether an attempt whose reply was lost took effect."""
        return self._table.stored_mark(self._identity) == after

    def continue_after_held_rows(self) -> None:
        """See ``Output.continue_after_held_rows``."""
        self._rows = self._held.rows

    def drain_rejected_rows(self) -> list[RejectedRow]:
        """See ``Output.drain_rejected_rows``."""
        rejected, self._rejected_rows = self._rejected_rows, []
        return rejected

    def close(self) -> None:
        """See ``Output.close``."""
        self._table.close()


def _one_table(tables: Sequence[pa.Table]) -> pa.Table | None:
    if not tables:
        return None
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")
