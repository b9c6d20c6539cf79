"""A table of a database that is reached by a Python DB-API driver with ``%s`` parameters: MySQL, SQL Server.

The rows of a step and their mark are one transaction. A batch that the database rejects is rolled back to a savepoint
and halved until the row to blame is alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

from tidegate import outbound
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs.column_types import Database, column_type
from tidegate.connectors.outputs.output import (
    Identity,
    OutputUnavailableError,
    RejectedRow,
    StoredMark,
    rejection_error,
)
from tidegate.connectors.outputs.tables.table_database import MARKS_TABLE, another_run_writes
from tidegate.connectors.outputs.tables.table_rows import Batch, StagedRows, TableColumn
from tidegate.sql.plan.nodes import Type

Result = TypeVar("Result")


class RelationalTable(ABC):
    """One table; see `TableDatabase`. A subclass knows the dialect and the driver.

    Attributes:
        kind: of the database. database: its column of the table of types.
        begin_rows, undo_rows, keep_rows: the statements that delimit the insertion of a batch.
    """

    kind: str
    database: ClassVar[Database]
    product: ClassVar[str]
    begin_rows: ClassVar[str]
    undo_rows: ClassVar[str]
    keep_rows: ClassVar[str | None]

    def __init__(self, table: str, *, drop: bool, batch_rows: int) -> None:
        """
        Args:
            table: its name, with a schema before it or not.
            batch_rows: how many rows one statement writes.
        """
        self._name = table
        self._drop = drop
        self._batch_rows = batch_rows
        self._key: tuple[str, ...] = ()
        self._connection: Any = None

    # The dialect ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def quoted(self, name: str) -> str:
        """Return a name in quotes."""

    @abstractmethod
    def read_columns(self, cursor: Any) -> list[TableColumn]:
        """Return the columns of the table; none if it does not exist."""

    @abstractmethod
    def unique_keys(self, cursor: Any) -> list[set[str]]:
        """Return the columns, in lower case, of each unique index of the table."""

    @abstractmethod
    def marks_statements(self) -> tuple[str, ...]:
        """Return statements that create the table of marks if it does not exist."""

    @abstractmethod
    def upsert(self, columns: Sequence[str], key: Sequence[str]) -> str:
        """Return a statement that inserts one row, or replaces the one with the same key."""

    @abstractmethod
    def connect(self) -> Any:
        """Return a new connection on which every statement is part of a transaction."""

    @abstractmethod
    def problem_of(self, error: Exception) -> tuple[str, bool]:
        """Return what an error of the driver says, without secrets, and whether the same call may succeed later."""

    @abstractmethod
    def rejection_of(self, error: Exception) -> str | None:
        """Return the kind of error if it is a row that is to blame; else None."""

    def create_statement(self, columns: Sequence[tuple[str, Type]], key: Sequence[str]) -> str:
        """Return the statement that creates the table."""
        keys = {name.lower() for name in key}
        lines = []
        for name, type_ in columns:
            declared = column_type(self.database, type_, in_key=name.lower() in keys)
            lines.append(f"{self.quoted(name)} {declared}{' NOT NULL' if name.lower() in keys else ''}")
        if key:
            lines.append(f"PRIMARY KEY ({', '.join(map(self.quoted, key))})")
        return f"CREATE TABLE {self.place} ({', '.join(lines)})"

    # `TableDatabase` --------------------------------------------------------------------------------------------------

    @property
    def place(self) -> str:
        """The table's name in quotes."""
        return ".".join(map(self.quoted, self._name.split(".")))

    @property
    def marks(self) -> str:
        """The name of the table of marks, which is in the schema of the table."""
        schema = self._name.rpartition(".")[0]
        return ".".join(map(self.quoted, [*filter(None, [schema]), MARKS_TABLE]))

    def columns(self) -> Sequence[TableColumn]:
        return self.on_connection(self.read_columns)

    def create(self, columns: Sequence[tuple[str, Type]], key: Sequence[str]) -> None:
        unknown = [name for name, type_ in columns if type_ is Type.ANY]
        if unknown:
            raise OutputError(
                f"the table {self._name} does not exist, and the query does not determine the types of "
                f"{', '.join(unknown)}: create the table, or set the types in the output's section "
                f'(columns = {{ {unknown[0]} = "nvarchar(max)" }})'
            )
        statement = self.create_statement(columns, key)
        self.on_connection(lambda cursor: cursor.execute(statement))

    def check_key(self, key: Sequence[str]) -> None:
        if {name.lower() for name in key} not in self.on_connection(self.unique_keys):
            raise OutputError(
                f"the table {self._name} does not enforce unique {', '.join(key)}: create a unique index on "
                f"{'it' if len(key) == 1 else 'them'}"
            )
        self._key = tuple(key)

    def stored_mark(self, identity: Identity) -> StoredMark | None:
        def read(cursor: Any) -> StoredMark | None:
            for statement in self.marks_statements():
                cursor.execute(statement)
            cursor.execute(
                f"SELECT journal, {self.quoted('rows')}, dropped FROM {self.marks} WHERE job = %s AND output = %s",
                (identity.job, identity.output),
            )
            row = cursor.fetchone()
            return None if row is None else StoredMark(*row)

        return self.on_connection(read)

    def begin(self, identity: Identity) -> None:
        def store(cursor: Any) -> None:
            names = (identity.job, identity.output)
            cursor.execute(f"DELETE FROM {self.marks} WHERE job = %s AND output = %s", names)
            cursor.execute(f"INSERT INTO {self.marks} VALUES (%s, %s, %s, 0, 0)", (*names, identity.journal))

        self.on_connection(store)

    def write(self, batches: Iterable[Batch], identity: Identity, before: int, after: StoredMark) -> list[RejectedRow]:
        return self.write_changes(batches, identity, before, after)

    def write_changes(
        self, changes: Iterable[Batch | StagedRows], identity: Identity, before: int, after: StoredMark
    ) -> list[RejectedRow]:
        """Write rows as ``write`` does, with `insert`."""

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
            return rejected

        return self.on_connection(store)

    def rejected_by(
        self, cursor: Any, change: Batch | StagedRows, insert: Callable[[Any, Any], None]
    ) -> Iterator[RejectedRow]:
        """Insert rows, and give those that the database rejects."""
        most = self._batch_rows if isinstance(change, Batch) else len(change)
        for first in range(0, len(change), most):
            yield from self._rejected_by(cursor, change.part(first, first + most), insert)

    def _rejected_by(
        self, cursor: Any, change: Batch | StagedRows, insert: Callable[[Any, Any], None]
    ) -> Iterator[RejectedRow]:
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

    def insert(self, cursor: Any, change: Batch | StagedRows) -> None:
        """Insert rows, or replace those with the same keys; the database rejects all or none."""
        assert isinstance(change, Batch)
        if self._key:
            cursor.executemany(self.upsert(change.columns, self._key), change.rows)
        else:
            self.insert_rows(cursor, self.place, change.columns, change.rows)

    def insert_rows(self, cursor: Any, place: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows with one statement; one for each would be a round trip for each."""
        names = ", ".join(map(self.quoted, columns)).replace("%", "%%")
        row = f"({', '.join(['%s'] * len(columns))})"
        values = ", ".join([row] * len(rows))
        cursor.execute(f"INSERT INTO {place} ({names}) VALUES {values}", tuple(value for one in rows for value in one))

    def single_row(self, cursor: Any, change: Batch | StagedRows) -> Batch | None:
        """Return a change of one row with its values; None if that row is no longer there."""
        assert isinstance(change, Batch)
        return change

    def on_connection(self, work: Callable[[Any], Result]) -> Result:
        """Call ``work`` with a cursor, in a transaction."""
        try:
            if self._connection is None:
                self._connection = self.connect()
            cursor = self._connection.cursor()
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
        """See `TableDatabase`; an open transaction is rolled back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            # What is lost with a broken connection is rolled back by the database.
            with suppress(Exception):
                connection.close()


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
