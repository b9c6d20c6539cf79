"""`tidegate lag`: how far the readers of a hub are behind."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from urllib.parse import urlsplit

import click

from tidegate.checkpoints.blob import BlobCheckpoints, is_blob_container
from tidegate.checkpoints.database import CheckpointDatabase, Position
from tidegate.checkpoints.postgres import PostgresCheckpoints
from tidegate.checkpoints.sqlite import SqliteCheckpoints
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


@click.command()
@click.argument("connection_string", envvar="TIDEGATE_CONNECTION_STRING")
@click.option(
    "--checkpoints",
    "location",
    metavar="PLACE",
    envvar="TIDEGATE_CHECKPOINTS",
    required=True,
    help="Where checkpoints are: the file of a SqliteCheckpointStore, postgresql://…, or az://CONTAINER of Microsoft's "
    "BlobCheckpointStore (or TIDEGATE_CHECKPOINTS).",
)
@click.option("--hub", metavar="NAME", help="Only this event hub; without it all that have checkpoints.")
@click.option("--group", metavar="NAME", help="Only this consumer group.")
@click.option(
    "--namespace",
    metavar="HOST",
    help="The host under which the readers know the hub, where it is not the connection string's.",
)
@click.option(
    "-o",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="A table for people, or one JSON object a line.",
)
def lag(
    connection_string: str,
    location: str,
    hub: str | None,
    group: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """Show how far the readers of a hub are behind.

    A line is one partition, read by one consumer group: its checkpoint, the last event there is, and how far apart they
    are in events and in seconds. The seconds are those since the oldest event arrived that is
    still to be read. CONNECTION_STRING may also stand in the environment as TIDEGATE_CONNECTION_STRING.

    \b
    Example:
      tidegate lag "$CONNECTION_STRING" --checkpoints checkpoints.db
      tidegate lag "$CONNECTION_STRING" --checkpoints postgresql://user@host/database --hub tolls -o json
      AZURE_STORAGE_CONNECTION_STRING=… tidegate lag "$CONNECTION_STRING" --checkpoints az://checkpoints
    """
    hub = hub or _part(connection_string, "EntityPath") or None
    ConnectionString.parse(connection_string, hub or "any")  # what is wrong with it is said first
    database: CheckpointDatabase | BlobCheckpoints
    if is_blob_container(location):
        database = BlobCheckpoints(location)
    elif location.startswith(("postgresql://", "postgres://")):
        database = PostgresCheckpoints(location, create=False)
    else:
        if not Path(location).is_file():
            raise click.UsageError(f"there is no checkpoint file {location}")
        database = SqliteCheckpoints(location, create=False)
    try:
        positions = chosen(database.positions(), namespace or _host(connection_string), hub, group)
    finally:
        database.close()
    rows = list(lags(connection_string, positions))
    if output == "json":
        for row in rows:
            click.echo(json.dumps(asdict(row)))
    else:
        click.echo("\n".join(table(rows)))


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
    of_any = ";".join(part for part in connection_string.split(";") if not _part(part, "EntityPath"))
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


def table(rows: Sequence[Lag]) -> list[str]:
    """The rows under their names, for people."""
    cells = [[field.name.replace("_", " ").replace(" seconds", " s").upper() for field in fields(Lag)]]
    cells += [[_cell(getattr(row, field.name)) for field in fields(Lag)] for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    numeric = [not isinstance(getattr(rows[0], field.name), str) if rows else False for field in fields(Lag)]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in cells
    ]


def _cell(value: str | int | float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _host(connection_string: str) -> str:
    """As Microsoft's client takes it from a connection string: with the port, where there is one."""
    return urlsplit(_part(connection_string, "Endpoint")).netloc


def _part(connection_string: str, name: str) -> str:
    """One part of a connection string, "" if it has none of that name."""
    found = re.search(rf"(?i)(?:^|;)\s*{name}=([^;]*)", connection_string)
    return found[1].strip() if found else ""
