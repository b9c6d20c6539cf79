"""`tidegate lag`: how far the readers of a hub are behind."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from urllib.parse import urlsplit

import click

from tidegate.checkpoints.blob import BlobCheckpoints, is_blob_container
from tidegate.checkpoints.database import CheckpointDatabase, Position
from tidegate.checkpoints.postgres import PostgresCheckpoints
from tidegate.checkpoints.sqlite import SqliteCheckpoints
from tidegate.cli.consumer_lag import Lag, chosen, connection_part, job_lags, lags
from tidegate.cli.processes import wait_for_stop_signal
from tidegate.client import ConnectionString
from tidegate.service.log_format import log_to_standard_error

_HIGHEST_PORT = 65535


@click.command()
@click.argument("connection_string", envvar="TIDEGATE_CONNECTION_STRING")
@click.option(
    "--checkpoints",
    "location",
    metavar="PLACE",
    envvar="TIDEGATE_CHECKPOINTS",
    help="Where checkpoints are: the file of a SqliteCheckpointStore, postgresql://…, or az://CONTAINER of Microsoft's "
    "BlobCheckpointStore (or TIDEGATE_CHECKPOINTS). Without it, only jobs on the hub's machine are shown.",
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
    still to be read. Jobs that read the hub's files on its machine are readers too, with the job as the owner.
    CONNECTION_STRING may also stand in the environment as TIDEGATE_CONNECTION_STRING.

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
        raise click.UsageError("name an event hub (--hub) to see its jobs, or --checkpoints to see other readers")
    address = None if serve is None else _address(serve)

    def read() -> list[Lag]:
        rows: list[Lag] = []
        hubs = {hub} if hub else set()
        if location is not None:
            positions = chosen(_positions(location), namespace or _host(connection_string), hub, group)
            rows += lags(connection_string, positions)
            hubs |= {position.eventhub_name for position in positions} if not hub else set()
        for one in sorted(hubs):
            rows += job_lags(connection_string, one, group)
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


def _serve(read: Callable[[], list[Lag]], host: str, port: int) -> None:
    """Serve the lag until Ctrl-C or SIGTERM."""
    from tidegate.cli.lag_metrics import served

    log_to_standard_error("text", logging.WARNING)
    with served(read, host, port) as address:
        click.echo(f"Metrics: {address}")
        wait_for_stop_signal()


def _positions(location: str) -> list[Position]:
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
        return database.positions()
    finally:
        database.close()


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
    return urlsplit(connection_part(connection_string, "Endpoint")).netloc
