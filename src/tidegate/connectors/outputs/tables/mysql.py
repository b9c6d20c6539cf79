"""A table of a MySQL or MariaDB database, by PyMySQL (the extra `mysql`)."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, Literal

from pydantic import Field

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import Public, Secret
from tidegate.connectors.outputs import values
from tidegate.connectors.outputs.column_types import Database, converter
from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening
from tidegate.connectors.outputs.output import (
    DUPLICATE_KEY,
    RECORD_EXCEEDED_SIZE_LIMIT,
    REQUIRED_COLUMN_MISSING,
    TYPE_CONVERSION_ERROR,
    Identity,
    Output,
    OutputUnavailableError,
    RejectedRow,
    StoredMark,
)
from tidegate.connectors.outputs.tables.relational import RelationalTable, check_address, parts_of
from tidegate.connectors.outputs.tables.table_database import (
    PLACE_COLUMN,
    TIME_COLUMN,
    TableSettings,
    another_run_writes,
)
from tidegate.connectors.outputs.tables.table_output import TableOutput
from tidegate.connectors.outputs.tables.table_rows import Batch, StagedRows, TableColumn

_logger = logging.getLogger(__name__)
_CONNECT_TIMEOUT_S = 10
_EXAMPLE = "mysql://user:password@host/database"
_PORT = 3306
_DIGITS = re.compile(r"\((\d)\)")
# https://mariadb.com/kb/en/mariadb-error-code-reference/
_REJECTIONS = {
    1048: REQUIRED_COLUMN_MISSING,
    1364: REQUIRED_COLUMN_MISSING,
    1062: DUPLICATE_KEY,
    1406: RECORD_EXCEEDED_SIZE_LIMIT,
    **dict.fromkeys((1264, 1265, 1292, 1366, 1452, 1690, 3140, 3819, 4025), TYPE_CONVERSION_ERROR),
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
    table: Public = Field(
        pattern=r"^[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?$",
        description="`table` or `database.table`, created if it does not exist",
    )
    batch_rows: int = Field(default=1_000, ge=1, le=10_000, description="how many rows one statement writes")

    def open_at(self, opening: OutputOpening) -> Output:
        return TableOutput(self.database(drop=opening.drop), self, opening)

    def database(self, *, drop: bool) -> MysqlTable:
        return MysqlTable(self, drop=drop)


class MysqlTable(RelationalTable):
    """One table; see `TableDatabase`."""

    database = Database.MYSQL
    product = "MySQL"
    begin_rows = "SAVEPOINT tidegate"
    undo_rows = "ROLLBACK TO SAVEPOINT tidegate"
    keep_rows = "RELEASE SAVEPOINT tidegate"

    def __init__(self, definition: MysqlOutput, *, drop: bool) -> None:
        """Raise OutputError if PyMySQL is not installed."""
        self.kind = "mysql"
        super().__init__(definition.table, drop=drop, batch_rows=definition.batch_rows)
        try:
            import pymysql  # an extra: other outputs do without
        except ModuleNotFoundError as error:
            raise OutputError("an output to MySQL needs PyMySQL: pip install 'tidegate[mysql]'") from error
        self._pymysql = pymysql
        self._settings = {
            name: value for name, value in parts_of(definition.connection_string, _EXAMPLE).items() if value
        }

    def connect(self) -> Any:
        check_address(self._settings, _PORT)
        return self._pymysql.connect(
            **self._settings,
            charset="utf8mb4",
            connect_timeout=_CONNECT_TIMEOUT_S,
            autocommit=False,
            # Without strict mode a value that does not fit is cut, and times are those of the server's time zone.
            init_command="SET SESSION sql_mode = 'STRICT_ALL_TABLES', time_zone = '+00:00'",
        )

    def quoted(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def _named(self) -> tuple[str | None, str]:
        schema, _, table = self._name.rpartition(".")
        return schema or None, table

    def read_columns(self, cursor: Any) -> list[TableColumn]:
        cursor.execute(f"SELECT ENGINE FROM information_schema.TABLES WHERE {_TABLE}", self._named())
        engine = cursor.fetchone()
        if engine is not None and engine[0] not in ("InnoDB", None):
            raise OutputError(
                f"the table {self._name} has the engine {engine[0]}, which has no transactions; results are written "
                "once only in a table of InnoDB: ALTER TABLE … ENGINE = InnoDB"
            )
        cursor.execute(
            "SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA FROM information_schema.COLUMNS "
            f"WHERE {_TABLE} ORDER BY ORDINAL_POSITION",
            self._named(),
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

    def unique_keys(self, cursor: Any) -> list[set[str]]:
        cursor.execute(
            f"SELECT INDEX_NAME, LOWER(COLUMN_NAME) FROM information_schema.STATISTICS WHERE {_TABLE} "
            "AND NON_UNIQUE = 0",
            self._named(),
        )
        found: dict[str, set[str]] = {}
        for index, column in cursor.fetchall():
            found.setdefault(index, set()).add(column)
        return list(found.values())

    def marks_statements(self) -> tuple[str, ...]:
        return (
            f"CREATE TABLE IF NOT EXISTS {self.marks} (job varchar(255) NOT NULL, output varchar(255) NOT NULL, "
            "journal varchar(255) NOT NULL, `rows` bigint NOT NULL, dropped bigint NOT NULL, "
            "PRIMARY KEY (job, output)) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        )

    def create_statement(self, columns: Sequence[tuple[str, Any]], key: Sequence[str]) -> str:
        # Keys that differ in case or accents differ, as they do in the query language.
        statement = super().create_statement(columns, key)
        return f"{statement} ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

    def upsert(self, columns: Sequence[str], key: Sequence[str]) -> str:
        names = ", ".join(map(self.quoted, columns)).replace("%", "%%")
        places = ", ".join(["%s"] * len(columns))
        update = self._on_duplicate(columns, key).replace("%", "%%")
        return f"INSERT INTO {self.place} ({names}) VALUES ({places}) {update}"

    def _on_duplicate(self, columns: Sequence[str], key: Sequence[str]) -> str:
        keys = {name.lower() for name in key}
        rest = [name for name in columns if name.lower() not in keys] or [columns[0]]
        sets = ", ".join(f"{self.quoted(name)} = VALUES({self.quoted(name)})" for name in rest)
        return f"ON DUPLICATE KEY UPDATE {sets}"

    # Staging tables ---------------------------------------------------------------------------------------------------

    def can_stage(self, prefix: str) -> bool:
        place = self._beside(f"{prefix}{uuid.uuid4().hex}")

        def attempt(cursor: Any) -> None:
            self._create_staged(cursor, place, "*")
            cursor.execute(f"DROP TABLE {place}")

        try:
            self.on_connection(attempt)
        except OutputUnavailableError:
            raise
        except OutputError as error:
            _logger.info("the job's process writes all rows of the table %s, not executors: %s", self._name, error)
            return False
        return True

    def stage(self, name: str, batches: Sequence[Batch]) -> list[RejectedRow]:
        place, columns = self._beside(name), batches[0].columns

        def insert(cursor: Any, batch: Batch) -> None:
            rows = [(*row, *more) for row, *more in zip(batch.rows, batch.numbers, batch.times, strict=True)]
            self.insert_rows(cursor, place, (*columns, PLACE_COLUMN, TIME_COLUMN), rows)

        def fill(cursor: Any) -> list[RejectedRow]:
            self._create_staged(cursor, place, ", ".join(map(self.quoted, columns)))
            return [row for batch in batches for row in self.rejected_by(cursor, batch, insert)]

        return self.on_connection(fill)

    def _create_staged(self, cursor: Any, place: str, columns: str) -> None:
        """Create an empty staging table, which ends a transaction."""
        cursor.execute(
            f"CREATE TABLE {place} ({PLACE_COLUMN} bigint DEFAULT 0 PRIMARY KEY, {TIME_COLUMN} bigint DEFAULT 0) "
            f"ENGINE = InnoDB SELECT {columns} FROM {self.place} LIMIT 0"
        )

    def write_staged(
        self, changes: Sequence[Batch | StagedRows], identity: Identity, before: int, after: StoredMark
    ) -> list[RejectedRow]:
        try:
            rejected = self.write_changes(changes, identity, before, after)
        except _StagedRowsDeletedError:
            raise another_run_writes(identity) from None
        tables = [name for change in changes if isinstance(change, StagedRows) for name in change.tables]
        # The rows are stored, so a table that stays does no harm.
        with suppress(OutputError):
            self._delete(tables)
        return rejected

    def insert(self, cursor: Any, change: Batch | StagedRows) -> None:
        if isinstance(change, Batch):
            super().insert(cursor, change)
            return
        names = ", ".join(map(self.quoted, change.columns))
        # In their order, so that the last row of a key stays.
        update = f" ORDER BY {PLACE_COLUMN} {self._on_duplicate(change.columns, self._key)}" if self._key else ""
        try:
            cursor.execute(f"INSERT INTO {self.place} ({names}) SELECT {names} FROM {self._rows_of(change)}{update}")
        except self._pymysql.err.ProgrammingError as error:
            if _number_of(error) == _NO_SUCH_TABLE and any(name in str(error) for name in change.tables):
                raise _StagedRowsDeletedError("a run that starts deletes the staging tables of others") from error
            raise

    def single_row(self, cursor: Any, change: Batch | StagedRows) -> Batch | None:
        if isinstance(change, Batch):
            return change
        names = ", ".join(map(self.quoted, change.columns))
        cursor.execute(f"SELECT {names}, {TIME_COLUMN} FROM {self._rows_of(change)}")
        found = cursor.fetchone()
        if found is None:
            return None
        plain = tuple(value if isinstance(value, int | float | str | None) else str(value) for value in found[:-1])
        return Batch(change.columns, [plain], [change.runs[0].number], [found[-1]])

    def _rows_of(self, staged: StagedRows) -> str:
        within = f"{PLACE_COLUMN} >= {staged.begin} AND {PLACE_COLUMN} < {staged.end}"
        tables = (f"SELECT * FROM {self._beside(name)} WHERE {within}" for name in staged.tables)
        return f"({' UNION ALL '.join(tables)}) AS staged"

    def delete_staged(self, prefix: str) -> None:
        def find(cursor: Any) -> list[str]:
            schema = self._named()[0]
            cursor.execute(
                "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = COALESCE(%s, DATABASE()) "
                "AND LEFT(TABLE_NAME, %s) = %s",
                (schema, len(prefix), prefix),
            )
            return [name for (name,) in cursor.fetchall()]

        self._delete(self.on_connection(find))

    def _delete(self, names: Sequence[str]) -> None:
        """Delete tables, but not those that somebody is writing."""

        def delete(cursor: Any) -> None:
            cursor.execute("SET SESSION lock_wait_timeout = 2")
            for name in names:
                try:
                    cursor.execute(f"DROP TABLE IF EXISTS {self._beside(name)}")
                except self._pymysql.err.OperationalError as error:
                    if _number_of(error) != _LOCK_WAIT_TIMEOUT:
                        raise
            cursor.execute("SET SESSION lock_wait_timeout = DEFAULT")

        if names:
            self.on_connection(delete)

    def _beside(self, name: str) -> str:
        """Return the name of a table in the database of the output's table, in quotes."""
        return ".".join(map(self.quoted, [*filter(None, [self._named()[0]]), name]))

    # Errors -----------------------------------------------------------------------------------------------------------

    def problem_of(self, error: Exception) -> tuple[str, bool]:
        number = _number_of(error)
        text = str(error.args[1]) if len(error.args) > 1 else str(error)
        is_known = isinstance(error, self._pymysql.err.MySQLError)
        return text or type(error).__name__, number in _AWAY if is_known else isinstance(error, OSError)

    def rejection_of(self, error: Exception) -> str | None:
        return _REJECTIONS.get(_number_of(error)) if isinstance(error, self._pymysql.err.MySQLError) else None


class _StagedRowsDeletedError(OutputError):
    """A staging table that a step has named is not there."""


def _number_of(error: Exception) -> int:
    number = error.args[0] if error.args else 0
    return number if isinstance(number, int) else 0


def _times(declared: str) -> values.Converter:
    digits = _DIGITS.search(declared)
    return values.clock_time(declared, int(digits[1]) if digits else 0)
