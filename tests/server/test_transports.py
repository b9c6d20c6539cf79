"""Microsoft's Python clients, blocking and asynchronous, over every transport there is, unchanged."""

import asyncio
import threading
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient, TransportType
from azure.eventhub.aio import EventHubConsumerClient as AsyncConsumerClient
from azure.eventhub.aio import EventHubProducerClient as AsyncProducerClient

from tests.patience import PATIENCE_S

pytestmark = pytest.mark.sdk

TRANSPORTS = ("tcp", "tls", "ws", "wss")


@pytest.fixture(params=TRANSPORTS)
def options(request: pytest.FixtureRequest, server: Any, connection: str, hub: str) -> dict[str, Any]:
    """What a client is made with for a transport."""
    secure = {"connection_verify": str(server.certificate.authority_file)}
    plain = connection.replace("UseDevelopmentEmulator=true;", "")
    web = {"transport_type": TransportType.AmqpOverWebsocket}
    of_transport: dict[str, dict[str, Any]] = {
        "tcp": {"conn_str": connection},
        "tls": {"conn_str": plain, "custom_endpoint_address": f"sb://localhost:{server.amqps_port}", **secure},
        "ws": {"conn_str": connection, "custom_endpoint_address": f"sb://localhost:{server.http_port}", **web},
        "wss": {"conn_str": plain, "custom_endpoint_address": f"sb://localhost:{server.https_port}", **web, **secure},
    }
    return {"eventhub_name": hub, "retry_total": 0, **of_transport[request.param]}


def test_the_blocking_client(options: dict[str, Any]) -> None:
    with EventHubProducerClient.from_connection_string(**options) as producer:
        batch = producer.create_batch(partition_id="1")
        batch.add(EventData("one"))
        batch.add(EventData("two"))
        producer.send_batch(batch)
    found: list[str] = []
    done = threading.Event()

    def on_event(_context: Any, event: Any) -> None:
        found.append(event.body_as_str())
        if len(found) == 2:
            done.set()

    consumer = EventHubConsumerClient.from_connection_string(consumer_group="$Default", **options)
    reading = {"partition_id": "1", "starting_position": "-1"}
    thread = threading.Thread(target=consumer.receive, args=(on_event,), kwargs=reading, daemon=True)
    thread.start()
    assert done.wait(PATIENCE_S)
    assert consumer.get_partition_properties("1")["last_enqueued_sequence_number"] == 1
    consumer.close()
    thread.join(PATIENCE_S)
    assert found == ["one", "two"]


def test_the_asynchronous_client(options: dict[str, Any]) -> None:
    found: list[str] = []

    async def run() -> None:
        async with AsyncProducerClient.from_connection_string(**options) as producer:
            await producer.send_batch([EventData("one"), EventData("two")], partition_id="1")
        async with AsyncConsumerClient.from_connection_string(consumer_group="$Default", **options) as consumer:
            done = asyncio.Event()

            async def on_event(_context: Any, event: Any) -> None:
                found.append(event.body_as_str())
                if len(found) == 2:
                    done.set()

            reading = asyncio.create_task(consumer.receive(on_event, partition_id="1", starting_position="-1"))
            await asyncio.wait_for(done.wait(), PATIENCE_S)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    asyncio.run(run())
    assert found == ["one", "two"]
