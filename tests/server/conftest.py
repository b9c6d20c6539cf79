"""One hub for the whole session, on loopback, with a hub (topic) of its own for every test that asks."""

import asyncio
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient, _client_base
from azure.eventhub._pyamqp import client as _pyamqp_client
from azure.eventhub.aio import _client_base_async

from tests import patience
from tests.patience import PATIENCE_S
from tidegate.amqp import (
    Closed,
    Connection,
    ConnectionSettings,
    Credit,
    Described,
    Detached,
    Disposition,
    Event,
    Link,
    LinkAttached,
    Message,
    Properties,
    Symbol,
    Transfer,
    encode_message,
    parse_message,
)
from tidegate.hub.access import sign
from tidegate.hub.config import NamespaceConfig, parse_config
from tidegate.server import BackgroundServer, Server

PARTITIONS = 2
RULE = "RootManageSharedAccessKey"
KEY = "SAS_KEY_VALUE"
SELECTOR = "apache.org:selector-filter:string"

Receive = Callable[..., list[EventData]]

# Microsoft's client for Python looks only every 50 ms whether a step towards an open link is done, and there are eight.
# The thread that keeps a link alive sleeps for a second, and closing the link waits for it.
_QUICKER_S = {0.05: 0.005, 1: 0.02}


def _poll_often(seconds: float) -> float:
    """Return how long to sleep in place of so many seconds. Pauses before a retry stay as long as they are."""
    return _QUICKER_S.get(seconds, seconds)


_quick_time = SimpleNamespace(**{**vars(time), "sleep": lambda seconds: time.sleep(_poll_often(seconds))})
_quick_asyncio = SimpleNamespace(**{**vars(asyncio), "sleep": lambda seconds: asyncio.sleep(_poll_often(seconds))})
for _module in (_client_base, _pyamqp_client):
    mock.patch.object(_module, "time", _quick_time).start()
mock.patch.object(_client_base_async, "asyncio", _quick_asyncio).start()


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
    config = make_config(entity("wide", partitions=8))
    ports = {"http_port": 0, "https_port": 0, "amqps_port": 0, "kafka_port": 0, "kafka_tls_port": 0}
    with BackgroundServer(config, tmp_path_factory.mktemp("data"), **ports) as running:
        yield running.server


@pytest.fixture(scope="session")
def connection(server: Server) -> str:
    return server.connection_string()


@pytest.fixture(scope="session")
def hub_numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def hub(server: Server, hub_numbers: Iterator[int], make_config: Callable[..., NamespaceConfig]) -> str:
    """The name of an event hub with two partitions that no other test has touched."""
    (config,) = make_config(entity(f"hub{next(hub_numbers)}")).event_hubs
    return server.namespace.management.create_event_hub(config).name


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
    timeout: float = PATIENCE_S,
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
    thread.join(PATIENCE_S)
    if errors:
        raise errors[0]
    return events


class RawClient:
    """A client without a will of its own: our AMQP core on a bare socket, signed in for a hub."""

    def __init__(self, server: Server, hub: str, *, signed_in: bool = True, **options: Any) -> None:
        self.hub = hub
        self.audience = f"sb://localhost:{server.amqp_port}/{hub}"
        self.socket = socket.create_connection(("127.0.0.1", server.amqp_port or 0))
        self.socket.settimeout(PATIENCE_S)
        self.at_end = False
        self.events: list[Event] = []
        self.amqp = Connection("client", "raw", ConnectionSettings(**options))
        self.amqp.open()
        self.session = self.amqp.begin()
        if signed_in:
            assert self.put_token(sign(self.audience, RULE, KEY, int(time.time()) + 600)) == 202

    def put_token(self, token: str, **arguments: Any) -> int:
        """The status that `$cbs` answers with."""
        arguments = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken",
            "name": self.audience,
        } | arguments
        return int(self.request("$cbs", arguments, token)["status-code"])

    def request(self, node: str, arguments: dict[str, Any], body: Any = None) -> dict[str, Any]:
        """The application properties of the answer, with its body under "body"."""
        sender = self.session.attach_sender(f"{node}-out", node)
        receiver = self.session.attach_receiver(f"{node}-in", node, credit=1)
        self.until(lambda event: isinstance(event, Credit) and event.link is sender)
        message = Message(
            properties=Properties(message_id=7),
            application_properties=arguments,
            body_kind="value",
            body=body,
        )
        sender.send_deliveries([encode_message(message)], settled=True)
        answer = parse_message(self.until(lambda event: isinstance(event, Transfer) and event.link is receiver).payload)
        assert answer.properties is not None
        assert answer.properties.correlation_id == 7
        sender.detach()
        receiver.detach()
        return {**(answer.application_properties or {}), "body": answer.body}

    def publisher(self, address: str, **options: Any) -> Link:
        link = self.session.attach_sender(f"p{time.monotonic_ns()}", address, **options)
        self.until(lambda event: isinstance(event, Credit) and event.link is link)
        return link

    def reader(self, address: str, credit: int = 0, selector: str | None = None, **options: Any) -> Link:
        if selector is not None:
            options["filter"] = {SELECTOR: Described(Symbol(SELECTOR), selector)}
        link = self.session.attach_receiver(f"r{time.monotonic_ns()}", address, credit=credit, **options)
        self.until(lambda event: isinstance(event, LinkAttached) and event.link is link)
        return link

    def publish(self, link: Link, *bodies: bytes) -> list[Disposition]:
        """Send single events unsettled; the dispositions that settle them all."""
        ids = link.send_deliveries([event(body) for body in bodies], settled=False)
        assert len(ids) == len(bodies)
        dispositions: list[Disposition] = []
        while sum(d.last - d.first + 1 for d in dispositions) < len(ids):
            dispositions.append(self.until(lambda e: isinstance(e, Disposition) and e.link is link))
        return dispositions

    def receive(self, link: Link, count: int) -> list[Message]:
        return [
            parse_message(self.until(lambda e: isinstance(e, Transfer) and e.link is link).payload)
            for _ in range(count)
        ]

    def until(self, wanted: Callable[[Any], bool]) -> Any:
        """The first event that is wanted; those before it are kept for later calls, a refusal of a link is raised."""
        while True:
            for position, event in enumerate(self.events):
                if wanted(event):
                    return self.events.pop(position)
                if isinstance(event, Detached | Closed) and event.error is not None:
                    raise Refused(event.error.condition)
            self.exchange()

    def exchange(self) -> None:
        self.socket.sendall(self.amqp.data_to_send())
        data = self.socket.recv(1 << 20)
        if not data and self.at_end:
            raise ConnectionResetError("the hub is gone")
        self.at_end = not data
        self.events += self.amqp.receive_data(data) if data else self.amqp.receive_eof()

    def close(self) -> None:
        self.socket.close()


class Refused(Exception):
    """What the hub answered instead; its text is the AMQP condition."""


def event(body: bytes) -> bytes:
    return encode_message(Message(body_kind="data", body=[body]))


@pytest.fixture
def sign_in() -> Iterator[Callable[..., RawClient]]:
    clients: list[RawClient] = []

    def make(server: Server, hub: str, **options: Any) -> RawClient:
        clients.append(RawClient(server, hub, **options))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture(scope="session")
def refused() -> type[Exception]:
    return Refused


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
def eventually() -> Callable[[Callable[[], object]], None]:
    return patience.eventually


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"
