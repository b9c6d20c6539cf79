"""The stores for `azure.eventhub.aio`: each call runs in a thread, so that it does not block the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import Any

from azure.eventhub.aio import CheckpointStore

from tidegate.checkpoints.database import CheckpointDatabase
from tidegate.checkpoints.postgres import PostgresCheckpoints
from tidegate.checkpoints.sqlite import SqliteCheckpoints

__all__ = ["DatabaseCheckpointStore", "PostgresCheckpointStore", "SqliteCheckpointStore"]


class DatabaseCheckpointStore(CheckpointStore):
    """A checkpoint store over an open database, which may be shared."""

    def __init__(self, database: CheckpointDatabase) -> None:
        self.database = database

    async def list_ownership(
        self, fully_qualified_namespace: str, eventhub_name: str, consumer_group: str, **_: Any
    ) -> list[dict[str, Any]]:
        """Return the current or last owner of each partition of a hub, for a consumer group."""
        names = (fully_qualified_namespace, eventhub_name, consumer_group)
        return await asyncio.to_thread(self.database.list_ownership, *names)

    async def claim_ownership(self, ownership_list: Iterable[dict[str, Any]], **_: Any) -> list[dict[str, Any]]:
        """Claim partitions by their etags; return those that were claimed."""
        return await asyncio.to_thread(self.database.claim_ownership, list(ownership_list))

    async def update_checkpoint(self, checkpoint: dict[str, Any], **_: Any) -> None:
        """Set a partition's checkpoint."""
        await asyncio.to_thread(self.database.update_checkpoint, checkpoint)

    async def list_checkpoints(
        self, fully_qualified_namespace: str, eventhub_name: str, consumer_group: str, **_: Any
    ) -> list[dict[str, Any]]:
        """Return a consumer group's checkpoints in a hub."""
        names = (fully_qualified_namespace, eventhub_name, consumer_group)
        return await asyncio.to_thread(self.database.list_checkpoints, *names)

    async def close(self) -> None:
        """Close the connection."""
        await asyncio.to_thread(self.database.close)


class SqliteCheckpointStore(DatabaseCheckpointStore):
    """A checkpoint store in an SQLite file, for the processes of one machine."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises CheckpointError."""
        super().__init__(SqliteCheckpoints(path))


class PostgresCheckpointStore(DatabaseCheckpointStore):
    """A checkpoint store in PostgreSQL, for consumers on many machines."""

    def __init__(self, conninfo: str) -> None:
        """Raises CheckpointError."""
        super().__init__(PostgresCheckpoints(conninfo))
