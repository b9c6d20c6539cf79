"""Outputs in an open table format: a commit of the table holds the results of a step and their mark.

Types belong to columns there, so a value converts without loss or its row is rejected. A column that the table lacks is
added to it, unless that is not wanted: in these formats a new column costs nothing and disturbs no reader.

An executor writes files that no commit names yet. If it has few rows, or cannot write, it returns them as columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from tidegate.connectors.model.encoded_rows import Encoder
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import Public
from tidegate.connectors.outputs.arrow_tables import ARROW_TYPES, arrow_table
from tidegate.connectors.outputs.column_types import ColumnType
from tidegate.connectors.outputs.kinds import OutputOpening, OutputSection
from tidegate.connectors.outputs.output import (
    COLUMN_NAME_INVALID,
    REQUIRED_COLUMN_MISSING,
    SAMPLES,
    TYPE_CONVERSION_ERROR,
    Identity,
    MarkLocation,
    RejectedRow,
    StoredMark,
    example_of,
    rows_at,
)
from tidegate.connectors.outputs.shape import Shape
from tidegate.connectors.outputs.tables.table_output import Converted, EncodedRun, RunEncoder, TableOutput
from tidegate.engine import ResultRows
from tidegate.engine.values.json_lines import dicts
from tidegate.sql.plan.nodes import Type

LEAST_BYTES = 1 << 20
"""Rows of fewer bytes, in memory, do not make a file: readers of a table suffer from many small ones."""
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

    columns: dict[Public, ColumnType] = Field(
        default_factory=dict, description="the types of columns to create, where the query does not determine them"
    )
    partition_by: tuple[Public, ...] = Field(default=(), description="the columns that a new table is partitioned by")
    new_columns: Literal["add", "reject"] = Field(
        default="add", description="what happens to results with a column that the table does not have"
    )


class FileWriter(Protocol):
    """Writes files of one table, in any process."""

    def write(self, rows: pa.Table) -> list[Any]:
        """Write rows to files, durably, and return what the table needs to know of each to add it.

        Raises:
            OutputError: they cannot be written.
        """


class LakeTable(ABC):
    """One table.

    Every method raises OutputError, or OutputUnavailableError when the same call may succeed later.
    """

    kind: ClassVar[str]
    name: str

    @abstractmethod
    def schema(self) -> pa.Schema | None:
        """Return the columns of the table; None if it does not exist."""

    @abstractmethod
    def create(self, schema: pa.Schema) -> None:
        """Create the table."""

    @abstractmethod
    def stored_mark(self, identity: Identity) -> StoredMark | None:
        """Return the mark of an output, as the table's latest commit has it."""

    @abstractmethod
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

    @abstractmethod
    def file_writer(self) -> FileWriter | None:
        """Return what writes files for the table in any process; None if that takes a writer that knows more of it."""

    @abstractmethod
    def close(self) -> None:
        """Close connections."""


class LakeOutput(TableOutput):
    """A table in an open format."""

    begins_marks = False

    def __init__(self, table: LakeTable, settings: LakeSettings, opening: OutputOpening) -> None:
        """
        Raises:
            OutputError: the table does not fit the query, or its mark does not fit the journal's.
        """
        self._table = table
        self._names = None if opening.shape is None else [column.name.lower() for column in opening.shape]
        types = {name.lower(): Type(text) for name, text in settings.columns.items()}
        for column in opening.shape or ():
            if column.type is not Type.ANY:
                types.setdefault(column.name.lower(), column.type)
        self._lake_rows = LakeRows(table.name, types, settings.new_columns == "add")
        schema = table.schema()
        if schema is None:
            table.create(_new_schema(self._lake_rows, settings, opening))
            schema = table.schema()
            assert schema is not None
        self._lake_rows.learn(schema)
        wrong = _misfits(self._lake_rows, opening.shape or ())
        if wrong:
            raise OutputError(f"output '{opening.identity.output}' does not fit {table.name}: {'; '.join(wrong)}")
        super().__init__(table.kind, MarkLocation(table.name, table.name, "delete the table"), opening)

    def stored_mark(self) -> StoredMark | None:
        return self._table.stored_mark(self._identity)

    def converted(self, rows: ResultRows, number: int) -> Converted:
        return self._lake_rows.convert(rows, number)

    def accepted(self, runs: Sequence[tuple[int, EncodedRun]]) -> Sequence[Any]:
        return [change for _, run in runs for change in run.changes]

    def stored(self, changes: Sequence[Any], before: StoredMark | None, after: StoredMark) -> Sequence[RejectedRow]:
        tables = [change for change in changes if isinstance(change, pa.Table)]
        files = [change for change in changes if not isinstance(change, pa.Table)]
        self._table.append(one_table(tables), files, self._identity, before, after)
        for table in tables:
            self._lake_rows.learn(table.schema)
        return ()

    def encoder(self) -> Encoder | None:
        """Return what writes files on executors; None while they cannot, or rows have columns that the table lacks."""
        if self._names is None or self.lags or len(set(self._names)) < len(self._names):
            return None
        if not set(self._names) <= set(self._lake_rows.fields):
            return None
        writer = self._table.file_writer()
        return None if writer is None else FileEncoder(self._lake_rows, writer, LEAST_BYTES)

    def close(self) -> None:
        self._table.close()


def _new_schema(rows: LakeRows, settings: LakeSettings, opening: OutputOpening) -> pa.Schema:
    shape, types = opening.shape, rows.types
    names = list(settings.columns) if shape is None else [column.name for column in shape]
    unknown = [name for name in names if name.lower() not in types]
    if unknown or not names:
        what = f"the types of {', '.join(unknown)}" if names else "the columns of SELECT *"
        example = f'columns = {{ {(unknown or ["name"])[0]} = "nvarchar(max)" }}'
        raise OutputError(
            f"{rows.name} does not exist, and the query does not determine {what}: create the table, or "
            f"set the types in the output's section ({example})"
        )
    columns = [name.rpartition("(")[2].removesuffix(")") for name in settings.partition_by]
    missing = [name for name in columns if name.lower() not in {one.lower() for one in names}]
    if missing:
        raise OutputError(f"output '{opening.identity.output}' is partitioned by {missing[0]}, which is no column")
    return pa.schema([pa.field(name, ARROW_TYPES[types[name.lower()]]) for name in names])


def _misfits(rows: LakeRows, shape: Shape) -> list[str]:
    """Return every way in which the query does not fit the table."""
    if not shape:
        return []
    fields, types, adds = rows.fields, rows.types, rows.adds_columns
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
    return wrong


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
            return Converted(())
        table, problems = self._converted(rows)
        if not problems:
            return Converted((table,))
        kept = rows_at(rows, np.setdiff1d(np.arange(len(rows)), list(problems)))
        rejected = []
        for place in sorted(problems)[:SAMPLES]:
            kind, message = problems[place]
            (record,) = dicts(rows.names, rows_at(rows, np.array([place])).columns, 1, plainly=False)
            time = int(rows.timestamps[place])
            rejected.append(RejectedRow(kind, message, number + place, time, example_of(record)))
        return Converted((self._converted(kept)[0],) if len(kept) else (), rejected, len(problems))

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


@dataclass(frozen=True, slots=True)
class FileEncoder(RunEncoder):
    """Writes the rows of one table to files.

    Attributes:
        least_bytes: rows of fewer bytes make no file.
    """

    rows: LakeRows
    writer: FileWriter
    least_bytes: int

    def encoded(self, runs: Sequence[tuple[int, ResultRows]]) -> list[EncodedRun]:
        """Write the rows of all runs to files that the first run has; changes are files, or the rows themselves."""
        converted = [self.rows.convert(rows, 0) for _, rows in runs]
        found = [
            EncodedRun(len(rows), (), one.rejected, one.dropped) for (_, rows), one in zip(runs, converted, strict=True)
        ]
        table = one_table([table for one in converted for table in one.changes])
        if table is not None:
            files: Sequence[Any] = ()
            if table.nbytes >= self.least_bytes:
                try:
                    files = self.writer.write(table)
                except OutputError:
                    # The job's process says what is wrong, or waits until it can write.
                    files = ()
            found[0] = replace(found[0], changes=files or (table,))
        return found


def one_table(tables: Sequence[pa.Table]) -> pa.Table | None:
    """Return the rows of all tables in one, which has the columns of all; None without tables."""
    if not tables:
        return None
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")
