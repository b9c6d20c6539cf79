"""Outputs to tables of SQL databases: the table fits the query, and its columns accept the rows.

Executors put rows into staging tables where the database has them. An executor that cannot reach the database returns
the rows.
"""

from __future__ import annotations

import hashlib
import uuid
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from pydantic import Field

from tidegate.connectors.model.encoded_rows import Encoder
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import Public
from tidegate.connectors.outputs.column_types import ColumnType
from tidegate.connectors.outputs.kinds import OutputOpening, OutputSection
from tidegate.connectors.outputs.output import (
    COLUMN_NAME_INVALID,
    REQUIRED_COLUMN_MISSING,
    SAMPLES,
    TYPE_CONVERSION_ERROR,
    Identity,
    MarkLocation,
    Output,
    RejectedRow,
    StoredMark,
    example_of,
)
from tidegate.connectors.outputs.shape import Shape
from tidegate.connectors.outputs.tables.relational_table import (
    MARKS_TABLE,
    PLACE_COLUMN,
    TIME_COLUMN,
    Change,
    RelationalTable,
    RowBatch,
    Run,
    StagedRows,
    StagingTable,
    TableColumn,
)
from tidegate.connectors.outputs.tables.table_output import Converted, EncodedRun, RunEncoder, TableOutput
from tidegate.connectors.outputs.values import converted
from tidegate.engine import Kind, ResultRows
from tidegate.engine.values.json_lines import dicts
from tidegate.engine.values.vectors import Datetime
from tidegate.sql.plan.nodes import Type

_PAUSE_S = 60.0
"""How long executors leave the writing to the driver after they could not reach the database."""
_PLACES_OF_A_RUN = 2**40  # more than a run has rows, so that places ascend from run to run
_PROBES: dict[Type, tuple[Any, ...]] = {
    Type.BIGINT: (0,),
    Type.FLOAT: (0.0,),
    Type.BIT: (False,),
    Type.DATETIME: (Datetime(0),),
    Type.RECORD: ({},),
    Type.ARRAY: ([],),
    Type.NVARCHAR: ("x", "2026-01-01", "00000000-0000-0000-0000-000000000000"),
}


class TableSettings(OutputSection):
    """Settings common to outputs that write a table of a SQL database."""

    table: Public
    key: tuple[Public, ...] = Field(
        default=(), description="columns that identify a row: a later result with the same values replaces it"
    )
    columns: dict[Public, ColumnType] = Field(
        default_factory=dict, description="the types of a table to create, where the query does not determine them"
    )

    @abstractmethod
    def database(self, *, drop: bool) -> RelationalTable:
        """Return the table in its database, to which there is no connection yet; ``drop`` as in `OutputOpening`."""

    def open_at(self, opening: OutputOpening) -> Output:
        return RelationalOutput(self.database(drop=opening.drop), self, opening)


class RelationalOutput(TableOutput):
    """A table of a SQL database."""

    def __init__(self, database: RelationalTable, settings: TableSettings, opening: OutputOpening) -> None:
        """
        Raises:
            OutputError: the table does not fit, or its mark does not fit the journal's.
        """
        self._database = database
        self._settings = settings
        self._columns = _fitted(database, settings, opening)
        self._table_rows = TableRows(self._columns, settings.table)
        self._not_before = 0.0
        location = MarkLocation(settings.table, MARKS_TABLE, f"empty the table and delete its row of {MARKS_TABLE}")
        super().__init__(database.kind, location, opening)
        self._stage = self._new_stage(opening.shape)

    def _new_stage(self, shape: Shape | None) -> StagingEncoder | None:
        """Return how executors write, after deleting what earlier runs have left; None if they cannot."""
        if shape is None or not isinstance(self._database, StagingTable):
            return None
        names = [self._columns[name].name for name in dict.fromkeys(column.name.lower() for column in shape)]
        prefix = staging_prefix(self._identity)
        is_like_them = not self._columns.keys().isdisjoint({PLACE_COLUMN, TIME_COLUMN})
        if len(names) != len(shape) or is_like_them or not self._database.can_stage(prefix):
            return None
        self._database.delete_staged(prefix)
        return StagingEncoder(self._settings, tuple(names), prefix, uuid.uuid4().hex, self._drop)

    def stored_mark(self) -> StoredMark | None:
        return self._database.stored_mark(self._identity)

    def begun(self) -> StoredMark:
        self._database.begin_mark(self._identity)
        return super().begun()

    def converted(self, rows: ResultRows, number: int) -> Converted:
        batches, rejected = self._table_rows.convert(rows, number)
        return Converted(batches, rejected, len(rejected))

    def accepted(self, runs: Sequence[tuple[int, EncodedRun]]) -> Sequence[StagedRows]:
        staged = [(table, Run(place, run.rows, number)) for number, run in runs for table, place in run.changes]
        if not staged:
            return ()
        assert self._stage is not None
        tables = dict.fromkeys(table for table, _ in staged)
        return (StagedRows(tuple(tables), self._stage.columns, tuple(run for _, run in staged)),)

    def pause_executors(self) -> None:
        self._not_before = monotonic() + _PAUSE_S

    def stored(self, changes: Sequence[Change], before: StoredMark | None, after: StoredMark) -> Sequence[RejectedRow]:
        return self._database.write(changes, self._identity, self._held.rows, after)

    def encoder(self) -> Encoder | None:
        return None if self.lags or monotonic() < self._not_before else self._stage

    def close(self) -> None:
        if self._stage is not None and isinstance(self._database, StagingTable):
            # What stays is deleted when the output is opened again.
            with suppress(OutputError):
                self._database.delete_staged(self._stage.prefix)
        self._database.close()


# The table ------------------------------------------------------------------------------------------------------------


def _fitted(database: RelationalTable, settings: TableSettings, opening: OutputOpening) -> dict[str, TableColumn]:
    """Return the columns of the table by lower-case name. It is created if it does not exist, and checked."""
    columns = database.columns()
    if not columns:
        database.create(_columns_to_create(settings, opening.shape), settings.key)
        columns = database.columns()
    found = by_name(columns, settings.key)
    wrong = _misfits(found, settings, opening.shape)
    if wrong:
        raise OutputError(
            f"output '{opening.identity.output}' does not fit the table {settings.table}: {'; '.join(wrong)}"
        )
    if settings.key:
        database.check_key([found[name.lower()].name for name in settings.key])
    return found


def _columns_to_create(settings: TableSettings, shape: Shape | None) -> list[tuple[str, Type]]:
    given = {name.lower(): Type(text) for name, text in settings.columns.items()}
    if shape is None:
        if not given:
            raise OutputError(
                f"the table {settings.table} does not exist, and SELECT * does not determine its columns: create the "
                "table, or name the columns with their types in `columns`"
            )
        return [(name, given[name.lower()]) for name in settings.columns]
    return [(column.name, given.get(column.name.lower(), column.type)) for column in shape]


def _misfits(columns: Mapping[str, TableColumn], settings: TableSettings, shape: Shape | None) -> list[str]:
    """Return every way in which the query does not fit the table."""
    names = [*(column.name for column in shape or ()), *settings.columns, *settings.key]
    wrong = []
    for name in dict.fromkeys(name.lower() for name in names):
        column = columns.get(name)
        if column is None:
            wrong.append(f"it has no column '{name}'")
        elif not column.writable:
            wrong.append(f"its column '{column.name}' computes its own values")
    if shape is None:
        return wrong
    given = {column.name.lower() for column in shape}
    wrong += [f"the query has no column '{name}' for the key" for name in settings.key if name.lower() not in given]
    wrong += [
        f"its column '{column.name}' does not accept NULL, and the query has no such column"
        for name, column in columns.items()
        if column.required and name not in given
    ]
    for one in shape:
        column = columns.get(one.name.lower())
        if column is not None and not _may_hold(column, one.type):
            wrong.append(f"its column '{column.name}' of type {column.type} holds no {one.type.value}")
    return wrong


def _may_hold(column: TableColumn, type_: Type) -> bool:
    for probe in _PROBES.get(type_, ()):
        try:
            column.convert(probe)
        except ValueError:
            continue
        return True
    return type_ not in _PROBES


def by_name(columns: Sequence[TableColumn], key: Sequence[str]) -> dict[str, TableColumn]:
    """Return columns by lower-case name; of names that differ only in case the first counts. A key rejects NULL."""
    found: dict[str, TableColumn] = {}
    keys = {name.lower() for name in key}
    for column in columns:
        name = column.name.lower()
        found.setdefault(name, replace(column, required=True) if name in keys else column)
    return found


# Rows -----------------------------------------------------------------------------------------------------------------


class TableRows:
    """Converts results to rows of a table."""

    def __init__(self, columns: Mapping[str, TableColumn], table: str) -> None:
        """
        Args:
            columns: of the table, by name in lower case.
        """
        self._columns = columns
        self._table = table

    def convert(self, rows: ResultRows, number: int) -> tuple[list[RowBatch], list[RejectedRow]]:
        """Return results, of which the first has a number, as rows of the table, and those that it cannot hold."""
        if not len(rows):
            return [], []
        whole = self._by_column(rows, number)
        if whole is not None:
            return [whole], []
        batches: list[RowBatch] = []
        rejected = []
        records = dicts(rows.names, rows.columns, len(rows), plainly=False)
        for place, (record, time) in enumerate(zip(records, rows.timestamps.tolist(), strict=True), start=number):
            refused = self._take(record, place, time, batches)
            if refused is not None:
                rejected.append(RejectedRow(*refused, place, time, example_of(record)))
        return batches, rejected

    def _by_column(self, rows: ResultRows, number: int) -> RowBatch | None:
        """Return a batch of all rows, or None if one of them has to be converted alone."""
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
        return RowBatch(
            tuple(column.name for column in columns),
            list(zip(*found, strict=True)),
            list(range(number, number + len(rows))),
            rows.timestamps.tolist(),
        )

    def _take(
        self, record: Mapping[str, Any], number: int, time: int, batches: list[RowBatch]
    ) -> tuple[str, str] | None:
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
            batches.append(RowBatch(tuple(names)))
        batches[-1].rows.append(tuple(values))
        batches[-1].numbers.append(number)
        batches[-1].times.append(time)
        return None


# Executors ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StagingEncoder(RunEncoder):
    """Puts rows into staging tables.

    Attributes:
        settings: of the output, with its connection string.
        columns: of the table, by the names it has for them, in the order of the query.
        prefix: with which the names of staging tables begin.
        opening: a name that no other opening of the output has; connections are kept for one.
        drop: leave out rows that the table cannot hold.
    """

    settings: TableSettings = field(repr=False)
    columns: tuple[str, ...]
    prefix: str
    opening: str
    drop: bool

    def encoded(self, runs: Sequence[tuple[int, ResultRows]]) -> list[EncodedRun]:
        """Put rows into one staging table; the change of a run is the table's name and the place of the first row."""
        # A connection that has been kept may have been closed by the database.
        for _ in range(1 + (self.opening in _OPEN)):
            try:
                return self._staged(runs)
            except OutputError:
                _forget(self.opening)
        # The job's process says what is wrong, or waits for the database.
        return [EncodedRun(len(rows), returned=rows) for _, rows in runs]

    def _staged(self, runs: Sequence[tuple[int, ResultRows]]) -> list[EncodedRun]:
        database, table_rows = self._connected()
        batches: list[RowBatch] = []
        rejected: list[RejectedRow] = []
        for number, rows in runs:
            converted, refused = table_rows.convert(rows, number * _PLACES_OF_A_RUN)
            batches += converted
            rejected += refused
        if any(batch.columns != self.columns for batch in batches):
            raise OutputError("the rows of an output have other columns than its query")
        table = None
        if batches and (self.drop or not rejected):
            table = f"{self.prefix}{uuid.uuid4().hex}"
            rejected += database.stage(table, batches)
        by_run: dict[int, list[RejectedRow]] = {number: [] for number, _ in runs}
        for row in sorted(rejected, key=lambda row: row.row):
            number, place = divmod(row.row, _PLACES_OF_A_RUN)
            by_run[number].append(replace(row, row=place))
        return [
            EncodedRun(
                len(rows),
                () if table is None else ((table, number * _PLACES_OF_A_RUN),),
                by_run[number][:SAMPLES],
                len(by_run[number]),
            )
            for number, rows in runs
        ]

    def _connected(self) -> tuple[StagingTable, TableRows]:
        """Return the table over this process's connection."""
        known = _OPEN.get(self.opening)
        if known is not None:
            return known
        database = self.settings.database(drop=self.drop)
        assert isinstance(database, StagingTable)
        columns = by_name(database.columns(), self.settings.key)
        for opening, (other, other_rows) in list(_OPEN.items()):
            if len(_OPEN) >= _MOST_OPEN:
                del _OPEN[opening], other_rows
                other.close()
        _OPEN[self.opening] = database, TableRows(columns, self.settings.table)
        return _OPEN[self.opening]


_MOST_OPEN = 8
_OPEN: dict[str, tuple[StagingTable, TableRows]] = {}
"""Connections of this process, which lives as long as Spark's worker: by opening, the oldest first."""


def _forget(opening: str) -> None:
    """Close a connection that does not work, so that the next attempt makes another."""
    known = _OPEN.pop(opening, None)
    if known is not None:
        with suppress(OutputError):
            known[0].close()


def staging_prefix(identity: Identity) -> str:
    """Return what the names of an output's staging tables begin with; those of other jobs begin with something else."""
    owner = hashlib.sha256(f"{identity.journal}/{identity.output.lower()}".encode()).hexdigest()[:12]
    return f"tidegate_staged_{owner}_"
