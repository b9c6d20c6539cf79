"""The stores under the names and the base class that Microsoft's client expects."""

from __future__ import annotations

from azure.eventhub import CheckpointStore

from tidegate.checkpoints.postgres import PostgresCheckpoints
from tidegate.checkpoints.sqlite import SqliteCheckpoints

_POSTGRES_SCHEMES = ("postgresql://", "postgres://")


class SqliteCheckpointStore(SqliteCheckpoints, CheckpointStore):
    """A checkpoint store in an SQLite file, for the processes of one machine.

    `EventHubConsumerClient(..., checkpoint_store=SqliteCheckpointStore("checkpoints.db"))`.
    """


class PostgresCheckpointStore(PostgresCheckpoints, CheckpointStore):
    """A checkpoint store in PostgreSQL, for consumers on many machines.

    `EventHubConsumerClient(..., checkpoint_store=PostgresCheckpointStore("postgresql://user@host/database"))`.
    """


def open_store(location: str) -> SqliteCheckpointStore | PostgresCheckpointStore:
    """Open the store at `postgresql://…` or at the path of an SQLite file. Raises CheckpointError."""
    if location.startswith(_POSTGRES_SCHEMES):
        return PostgresCheckpointStore(location)
    return SqliteCheckpointStore(location)
