"""Writes rows to a table in one transaction with the mark, which is a row of another table of the same database.

A run that finds the database ahead of its journal produces the same rows again up to the mark, and they are skipped.
The statement that advances the mark names the number it starts from. So if two runs write at the same time, which a
copied state folder can cause, the second finds that the number has changed and ends.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tidegate.connectors.model.encoded_rows import EncodedRows, Encoder
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs.kinds import OutputOpening
from tidegate.connectors.outputs.output import (
    SAMPLES,
    Mark,
    MarkPlace,
    OutputUnavailableError,
    RejectedRow,
    StoredMark,
    check_marks,
    new_mark,
    rejection_error,
    rows_from,
)
from tidegate.connectors.outputs.shape import Shape
from tidegate.connectors.outputs.tables.table_database import (
    MARKS_TABLE,
    PLACE_COLUMN,
    TIME_COLUMN,
    StagingDatabase,
    TableDatabase,
    TableSettings,
)
from tidegate.connectors.outputs.tables.table_encoder import StagedRun, TableEncoder, staging_prefix
from tidegate.connectors.outputs.tables.table_rows import Batch, Run, StagedRows, TableColumn, TableRows, by_name
from tidegate.engine import ResultRows
from tidegate.engine.values.vectors import Datetime
from tidegate.sql.plan.nodes import Type

_PAUSE_S = 60.0
"""How long executors leave the writing to the driver after they could not reach the database."""
_PROBES: dict[Type, tuple[Any, ...]] = {
    Type.BIGINT: (0,),
    Type.FLOAT: (0.0,),
    Type.BIT: (False,),
    Type.DATETIME: (Datetime(0),),
    Type.RECORD: ({},),
    Type.ARRAY: ([],),
    Type.NVARCHAR: ("x", "2026-01-01", "00000000-0000-0000-0000-000000000000"),
}


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
        self._columns = by_name(columns, self._key)
        self._check(shape, types)
        if self._key:
            database.check_key([self._columns[name.lower()].name for name in self._key])
        self._mark = new_mark(database.kind) if mark is None else dict(mark)
        self._held = self._agreed(mark)
        self._rows: int = self._mark["rows"]
        self._table_rows = TableRows(self._columns, str(self._table))
        self._changes: list[Batch | StagedRows] = []
        self._dropped = 0
        self._rejected_rows: list[RejectedRow] = []
        self._unsure = False
        self._not_before = 0.0
        self._stage = self._new_stage(settings, shape)

    def _new_stage(self, settings: TableSettings, shape: Shape | None) -> TableEncoder | None:
        """Return how executors write, after deleting what earlier runs have left; None if they cannot."""
        if shape is None or not isinstance(self._database, StagingDatabase):
            return None
        names = [self._columns[name].name for name in dict.fromkeys(column.name.lower() for column in shape)]
        prefix = staging_prefix(self._identity)
        # Staging tables have these columns beside those of the table.
        is_like_them = not self._columns.keys().isdisjoint({PLACE_COLUMN, TIME_COLUMN})
        if len(names) != len(shape) or is_like_them or not self._database.can_stage(prefix):
            return None
        self._database.delete_staged(prefix)
        return TableEncoder(settings, tuple(names), prefix, uuid.uuid4().hex, self._drop)

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
        first = min(max(self._held.rows - self._rows, 0), len(rows))
        batches, rejected = self._table_rows.convert(rows_from(rows, first), self._rows + first)
        self._reject(rejected)
        self._changes += batches
        self._rows += len(rows)

    def _reject(self, rows: Sequence[RejectedRow], count: int | None = None) -> None:
        if rows and not self._drop:
            raise rejection_error(rows[0], self._identity.output)
        self._dropped += len(rows) if count is None else count
        self._rejected_rows = [*self._rejected_rows, *rows][:SAMPLES]

    def encoder(self) -> Encoder | None:
        """Return what puts rows into tables of their own on executors; None while rows come that the table has.

        Those are left out one by one, as a step may begin before the first new row and end after it.
        """
        if self._stage is None or self._rows < self._held.rows or time.monotonic() < self._not_before:
            return None
        return self._stage

    def write_encoded(self, rows: EncodedRows) -> None:
        """Accept rows that executors have put into tables, or returned because they could not.

        Raises:
            OutputUnavailableError: what they answered cannot be read at the moment.
            OutputError: a row is rejected, and such rows are not to be dropped.
        """
        try:
            answers: list[StagedRun] = [pickle.loads(piece.read()) for piece in rows.pieces]
        except OSError as error:
            raise OutputUnavailableError(f"cannot read what executors have written: {error}") from error
        staged: list[Run] = []
        tables: dict[str, None] = {}
        for answer in answers:
            if answer.returned is not None:
                # This process waits for the database, or says what is wrong with it.
                self._not_before = time.monotonic() + _PAUSE_S
                self._close_group(tables, staged)
                tables, staged = {}, []
                self.write(answer.returned)
                continue
            self._reject([replace(row, row=self._rows + row.row) for row in answer.rejected], answer.dropped)
            if answer.table is not None:
                tables[answer.table] = None
                staged.append(Run(answer.place, answer.rows, self._rows))
            self._rows += answer.rows
        self._close_group(tables, staged)

    def _close_group(self, tables: Mapping[str, None], runs: Sequence[Run]) -> None:
        if runs:
            assert self._stage is not None
            self._changes.append(StagedRows(tuple(tables), self._stage.columns, tuple(runs)))

    def commit(self) -> Mark:
        if self._rows <= self._held.rows:
            self._mark["rows"] = self._rows
            if self._rows == self._held.rows:
                self._mark["dropped"] = self._held.dropped
            return dict(self._mark)
        after = StoredMark(self._identity.journal, self._rows, self._held.dropped + self._dropped)
        if not self._unsure or not self._was_stored(after):
            try:
                rejected = self._written(after)
            except OutputUnavailableError:
                self._unsure = True
                raise
            self._rejected_rows = [*self._rejected_rows, *rejected][:SAMPLES]
            self._held = StoredMark(after.journal, after.rows, after.dropped + len(rejected))
        self._unsure = False
        self._changes, self._dropped = [], 0
        self._mark.update(rows=self._held.rows, dropped=self._held.dropped)
        return dict(self._mark)

    def _written(self, after: StoredMark) -> list[RejectedRow]:
        batches = [change for change in self._changes if isinstance(change, Batch)]
        if len(batches) == len(self._changes):
            return self._database.write(batches, self._identity, self._held.rows, after)
        assert isinstance(self._database, StagingDatabase)
        return self._database.write_staged(self._changes, self._identity, self._held.rows, after)

    def _was_stored(self, after: StoredMark) -> bool:
        """Return whether an attempt whose reply was lost took effect."""
        stored = self._database.stored_mark(self._identity)
        if stored is None or stored.journal != after.journal or stored.rows != after.rows:
            return False
        self._held = stored
        return True

    def continue_after_held_rows(self) -> None:
        self._rows = self._held.rows

    def drain_rejected_rows(self) -> list[RejectedRow]:
        rejected, self._rejected_rows = self._rejected_rows, []
        return rejected

    def close(self) -> None:
        if self._stage is not None and isinstance(self._database, StagingDatabase):
            # What stays is deleted when the output is opened again.
            with suppress(OutputError):
                self._database.delete_staged(self._stage.prefix)
        self._database.close()


def _may_hold(column: TableColumn, type_: Type) -> bool:
    for probe in _PROBES.get(type_, ()):
        try:
            column.convert(probe)
        except ValueError:
            continue
        return True
    return type_ not in _PROBES
