"""How far the readers of a hub are behind: their checkpoints, next to the ends of the partitions."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import click

from tidegate.checkpoints.database import Position
from tidegate.client import ClientError, ConnectionString, HubClient, HubPartition

_DEFAULT_GROUP = "$Default"


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group's checkpoint in one partition is behind.

    `checkpoint` is the sequence number of the last event that was read, None if there is no checkpoint. Of the events
    behind it `events_behind` can still be read; `events_lost` were removed by retention before. `seconds_behind` is
    how long ago the first that can be read arrived; 0 if there is none, None if the hub does not say.
    """

    hub: str
    group: str
    partition: str
    checkpoint: int | None
    last: int
    events_behind: int
    seconds_behind: float | None
    events_lost: int
    checkpoint_age_seconds: float | None
    owner: str


def chosen(positions: Iterable[Position], namespace: str, hub: str | None, group: str | None) -> list[Position]:
    """The positions that are asked for. Raises click.UsageError where there are none."""
    found = list(positions)
    if not found:
        raise click.UsageError("there are no checkpoints in that place")
    here = [row for row in found if row.fully_qualified_namespace == namespace.lower()]
    if not here:
        known = ", ".join(sorted({row.fully_qualified_namespace for row in found}))
        raise click.UsageError(f"no reader knows the hub as {namespace}, but as {known}: add --namespace")
    wanted = [
        row
        for row in here
        if (hub is None or row.eventhub_name == hub.lower()) and (group is None or row.consumer_group == group.lower())
    ]
    if not wanted:
        known = ", ".join(sorted({f"{row.eventhub_name} {row.consumer_group}" for row in here}))
        raise click.UsageError(f"no such hub and group has checkpoints; those that have: {known}")
    return wanted


def lags(connection_string: str, positions: Iterable[Position]) -> Iterator[Lag]:
    """One for each partition of each hub and group of the positions. Raises ClientError."""
    by_hub: dict[str, list[Position]] = defaultdict(list)
    for position in positions:
        by_hub[position.eventhub_name].append(position)
    of_any = ";".join(part for part in connection_string.split(";") if not connection_part(part, "EntityPath"))
    for hub, rows in by_hub.items():
        client = HubClient(ConnectionString.parse(of_any, hub))
        try:
            partitions = client.partitions_properties(client.partition_ids())
            for group in sorted({row.consumer_group for row in rows}):
                of_group = {row.partition_id: row for row in rows if row.consumer_group == group}
                shown = _DEFAULT_GROUP if group == _DEFAULT_GROUP.lower() else group
                for partition, place in partitions.items():
                    yield _lag(client, hub, shown, partition, place, of_group.get(partition))
        finally:
            client.close()


def job_lags(connection_string: str, hub: str, group: str | None) -> Iterator[Lag]:
    """One for each partition of a hub and each job on the hub's machine that reads it. Raises ClientError."""
    of_any = ";".join(part for part in connection_string.split(";") if not connection_part(part, "EntityPath"))
    client = HubClient(ConnectionString.parse(of_any, hub))
    try:
        ids = client.partition_ids()
        partitions = client.partitions_properties(ids, {one: {"tidegate:with-jobs": True} for one in ids})
        for partition, place in partitions.items():
            for job in place.jobs:
                if group is None or job.consumer_group.lower() == group.lower():
                    last_read = job.position - 1 if job.position else None
                    reached = Position("", hub, job.consumer_group, partition, last_read, 0.0, f"job {job.name}")
                    yield _lag(client, hub, job.consumer_group, partition, place, reached)
    finally:
        client.close()


def _lag(
    client: HubClient, hub: str, group: str, partition: str, place: HubPartition, position: Position | None
) -> Lag:
    checkpoint = None if position is None else position.sequence_number
    following = place.begin if checkpoint is None else checkpoint + 1
    first = max(following, place.begin)
    seconds: float | None = 0.0
    if first < place.end:
        try:
            seconds = max(0.0, round(time.time() - client.enqueued_time_ms(group, partition, first) / 1000, 3))
        except ClientError:
            seconds = None
    return Lag(
        hub=hub,
        group=group,
        partition=partition,
        checkpoint=checkpoint,
        last=place.end - 1,
        events_behind=max(0, place.end - first),
        seconds_behind=seconds,
        events_lost=max(0, place.begin - following),
        checkpoint_age_seconds=None if position is None else round(position.age_s, 3),
        owner="" if position is None else position.owner_id,
    )


def connection_part(connection_string: str, name: str) -> str:
    """One part of a connection string, "" if it has none of that name."""
    found = re.search(rf"(?i)(?:^|;)\s*{name}=([^;]*)", connection_string)
    return found[1].strip() if found else ""
