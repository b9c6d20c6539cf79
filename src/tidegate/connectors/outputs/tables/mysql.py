"""A table of a MySQL or MariaDB database, by PyMySQL (the extra `mysql`)."""

from __future__ import annotations

import logging
import re
import uuid
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
    OutputUnavailableError,
)
from tidegate.connectors.outputs.tables import relational_table
from tidegate.connectors.outputs.tables.relational_output import TableSettings
from tidegate.connectors.outputs.tables.relational_table import (
    PLACE_COLUMN,
    TABLE_NAME,
    TIME_COLUMN,
    Change,
    RowBatch,
    StagedRows,
    StagingTable,
    TableColumn,
    check_address,
    parts_of,
)

_logger = logging.getLogger(__name__)
_CONNECT_TIMEOUT_S = 10
_EXAMPLE = "mysql://user:password@host/database"
_PORT = 3306
_FRAME_BYTES = 64
"""More than the protocol puts around a statement."""
_DIGITS = re.compile(r"\((\d)\)")
_PACKET_TOO_LARGE = 1153
# https://mariadb.com/kb/en/mariadb-error-code-reference/
_REJECTIONS = {
    1048: REQUIRED_COLUMN_MISSING,
    1364: REQUIRED_COLUMN_MISSING,
    1062: DUPLICATE_KEY,
    **dict.fromkeys((1118, 1406, _PACKET_TOO_LARGE), RECORD_EXCEEDED_SIZE_LIMIT),
    **dict.fromkeys(
        # A value, a constraint, a view's condition, a partition, and what a trigger signals.
        (1264, 1265, 1292, 1366, 1369, 1451, 1452, 1526, 1644, 1690, 3140, 3819, 4025),
        TYPE_CONVERSION_ERROR,
    ),
}
# No connection, too many, shutdown, deadlock, lock timeout, full disk or table, read-only.
_AWAY = frozenset({0, 1021, 1040, 1053, 1114, 1205, 1213, 1290, 1792, 1836, 1927, 2002, 2003, 2006, 2013, 2055})
_NO_SUCH_TABLE, _LOCK_WAIT_TIMEOUT = 1146, 1205
_TABLE = "TABLE_SCHEMA = COALESCE(%s, DATABASE()) AND TABLE_NAME = %s"


@OUTPUTS.register
class MysqlOutput(TableSettings):
    """A table of a MySQL or MariaDB database; the results of a step and their mark in one transaction."""

    other_words: ClassVar[dict[str, str]] = {"mariadb": 'write type = "mysql"'}

    type: Literal["mysql"]
    connection_string: Secret = Field(
        description=f"`{_EXAMPLE}`, with `?unix_socket=PATH` or `?ssl_ca=FILE` if need be"
    )
    table: Annotated[Public, TABLE_NAME] = Field(
        description="`table` or `database.table`, created if it does not exist",
    )
    batch_rows: int = Field(default=1_000, ge=1, le=10_000, description="how many rows one statement writes")

    def database(self, *, drop: bool) -> MysqlTable:
        return MysqlTable(self, drop=drop)


class MysqlTable(StagingTable):
    """One table."""

    kind = "mysql"
    dialect = Database.MYSQL
    product = "MySQL"
    drops_in_transactions = False

    def __init__(self, definition: MysqlOutput, *, drop: bool) -> None:
        """Raise OutputError if PyMySQL is not installed."""
        super().__init__(definition.table, drop=drop, batch_rows=definition.batch_rows)
        self._named = (self._schema or None, self._table)
        try:
            import pymysql  # an extra: other outputs do without
        except ModuleNotFoundError as error:
            raise OutputError("an output to MySQL needs PyMySQL: pip install 'tidegate[mysql]'") from error
        self._pymysql = pymysql
        self._longest_statement = 0
        self._settings = {
            name: value for name, value in parts_of(definition.connection_string, _EXAMPLE).items() if value
        }

    def connect(self) -> Any:
        check_address(self._settings, _PORT)
        connection = self._pymysql.connect(
            **self._settings,
            charset="utf8mb4",
            connect_timeout=_CONNECT_TIMEOUT_S,
            autocommit=False,
            # Without strict mode a value that does not fit is cut, and times are those of the server's time zone.
            init_command="SET SESSION sql_mode = 'STRICT_ALL_TABLES', time_zone = '+00:00', "
            f"lock_wait_timeout = LEAST(@@lock_wait_timeout, {relational_table.LOCK_WAIT_S})",
        )
        cursor = connection.cursor()
        cursor.execute("SELECT @@max_allowed_packet")
        ((self._longest_statement,),) = cursor.fetchall()
        return connection

    def quoted(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def read_columns(self, cursor: Any) -> list[TableColumn]:
        cursor.execute(f"SELECT ENGINE FROM information_schema.TABLES WHERE {_TABLE}", self._named)
        engine = cursor.fetchone()
        if engine is not None and engine[0] not in ("InnoDB", None):
            raise OutputError(
                f"the table {self.name} has the engine {engine[0]}, which has no transactions; results are written "
                "once only in a table of InnoDB: ALTER TABLE … ENGINE = InnoDB"
            )
        cursor.execute(
            "SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA FROM information_schema.COLUMNS "
            f"WHERE {_TABLE} ORDER BY ORDINAL_POSITION",
            self._named,
        )
        return [
            TableColumn(
                name,
                type_,
                converter(type_, _times),
                required=nullable == "NO" and default is None and "auto_increment" not in extra,
                writable="GENERATED" not in extra.upper(),
            )
            for name, type_, nullable, default, extra in cursor.fetchall()
        ]

    def is_unique(self, cursor: Any, key: Sequence[str]) -> bool:
        cursor.execute(
            f"SELECT INDEX_NAME, LOWER(COLUMN_NAME) FROM information_schema.STATISTICS WHERE {_TABLE} "
            "AND NON_UNIQUE = 0",
            self._named,
        )
        found: dict[str, set[str]] = {}
        for index, column in cursor.fetchall():
            found.setdefault(index, set()).add(column)
        return {name.lower() for name in key} in found.values()

    def create_marks(self, cursor: Any) -> None:
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {self.marks} (job varchar(255) NOT NULL, output varchar(255) NOT NULL, "
            "journal varchar(255) NOT NULL, `rows` bigint NOT NULL, dropped bigint NOT NULL, "
            "PRIMARY KEY (job, output)) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        )

    def create_statement(self, columns: Sequence[tuple[str, Any]], key: Sequence[str]) -> str:
        # Keys that differ in case or accents differ, as they do in the query language.
        statement = super().create_statement(columns, key)
        return f"{statement} ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

    def replacing(self, columns: Sequence[str], key: Sequence[str]) -> str:
        keys = {name.lower() for name in key}
        rest = [name for name in columns if name.lower() not in keys] or [columns[0]]
        sets = ", ".join(f"{self.quoted(name)} = VALUES({self.quoted(name)})" for name in rest)
        return f"ON DUPLICATE KEY UPDATE {sets}"

    def insert(self, cursor: Any, change: Change) -> None:
        if isinstance(change, RowBatch) and self._key:
            self._insert_rows(
                cursor, self.place, change.columns, change.rows, self.replacing(change.columns, self._key)
            )
            return
        super().insert(cursor, change)

    def insert_rows(self, cursor: Any, place: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self._insert_rows(cursor, place, columns, rows, "")

    def _insert_rows(
        self, cursor: Any, place: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], end: str
    ) -> None:
        """Insert rows with one statement.

        The server closes the connection when a statement is too long for it, as if it had gone away. So that is found
        here, and then half the rows are tried.
        """
        row = f"({', '.join(['%s'] * len(columns))})"
        text = f"INSERT INTO {place} ({self.names(columns)}) VALUES ".replace("%", "%%")
        text += ", ".join([row] * len(rows)) + " " + end.replace("%", "%%")
        statement = cursor.mogrify(text, tuple(value for one in rows for value in one))
        if _bytes_of(statement) >= self._longest_statement - _FRAME_BYTES:
            raise self._pymysql.err.DataError(
                _PACKET_TOO_LARGE,
                f"the statement has more bytes than the server's max_allowed_packet, {self._longest_statement:,}",
            )
        cursor.execute(statement)

    # Staging tables ---------------------------------------------------------------------------------------------------

    def can_stage(self, prefix: str) -> bool:
        place = self.beside(f"{prefix}{uuid.uuid4().hex}")

        def attempt(cursor: Any) -> None:
            self.create_staged(cursor, place, "*")
            cursor.execute(f"DROP TABLE {place}")

        try:
            self.on_connection(attempt)
        except OutputUnavailableError:
            raise
        except OutputError as error:
            _logger.info("the job's process writes all rows of the table %s, not executors: %s", self.name, error)
            return False
        return True

    def create_staged(self, cursor: Any, place: str, columns: str) -> None:
        # This ends a transaction.
        cursor.execute(
            f"CREATE TABLE {place} ({PLACE_COLUMN} bigint DEFAULT 0 PRIMARY KEY, {TIME_COLUMN} bigint DEFAULT 0) "
            f"ENGINE = InnoDB SELECT {columns} FROM {self.place} LIMIT 0"
        )

    def move(self, cursor: Any, staged: StagedRows) -> None:
        names = self.names(staged.columns)
        # In their order, so that the last row of a key stays.
        update = f" ORDER BY {PLACE_COLUMN} {self.replacing(staged.columns, self._key)}" if self._key else ""
        cursor.execute(f"INSERT INTO {self.place} ({names}) SELECT {names} FROM {self.rows_of(staged)}{update}")

    def names_of(self, cursor: Any, prefix: str) -> list[str]:
        cursor.execute(
            "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = COALESCE(%s, DATABASE()) "
            "AND LEFT(TABLE_NAME, %s) = %s",
            (self._schema or None, len(prefix), prefix),
        )
        return [name for (name,) in cursor.fetchall()]

    def drop_staged(self, cursor: Any, names: Sequence[str]) -> None:
        cursor.execute("SET @before = @@lock_wait_timeout, SESSION lock_wait_timeout = 2")
        for name in names:
            try:
                cursor.execute(f"DROP TABLE IF EXISTS {self.beside(name)}")
            except self._pymysql.err.OperationalError as error:
                if _number_of(error) != _LOCK_WAIT_TIMEOUT:
                    raise
        cursor.execute("SET SESSION lock_wait_timeout = @before")

    def misses_table(self, error: Exception) -> bool:
        return isinstance(error, self._pymysql.err.ProgrammingError) and _number_of(error) == _NO_SUCH_TABLE

    # Errors -----------------------------------------------------------------------------------------------------------

    def problem_of(self, error: Exception) -> tuple[str, bool]:
        number = _number_of(error)
        text = str(error.args[1]) if len(error.args) > 1 else str(error)
        is_known = isinstance(error, self._pymysql.err.MySQLError)
        return text or type(error).__name__, number in _AWAY if is_known else isinstance(error, OSError)

    def rejection_of(self, error: Exception) -> str | None:
        return _REJECTIONS.get(_number_of(error)) if isinstance(error, self._pymysql.err.MySQLError) else None


def _bytes_of(statement: str) -> int:
    return len(statement) if statement.isascii() else len(statement.encode())


def _number_of(error: Exception) -> int:
    number = error.args[0] if error.args else 0
    return number if isinstance(number, int) else 0


def _times(declared: str) -> values.Converter:
    digits = _DIGITS.search(declared)
    return values.clock_time(declared, int(digits[1]) if digits else 0)
