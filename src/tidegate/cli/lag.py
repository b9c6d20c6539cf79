"""`tidegate lag`: how far the readers of a hub are behind."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from urllib.parse import urlsplit

import click
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate.checkpoints.blob import BlobCheckpoints, is_blob_container
from tidegate.checkpoints.database import CheckpointDatabase, StoredCheckpoint
from tidegate.checkpoints.postgres import PostgresCheckpoints
from tidegate.checkpoints.sqlite import SqliteCheckpoints
from tidegate.cli.errors import explanation
from tidegate.cli.processes import wait_for_stop_signal
from tidegate.client import ClientError, ConnectionString, HubClient, HubPartition
from tidegate.log_format import log_to_standard_error

_DEFAULT_GROUP = "$Default"
_KAFKA = "Kafka group"
"""The owner of what a group of Kafka's clients has committed; it need not be a consumer group of the hub."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
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


def chosen(
    positions: Iterable[StoredCheckpoint], namespace: str, hub: str | None, group: str | None
) -> list[StoredCheckpoint]:
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


def lags(connection_string: str, positions: Iterable[StoredCheckpoint]) -> Iterator[PartitionLag]:
    """One for each partition of each hub and group of the positions. Raises ClientError."""
    by_hub: dict[str, list[StoredCheckpoint]] = defaultdict(list)
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


def known_lags(connection_string: str, hub: str, group: str | None) -> Iterator[PartitionLag]:
    """One for each partition of a hub and each reader whose position the hub itself knows. Raises ClientError.

    These are jobs on the hub's machine, and groups of Kafka's clients, which commit their offsets to the hub.
    """
    of_any = ";".join(part for part in connection_string.split(";") if not connection_part(part, "EntityPath"))
    client = HubClient(ConnectionString.parse(of_any, hub))
    try:
        ids = client.partition_ids()
        asked = {"tidegate:with-jobs": True, "tidegate:with-kafka-groups": True}
        partitions = client.partitions_properties(ids, dict.fromkeys(ids, asked))
        for partition, place in partitions.items():
            for job in place.jobs:
                if group is None or job.consumer_group.lower() == group.lower():
                    last_read = job.position - 1 if job.position else None
                    reached = StoredCheckpoint(
                        "", hub, job.consumer_group, partition, last_read, 0.0, f"job {job.name}"
                    )
                    yield _lag(client, hub, job.consumer_group, partition, place, reached)
            for one in place.kafka_groups:
                if group is None or one.name.lower() == group.lower():
                    last_read = one.position - 1 if one.position else None
                    age_s = max(0.0, time.time() - one.committed_at_ms / 1000)
                    reached = StoredCheckpoint("", hub, one.name, partition, last_read, age_s, _KAFKA)
                    yield _lag(client, hub, one.name, partition, place, reached)
    finally:
        client.close()


def _lag(
    client: HubClient, hub: str, group: str, partition: str, place: HubPartition, position: StoredCheckpoint | None
) -> PartitionLag:
    checkpoint = None if position is None else position.sequence_number
    following = place.begin if checkpoint is None else checkpoint + 1
    first = max(following, place.begin)
    seconds: float | None = 0.0
    if first < place.end:
        try:
            asked_as = _DEFAULT_GROUP if position is not None and position.owner_id == _KAFKA else group
            seconds = max(0.0, round(time.time() - client.enqueued_time_ms(asked_as, partition, first) / 1000, 3))
        except ClientError:
            seconds = None
    return PartitionLag(
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


_logger = logging.getLogger(__name__)

EVENTS = ("tidegate_consumer_group_lag_events", "Events behind the checkpoint that can still be read")
SECONDS = ("tidegate_consumer_group_lag_seconds", "Time since the arrival of the oldest of them; 0 if there is none")
LOST = ("tidegate_consumer_group_lost_events", "Events behind the checkpoint that retention has removed")
UP = ("tidegate_lag_up", "Whether the checkpoints and the hub could be read for this scrape")

NAMES = tuple(name for name, _ in (EVENTS, SECONDS, LOST, UP))
"""Every metric, as the answer to a scrape has it."""


class LagCollector(Collector):
    """The lag as of each scrape."""

    def __init__(self, read: Callable[[], Sequence[PartitionLag]]) -> None:
        """
        Args:
            read: returns the lag of every group and partition.
        """
        self._read = read
        self._problem: str | None = None
        self._lock = threading.Lock()  # Scrapes come in threads of their own.

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        with self._lock:
            rows = self._rows()
        labels = ["event_hub", "consumer_group", "partition"]
        events, lost = GaugeMetricFamily(*EVENTS, labels=labels), GaugeMetricFamily(*LOST, labels=labels)
        seconds = GaugeMetricFamily(*SECONDS, labels=labels)
        for row in rows or ():
            where = [row.hub, row.group, row.partition]
            events.add_metric(where, row.events_behind)
            lost.add_metric(where, row.events_lost)
            if row.seconds_behind is not None:
                seconds.add_metric(where, row.seconds_behind)
        yield from (events, seconds, lost, GaugeMetricFamily(*UP, value=rows is not None))

    def _rows(self) -> Sequence[PartitionLag] | None:
        """Return the lag; None if it cannot be read, and log why, once until that changes."""
        problem = rows = None
        try:
            rows = self._read()
        except Exception as error:  # One scrape fails, not the exporter.
            problem = error.format_message() if isinstance(error, click.ClickException) else explanation(error)
            if problem is None:
                _logger.exception("the lag could not be read")
        if problem is not None and problem != self._problem:
            _logger.warning("the lag cannot be read: %s", problem)
        self._problem = problem
        return rows


@contextmanager
def served(read: Callable[[], Sequence[PartitionLag]], host: str, port: int) -> Iterator[str]:
    """Answer scrapes on an address, in threads, and yield its URL. Port 0 is any free one.

    Raises:
        click.ClickException: the address cannot be listened on.
    """
    registry = CollectorRegistry()
    registry.register(LagCollector(read))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise click.ClickException(f"cannot serve metrics on {host}:{port}: {error.strerror}") from error
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


_HIGHEST_PORT = 65535


@click.command()
@click.argument("connection_string", envvar="TIDEGATE_CONNECTION_STRING")
@click.option(
    "--checkpoints",
    "location",
    metavar="PLACE",
    envvar="TIDEGATE_CHECKPOINTS",
    help="Where checkpoints are: the file of a SqliteCheckpointStore, postgresql://…, or az://CONTAINER of Microsoft's "
    "BlobCheckpointStore (or TIDEGATE_CHECKPOINTS). Without it, only jobs on the hub's machine and groups of Kafka's "
    "clients are shown.",
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
@click.option(
    "--serve",
    metavar="[HOST:]PORT",
    help="Instead of a table, serve the lag to Prometheus at /metrics until Ctrl-C, read anew for each scrape.",
)
def lag(
    connection_string: str,
    location: str | None,
    hub: str | None,
    group: str | None,
    namespace: str | None,
    output: str,
    serve: str | None,
) -> None:
    """Show how far the readers of a hub are behind.

    A line is one partition, read by one consumer group: its checkpoint, the last event there is, and how far apart they
    are in events and in seconds. The seconds are those since the oldest event arrived that is
    still to be read. Jobs that read the hub's files on its machine are readers too, with the job as the owner, and so
    are groups of Kafka's clients, which commit their offsets to the hub.
    CONNECTION_STRING can also be set in the environment as TIDEGATE_CONNECTION_STRING.

    \b
    Example:
      tidegate lag "$CONNECTION_STRING" --hub tolls
      tidegate lag "$CONNECTION_STRING" --checkpoints checkpoints.db
      tidegate lag "$CONNECTION_STRING" --checkpoints postgresql://user@host/database --hub tolls -o json
      AZURE_STORAGE_CONNECTION_STRING=… tidegate lag "$CONNECTION_STRING" --checkpoints az://checkpoints
      tidegate lag "$CONNECTION_STRING" --checkpoints checkpoints.db --serve 9465
    """
    hub = hub or connection_part(connection_string, "EntityPath") or None
    ConnectionString.parse(connection_string, hub or "any")  # what is wrong with it is said first
    if location is None and hub is None:
        raise click.UsageError(
            "name an event hub (--hub) to see its jobs and Kafka groups, or --checkpoints to see other readers"
        )
    address = None if serve is None else _address(serve)

    def read() -> list[PartitionLag]:
        rows: list[PartitionLag] = []
        hubs = {hub} if hub else set()
        if location is not None:
            positions = chosen(_positions(location), namespace or _host(connection_string), hub, group)
            rows += lags(connection_string, positions)
            hubs |= {position.eventhub_name for position in positions} if not hub else set()
        for one in sorted(hubs):
            rows += known_lags(connection_string, one, group)
        return rows

    if address is not None:
        _serve(read, *address)
        return
    rows = read()
    if output == "json":
        for row in rows:
            click.echo(json.dumps(asdict(row)))
    else:
        click.echo("\n".join(table(rows)))


def _address(text: str) -> tuple[str, int]:
    """Return the host, 127.0.0.1 unless given, and the port of [HOST:]PORT."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > _HIGHEST_PORT:
        raise click.BadParameter(
            f"expected [HOST:]PORT, such as 9465 or 0.0.0.0:9465, got {text}", param_hint="--serve"
        )
    return host.strip("[]") or "127.0.0.1", int(port)


def _serve(read: Callable[[], list[PartitionLag]], host: str, port: int) -> None:
    """Serve the lag until Ctrl-C or SIGTERM."""
    log_to_standard_error("text", logging.WARNING)
    with served(read, host, port) as address:
        click.echo(f"Metrics: {address}")
        wait_for_stop_signal()


def open_checkpoints(location: str) -> CheckpointDatabase | BlobCheckpoints:
    """Open the checkpoints in a container of Blob storage, a database or a file. Raises CheckpointError, UsageError."""
    if is_blob_container(location):
        return BlobCheckpoints(location)
    if location.startswith(("postgresql://", "postgres://")):
        return PostgresCheckpoints(location, create=False)
    if not Path(location).is_file():
        raise click.UsageError(f"there is no checkpoint file {location}")
    return SqliteCheckpoints(location, create=False)


def _positions(location: str) -> list[StoredCheckpoint]:
    database = open_checkpoints(location)
    try:
        return database.positions()
    finally:
        database.close()


def table(rows: Sequence[PartitionLag]) -> list[str]:
    """The rows under their names, for people."""
    cells = [[field.name.replace("_", " ").replace(" seconds", " s").upper() for field in fields(PartitionLag)]]
    cells += [[_cell(getattr(row, field.name)) for field in fields(PartitionLag)] for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    numeric = [not isinstance(getattr(rows[0], field.name), str) if rows else False for field in fields(PartitionLag)]
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
    return urlsplit(connection_part(connection_string, "Endpoint")).netloc
