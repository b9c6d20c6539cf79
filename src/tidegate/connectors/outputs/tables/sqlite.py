"""A table of a SQLite database. Times are kept as text with seven digits, so they lose nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import Public
from tidegate.connectors.outputs import values
from tidegate.connectors.outputs.column_types import Database, column_type
from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening
from tidegate.connectors.outputs.output import (
    DUPLICATE_KEY,
    REQUIRED_COLUMN_MISSING,
    TYPE_CONVERSION_ERROR,
    Identity,
    Output,
    OutputUnavailableError,
    RejectedRow,
    StoredMark,
    rejection_error,
)
from tidegate.connectors.outputs.tables.table_database import MARKS_TABLE, TableSettings, another_run_writes
from tidegate.connectors.outputs.tables.table_output import TableOutput
from tidegate.connectors.outputs.tables.table_rows import Batch, TableColumn
from tidegate.sql.plan.nodes import Type

_WAIT_FOR_WRITERS_S = 5.0
_AWAY = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
    }
)
_KINDS = {
    sqlite3.SQLITE_CONSTRAINT_NOTNULL: REQUIRED_COLUMN_MISSING,
    sqlite3.SQLITE_CONSTRAINT_UNIQUE: DUPLICATE_KEY,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY: DUPLICATE_KEY,
}
_GENERATED = (2, 3)  # PRAGMA table_xinfo, column hidden

Result = TypeVar("Result")


@OUTPUTS.register
class SqliteOutput(TableSettings):
    """A table of a SQLite database; the results of a step and the mark of how far they go in one transaction."""

    type: Literal["sqlite"]
    path: Path = Field(description="the database file, created if it does not exist; relative to the job file")
    table: Public = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_$]*$", description="the table, created if it does not exist")

    def open_at(self, opening: OutputOpening) -> Output:
        return TableOutput(self.database(drop=opening.drop), self, opening)

    def database(self, *, drop: bool) -> SqliteTable:
        return SqliteTable(self, drop=drop)


class SqliteTable:
    """One table; see `TableDatabase`."""

    kind = "sqlite"

    def __init__(self, definition: SqliteOutput, *, drop: bool) -> None:
        self._path = definition.path
        self._table = definition.table
        self._key: tuple[str, ...] = ()
        self._drop = drop
        self._connection: sqlite3.Connection | None = None

    def columns(self) -> Sequence[TableColumn]:
        def read(connection: sqlite3.Connection) -> list[TableColumn]:
            rows = connection.execute("SELECT * FROM pragma_table_xinfo(?)", (self._table,)).fetchall()
            keys = [name for _, name, _, _, _, place, _ in rows if place]
            return [
                TableColumn(
                    name,
                    type_ or "any",
                    _converter(type_),
                    # INTEGER PRIMARY KEY assigns its own values.
                    required=bool(not_null) and default is None and not (keys == [name] and type_.upper() == "INTEGER"),
                    writable=hidden not in _GENERATED,
                )
                for _, name, type_, not_null, default, _, hidden in rows
            ]

        return self._on_connection(read)

    def create(self, columns: Sequence[tuple[str, Type]], key: Sequence[str]) -> None:
        lines = [f"{_quoted(name)} {column_type(Database.SQLITE, type_)}".rstrip() for name, type_ in columns]
        if key:
            lines.append(f"PRIMARY KEY ({', '.join(map(_quoted, key))})")
        statement = f"CREATE TABLE {_quoted(self._table)} ({', '.join(lines)})"
        self._on_connection(lambda connection: connection.execute(statement))

    def check_key(self, key: Sequence[str]) -> None:
        self._key = tuple(key)

        def explain(connection: sqlite3.Connection) -> None:
            try:
                connection.execute(f"EXPLAIN {self._insert(self._key)}", [None] * len(key))
            except sqlite3.OperationalError as error:
                raise OutputError(
                    f"the table {self._table} of {self._path} does not enforce unique {', '.join(key)}: create a "
                    f"unique index on {'it' if len(key) == 1 else 'them'} ({error})"
                ) from error

        self._on_connection(explain)

    def stored_mark(self, identity: Identity) -> StoredMark | None:
        def read(connection: sqlite3.Connection) -> StoredMark | None:
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {MARKS_TABLE} (job TEXT NOT NULL, output TEXT NOT NULL, "
                "journal TEXT NOT NULL, rows INTEGER NOT NULL, dropped INTEGER NOT NULL, PRIMARY KEY (job, output))"
            )
            row = connection.execute(
                f"SELECT journal, rows, dropped FROM {MARKS_TABLE} WHERE job = ? AND output = ?",
                (identity.job, identity.output),
            ).fetchone()
            return None if row is None else StoredMark(*row)

        return self._on_connection(read)

    def begin(self, identity: Identity) -> None:
        self._on_connection(
            lambda connection: connection.execute(
                f"INSERT OR REPLACE INTO {MARKS_TABLE} VALUES (?, ?, ?, 0, 0)",
                (identity.job, identity.output, identity.journal),
            )
        )

    def write(self, batches: Iterable[Batch], identity: Identity, before: int, after: StoredMark) -> list[RejectedRow]:
        def store(connection: sqlite3.Connection) -> list[RejectedRow]:
            with _transaction(connection):
                rejected = [row for batch in batches for row in self._insert_batch(connection, batch, identity)]
                moved = connection.execute(
                    f"UPDATE {MARKS_TABLE} SET rows = ?, dropped = ? WHERE job = ? AND output = ? AND journal = ? "
                    "AND rows = ?",
                    (
                        after.rows,
                        after.dropped + len(rejected),
                        identity.job,
                        identity.output,
                        after.journal,
                        before,
                    ),
                )
                if moved.rowcount != 1:
                    raise another_run_writes(identity)
            return rejected

        return self._on_connection(store)

    def _insert_batch(self, connection: sqlite3.Connection, batch: Batch, identity: Identity) -> Iterator[RejectedRow]:
        statement = self._insert(batch.columns)
        connection.execute("SAVEPOINT rows")
        try:
            connection.executemany(statement, batch.rows)
        except sqlite3.IntegrityError as error:
            connection.execute("ROLLBACK TO rows")
            if len(batch.rows) == 1:
                row = batch.rejected_row(_KINDS.get(error.sqlite_errorcode, TYPE_CONVERSION_ERROR), str(error))
                if not self._drop:
                    raise rejection_error(row, identity.output) from error
                yield row
            else:
                middle = len(batch.rows) // 2
                connection.execute("RELEASE rows")
                yield from self._insert_batch(connection, batch.part(0, middle), identity)
                yield from self._insert_batch(connection, batch.part(middle, len(batch.rows)), identity)
                return
        connection.execute("RELEASE rows")

    def _insert(self, columns: Sequence[str]) -> str:
        names = ", ".join(map(_quoted, columns))
        places = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {_quoted(self._table)} ({names}) VALUES ({places})"
        if not self._key:
            return statement
        rest = [name for name in columns if name not in self._key]
        sets = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in rest)
        action = f"UPDATE SET {sets}" if rest else "NOTHING"
        return f"{statement} ON CONFLICT ({', '.join(map(_quoted, self._key))}) DO {action}"

    def _on_connection(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        try:
            if self._connection is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                new = not self._path.exists()
                self._connection = sqlite3.connect(self._path, timeout=_WAIT_FOR_WRITERS_S, isolation_level=None)
                if new:
                    # Readers of a table that keeps growing must not block its writer, nor it them.
                    self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = FULL")
            return work(self._connection)
        except sqlite3.Error as error:
            message = f"SQLite database {self._path}: {error}"
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _AWAY:
                self.close()
                raise OutputUnavailableError(message) from error
            raise OutputError(message) from error
        except OSError as error:
            raise OutputUnavailableError(f"SQLite database {self._path}: {error.strerror}") from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _converter(type_: str) -> values.Converter:
    """Return a converter for a declared type, which SQLite itself enforces loosely.

    See https://www.sqlite.org/datatype3.html.
    """
    declared = type_.upper()
    for words, converter in _CONVERTERS:
        if any(word in declared for word in words):
            return converter(type_)
    return values.stored


_CONVERTERS: tuple[tuple[tuple[str, ...], Callable[[str], values.Converter]], ...] = (
    (("DATE", "TIME"), values.time_text),
    (("BOOL", "BIT"), values.truth),
    (("JSON",), lambda type_: values.nested),
    (("INT",), lambda type_: values.whole(type_, 64)),
    (("CHAR", "CLOB", "TEXT"), lambda type_: values.text),
    (("REAL", "FLOA", "DOUB"), values.floating),
    (("DEC", "NUM"), values.number),
)
