"""Rows as columns of an open table format: a commit of the table holds the results of a step and their mark.

Types belong to columns there, so a value converts without loss or its row is rejected. A column that the table lacks is
added to it, unless that is not wanted: in these formats a new column costs nothing and disturbs no reader.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

import pyarrow as pa
from pydantic import Field

from tidegate.connectors.model.encoded_rows import EncodedRows, Encoder
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import Public
from tidegate.connectors.outputs.arrow_tables import ARROW_TYPES
from tidegate.connectors.outputs.column_types import ColumnType
from tidegate.connectors.outputs.kinds import OutputOpening, OutputSection
from tidegate.connectors.outputs.output import (
    SAMPLES,
    Identity,
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
from tidegate.connectors.outputs.tables import lake_encoder
from tidegate.connectors.outputs.tables.lake_encoder import FileWriter, LakeEncoder, WrittenRun, one_table
from tidegate.connectors.outputs.tables.lake_rows import LakeRows
from tidegate.engine import ResultRows
from tidegate.sql.plan.nodes import Type


class LakeSettings(OutputSection):
    """Settings common to outputs in an open table format."""

    columns: dict[Public, ColumnType] = Field(
        default_factory=dict, description="the types of columns to create, where the query does not determine them"
    )
    partition_by: tuple[Public, ...] = Field(default=(), description="the columns that a new table is partitioned by")
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

    def append(
        self,
        rows: pa.Table | None,
        files: Sequence[Any],
        identity: Identity,
        before: StoredMark | None,
        after: StoredMark,
    ) -> None:
        """Append rows, with columns that the table may lack, and files, and advance the mark, in one commit.

        Args:
            files: what the `file_writer` has returned.

        Raises:
            OutputError: the mark is not ``before``: another run writes.
        """

    def file_writer(self) -> FileWriter | None:
        """Return what writes files for the table in any process; None if that takes a writer that knows more of it."""

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
        self._names = None if opening.shape is None else [column.name.lower() for column in opening.shape]
        types = {name.lower(): Type(text) for name, text in settings.columns.items()}
        for column in opening.shape or ():
            if column.type is not Type.ANY:
                types.setdefault(column.name.lower(), column.type)
        self._lake_rows = LakeRows(table.name, types, settings.new_columns == "add")
        schema = table.schema()
        if schema is None:
            table.create(self._new_schema(opening.shape, settings))
            schema = table.schema()
            assert schema is not None
        self._lake_rows.learn(schema)
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
        self._files: list[Any] = []
        self._rejected_rows: list[RejectedRow] = []
        self._unsure = False

    @property
    def _held(self) -> StoredMark:
        is_own = self._stored is not None and self._stored.journal == self._identity.journal
        return self._stored if self._stored and is_own else StoredMark(self._identity.journal, 0, 0)

    # Columns ----------------------------------------------------------------------------------------------------------

    def _new_schema(self, shape: Shape | None, settings: LakeSettings) -> pa.Schema:
        names = list(settings.columns) if shape is None else [column.name for column in shape]
        types = self._lake_rows.types
        unknown = [name for name in names if name.lower() not in types]
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
        return pa.schema([pa.field(name, ARROW_TYPES[types[name.lower()]]) for name in names])

    def _check(self, shape: Shape | None) -> None:
        """Raise an error that names every way in which the query does not fit the table."""
        if shape is None:
            return
        fields, types, adds = self._lake_rows.fields, self._lake_rows.types, self._lake_rows.adds_columns
        given = {column.name.lower() for column in shape}
        wrong = [
            f"its column '{field.name}' has the type {field.type}, which results are not written as"
            for name, field in fields.items()
            if name in given and name not in types
        ]
        wrong += [
            f"its column '{field.name}' does not accept NULL, and the query has no such column"
            for name, field in fields.items()
            if not field.nullable and name not in given
        ]
        new = [column for column in shape if column.name.lower() not in fields]
        if new and not adds:
            wrong.append(f"it has no column '{new[0].name}'")
        wrong += [
            f"it has no column '{column.name}', whose type the query does not determine: set it in `columns`"
            for column in new
            if adds and column.name.lower() not in types
        ]
        if wrong:
            raise OutputError(f"output '{self._identity.output}' does not fit {self._table.name}: {'; '.join(wrong)}")

    # Rows -------------------------------------------------------------------------------------------------------------

    def write(self, rows: ResultRows) -> None:
        first = min(max(self._held.rows - self._rows, 0), len(rows))
        converted = self._lake_rows.convert(rows_from(rows, first), self._rows + first)
        self._reject(converted.rejected, converted.dropped)
        if converted.table is not None:
            self._waiting.append(converted.table)
        self._rows += len(rows)

    def _reject(self, rows: Sequence[RejectedRow], count: int) -> None:
        if rows and not self._drop:
            raise rejection_error(rows[0], self._identity.output)
        self._rejected_rows += rows[: max(0, SAMPLES - len(self._rejected_rows))]
        self._dropped += count

    def encoder(self) -> Encoder | None:
        """Return what writes files on executors; None while rows come that the table has, or columns that it lacks.

        Such rows are left out one by one, as a step may begin before the first new row and end after it.
        """
        if self._names is None or self._rows < self._held.rows or len(set(self._names)) < len(self._names):
            return None
        if not set(self._names) <= set(self._lake_rows.fields):
            return None
        writer = self._table.file_writer()
        return None if writer is None else LakeEncoder(self._lake_rows, writer, lake_encoder.LEAST_BYTES)

    def write_encoded(self, rows: EncodedRows) -> None:
        """Accept files that executors have written, or the rows that they returned.

        Raises:
            OutputUnavailableError: what they answered cannot be read at the moment.
            OutputError: a row is rejected, and such rows are not to be dropped.
        """
        try:
            runs: list[WrittenRun] = [pickle.loads(piece.read()) for piece in rows.pieces]
        except OSError as error:
            raise OutputUnavailableError(f"cannot read what executors have written: {error}") from error
        for run in runs:
            self._reject([replace(row, row=self._rows + row.row) for row in run.rejected], run.dropped)
            self._files += run.files
            if run.table is not None:
                self._waiting.append(run.table)
            self._rows += run.rows

    def commit(self) -> Mark:
        if self._rows > self._held.rows:
            after = StoredMark(self._identity.journal, self._rows, self._held.dropped + self._dropped)
            if not self._unsure or not self._was_stored(after):
                try:
                    self._table.append(one_table(self._waiting), self._files, self._identity, self._stored, after)
                except OutputUnavailableError:
                    self._unsure = True
                    raise
                for table in self._waiting:
                    self._lake_rows.learn(table.schema)
            self._stored = after
            self._unsure = False
            self._waiting, self._files, self._dropped = [], [], 0
        self._mark["rows"] = self._rows
        if self._rows == self._held.rows:
            self._mark["dropped"] = self._held.dropped
        return dict(self._mark)

    def _was_stored(self, after: StoredMark) -> bool:
        """Return whether an attempt whose reply was lost took effect."""
        return self._table.stored_mark(self._identity) == after

    def continue_after_held_rows(self) -> None:
        self._rows = self._held.rows

    def drain_rejected_rows(self) -> list[RejectedRow]:
        rejected, self._rejected_rows = self._rejected_rows, []
        return rejected

    def close(self) -> None:
        self._table.close()
