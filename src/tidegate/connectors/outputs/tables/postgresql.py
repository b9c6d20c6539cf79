"""A table of a PostgreSQL database, by psycopg 3 (the extra `postgresql`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar

from pydantic import Field

from tidegate import outbound
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import Public, Secret
from tidegate.connectors.outputs import values
from tidegate.connectors.outputs.column_types import Database, column_type, converter
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
    rejection_error,
)
from tidegate.connectors.outputs.tables.table_database import (
    MARKS_TABLE,
    PLACE_COLUMN,
    TIME_COLUMN,
    TableSettings,
    another_run_writes,
)
from tidegate.connectors.outputs.tables.table_output import TableOutput
from tidegate.connectors.outputs.tables.table_rows import Batch, StagedRows, TableColumn
from tidegate.sql.plan.nodes import Type

if TYPE_CHECKING:
    import psycopg

    Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_CONNECT_TIMEOUT_S = 10
_IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?$"
_CREATION_LOCK = 0x7469_6465  # the same for every process that might create tables at the same time
_KINDS = {
    "23502": REQUIRED_COLUMN_MISSING,
    "23505": DUPLICATE_KEY,
    "22001": RECORD_EXCEEDED_SIZE_LIMIT,
}
# Transient classes of SQLSTATE: connections, resources, operator intervention, system errors, a standby, a deadlock.
_AWAY_CLASSES = ("08", "53", "57", "58", "40")
_READ_ONLY = "25006"
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull AND NOT a.atthasdef AND a.attidentity = '',
       a.attgenerated = '' AND a.attidentity <> 'a'
FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_UNIQUE = """
SELECT count(*) FROM pg_index i WHERE i.indrelid = %s AND i.indisunique AND i.indpred IS NULL AND i.indimmediate
AND (SELECT array_agg(a.attname::text ORDER BY a.attname::text) FROM pg_attribute a
     WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)) = %s::text[]
AND i.indnkeyatts = cardinality(%s::text[])
"""

Result = TypeVar("Result")


@OUTPUTS.register
class PostgresqlOutput(TableSettings):
    """A table of a PostgreSQL database; the results of a step and the mark of how far they go in one transaction."""

    other_words: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("postgres", "pg", "sql", "database", "table"), 'write type = "postgresql" or "sqlite"'
    )

    type: Literal["postgresql"]
    connection_string: Secret = Field(description="`postgresql://user:password@host/database`, or `host=… dbname=…`")
    table: Public = Field(pattern=_IDENTIFIER, description="`table` or `schema.table`, created if it does not exist")

    def open_at(self, opening: OutputOpening) -> Output:
        return TableOutput(self.database(drop=opening.drop), self, opening)

    def database(self, *, drop: bool) -> PostgresqlTable:
        return PostgresqlTable(self, drop=drop)


class PostgresqlTable:
    """One table; see `TableDatabase`. What a connection string leaves out comes from libpq's environment variables."""

    kind = "postgresql"

    def __init__(self, definition: PostgresqlOutput, *, drop: bool) -> None:
        """Raise OutputError if psycopg is not installed."""
        try:
            import psycopg  # an extra: other outputs do without
        except ModuleNotFoundError as error:
            raise OutputError("an output to PostgreSQL needs psycopg: pip install 'tidegate[postgresql]'") from error
        self._psycopg = psycopg
        self._conninfo = definition.connection_string
        schema, _, table = definition.table.rpartition(".")
        self._schema = schema
        self._table = table
        self._key: tuple[str, ...] = ()
        self._drop = drop
        self._place: str | None = None  # the table's name, quoted, once it exists
        self._connection: Connection | None = None

    # The table --------------------------------------------------------------------------------------------------------

    def columns(self) -> Sequence[TableColumn]:
        def read(connection: Connection) -> list[TableColumn]:
            # Look up the exact name first, then the name as SQL reads it without quotes.
            for table in (self._table, self._table.lower()):
                place = self._in_schema(table)
                (oid,) = _one(connection, "SELECT to_regclass(%s)::oid", (place,))
                if oid is not None:
                    self._place = place
                    rows = connection.execute(_COLUMNS, (oid,)).fetchall()
                    return [
                        TableColumn(name, type_, converter(type_, values.microseconds), *more)
                        for name, type_, *more in rows
                    ]
            return []

        return self._on_connection(read)

    def create(self, columns: Sequence[tuple[str, Type]], key: Sequence[str]) -> None:
        unknown = [name for name, type_ in columns if type_ is Type.ANY]
        if unknown:
            example = f'columns = {{ {_toml_key(unknown[0])} = "nvarchar(max)" }}'
            raise OutputError(
                f"the table {self._table} does not exist, and the query does not determine the types of "
                f"{', '.join(unknown)}: create the table, or set the types in the output's section ({example})"
            )
        lines = [f"{_quoted(name.lower())} {column_type(Database.POSTGRESQL, type_)}" for name, type_ in columns]
        if key:
            lines.append(f"PRIMARY KEY ({', '.join(_quoted(name.lower()) for name in key)})")
        statement = f"CREATE TABLE IF NOT EXISTS {self._in_schema(self._table.lower())} ({', '.join(lines)})"
        self._on_connection(lambda connection: _create(connection, statement))

    def check_key(self, key: Sequence[str]) -> None:
        names = sorted(key)

        def look(connection: Connection) -> None:
            (oid,) = _one(connection, "SELECT to_regclass(%s)::oid", (self._place,))
            (found,) = _one(connection, _UNIQUE, (oid, names, names))
            if not found:
                raise OutputError(
                    f"the table {self._place} does not enforce unique {', '.join(key)}: create a unique index on "
                    f"{'it' if len(key) == 1 else 'them'}"
                )

        self._on_connection(look)
        self._key = tuple(key)

    # The mark ---------------------------------------------------------------------------------------------------------

    @property
    def _marks(self) -> str:
        return self._in_schema(MARKS_TABLE)

    def stored_mark(self, identity: Identity) -> StoredMark | None:
        def read(connection: Connection) -> StoredMark | None:
            if _one(connection, "SELECT to_regclass(%s)", (self._marks,)) == (None,):
                _create(
                    connection,
                    f"CREATE TABLE IF NOT EXISTS {self._marks} (job text NOT NULL, output text NOT NULL, "
                    "journal text NOT NULL, rows bigint NOT NULL, dropped bigint NOT NULL, PRIMARY KEY (job, output))",
                )
            row = connection.execute(
                _sql(f"SELECT journal, rows, dropped FROM {self._marks} WHERE job = %s AND output = %s"),
                (identity.job, identity.output),
            ).fetchone()
            return None if row is None else StoredMark(*row)

        return self._on_connection(read)

    def begin(self, identity: Identity) -> None:
        statement = (
            f"INSERT INTO {self._marks} VALUES (%s, %s, %s, 0, 0) ON CONFLICT (job, output) DO UPDATE SET "
            "journal = excluded.journal, rows = 0, dropped = 0"
        )
        parameters = (identity.job, identity.output, identity.journal)
        self._on_connection(lambda connection: connection.execute(_sql(statement), parameters))

    # Rows -------------------------------------------------------------------------------------------------------------

    def write(self, batches: Iterable[Batch], identity: Identity, before: int, after: StoredMark) -> list[RejectedRow]:
        return self.write_staged(list(batches), identity, before, after)

    def write_staged(
        self, changes: Sequence[Batch | StagedRows], identity: Identity, before: int, after: StoredMark
    ) -> list[RejectedRow]:
        def store(connection: Connection) -> list[RejectedRow]:
            with connection.transaction():
                rejected = [row for change in changes for row in self._insert_change(connection, change, identity)]
                moved = connection.execute(
                    _sql(
                        f"UPDATE {self._marks} SET rows = %s, dropped = %s WHERE job = %s AND output = %s "
                        "AND journal = %s AND rows = %s"
                    ),
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
                for change in changes:
                    for name in change.tables if isinstance(change, StagedRows) else ():
                        connection.execute(_sql(f"DROP TABLE IF EXISTS {self._in_schema(name)}"))
            return rejected

        return self._on_connection(store)

    def _insert_change(
        self, connection: Connection, change: Batch | StagedRows, identity: Identity
    ) -> Iterator[RejectedRow]:
        try:
            with connection.transaction():
                if isinstance(change, Batch):
                    self._insert(connection, change)
                else:
                    self._move(connection, change)
        except self._psycopg.errors.UndefinedTable as error:
            if isinstance(change, Batch):
                raise
            # Staging tables are deleted by a run that starts.
            raise another_run_writes(identity) from error
        except (self._psycopg.IntegrityError, self._psycopg.DataError) as error:
            if len(change) == 1:
                alone = change if isinstance(change, Batch) else self._staged_row(connection, change)
                if alone is None:
                    return
                row = alone.rejected_row(_KINDS.get(error.sqlstate or "", TYPE_CONVERSION_ERROR), _message(error))
                if not self._drop:
                    raise rejection_error(row, identity.output) from error
                yield row
                return
            middle = len(change) // 2
            yield from self._insert_change(connection, change.part(0, middle), identity)
            yield from self._insert_change(connection, change.part(middle, len(change)), identity)

    def _insert(self, connection: Connection, batch: Batch) -> None:
        with connection.cursor() as cursor:
            if not self._key:
                self._copy(cursor, self._place or "", batch.columns, batch.rows)
                return
            names, places = ", ".join(map(_quoted, batch.columns)), ", ".join(["%s"] * len(batch.columns))
            statement = f"INSERT INTO {self._place} ({names}) VALUES (\n) {self._on_conflict(batch.columns)}"
            # A percent sign in a name would be read as a parameter's placeholder.
            cursor.executemany(_sql(statement.replace("%", "%%").replace("\n", places)), batch.rows)

    def _copy(
        self, cursor: psycopg.Cursor[Any], place: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]
    ) -> None:
        names = ", ".join(map(_quoted, columns))
        with cursor.copy(_sql(f"COPY {place} ({names}) FROM STDIN")) as copy:
            for row in rows:
                copy.write_row(row)

    def _on_conflict(self, columns: Sequence[str]) -> str:
        rest = [name for name in columns if name not in self._key]
        sets = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in rest)
        action = f"UPDATE SET {sets}" if rest else "NOTHING"
        return f"ON CONFLICT ({', '.join(map(_quoted, self._key))}) DO {action}"

    # Staging tables ---------------------------------------------------------------------------------------------------

    def can_stage(self, prefix: str) -> bool:
        """See `StagingDatabase`; the privilege to create a table of any name is asked for."""

        def look(connection: Connection) -> bool:
            schema = "%s" if self._schema else "current_schema()"
            statement = f"SELECT has_schema_privilege({schema}, 'CREATE')"
            return _one(connection, statement, [*filter(None, [self._schema])]) == (True,)

        return self._on_connection(look)

    def stage(self, name: str, batches: Sequence[Batch]) -> list[RejectedRow]:
        place, columns = self._in_schema(name), batches[0].columns

        def fill(connection: Connection) -> list[RejectedRow]:
            with connection.transaction():
                # Types are the table's; what it demands beyond them is seen when the rows are moved there.
                connection.execute(
                    _sql(
                        f"CREATE TABLE {place} AS SELECT {', '.join(map(_quoted, columns))}, 0::bigint AS "
                        f"{PLACE_COLUMN}, 0::bigint AS {TIME_COLUMN} FROM {self._place} WITH NO DATA"
                    )
                )
                return [row for batch in batches for row in self._stage_batch(connection, place, batch)]

        return self._on_connection(fill)

    def _stage_batch(self, connection: Connection, place: str, batch: Batch) -> Iterator[RejectedRow]:
        try:
            with connection.transaction(), connection.cursor() as cursor:
                rows = ((*row, *more) for row, *more in zip(batch.rows, batch.numbers, batch.times, strict=True))
                self._copy(cursor, place, (*batch.columns, PLACE_COLUMN, TIME_COLUMN), rows)
        except (self._psycopg.IntegrityError, self._psycopg.DataError) as error:
            if len(batch) == 1:
                yield batch.rejected_row(_KINDS.get(error.sqlstate or "", TYPE_CONVERSION_ERROR), _message(error))
                return
            middle = len(batch) // 2
            yield from self._stage_batch(connection, place, batch.part(0, middle))
            yield from self._stage_batch(connection, place, batch.part(middle, len(batch)))

    def _move(self, connection: Connection, staged: StagedRows) -> None:
        names, rows = ", ".join(map(_quoted, staged.columns)), self._rows_of(staged)
        if not self._key:
            connection.execute(_sql(f"INSERT INTO {self._place} ({names}) SELECT {names} FROM {rows}"))
            return
        keys = ", ".join(map(_quoted, self._key))
        # One statement cannot replace a row twice; the last of each key is the one that stays.
        connection.execute(
            _sql(
                f"INSERT INTO {self._place} ({names}) SELECT DISTINCT ON ({keys}) {names} FROM {rows} "
                f"ORDER BY {keys}, {PLACE_COLUMN} DESC {self._on_conflict(staged.columns)}"
            )
        )

    def _staged_row(self, connection: Connection, staged: StagedRows) -> Batch | None:
        """Return a single row as it was staged; None if it was left out there."""
        names = ", ".join(map(_quoted, staged.columns))
        found = connection.execute(_sql(f"SELECT {names}, {TIME_COLUMN} FROM {self._rows_of(staged)}")).fetchone()
        if found is None:
            return None
        plain = tuple(value if isinstance(value, int | float | str | None) else str(value) for value in found[:-1])
        return Batch(staged.columns, [plain], [staged.runs[0].number], [found[-1]])

    def _rows_of(self, staged: StagedRows) -> str:
        tables = " UNION ALL ".join(f"SELECT * FROM {self._in_schema(name)}" for name in staged.tables)
        within = f"{PLACE_COLUMN} >= {staged.begin} AND {PLACE_COLUMN} < {staged.end}"
        return f"(SELECT * FROM ({tables}) AS every WHERE {within}) AS staged"

    def delete_staged(self, prefix: str) -> None:
        def delete(connection: Connection) -> None:
            schema = "%s" if self._schema else "current_schema()"
            found = connection.execute(
                _sql(f"SELECT tablename FROM pg_tables WHERE schemaname = {schema} AND starts_with(tablename, %s)"),
                (*filter(None, [self._schema]), prefix),
            ).fetchall()
            for (name,) in found:
                with suppress(self._psycopg.errors.LockNotAvailable), connection.transaction():
                    connection.execute("SET LOCAL lock_timeout = '2s'")
                    connection.execute(_sql(f"DROP TABLE IF EXISTS {self._in_schema(name)}"))

        self._on_connection(delete)

    # The connection ---------------------------------------------------------------------------------------------------

    def _in_schema(self, table: str) -> str:
        return f"{_quoted(self._schema)}.{_quoted(table)}" if self._schema else _quoted(table)

    def _on_connection(self, work: Callable[[Connection], Result]) -> Result:
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._connected()
            return work(self._connection)
        except self._psycopg.Error as error:
            message = f"PostgreSQL: {_message(error)}"
            state = error.sqlstate or ""
            lost = not state and isinstance(error, (self._psycopg.OperationalError, self._psycopg.InterfaceError))
            if lost or state.startswith(_AWAY_CLASSES) or state == _READ_ONLY:
                self.close()
                raise OutputUnavailableError(message) from error
            raise OutputError(message) from error

    def _connected(self) -> Connection:
        try:
            addresses = outbound.postgresql_address(self._psycopg.conninfo.conninfo_to_dict(self._conninfo))
            return self._psycopg.connect(
                self._conninfo, autocommit=True, connect_timeout=_CONNECT_TIMEOUT_S, hostaddr=addresses
            )
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

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _one(connection: Connection, statement: str, parameters: Sequence[Any]) -> tuple[Any, ...]:
    row = connection.execute(_sql(statement), parameters).fetchone()
    assert row is not None
    return row


def _create(connection: Connection, statement: str) -> None:
    """Create a table that another process may be creating at the same moment."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATION_LOCK,))
        connection.execute(_sql(statement))


def _sql(statement: str) -> bytes:
    """Return a statement in the form psycopg accepts for non-literals; callers have quoted the names in it."""
    return statement.encode()


def _message(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'
