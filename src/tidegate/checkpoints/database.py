"""Ownership and checkpoints in two tables, in SQL that SQLite and PostgreSQL both understand.

The terms and shapes are those of Microsoft's `azure.eventhub.CheckpointStore`, modelled on its Blob store: names are
case-insensitive, and ownership changes hands by etag. There is one row per partition, and every change of ownership is
one statement conditional on the previous etag. If two consumers claim a partition at once, the database serves one
first and the other finds no matching row. The first claim of a partition goes to the consumer whose row is inserted.

Ages are measured by the database's clock alone, so that consumers whose clocks differ agree on what has expired.
"""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class CheckpointError(Exception):
    """The database did not do what was asked; the message says why and holds no secret."""


_KEY = ("fully_qualified_namespace", "eventhub_name", "consumer_group", "partition_id")
_KEY_COLUMNS = ", ".join(_KEY)
_IS_KEY = " AND ".join(f"{name} = ?" for name in _KEY)
_IS_GROUP = " AND ".join(f"{name} = ?" for name in _KEY[:3])
OWNERSHIP_TABLE = "tidegate_ownership"
CHECKPOINT_TABLE = "tidegate_checkpoint"
SCHEMA = (
    f"CREATE TABLE IF NOT EXISTS {OWNERSHIP_TABLE} ("
    "fully_qualified_namespace text NOT NULL, eventhub_name text NOT NULL, consumer_group text NOT NULL, "
    "partition_id text NOT NULL, owner_id text NOT NULL, etag text NOT NULL, "
    f"modified_s double precision NOT NULL, PRIMARY KEY ({_KEY_COLUMNS}))",
    f"CREATE TABLE IF NOT EXISTS {CHECKPOINT_TABLE} ("
    "fully_qualified_namespace text NOT NULL, eventhub_name text NOT NULL, consumer_group text NOT NULL, "
    "partition_id text NOT NULL, event_offset text, sequence_number bigint, "
    f"modified_s double precision NOT NULL, PRIMARY KEY ({_KEY_COLUMNS}))",
)

Parameters = Sequence[object]


class StoredCheckpoint(NamedTuple):
    """A checkpoint as `tidegate lag` needs it; the owner is "" if nobody is reading."""

    fully_qualified_namespace: str
    eventhub_name: str
    consumer_group: str
    partition_id: str
    sequence_number: int | None
    age_s: float
    owner_id: str


class CheckpointDatabase(ABC):
    """The operations, built on `query` and `execute`; all are thread-safe and raise CheckpointError."""

    now: str
    """SQL for the seconds since 1970, by the database's clock."""

    @abstractmethod
    def query(self, statement: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT; `?` marks a parameter."""

    @abstractmethod
    def execute(self, statements: Iterable[tuple[str, Parameters]]) -> list[int]:
        """Run statements in one transaction; return how many rows each changed."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; harmless if it is closed already."""

    # -- as azure.eventhub.CheckpointStore has them

    def list_ownership(
        self, fully_qualified_namespace: str, eventhub_name: str, consumer_group: str, **_: Any
    ) -> list[dict[str, Any]]:
        """Return the current or last owner of each partition of a hub, for a consumer group."""
        group = (fully_qualified_namespace, eventhub_name, consumer_group)
        rows = self.query(
            f"SELECT partition_id, owner_id, etag, {self.now} - modified_s FROM {OWNERSHIP_TABLE} WHERE {_IS_GROUP}",
            _lower(group),
        )
        now_s = time.time()
        return [
            {
                **dict(zip(_KEY, group, strict=False)),
                "partition_id": partition_id,
                "owner_id": owner_id,
                "etag": etag,
                "last_modified_time": now_s - age_s,
            }
            for partition_id, owner_id, etag, age_s in rows
        ]

    def claim_ownership(self, ownership_list: Iterable[Mapping[str, Any]], **_: Any) -> list[dict[str, Any]]:
        """Claim each ownership whose etag is still current, or that has no etag and no owner yet.

        Returns those that were claimed, with their new etags.
        """
        # In one order everywhere, so that two transactions cannot wait for each other.
        ownerships = sorted(ownership_list, key=lambda ownership: str(ownership["partition_id"]))
        claims = [{**ownership, "etag": uuid.uuid4().hex} for ownership in ownerships]
        former = [ownership.get("etag") for ownership in ownerships]
        changed = self.execute([self._claim(claim, etag) for claim, etag in zip(claims, former, strict=True)])
        now_s = time.time()
        return [
            {**claim, "last_modified_time": now_s} for claim, rows in zip(claims, changed, strict=True) if rows == 1
        ]

    def _claim(self, claim: Mapping[str, Any], former_etag: str | None) -> tuple[str, Parameters]:
        key = _lower(claim[name] for name in _KEY)
        if former_etag:
            update = f"UPDATE {OWNERSHIP_TABLE} SET owner_id = ?, etag = ?, modified_s = {self.now}"
            return f"{update} WHERE {_IS_KEY} AND etag = ?", (claim["owner_id"], claim["etag"], *key, former_etag)
        insert = f"INSERT INTO {OWNERSHIP_TABLE} ({_KEY_COLUMNS}, owner_id, etag, modified_s)"
        values = f"VALUES (?, ?, ?, ?, ?, ?, {self.now}) ON CONFLICT ({_KEY_COLUMNS}) DO NOTHING"
        return f"{insert} {values}", (*key, claim["owner_id"], claim["etag"])

    def update_checkpoint(self, checkpoint: Mapping[str, Any], **_: Any) -> None:
        """Set a partition's checkpoint, forwards or back."""
        self.execute([self._set_checkpoint(checkpoint)])

    def list_checkpoints(
        self, fully_qualified_namespace: str, eventhub_name: str, consumer_group: str, **_: Any
    ) -> list[dict[str, Any]]:
        """Return a consumer group's checkpoints in a hub."""
        group = (fully_qualified_namespace, eventhub_name, consumer_group)
        rows = self.query(
            f"SELECT partition_id, event_offset, sequence_number FROM {CHECKPOINT_TABLE} WHERE {_IS_GROUP}",
            _lower(group),
        )
        return [
            {
                **dict(zip(_KEY, group, strict=False)),
                "partition_id": partition_id,
                "offset": offset,
                "sequence_number": sequence_number,
            }
            for partition_id, offset, sequence_number in rows
        ]

    # -- beyond it

    def advance_checkpoint(self, checkpoint: Mapping[str, Any], first_sequence_number: int) -> bool:
        """Claim the events from first_sequence_number up to the checkpoint, by moving the stored one past them.

        Returns False if the stored checkpoint is not before first_sequence_number, because another consumer has claimed
        some of these events. Only one of the consumers that hold an event gets True, so it is handled at most once.
        """
        statement, parameters = self._set_checkpoint(checkpoint)
        condition = f" WHERE {CHECKPOINT_TABLE}.sequence_number < ?"
        return self.execute([(statement + condition, (*parameters, first_sequence_number))]) == [1]

    def forget(self, fully_qualified_namespace: str, eventhub_name: str, consumer_group: str) -> None:
        """Delete the checkpoints and ownerships of a group, to read a hub again or after it was recreated."""
        group = _lower((fully_qualified_namespace, eventhub_name, consumer_group))
        self.execute(
            [(f"DELETE FROM {table} WHERE {_IS_GROUP}", group) for table in (CHECKPOINT_TABLE, OWNERSHIP_TABLE)]
        )

    def positions(self) -> list[StoredCheckpoint]:
        """Return every checkpoint, ordered by name. Owners are shown however long ago they last renewed."""
        on = " AND ".join(f"o.{name} = c.{name}" for name in _KEY)
        columns = ", ".join(f"c.{name}" for name in _KEY)
        rows = self.query(
            f"SELECT {columns}, c.sequence_number, {self.now} - c.modified_s, coalesce(o.owner_id, '') "
            f"FROM {CHECKPOINT_TABLE} c LEFT JOIN {OWNERSHIP_TABLE} o ON {on}"
        )
        return sorted((StoredCheckpoint(*row) for row in rows), key=in_order)

    def shift(self, shifts: Mapping[tuple[str, str], int]) -> int:
        """Subtract a number from the sequence numbers of some hubs, whose offsets become equal to them.

        All are translated in one transaction. An offset that is the sequence number already stays, so that doing it
        again changes nothing: in a data directory offsets are larger than sequence numbers, but for the first.

        Args:
            shifts: By hub, in lower case, and partition.

        Returns:
            How many checkpoints were translated.

        Raises:
            CheckpointError: The database does not do it; nothing was translated then.
        """
        moved = "CASE WHEN sequence_number > ? THEN sequence_number - ? ELSE 0 END"
        statement = (
            f"UPDATE {CHECKPOINT_TABLE} SET sequence_number = {moved}, event_offset = CAST({moved} AS text) "
            "WHERE eventhub_name = ? AND partition_id = ? AND sequence_number IS NOT NULL "
            "AND (event_offset IS NULL OR event_offset <> CAST(sequence_number AS text))"
        )
        return sum(
            self.execute([(statement, (first, first, first, first, *key)) for key, first in sorted(shifts.items())])
        )

    def _set_checkpoint(self, checkpoint: Mapping[str, Any]) -> tuple[str, Parameters]:
        key = _lower(checkpoint[name] for name in _KEY)
        offset = checkpoint.get("offset")
        return (
            f"INSERT INTO {CHECKPOINT_TABLE} ({_KEY_COLUMNS}, event_offset, sequence_number, modified_s) "
            f"VALUES (?, ?, ?, ?, ?, ?, {self.now}) ON CONFLICT ({_KEY_COLUMNS}) DO UPDATE SET "
            "event_offset = excluded.event_offset, sequence_number = excluded.sequence_number, "
            "modified_s = excluded.modified_s",
            (*key, None if offset is None else str(offset), checkpoint.get("sequence_number")),
        )


def _lower(names: Iterable[object]) -> tuple[str, ...]:
    return tuple(str(name).lower() for name in names)


def in_order(position: StoredCheckpoint) -> tuple[object, ...]:
    """Return the sort key: by name, partitions by number."""
    number = int(position.partition_id) if position.partition_id.isdecimal() else -1
    return (*position[:3], number, position.partition_id)
