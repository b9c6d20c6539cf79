"""A table of a SQLite database. Times are kept as text with seven digits, so they lose nothing."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from tidegate.connectors.model.section import Public, TextPattern
from tidegate.connectors.outputs import values
from tidegate.connectors.outputs.column_types import Database
from tidegate.connectors.outputs.files.file_location import FINAL_ERRORS
from tidegate.connectors.outputs.kinds import OUTPUTS
from tidegate.connectors.outputs.output import DUPLICATE_KEY, REQUIRED_COLUMN_MISSING, TYPE_CONVERSION_ERROR
from tidegate.connectors.outputs.tables.relational_output import TableSettings
from tidegate.connectors.outputs.tables.relational_table import RelationalTable, TableColumn

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
_PARAMETER = re.compile("%%|%s")
_TABLE_NAME = TextPattern(r"^[A-Za-z_][A-Za-z0-9_$]*$", "letters, digits, '_' and '$', of which the first is no digit")
_GENERATED = (2, 3)  # PRAGMA table_xinfo, column hidden


@OUTPUTS.register
class SqliteOutput(TableSettings):
    """A table of a SQLite database; the results of a step and the mark of how far they go in one transaction."""

    type: Literal["sqlite"]
    path: Path = Field(description="the database file, created if it does not exist; relative to the job file")
    table: Annotated[Public, _TABLE_NAME] = Field(description="the table, created if it does not exist")

    def database(self, *, drop: bool) -> SqliteTable:
        return SqliteTable(self, drop=drop)


class SqliteTable(RelationalTable):
    """One table."""

    kind = "sqlite"
    dialect = Database.SQLITE
    begin = "BEGIN IMMEDIATE"

    def __init__(self, definition: SqliteOutput, *, drop: bool) -> None:
        super().__init__(definition.table, drop=drop)
        self._path = definition.path
        self.product = f"SQLite database {definition.path}"

    def connect(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = not self._path.exists()
        connection = sqlite3.connect(self._path, timeout=_WAIT_FOR_WRITERS_S, isolation_level=None)
        if new:
            # Readers of a table that keeps growing must not block its writer, nor it them.
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def cursor(self) -> _Cursor:
        cursor: _Cursor = self._connection.cursor(_Cursor)
        return cursor

    def read_columns(self, cursor: Any) -> list[TableColumn]:
        rows = cursor.execute("SELECT * FROM pragma_table_xinfo(%s)", (self.name,)).fetchall()
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

    def is_unique(self, cursor: Any, key: Sequence[str]) -> bool:
        try:
            cursor.execute(f"EXPLAIN {self.upsert(key, key)}", [None] * len(key))
        except sqlite3.OperationalError:
            return False
        return True

    def create_marks(self, cursor: Any) -> None:
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {self.marks} (job TEXT NOT NULL, output TEXT NOT NULL, "
            "journal TEXT NOT NULL, rows INTEGER NOT NULL, dropped INTEGER NOT NULL, PRIMARY KEY (job, output))"
        )

    def insert_rows(self, cursor: Any, place: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        # A statement has no round trip to make, and few parameters.
        names, places = self.names(columns).replace("%", "%%"), ", ".join(["%s"] * len(columns))
        cursor.executemany(f"INSERT INTO {place} ({names}) VALUES ({places})", rows)

    def problem_of(self, error: Exception) -> tuple[str, bool]:
        if isinstance(error, sqlite3.Error):
            return str(error), getattr(error, "sqlite_errorcode", 0) & 0xFF in _AWAY
        may_pass = isinstance(error, OSError) and error.errno not in FINAL_ERRORS
        return getattr(error, "strerror", None) or str(error), may_pass

    def rejection_of(self, error: Exception) -> str | None:
        if not isinstance(error, sqlite3.IntegrityError):
            return None
        return _KINDS.get(error.sqlite_errorcode, TYPE_CONVERSION_ERROR)


class _Cursor(sqlite3.Cursor):
    """A cursor that takes ``%s`` parameters."""

    def execute(self, statement: str, parameters: Any = None) -> _Cursor:
        if parameters is None:
            super().execute(statement)
        else:
            super().execute(_in_sqlite(statement), parameters)
        return self

    def executemany(self, statement: str, rows: Any) -> _Cursor:
        super().executemany(_in_sqlite(statement), rows)
        return self


def _in_sqlite(statement: str) -> str:
    return _PARAMETER.sub(lambda found: "%" if found[0] == "%%" else "?", statement)


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
