"""A table of a PostgreSQL database, by psycopg 3 (the extra `postgresql`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tidegate import outbound
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
    StagedRows,
    StagingTable,
    TableColumn,
)
from tidegate.sql.plan.nodes import Type

_CONNECT_TIMEOUT_S = 10
_CREATION_LOCK = 0x7469_6465  # the same for every process that might create tables at the same time
_KINDS = {
    "23502": REQUIRED_COLUMN_MISSING,
    "23505": DUPLICATE_KEY,
    "22001": RECORD_EXCEEDED_SIZE_LIMIT,
    "54000": RECORD_EXCEEDED_SIZE_LIMIT,  # such as a text too long for an index
    "44000": TYPE_CONVERSION_ERROR,  # a view's condition
    "P0001": TYPE_CONVERSION_ERROR,  # what a trigger raises
}
# Transient classes of SQLSTATE: connections, resources, operator intervention, system errors, a standby, a deadlock.
_AWAY_CLASSES = ("08", "53", "57", "58", "40")
_READ_ONLY = "25006"
_LOCKED = "55P03"
_LIMIT_WAITS = "SELECT set_config('lock_timeout', %s, false) WHERE current_setting('lock_timeout') = '0'"
# What only a person can mend. libpq passes on the text of a server that refuses a connection, but not its SQLSTATE.
REFUSED = re.compile(
    r"FATAL: +(?:.*authentication failed|no pg_hba\.conf entry|(?:role|database) .* does not exist|permission denied)"
)
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull AND NOT a.atthasdef AND a.attidentity = '',
       a.attgenerated = '' AND a.attidentity <> 'a'
FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_UNIQUE = """
SELECT count(*) FROM pg_index i WHERE i.indrelid = to_regclass(%s)::oid AND i.indisunique AND i.indpred IS NULL
AND i.indimmediate AND (SELECT array_agg(a.attname::text ORDER BY a.attname::text) FROM pg_attribute a
     WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)) = %s::text[]
AND i.indnkeyatts = cardinality(%s::text[])
"""


@OUTPUTS.register
class PostgresqlOutput(TableSettings):
    """A table of a PostgreSQL database; the results of a step and the mark of how far they go in one transaction."""

    other_words: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("postgres", "pg", "sql", "database", "table"), 'write type = "postgresql" or "sqlite"'
    )

    type: Literal["postgresql"]
    connection_string: Secret = Field(description="`postgresql://user:password@host/database`, or `host=… dbname=…`")
    table: Annotated[Public, TABLE_NAME] = Field(description="`table` or `schema.table`, created if it does not exist")

    def database(self, *, drop: bool) -> PostgresqlTable:
        return PostgresqlTable(self, drop=drop)


class PostgresqlTable(StagingTable):
    """One table. What a connection string leaves out comes from libpq's environment variables."""

    kind = "postgresql"
    dialect = Database.POSTGRESQL
    product = "PostgreSQL"
    drops_in_transactions = True

    def __init__(self, definition: PostgresqlOutput, *, drop: bool) -> None:
        """Raise OutputError if psycopg is not installed."""
        super().__init__(definition.table, drop=drop)
        try:
            import psycopg  # an extra: other outputs do without
        except ModuleNotFoundError as error:
            raise OutputError("an output to PostgreSQL needs psycopg: pip install 'tidegate[postgresql]'") from error
        self._psycopg = psycopg
        self._conninfo = definition.connection_string

    def connect(self) -> Any:
        try:
            addresses = outbound.postgresql_address(self._psycopg.conninfo.conninfo_to_dict(self._conninfo))
            connection = self._psycopg.connect(self._conninfo, connect_timeout=_CONNECT_TIMEOUT_S, hostaddr=addresses)
            connection.execute(_LIMIT_WAITS, (f"{relational_table.LOCK_WAIT_S}s",))
            connection.commit()
            return connection
        except outbound.AddressRefused as error:
            raise OutputError(f"cannot reach PostgreSQL: {error}") from None
        except OSError as error:
            raise OutputUnavailableError(f"cannot reach PostgreSQL: {error.strerror or error}") from error
        except self._psycopg.ProgrammingError:
            # libpq's message about a string that it cannot parse repeats the string, with its password.
            raise OutputError(
                "connection_string is not one that PostgreSQL reads: expected postgresql://user:password@host/database "
                "or host=… dbname=…"
            ) from None

    def read_columns(self, cursor: Any) -> list[TableColumn]:
        # Look up the exact name first, then the name as SQL reads it without quotes.
        for table in (self._table, self._table.lower()):
            cursor.execute("SELECT to_regclass(%s)::oid", (self.beside(table),))
            (oid,) = cursor.fetchone()
            if oid is not None:
                self._table = table
                cursor.execute(_COLUMNS, (oid,))
                return [
                    TableColumn(name, type_, converter(type_, values.microseconds), *more)
                    for name, type_, *more in cursor.fetchall()
                ]
        return []

    def create_statement(self, columns: Sequence[tuple[str, Type]], key: Sequence[str]) -> str:
        self._table = self._table.lower()
        lowered = [(name.lower(), type_) for name, type_ in columns]
        statement = super().create_statement(lowered, [name.lower() for name in key])
        return statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1)

    def run_creation(self, cursor: Any, statement: str) -> None:
        # Another process may be creating it at the same moment.
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATION_LOCK,))
        cursor.execute(statement)

    def is_unique(self, cursor: Any, key: Sequence[str]) -> bool:
        cursor.execute(_UNIQUE, (self.place, sorted(key), list(key)))
        (found,) = cursor.fetchone()
        return bool(found)

    def create_marks(self, cursor: Any) -> None:
        cursor.execute("SELECT to_regclass(%s)", (self.marks,))
        if cursor.fetchone() == (None,):
            self.run_creation(
                cursor,
                f"CREATE TABLE IF NOT EXISTS {self.marks} (job text NOT NULL, output text NOT NULL, "
                "journal text NOT NULL, rows bigint NOT NULL, dropped bigint NOT NULL, PRIMARY KEY (job, output))",
            )

    def insert_rows(self, cursor: Any, place: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        with cursor.copy(f"COPY {place} ({self.names(columns)}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)

    # Staging tables ---------------------------------------------------------------------------------------------------

    def can_stage(self, prefix: str) -> bool:
        """Return whether the user may create tables, whatever their names."""

        def look(cursor: Any) -> bool:
            schema = "%s" if self._schema else "current_schema()"
            statement = f"SELECT has_schema_privilege({schema}, 'CREATE')"
            cursor.execute(statement, [*filter(None, [self._schema])])
            return bool(cursor.fetchone() == (True,))

        return self.on_connection(look)

    def create_staged(self, cursor: Any, place: str, columns: str) -> None:
        # Types are the table's; what it demands beyond them is seen when the rows are moved there.
        cursor.execute(
            f"CREATE TABLE {place} AS SELECT {columns}, 0::bigint AS {PLACE_COLUMN}, 0::bigint AS {TIME_COLUMN} "
            f"FROM {self.place} WITH NO DATA"
        )

    def move(self, cursor: Any, staged: StagedRows) -> None:
        names, rows = self.names(staged.columns), self.rows_of(staged)
        if not self._key:
            cursor.execute(f"INSERT INTO {self.place} ({names}) SELECT {names} FROM {rows}")
            return
        keys = self.names(self._key)
        # One statement cannot replace a row twice; the last of each key is the one that stays.
        cursor.execute(
            f"INSERT INTO {self.place} ({names}) SELECT DISTINCT ON ({keys}) {names} FROM {rows} "
            f"ORDER BY {keys}, {PLACE_COLUMN} DESC {self.replacing(staged.columns, self._key)}"
        )

    def names_of(self, cursor: Any, prefix: str) -> list[str]:
        schema = "%s" if self._schema else "current_schema()"
        cursor.execute(
            f"SELECT tablename FROM pg_tables WHERE schemaname = {schema} AND starts_with(tablename, %s)",
            (*filter(None, [self._schema]), prefix),
        )
        return [name for (name,) in cursor.fetchall()]

    def drop_staged(self, cursor: Any, names: Sequence[str]) -> None:
        cursor.execute("SET LOCAL lock_timeout = '2s'")
        for name in names:
            cursor.execute(self.begin_rows)
            try:
                cursor.execute(f"DROP TABLE IF EXISTS {self.beside(name)}")
            except self._psycopg.errors.LockNotAvailable:
                cursor.execute(self.undo_rows)

    def misses_table(self, error: Exception) -> bool:
        return isinstance(error, self._psycopg.errors.UndefinedTable)

    # Errors -----------------------------------------------------------------------------------------------------------

    def problem_of(self, error: Exception) -> tuple[str, bool]:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        message = lines[0] if lines else type(error).__name__
        if not isinstance(error, self._psycopg.Error):
            return message, isinstance(error, OSError)
        state = error.sqlstate or ""
        lost = (
            not state
            and isinstance(error, self._psycopg.OperationalError | self._psycopg.InterfaceError)
            and not REFUSED.search(str(error))
        )
        return message, lost or state.startswith(_AWAY_CLASSES) or state in (_READ_ONLY, _LOCKED)

    def rejection_of(self, error: Exception) -> str | None:
        if not isinstance(error, self._psycopg.Error):
            return None
        is_of_row = isinstance(error, self._psycopg.IntegrityError | self._psycopg.DataError)
        return _KINDS.get(error.sqlstate or "", TYPE_CONVERSION_ERROR if is_of_row else None)
