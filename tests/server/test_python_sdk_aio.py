"""azure-eventhub's asyncio clients, unmodified, over plain TCP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.eventhub import EventData, TransportType
from azure.eventhub.aio import EventHubConsumerClient, EventHubProducerClient

from tests.patience import PATIENCE_S
from tidegate.server import Server

pytestmark = pytest.mark.sdk


def test_properties_publish_and_receive(connection: str, hub: str) -> None:
    asyncio.run(_round_trip(connection, hub))


def test_the_same_over_a_web_socket(connection: str, server: Server, hub: str) -> None:
    # The client takes the port of a web socket from nowhere else.
    endpoint = f"sb://localhost:{server.http_port}"
    options = {"transport_type": TransportType.AmqpOverWebsocket, "custom_endpoint_address": endpoint}
    asyncio.run(_round_trip(connection, hub, **options))


async def _round_trip(connection: str, hub: str, **options: Any) -> None:
    producer = EventHubProducerClient.from_connection_string(connection, eventhub_name=hub, **options)
    async with producer:
        assert await producer.get_partition_ids() == ["0", "1"]
        batch = await producer.create_batch(partition_id="1")
        for number in range(300):
            batch.add(EventData(str(number)))
        await producer.send_batch(batch)
        await producer.send_event(EventData("last"), partition_id="1")
        assert (await producer.get_partition_properties("1"))["last_enqueued_sequence_number"] == 300

    seen: list[EventData] = []
    done = asyncio.Event()

    async def on_event(_context: Any, event: EventData) -> None:
        seen.append(event)
        if len(seen) == 301:
            done.set()

    consumer = EventHubConsumerClient.from_connection_string(connection, "cg1", eventhub_name=hub, **options)
    async with consumer:
        task = asyncio.create_task(consumer.receive(on_event, partition_id="1", starting_position="-1"))
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [event.body_as_str() for event in seen] == [*map(str, range(300)), "last"]
    assert [event.sequence_number for event in seen] == list(range(301))
