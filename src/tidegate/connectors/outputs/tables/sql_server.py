"""A table of SQL Server or Azure SQL, by pymssql (the extra `sqlserver`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import Public, Secret
from tidegate.connectors.outputs import values
from tidegate.connectors.outputs.column_types import Database, converter
from tidegate.connectors.outputs.kinds import OUTPUTS
from tidegate.connectors.outputs.output import (
    DUPLICATE_KEY,
    RECORD_EXCEEDED_SIZE_LIMIT,
    REQUIRED_COLUMN_MISSING,
    TYPE_CONVERSION_ERROR,
)
from tidegate.connectors.outputs.tables.relational_output import TableSettings
from tidegate.connectors.outputs.tables.relational_table import (
    TABLE_NAME,
    RelationalTable,
    TableColumn,
    check_address,
    parts_of,
)

_LOGIN_TIMEOUT_S = 10
_EXAMPLE = "sqlserver://user:password@host/database"
_MOST_ROWS = 1_000  # of one INSERT … VALUES
_PORT = 1433
_DIGITS = re.compile(r"\((\d)\)")
# https://learn.microsoft.com/sql/relational-databases/errors-events/database-engine-events-and-errors
_REJECTIONS = {
    515: REQUIRED_COLUMN_MISSING,
    **dict.fromkeys((2601, 2627), DUPLICATE_KEY),
    **dict.fromkeys((2628, 8152), RECORD_EXCEEDED_SIZE_LIMIT),
    **dict.fromkeys((206, 220, 232, 241, 242, 245, 248, 257, 529, 547, 8114, 8115), TYPE_CONVERSION_ERROR),
}
# Those that Microsoft calls transient, deadlock, lock timeout, full disk or log, and no connection (FreeTDS).
_AWAY = frozenset(
    {
        *(0, 1105, 1205, 1222, 3906, 4060, 4221, 9002, 10053, 10054, 10060, 10928, 10929, 40143, 40197, 40501, 40540),
        *(40613, 49918, 49919, 49920, 20002, 20003, 20004, 20006, 20009, 20047),
    }
)
_COLUMNS = """
SELECT c.name, t.name, c.scale, c.is_nullable, c.default_object_id, c.is_identity, c.is_computed
FROM sys.columns c JOIN sys.types t ON t.user_type_id = c.user_type_id
WHERE c.object_id = OBJECT_ID(%s) ORDER BY c.column_id
"""
_UNIQUE = """
SELECT i.index_id, LOWER(c.name) FROM sys.indexes i
JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id AND k.key_ordinal > 0
JOIN sys.columns c ON c.object_id = k.object_id AND c.column_id = k.column_id
WHERE i.object_id = OBJECT_ID(%s) AND i.is_unique = 1 AND i.has_filter = 0
"""
_WITH_SCALE = ("datetime2", "datetimeoffset", "time")


@OUTPUTS.register
class SqlServerOutput(TableSettings):
    """A table of SQL Server or Azure SQL; the results of a step and their mark in one transaction."""

    other_words: ClassVar[dict[str, str]] = dict.fromkeys(
        ("mssql", "azuresql", "sqldatabase", "azuresqldatabase"), 'write type = "sqlserver"'
    )

    type: Literal["sqlserver"]
    connection_string: Secret = Field(description=f"`{_EXAMPLE}`, with `?encryption=require` for Azure SQL")
    table: Annotated[Public, TABLE_NAME] = Field(
        description="`table` or `schema.table`, created if it does not exist",
    )
    batch_rows: int = Field(
        default=_MOST_ROWS, ge=1, le=_MOST_ROWS, description="how many rows one statement writes, as batch count is"
    )

    def database(self, *, drop: bool) -> SqlServerTable:
        return SqlServerTable(self, drop=drop)


class SqlServerTable(RelationalTable):
    """One table."""

    kind = "sqlserver"
    dialect = Database.SQL_SERVER
    product = "SQL Server"
    begin_rows = "SAVE TRANSACTION tidegate"
    undo_rows = "ROLLBACK TRANSACTION tidegate"
    keep_rows = None

    def __init__(self, definition: SqlServerOutput, *, drop: bool) -> None:
        """Raise OutputError if pymssql is not installed."""
        super().__init__(definition.table, drop=drop, batch_rows=definition.batch_rows)
        try:
            import pymssql  # an extra: other outputs do without
        except ModuleNotFoundError as error:
            raise OutputError("an output to SQL Server needs pymssql: pip install 'tidegate[sqlserver]'") from error
        self._pymssql = pymssql
        parts = dict(parts_of(definition.connection_string, _EXAMPLE))
        parts["server"] = parts.pop("host")
        self._settings = {name: value for name, value in parts.items() if value}

    def connect(self) -> Any:
        check_address({**self._settings, "host": self._settings["server"]}, _PORT)
        return self._pymssql.connect(
            **self._settings, login_timeout=_LOGIN_TIMEOUT_S, charset="UTF-8", autocommit=False
        )

    def quoted(self, name: str) -> str:
        return "[" + name.replace("]", "]]") + "]"

    def read_columns(self, cursor: Any) -> list[TableColumn]:
        cursor.execute(_COLUMNS, (self.place,))
        found = []
        for name, type_, scale, nullable, default, identity, computed in cursor.fetchall():
            declared = f"{type_}({scale})" if type_ in _WITH_SCALE else type_
            is_own = bool(identity or computed or type_ in ("timestamp", "rowversion"))
            required = not (nullable or default or is_own)
            found.append(TableColumn(name, declared, converter(declared, _times), required, writable=not is_own))
        return found

    def is_unique(self, cursor: Any, key: Sequence[str]) -> bool:
        cursor.execute(_UNIQUE, (self.place,))
        found: dict[int, set[str]] = {}
        for index, column in cursor.fetchall():
            found.setdefault(index, set()).add(column)
        return {name.lower() for name in key} in found.values()

    def create_marks(self, cursor: Any) -> None:
        name = self.marks.replace("'", "''")
        cursor.execute(
            f"IF OBJECT_ID(N'{name}') IS NULL CREATE TABLE {self.marks} (job nvarchar(200) NOT NULL, "
            "output nvarchar(200) NOT NULL, journal nvarchar(200) NOT NULL, [rows] bigint NOT NULL, "
            "dropped bigint NOT NULL, PRIMARY KEY (job, output))"
        )

    def upsert(self, columns: Sequence[str], key: Sequence[str]) -> str:
        keys = {name.lower() for name in key}
        quoted = {name: self.quoted(name).replace("%", "%%") for name in columns}
        names = ", ".join(quoted.values())
        same = " AND ".join(f"t.{text} = s.{text}" for name, text in quoted.items() if name.lower() in keys)
        sets = ", ".join(f"t.{text} = s.{text}" for name, text in quoted.items() if name.lower() not in keys)
        update = f"WHEN MATCHED THEN UPDATE SET {sets} " if sets else ""
        # Without HOLDLOCK two writers may both find that a row is missing.
        return (
            f"MERGE INTO {self.place} WITH (HOLDLOCK) AS t USING (VALUES ({', '.join(['%s'] * len(columns))})) "
            f"AS s ({names}) ON {same} {update}"
            f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({', '.join(f's.{text}' for text in quoted.values())});"
        )

    def problem_of(self, error: Exception) -> tuple[str, bool]:
        text = error.args[1] if len(error.args) > 1 else str(error)
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        number = _number_of(error)
        is_known = isinstance(error, self._pymssql.Error)
        lines = text.strip().splitlines() or [type(error).__name__]
        return lines[0], number in _AWAY if is_known else isinstance(error, OSError)

    def rejection_of(self, error: Exception) -> str | None:
        return _REJECTIONS.get(_number_of(error)) if isinstance(error, self._pymssql.Error) else None


def _number_of(error: Exception) -> int:
    """Return the number of an error; that of a failed connection is in a tuple of its own."""
    number = error.args[0] if error.args else 0
    while isinstance(number, tuple):
        number = number[0] if number else 0
    return number if isinstance(number, int) else 0


def _times(declared: str) -> values.Converter:
    if declared.startswith("datetimeoffset"):
        return values.time_text(declared)
    digits = _DIGITS.search(declared)
    without = {"datetime": 3, "smalldatetime": 0}
    return values.clock_time(declared, int(digits[1]) if digits else without.get(declared, 7))
