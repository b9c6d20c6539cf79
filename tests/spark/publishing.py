"""Publishing for tests, with Microsoft's own client."""

from __future__ import annotations

import json
from typing import Any

from azure.eventhub import EventData, EventHubProducerClient


def publish(connection_string: str, hub: str, bodies: list[Any], **where: str) -> None:
    """Send bodies in order; `where` is partition_id or partition_key. A body that is not text is sent as JSON."""
    client = EventHubProducerClient.from_connection_string(connection_string, eventhub_name=hub)
    with client:
        batch = client.create_batch(**where)
        for body in bodies:
            event = EventData(body if isinstance(body, (str, bytes)) else json.dumps(body))
            event.properties = {"n": 1, "kind": "test"}
            try:
                batch.add(event)
            except ValueError:
                client.send_batch(batch)
                batch = client.create_batch(**where)
                batch.add(event)
        client.send_batch(batch)
