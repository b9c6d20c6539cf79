"""Checkpoints for consumers that are not jobs: stores for Microsoft's Python client that need no cloud, and a consumer.

`SqliteCheckpointStore` is for the processes of one machine, `PostgresCheckpointStore` for many machines; `aio` has the
same two for the asynchronous client. `consumer` adds retries, a dead-letter hub and a choice between at-least-once and
at-most-once delivery.
"""

from tidegate.checkpoints.database import CheckpointError
from tidegate.checkpoints.store import PostgresCheckpointStore, SqliteCheckpointStore

__all__ = ["CheckpointError", "PostgresCheckpointStore", "SqliteCheckpointStore"]
