"""What a hub holds, for tests: read by the client, not by Spark."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.client import ConnectionString, HubClient
from tidegate.client.event import decode
from tidegate.server import BackgroundServer


@dataclass(frozen=True)
class StoredEvent:
    """An event, and its partition."""

    partition: str
    body: bytes
    key: str | None
    properties: dict[str, str]


def content(hub: BackgroundServer | str, name: str) -> list[StoredEvent]:
    """Return all events of a hub, given by its server or its connection string, partition by partition."""
    string = hub if isinstance(hub, str) else hub.connection_string
    client = HubClient(ConnectionString.parse(string, name))
    try:
        found = []
        for partition in client.partition_ids():
            stand = client.partition_properties(partition)
            if stand.end > stand.begin:
                for deliveries in client.read("$Default", partition, stand.begin, stand.end, 5_000):
                    for delivery in deliveries:
                        body, details = decode(delivery.payload)
                        found.append(StoredEvent(partition, body, details.partition_key, details.properties))
        return found
    finally:
        client.close()


def count(hub: str, name: str) -> int:
    """Return how many events a hub has."""
    client = HubClient(ConnectionString.parse(hub, name))
    try:
        stand = client.partitions_properties(client.partition_ids())
        return sum(partition.end - partition.begin for partition in stand.values())
    finally:
        client.close()
