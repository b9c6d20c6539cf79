"""`tidegate tail`: print events as they arrive."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import click

from tidegate.client import ConnectionString, HubClient
from tidegate.client.event_json import event_json

_POLL_S = 0.2
_AT_ONCE = 1_000


@click.command()
@click.argument("connection_string", envvar="TIDEGATE_CONNECTION_STRING")
@click.option("--hub", metavar="NAME", help="The event hub, where the connection string has no EntityPath.")
@click.option("--group", metavar="NAME", default="$Default", show_default=True, help="The consumer group to read in.")
@click.option("--partition", metavar="ID", help="Only this partition; without it all of them.")
@click.option("--from-beginning", is_flag=True, help="Begin with the oldest event, not with the next one.")
@click.option("--count", metavar="N", type=click.IntRange(1), help="Stop after this many events.")
@click.option("--no-wait", is_flag=True, help="End when what is there now has been printed.")
@click.option(
    "-o",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="A line for people, or one JSON object a line.",
)
def tail(
    connection_string: str,
    hub: str | None,
    group: str,
    partition: str | None,
    from_beginning: bool,
    count: int | None,
    no_wait: bool,
    output: str,
) -> None:
    """Print the events of an event hub as they arrive.

    CONNECTION_STRING can also be set in the environment as TIDEGATE_CONNECTION_STRING. A line has partition and
    sequence number, the time of arrival and the body; the order is each partition's own. Ctrl-C ends it. What -o json
    prints is a recorded log: a job, a case or a test of the portal reads it as it would the hub.

    \b
    Example:
      tidegate tail "$CONNECTION_STRING" --hub tolls
      tidegate tail "$CONNECTION_STRING" --hub tolls --from-beginning --no-wait -o json > log.jsonl
    """
    client = HubClient(ConnectionString.parse(connection_string, hub))
    try:
        left = count
        for event in _events(client, group, partition, from_beginning=from_beginning, no_wait=no_wait):
            click.echo(_as_text(event) if output == "text" else json.dumps(event, ensure_ascii=False))
            if left is not None:
                left -= 1
                if left == 0:
                    return
    finally:
        client.close()


def _events(
    client: HubClient, group: str, partition: str | None, *, from_beginning: bool, no_wait: bool
) -> Iterator[dict[str, Any]]:
    partitions = client.partition_ids() if partition is None else (partition,)
    client.check_group(group, partitions[0])  # there may be nothing to read for a long time
    begins = {}
    for name in partitions:
        place = client.partition_properties(name)
        begins[name] = place.begin if from_beginning else place.end
    while True:
        for name, begin in begins.items():
            end = client.partition_properties(name).end
            if end > begin:
                for deliveries in client.read(group, name, begin, end, _AT_ONCE):
                    for delivery in deliveries:
                        yield event_json(name, delivery)
                begins[name] = end
        if no_wait:
            return
        time.sleep(_POLL_S)


def _as_text(event: dict[str, Any]) -> str:
    return f"{event['partition']}/{event['sequenceNumber']}  {event['enqueuedTime']}  {event['body']}"
