"""A table of a SQL database, by a Python DB-API driver with ``%s`` parameters: what all dialects have in common.

The rows of a step and their mark, which is a row of another table beside it, are one transaction. A batch that the
database rejects is rolled back to a savepoint and halved until the row to blame is alone.

In some databases executors put rows into staging tables, over connections of their own (`StagingTable`). A staging
table is filled in one transaction, under a name that no other attempt has. It is deleted as its rows are moved to the
table, or else as one that an earlier run has left.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from tidegate import outbound
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import TextPattern
from tidegate.connectors.outputs.column_types import Database, column_type
from tidegate.connectors.outputs.output import (
    Identity,
    MarkLocation,
    OutputUnavailableError,
    RejectedRow,
    StoredMark,
    example_of,
    moved_by_another_run,
    rejection_error,
)
from tidegate.connectors.outputs.values import Converter
from tidegate.sql.plan.nodes import Type

MARKS_TABLE = "tidegate_outputs"
PLACE_COLUMN, TIME_COLUMN = "tidegate_row", "tidegate_time"
"""The columns of a staging table beside those of the rows: the place of a row in the step, and its time in ticks."""

_ALL_ROWS = 1 << 62
LOCK_WAIT_S = 30
"""After this time a table that another session has locked is unavailable, so that the job says what it waits for."""
TABLE_NAME = TextPattern(
    r"^[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?$",
    "a name, or two with a point between them, each of letters, digits, '_' and '$', of which the first is no digit",
)

Result = TypeVar("Result")


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
class RowBatch:
    """Consecutive rows that have the same columns: a value for each, as the database accepts them."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, first: int, stop: int) -> RowBatch:
        """Return the rows ``first`` ≤ index < ``stop``."""
        return RowBatch(self.columns, self.rows[first:stop], self.numbers[first:stop], self.times[first:stop])

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


Change = RowBatch | StagedRows


class RelationalTable(ABC):
    """One table. A subclass knows the dialect and the driver.

    Every method that uses the connection raises OutputError, or OutputUnavailableError when the same call may succeed
    later; the next call then reconnects.

    Attributes:
        kind: of the database, in marks. product: the same, for people. dialect: its column of the table of types.
        begin: the statement that begins a transaction that writes, if one is needed.
        begin_rows, undo_rows, keep_rows: the statements that delimit the insertion of a batch.
    """

    kind: ClassVar[str]
    product: str
    dialect: ClassVar[Database]
    begin: ClassVar[str | None] = None
    begin_rows: ClassVar[str] = "SAVEPOINT tidegate"
    undo_rows: ClassVar[str] = "ROLLBACK TO SAVEPOINT tidegate"
    keep_rows: ClassVar[str | None] = "RELEASE SAVEPOINT tidegate"

    def __init__(self, table: str, *, drop: bool, batch_rows: int = _ALL_ROWS) -> None:
        """
        Args:
            table: its name, with a schema before it or not.
            drop: leave out rows that the database rejects; otherwise the first of them raises.
            batch_rows: how many rows one statement writes.
        """
        self.name = table
        self._schema, _, self._table = table.rpartition(".")
        self._drop = drop
        self._batch_rows = batch_rows
        self._key: tuple[str, ...] = ()
        self._connection: Any = None

    # The dialect ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def read_columns(self, cursor: Any) -> list[TableColumn]:
        """Return the columns of the table; none if it does not exist."""

    @abstractmethod
    def is_unique(self, cursor: Any, key: Sequence[str]) -> bool:
        """Return whether the database enforces that columns are unique together, by an index of just them."""

    @abstractmethod
    def create_marks(self, cursor: Any) -> None:
        """Create the table of marks if it does not exist."""

    @abstractmethod
    def connect(self) -> Any:
        """Return a new connection, with a transaction for what is done until its ``commit``."""

    def cursor(self) -> Any:
        """Return a new cursor of the connection."""
        return self._connection.cursor()

    @abstractmethod
    def problem_of(self, error: Exception) -> tuple[str, bool]:
        """Return what an error of the driver says, without secrets, and whether the same call may succeed later."""

    @abstractmethod
    def rejection_of(self, error: Exception) -> str | None:
        """Return the kind of error if it is a row that is to blame; else None."""

    def quoted(self, name: str) -> str:
        """Return a name in quotes."""
        return '"' + name.replace('"', '""') + '"'

    def beside(self, name: str) -> str:
        """Return the name in quotes of a table in the schema of the table."""
        return ".".join(map(self.quoted, [*filter(None, [self._schema]), name]))

    def names(self, columns: Sequence[str]) -> str:
        """Return a list of columns."""
        return ", ".join(map(self.quoted, columns))

    def create_statement(self, columns: Sequence[tuple[str, Type]], key: Sequence[str]) -> str:
        """Return the statement that creates the table."""
        keys = {name.lower() for name in key}
        lines = [
            f"{self.quoted(name)} {column_type(self.dialect, type_, in_key=name.lower() in keys)}".rstrip()
            for name, type_ in columns
        ]
        if key:
            lines.append(f"PRIMARY KEY ({self.names(key)})")
        return f"CREATE TABLE {self.place} ({', '.join(lines)})"

    def upsert(self, columns: Sequence[str], key: Sequence[str]) -> str:
        """Return a statement that inserts one row, or replaces the one with the same key."""
        names, replacing = (text.replace("%", "%%") for text in (self.names(columns), self.replacing(columns, key)))
        return f"INSERT INTO {self.place} ({names}) VALUES ({', '.join(['%s'] * len(columns))}) {replacing}"

    def replacing(self, columns: Sequence[str], key: Sequence[str]) -> str:
        """Return the end of an INSERT that replaces rows with the same key."""
        rest = [self.quoted(name) for name in columns if name not in key]
        sets = ", ".join(f"{name} = excluded.{name}" for name in rest)
        return f"ON CONFLICT ({self.names(key)}) DO {f'UPDATE SET {sets}' if rest else 'NOTHING'}"

    # The table --------------------------------------------------------------------------------------------------------

    @property
    def place(self) -> str:
        """The table's name in quotes."""
        return self.beside(self._table)

    @property
    def marks(self) -> str:
        """The name in quotes of the table of marks."""
        return self.beside(MARKS_TABLE)

    def columns(self) -> Sequence[TableColumn]:
        """Return the columns of the table; none if it does not exist."""
        return self.on_connection(self.read_columns)

    def create(self, columns: Sequence[tuple[str, Type]], key: Sequence[str]) -> None:
        """Create the table.

        Raises:
            OutputError: the type of a column is not known, and the database has none for all values.
        """
        unknown = [name for name, type_ in columns if type_ is Type.ANY]
        if unknown and self.dialect is not Database.SQLITE:
            name = unknown[0] if re.fullmatch(r"[A-Za-z0-9_-]+", unknown[0]) else f'"{unknown[0]}"'
            raise OutputError(
                f"the table {self.name} does not exist, and the query does not determine the types of "
                f"{', '.join(unknown)}: create the table, or set the types in the output's section "
                f'(columns = {{ {name} = "nvarchar(max)" }})'
            )
        statement = self.create_statement(columns, key)
        self.on_connection(lambda cursor: self.run_creation(cursor, statement))

    def run_creation(self, cursor: Any, statement: str) -> None:
        """Execute a statement that creates a table."""
        cursor.execute(statement)

    def check_key(self, key: Sequence[str]) -> None:
        """Write rows by their key from now on.

        Raises:
            OutputError: the database does not enforce that these columns are unique.
        """
        if not self.on_connection(lambda cursor: self.is_unique(cursor, key)):
            raise OutputError(
                f"the table {self.name} does not enforce unique {', '.join(key)}: create a unique index on "
                f"{'it' if len(key) == 1 else 'them'}"
            )
        self._key = tuple(key)

    def stored_mark(self, identity: Identity) -> StoredMark | None:
        """Return the mark of an output; create the table of marks if it does not exist."""

        def read(cursor: Any) -> StoredMark | None:
            self.create_marks(cursor)
            cursor.execute(
                f"SELECT journal, {self.quoted('rows')}, dropped FROM {self.marks} WHERE job = %s AND output = %s",
                (identity.job, identity.output),
            )
            row = cursor.fetchone()
            return None if row is None else StoredMark(*row)

        return self.on_connection(read)

    def begin_mark(self, identity: Identity) -> None:
        """Set the mark of an output to no rows."""

        def store(cursor: Any) -> None:
            names = (identity.job, identity.output)
            cursor.execute(f"DELETE FROM {self.marks} WHERE job = %s AND output = %s", names)
            cursor.execute(f"INSERT INTO {self.marks} VALUES (%s, %s, %s, 0, 0)", (*names, identity.journal))

        self.on_connection(store, writes=True)

    # Rows -------------------------------------------------------------------------------------------------------------

    def write(self, changes: Sequence[Change], identity: Identity, before: int, after: StoredMark) -> list[RejectedRow]:
        """Write rows and advance the mark from ``before`` rows to ``after``, in one transaction.

        Returns:
            The rows that the database itself rejected; they count as dropped in the mark that is stored.

        Raises:
            OutputError: the mark is not at ``before``; nothing has changed.
        """

        def store(cursor: Any) -> list[RejectedRow]:
            rejected = []
            for change in changes:
                for row in self.rejected_by(cursor, change, self.insert):
                    if not self._drop:
                        raise rejection_error(row, identity.output)
                    rejected.append(row)
            cursor.execute(
                f"UPDATE {self.marks} SET {self.quoted('rows')} = %s, dropped = %s WHERE job = %s AND output = %s "
                f"AND journal = %s AND {self.quoted('rows')} = %s",
                (after.rows, after.dropped + len(rejected), identity.job, identity.output, after.journal, before),
            )
            if cursor.rowcount != 1:
                raise another_run_writes(identity)
            self.forget_staged(cursor, changes)
            return rejected

        return self.on_connection(store, writes=True)

    def forget_staged(self, cursor: Any, changes: Sequence[Change]) -> None:
        """Delete the staging tables of changes in the transaction that writes these, if the database can."""
        return

    def rejected_by(self, cursor: Any, change: Change, insert: Callable[[Any, Any], None]) -> Iterator[RejectedRow]:
        """Insert rows, and give those that the database rejects."""
        most = self._batch_rows if isinstance(change, RowBatch) else _ALL_ROWS
        if len(change) <= most:
            yield from self._rejected_by(cursor, change, insert)
            return
        for first in range(0, len(change), most):
            yield from self._rejected_by(cursor, change.part(first, first + most), insert)

    def _rejected_by(self, cursor: Any, change: Change, insert: Callable[[Any, Any], None]) -> Iterator[RejectedRow]:
        cursor.execute(self.begin_rows)
        try:
            insert(cursor, change)
        except Exception as error:
            kind = self.rejection_of(error)
            if kind is None:
                raise
            cursor.execute(self.undo_rows)
            if len(change) == 1:
                alone = self.single_row(cursor, change)
                if alone is not None:
                    yield alone.rejected_row(kind, self.problem_of(error)[0])
                return
            middle = len(change) // 2
            yield from self._rejected_by(cursor, change.part(0, middle), insert)
            yield from self._rejected_by(cursor, change.part(middle, len(change)), insert)
            return
        if self.keep_rows is not None:
            cursor.execute(self.keep_rows)

    def insert(self, cursor: Any, change: Change) -> None:
        """Insert rows, or replace those with the same keys; the database rejects all or none."""
        assert isinstance(change, RowBatch)
        if self._key:
            cursor.executemany(self.upsert(change.columns, self._key), change.rows)
        else:
            self.insert_rows(cursor, self.place, change.columns, change.rows)

    def insert_rows(self, cursor: Any, place: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows with one statement; one for each would be a round trip for each."""
        row = f"({', '.join(['%s'] * len(columns))})"
        cursor.execute(
            f"INSERT INTO {place} ({self.names(columns).replace('%', '%%')}) VALUES {', '.join([row] * len(rows))}",
            tuple(value for one in rows for value in one),
        )

    def single_row(self, cursor: Any, change: Change) -> RowBatch | None:
        """Return a change of one row with its values; None if that row is no longer there."""
        assert isinstance(change, RowBatch)
        return change

    # The connection ---------------------------------------------------------------------------------------------------

    def on_connection(self, work: Callable[[Any], Result], *, writes: bool = False) -> Result:
        """Call ``work`` with a cursor, in a transaction."""
        try:
            if self._connection is None:
                self._connection = self.connect()
            cursor = self.cursor()
            if writes and self.begin is not None:
                cursor.execute(self.begin)
            result = work(cursor)
            self._connection.commit()
        except OutputError:
            self.close()
            raise
        except Exception as error:
            message, away = self.problem_of(error)
            self.close()
            raise (OutputUnavailableError if away else OutputError)(f"{self.product}: {message}") from None
        return result

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            # What is lost with a broken connection is rolled back by the database.
            with suppress(Exception):
                connection.close()


class StagingTable(RelationalTable):
    """A table of a database in which executors can put rows into staging tables.

    Attributes:
        drops_in_transactions: whether deleting a table can be part of a transaction.
    """

    drops_in_transactions: ClassVar[bool]

    @abstractmethod
    def create_staged(self, cursor: Any, place: str, columns: str) -> None:
        """Create an empty staging table with some of the table's columns, of their types, and the two of its own."""

    @abstractmethod
    def move(self, cursor: Any, staged: StagedRows) -> None:
        """Insert staged rows into the table; of those with one key the last one stays."""

    @abstractmethod
    def names_of(self, cursor: Any, prefix: str) -> list[str]:
        """Return the tables beside the table whose names begin with a prefix."""

    @abstractmethod
    def drop_staged(self, cursor: Any, names: Sequence[str]) -> None:
        """Delete staging tables, but not those that somebody is writing."""

    @abstractmethod
    def misses_table(self, error: Exception) -> bool:
        """Return whether an error says that a table does not exist."""

    @abstractmethod
    def can_stage(self, prefix: str) -> bool:
        """Return whether the user may create staging tables; it may try to, with a name that begins with the prefix."""

    def stage(self, name: str, batches: Sequence[RowBatch]) -> list[RejectedRow]:
        """Create a staging table with rows, all of the same columns, and return those that the database rejects.

        The numbers of the rows are their places.
        """
        place, columns = self.beside(name), batches[0].columns

        def insert(cursor: Any, batch: RowBatch) -> None:
            rows = [(*row, *more) for row, *more in zip(batch.rows, batch.numbers, batch.times, strict=True)]
            self.insert_rows(cursor, place, (*columns, PLACE_COLUMN, TIME_COLUMN), rows)

        def fill(cursor: Any) -> list[RejectedRow]:
            self.create_staged(cursor, place, self.names(columns))
            return [row for batch in batches for row in self.rejected_by(cursor, batch, insert)]

        return self.on_connection(fill)

    def write(self, changes: Sequence[Change], identity: Identity, before: int, after: StoredMark) -> list[RejectedRow]:
        """Write rows as `RelationalTable.write` does, some of them from staging tables, which are deleted."""
        try:
            rejected = super().write(changes, identity, before, after)
        except _StagedRowsDeletedError:
            raise another_run_writes(identity) from None
        tables = _staging_tables(changes)
        if tables and not self.drops_in_transactions:
            # The rows are stored, so a table that stays does no harm.
            with suppress(OutputError):
                self.on_connection(lambda cursor: self.drop_staged(cursor, tables))
        return rejected

    def forget_staged(self, cursor: Any, changes: Sequence[Change]) -> None:
        if self.drops_in_transactions:
            for name in _staging_tables(changes):
                cursor.execute(f"DROP TABLE IF EXISTS {self.beside(name)}")

    def insert(self, cursor: Any, change: Change) -> None:
        """Insert rows as `RelationalTable.insert` does, or those of staging tables."""
        if isinstance(change, RowBatch):
            super().insert(cursor, change)
            return
        try:
            self.move(cursor, change)
        except Exception as error:
            if self.misses_table(error) and any(name in str(error) for name in change.tables):
                raise _StagedRowsDeletedError("a run that starts deletes the staging tables of others") from error
            raise

    def single_row(self, cursor: Any, change: Change) -> RowBatch | None:
        if isinstance(change, RowBatch):
            return change
        cursor.execute(f"SELECT {self.names(change.columns)}, {TIME_COLUMN} FROM {self.rows_of(change)}")
        found = cursor.fetchone()
        if found is None:
            return None
        plain = tuple(value if isinstance(value, int | float | str | None) else str(value) for value in found[:-1])
        return RowBatch(change.columns, [plain], [change.runs[0].number], [found[-1]])

    def rows_of(self, staged: StagedRows) -> str:
        """Return staged rows as a table of a FROM."""
        within = f"{PLACE_COLUMN} >= {staged.begin} AND {PLACE_COLUMN} < {staged.end}"
        tables = (f"SELECT * FROM {self.beside(name)} WHERE {within}" for name in staged.tables)
        return f"({' UNION ALL '.join(tables)}) AS staged"

    def delete_staged(self, prefix: str) -> None:
        """Delete all staging tables whose names begin with a prefix; one that is being written may stay."""
        names = self.on_connection(lambda cursor: self.names_of(cursor, prefix))
        if names:
            self.on_connection(lambda cursor: self.drop_staged(cursor, names))


def _staging_tables(changes: Sequence[Change]) -> list[str]:
    return [name for change in changes if isinstance(change, StagedRows) for name in change.tables]


class _StagedRowsDeletedError(OutputError):
    """A staging table that a step has named is not there."""


def another_run_writes(identity: Identity) -> OutputError:
    """Return the error that ends the slower of two runs."""
    return moved_by_another_run(identity, MarkLocation("the table", MARKS_TABLE, ""))


def check_address(parts: Mapping[str, Any], port: int) -> None:
    """Check where a driver would connect to with these parts of an address, which the query of a URL may have replaced.

    Args:
        port: the database's usual port.

    Raises:
        OutputError: the hub's operator does not let jobs connect there; the message says so.
    """
    try:
        outbound.check_driver(parts, port)
    except outbound.AddressRefused as error:
        raise OutputError(f"cannot reach the database: {error}") from None


def parts_of(address: str, example: str) -> Mapping[str, Any]:
    """Return host, port, user, password and database of an address such as ``mysql://user:password@host:3306/database``.

    Raises:
        OutputError: it is of another form; the message does not repeat it, as it may hold a password.
    """
    from urllib.parse import parse_qsl, unquote, urlsplit

    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if not parts.scheme or not (parts.hostname or parts.query):
        raise OutputError(f"connection_string is of another form than {example}")
    return {
        "host": parts.hostname,
        "port": port,
        "user": None if parts.username is None else unquote(parts.username),
        "password": None if parts.password is None else unquote(parts.password),
        "database": unquote(parts.path.lstrip("/")) or None,
        **dict(parse_qsl(parts.query)),
    }
