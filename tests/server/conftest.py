"""One hub for the whole session, on loopback, with a hub (topic) of its own for every test that asks."""

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient

from tidegate.hub.config import NamespaceConfig, parse_config
from tidegate.server import BackgroundServer, Server

HUBS = 80
PARTITIONS = 2
KEY = "SAS_KEY_VALUE"

Receive = Callable[..., list[EventData]]


def entity(name: str, partitions: int = PARTITIONS) -> dict[str, Any]:
    return {"Name": name, "PartitionCount": partitions, "ConsumerGroups": [{"Name": "cg1"}, {"Name": "cg2"}]}


@pytest.fixture(scope="session")
def make_config() -> Callable[..., NamespaceConfig]:
    """Entities to the configuration that the official emulator's file of them means."""

    def make(*entities: dict[str, Any]) -> NamespaceConfig:
        namespace = {"Type": "EventHub", "Name": "emulatorNs1", "Entities": list(entities)}
        document = {"UserConfig": {"NamespaceConfig": [namespace], "LoggingConfig": {"Type": "File"}}}
        return parse_config(json.dumps(document))

    return make


@pytest.fixture(scope="session")
def server(make_config: Callable[..., NamespaceConfig], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = make_config(*(entity(f"hub{number}") for number in range(HUBS)), entity("wide", partitions=8))
    ports = {"http_port": 0, "https_port": 0, "amqps_port": 0}
    with BackgroundServer(config, tmp_path_factory.mktemp("data"), **ports) as running:
        yield running.server


@pytest.fixture(scope="session")
def connection(server: Server) -> str:
    return server.connection_string()


@pytest.fixture(scope="session")
def hub_numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def hub(hub_numbers: Iterator[int]) -> str:
    """The name of an event hub with two partitions that no other test has touched."""
    return f"hub{next(hub_numbers)}"


@pytest.fixture
def producer(connection: str, hub: str) -> Iterator[EventHubProducerClient]:
    with EventHubProducerClient.from_connection_string(connection, eventhub_name=hub, retry_total=0) as client:
        yield client


def receive_events(
    connection: str,
    hub: str,
    count: int,
    *,
    group: str = "$Default",
    partition: str | None = None,
    timeout: float = 10.0,
    starting_position: Any = "-1",
    **options: Any,
) -> list[EventData]:
    """The first `count` events that an SDK consumer is handed; the error it is handed instead is raised."""
    events: list[EventData] = []
    errors: list[Exception] = []
    done = threading.Event()

    def on_event_batch(_context: Any, batch: list[EventData]) -> None:
        events.extend(batch)
        if len(events) >= count:
            done.set()

    def on_error(_context: Any, error: Exception) -> None:
        errors.append(error)
        done.set()

    client = EventHubConsumerClient.from_connection_string(connection, group, eventhub_name=hub, retry_total=0)
    if partition is not None:
        options["partition_id"] = partition
    options |= {"on_event_batch": on_event_batch, "on_error": on_error, "starting_position": starting_position}
    thread = threading.Thread(target=client.receive_batch, kwargs=options | {"max_wait_time": 0.1}, daemon=True)
    thread.start()
    done.wait(timeout)
    client.close()
    thread.join(5)
    if errors:
        raise errors[0]
    return events


@pytest.fixture(scope="session")
def receive_from() -> Receive:
    return receive_events


@pytest.fixture(scope="session")
def key() -> str:
    return KEY


@pytest.fixture
def receive(connection: str, hub: str) -> Receive:
    def of_this_hub(count: int, **options: Any) -> list[EventData]:
        return receive_events(connection, hub, count, **options)

    return of_this_hub


@pytest.fixture(scope="session")
def eventually() -> Callable[[Callable[[], object], float], None]:
    def wait_until(condition: Callable[[], object], timeout: float = 5.0) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, "it did not come true in time"
            time.sleep(0.01)

    return wait_until


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"
