"""Writes rows to a table in one transaction with the mark, which is a row of another table of the same database.

A run that finds the database ahead of its journal produces the same rows again up to the mark, and they are skipped.
The statement that advances the mark names the number it starts from. So if two runs write at the same time, which a
copied state folder can cause, the second finds that the number has changed and ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pydantic import Field

from tidegate.engine import Kind, ResultRows
from tidegate.engine.values.json_lines import dicts
from tidegate.engine.values.vectors import Datetime
from tidegate.job.model.errors import OutputError
from tidegate.job.outputs.column_types import ColumnType
from tidegate.job.outputs.kinds import OutputOpening, OutputSection
from tidegate.job.outputs.marks import MarkPlace, StoredMark, check_marks, moved_by_another_run
from tidegate.job.outputs.output import (
    COLUMN_NAME_INVALID,
    REQUIRED_COLUMN_MISSING,
    TYPE_CONVERSION_ERROR,
    Identity,
    Mark,
    OutputUnavailableError,
    RejectedRow,
    example_of,
    new_mark,
    rejection_error,
    rows_from,
)
from tidegate.job.outputs.shape import Shape
from tidegate.job.outputs.values import Converter, converted
from tidegate.saql.plan.nodes import Type

MARKS_TABLE = "tidegate_outputs"
_SAMPLES = 20
_PROBES: dict[Type, tuple[Any, ...]] = {
    Type.BIGINT: (0,),
    Type.FLOAT: (0.0,),
    Type.BIT: (False,),
    Type.DATETIME: (Datetime(0),),
    Type.RECORD: ({},),
    Type.ARRAY: ([],),
    Type.NVARCHAR: ("x", "2026-01-01", "00000000-0000-0000-0000-000000000000"),
}


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

    def part(self, first: int, stop: int) -> Batch:
        """Return the rows ``first`` ≤ index < ``stop``."""
        return Batch(self.columns, self.rows[first:stop], self.numbers[first:stop], self.times[first:stop])

    def rejected_row(self, kind: str, message: str) -> RejectedRow:
        """Return the report on a batch of one row that the database rejected."""
        row = dict(zip(self.columns, self.rows[0], strict=True))
        return RejectedRow(kind, message, self.numbers[0], self.times[0], example_of(row))


class TableDatabase(Protocol):
    """One table in one database.

    Every method but ``close`` raises OutputError, or OutputUnavailableError when the same call may succeed later; the
    next call then reconnects.
    """

    kind: str
    """The kind of database, for people and in marks."""

    def columns(self) -> Sequence[TableColumn]:
        """Return the columns of the table; none if it does not exist."""

    def create(self, columns: Sequence[tuple[str, Type]], key: Sequence[str]) -> None:
        """Create the table; a column of type ANY takes the type of its values."""

    def check_key(self, key: Sequence[str]) -> None:
        """Raise OutputError unless the database enforces that these columns are unique."""

    def stored_mark(self, identity: Identity) -> StoredMark | None:
        """Return the mark of an output; create the table of marks if it does not exist."""

    def begin(self, identity: Identity) -> None:
        """Set the mark of an output to no rows."""

    def write(self, batches: Iterable[Batch], identity: Identity, before: int, after: StoredMark) -> list[RejectedRow]:
        """Write rows and advance the mark from ``before`` rows to ``after``, in one transaction.

        Returns the rows that the database itself rejected; they count as dropped in the mark that is stored. Raises
        OutputError with no effect if the mark is not at ``before``.
        """

    def close(self) -> None:
        """Close the connection."""


class TableSettings(OutputSection):
    """Settings common to outputs that write a table."""

    table: str
    key: tuple[str, ...] = Field(
        default=(), description="columns that identify a row: a later result with the same values replaces it"
    )
    columns: dict[str, ColumnType] = Field(
        default_factory=dict, description="the types of a table to create, where the query does not determine them"
    )


class TableOutput:
    """A table; its mark counts rows."""

    def __init__(self, database: TableDatabase, settings: TableSettings, opening: OutputOpening) -> None:
        """
        Raises:
            OutputError: the table does not fit, or its mark does not fit the journal's.
        """
        mark, shape, types = opening.mark, opening.shape, settings.columns
        self._database = database
        self._identity = opening.identity
        self._table = settings.table
        self._drop = opening.drop
        self._key = settings.key
        columns = database.columns()
        if not columns:
            database.create(self._columns_to_make(shape, types), self._key)
            columns = database.columns()
        self._columns = _by_name(columns, self._key)
        self._check(shape, types)
        if self._key:
            database.check_key([self._columns[name.lower()].name for name in self._key])
        self._mark = new_mark(database.kind) if mark is None else dict(mark)
        self._held = self._agreed(mark)
        self._rows: int = self._mark["rows"]
        self._batches: list[Batch] = []
        self._dropped = 0
        self._rejected_rows: list[RejectedRow] = []
        self._unsure = False

    # The table --------------------------------------------------------------------------------------------------------

    def _columns_to_make(self, shape: Shape | None, types: Mapping[str, str]) -> list[tuple[str, Type]]:
        given = {name.lower(): Type(text) for name, text in types.items()}
        if shape is None:
            if not given:
                raise OutputError(
                    f"the table {self._table} does not exist, and SELECT * does not determine its columns: create the "
                    "table, or name the columns with their types in `columns`"
                )
            return [(name, given[name.lower()]) for name in types]
        return [(column.name, given.get(column.name.lower(), column.type)) for column in shape]

    def _check(self, shape: Shape | None, types: Mapping[str, str]) -> None:
        """Raise an error that names every way in which the query does not fit the table."""
        names = [*types, *self._key] if shape is None else [*(column.name for column in shape), *types, *self._key]
        wrong = []
        for name in dict.fromkeys(name.lower() for name in names):
            column = self._columns.get(name)
            if column is None:
                wrong.append(f"it has no column '{name}'")
            elif not column.writable:
                wrong.append(f"its column '{column.name}' computes its own values")
        if shape is not None:
            given = {column.name.lower() for column in shape}
            wrong += [
                f"the query has no column '{name}' for the key" for name in self._key if name.lower() not in given
            ]
            wrong += [
                f"its column '{column.name}' does not accept NULL, and the query has no such column"
                for name, column in self._columns.items()
                if column.required and name not in given
            ]
            for one in shape:
                column = self._columns.get(one.name.lower())
                if column is not None and not _may_hold(column, one.type):
                    wrong.append(f"its column '{column.name}' of type {column.type} holds no {one.type.value}")
        if wrong:
            raise OutputError(
                f"output '{self._identity.output}' does not fit the table {self._table}: {'; '.join(wrong)}"
            )

    def _agreed(self, mark: Mark | None) -> StoredMark:
        """Return the mark in the database, after checking that it matches the journal's."""
        stored = self._database.stored_mark(self._identity)
        check_marks(mark, stored, self._identity, self._place)
        if mark is None:
            self._database.begin(self._identity)
            return StoredMark(self._identity.journal, 0, 0)
        assert stored is not None
        return stored

    @property
    def _place(self) -> MarkPlace:
        return MarkPlace(str(self._table), MARKS_TABLE, f"empty the table and delete its row of {MARKS_TABLE}")

    # Rows -------------------------------------------------------------------------------------------------------------

    def write(self, rows: ResultRows) -> None:
        """See ``Output.write``."""
        first = min(max(self._held.rows - self._rows, 0), len(rows))
        if first < len(rows) and self._take_columns(rows_from(rows, first), self._rows + first):
            self._rows += len(rows)
            return
        records = dicts(rows.names, rows.columns, len(rows), plainly=False)[first:]
        times = rows.timestamps[first:].tolist()
        for place, (record, time) in enumerate(zip(records, times, strict=True), start=self._rows + first):
            refused = self._take(record, place, time)
            if refused is None:
                continue
            row = RejectedRow(*refused, place, time, example_of(record))
            if not self._drop:
                raise rejection_error(row, self._identity.output)
            self._dropped += 1
            self._rejected_rows = [*self._rejected_rows, row][:_SAMPLES]
        self._rows += len(rows)

    def _take_columns(self, rows: ResultRows, number: int) -> bool:
        """Add rows to the batch column by column, or return False if one of them has to be looked at by itself."""
        names = [name for name in rows.names if name is not None]
        columns = [column for name in names if (column := self._columns.get(name.lower())) is not None]
        given = {column.name for column in columns if column.writable}
        if (
            not names
            or len(given) != len(rows.names)
            or any(one.required and one.name not in given for one in self._columns.values())
        ):
            return False
        found: list[list[Any]] = []
        for column, vector in zip(columns, rows.columns, strict=True):
            if column.required and Kind.NULL in vector.present():
                return False
            try:
                found.append(converted(column.convert, vector))
            except ValueError:
                return False
        batch = self._batch_of(tuple(column.name for column in columns))
        batch.rows.extend(zip(*found, strict=True))
        batch.numbers.extend(range(number, number + len(rows)))
        batch.times.extend(rows.timestamps.tolist())
        return True

    def _batch_of(self, columns: tuple[str, ...]) -> Batch:
        if not self._batches or self._batches[-1].columns != columns:
            self._batches.append(Batch(columns))
        return self._batches[-1]

    def _take(self, record: Mapping[str, Any], number: int, time: int) -> tuple[str, str] | None:
        """Add one row to the batch, or return what is wrong with it."""
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
        batch = self._batch_of(tuple(names))
        batch.rows.append(tuple(values))
        batch.numbers.append(number)
        batch.times.append(time)
        return None

    def commit(self) -> Mark:
        """See ``Output.commit``."""
        if self._rows <= self._held.rows:
            self._mark["rows"] = self._rows
            if self._rows == self._held.rows:
                self._mark["dropped"] = self._held.dropped
            return dict(self._mark)
        after = StoredMark(self._identity.journal, self._rows, self._held.dropped + self._dropped)
        if not self._unsure or not self._was_stored(after):
            try:
                rejected = self._database.write(self._batches, self._identity, self._held.rows, after)
            except OutputUnavailableError:
                self._unsure = True
                raise
            self._rejected_rows = [*self._rejected_rows, *rejected][:_SAMPLES]
            self._held = StoredMark(after.journal, after.rows, after.dropped + len(rejected))
        self._unsure = False
        self._batches, self._dropped = [], 0
        self._mark.update(rows=self._held.rows, dropped=self._held.dropped)
        return dict(self._mark)

    def _was_stored(self, after: StoredMark) -> bool:
        """Return whether an attempt whose reply was lost took effect."""
        stored = self._database.stored_mark(self._identity)
        if stored is None or stored.journal != after.journal or stored.rows != after.rows:
            return False
        self._held = stored
        return True

    def continue_after_held_rows(self) -> None:
        """See ``Output.continue_after_held_rows``."""
        self._rows = self._held.rows

    def drain_rejected_rows(self) -> list[RejectedRow]:
        """See ``Output.drain_rejected_rows``."""
        rejected, self._rejected_rows = self._rejected_rows, []
        return rejected

    def close(self) -> None:
        """See ``Output.close``."""
        self._database.close()


def another_run_writes(identity: Identity) -> OutputError:
    """Return the error that ends the slower of two runs."""
    return moved_by_another_run(identity, MarkPlace("the table", MARKS_TABLE, ""))


def _by_name(columns: Sequence[TableColumn], key: Sequence[str]) -> dict[str, TableColumn]:
    """Return columns by lower-case name; of names that differ only in case the first counts. A key rejects NULL."""
    found: dict[str, TableColumn] = {}
    keys = {name.lower() for name in key}
    for column in columns:
        name = column.name.lower()
        found.setdefault(name, replace(column, required=True) if name in keys else column)
    return found


def _may_hold(column: TableColumn, type_: Type) -> bool:
    for probe in _PROBES.get(type_, ()):
        try:
            column.convert(probe)
        except ValueError:
            continue
        return True
    return type_ not in _PROBES
