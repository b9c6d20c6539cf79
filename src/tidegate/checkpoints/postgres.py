"""Checkpoints in PostgreSQL: for consumers on many machines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tidegate.checkpoints.database import (
    CHECKPOINT_TABLE,
    OWNERSHIP_TABLE,
    SCHEMA,
    CheckpointDatabase,
    CheckpointError,
    Parameters,
)

if TYPE_CHECKING:
    import psycopg

    Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

Result = TypeVar("Result")
_CREATION_LOCK = 0x7469_6465  # one number for all who might create the tables at once
_CONNECT_TIMEOUT_S = 10


class PostgresCheckpoints(CheckpointDatabase):
    """`conninfo` is a URL or `host=… dbname=…`; what it leaves out comes from libpq's environment variables.

    Two tables are made in the first schema of the search path if they are not there, but not without `create`. A
    connection that broke is made anew with the next call.
    """

    now = "extract(epoch from clock_timestamp())::double precision"

    def __init__(self, conninfo: str, *, create: bool = True) -> None:
        """Raises CheckpointError, ModuleNotFoundError without psycopg."""
        import psycopg  # an extra: SQLite does without

        self._psycopg = psycopg
        self._conninfo = conninfo
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._closed = False
        tables = "SELECT to_regclass(?) IS NOT NULL AND to_regclass(?) IS NOT NULL"
        if self.query(tables, (OWNERSHIP_TABLE, CHECKPOINT_TABLE)) != [(True,)]:
            if not create:
                self.close()
                raise CheckpointError("PostgreSQL: there is no checkpoint store in this database")
            lock = ("SELECT pg_advisory_xact_lock(?)", (_CREATION_LOCK,))
            self.execute([lock, *((statement, ()) for statement in SCHEMA)])

    def query(self, statement: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        def select(connection: Connection) -> list[tuple[Any, ...]]:
            return connection.execute(_as_psycopg(statement), parameters).fetchall()

        return self._on_connection(select)

    def execute(self, statements: Iterable[tuple[str, Parameters]]) -> list[int]:
        def change(connection: Connection) -> list[int]:
            with connection.transaction():
                return [connection.execute(_as_psycopg(text), values).rowcount for text, values in statements]

        return self._on_connection(change)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()

    def _on_connection(self, work: Callable[[Connection], Result]) -> Result:
        with self._lock:
            if self._closed:
                raise CheckpointError("the checkpoint store is closed")
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = self._psycopg.connect(
                        self._conninfo, autocommit=True, connect_timeout=_CONNECT_TIMEOUT_S
                    )
                return work(self._connection)
            except self._psycopg.Error as error:
                if isinstance(error, self._psycopg.OperationalError) and self._connection is not None:
                    self._connection.close()  # whether the statement took effect is not known; the next call looks
                raise CheckpointError(f"PostgreSQL: {str(error).strip() or type(error).__name__}") from error


def _as_psycopg(statement: str) -> bytes:
    """Replace the parameter marks by psycopg's. The package's own statements contain no other question marks."""
    return statement.replace("?", "%s").encode("utf-8")
