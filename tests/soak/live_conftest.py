"""What Microsoft's live tests of azure-eventhub find in place of Azure: a hub in this process."""

from __future__ import annotations

import asyncio
import inspect
import os
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import pytest
from azure.core.settings import settings
from azure.eventhub import EventHubProducerClient, EventHubSharedKeyCredential, TransportType
from azure.eventhub._pyamqp import ReceiveClient
from azure.eventhub._pyamqp.authentication import SASTokenAuth
from azure.eventhub.aio import EventHubSharedKeyCredential as AsyncSharedKeyCredential

from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer

HOST = "127.0.0.2"
"""The ports that the tests assume are free there, whatever else runs on this machine."""
KEY_NAME, KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
PARTITIONS = ["0", "1"]
IS_ROOT = os.geteuid() == 0
"""Port 443, which the tests over web sockets assume, is for root."""
TRANSPORTS = [TransportType.Amqp, *([TransportType.AmqpOverWebsocket] if IS_ROOT else [])]


def connection_string(hub: str, *, host: str = HOST, key_name: str = KEY_NAME, key: str = KEY) -> str:
    return f"Endpoint=sb://{host}/;SharedAccessKeyName={key_name};SharedAccessKey={key};EntityPath={hub}"


def pytest_configure(config: pytest.Config) -> None:
    for marker in ("liveTest", "no_amqpproxy", "asyncio"):
        config.addinivalue_line("markers", f"{marker}: Microsoft's")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sleep", default="True")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundServer]:
    https_port = 443 if IS_ROOT else 0
    data = tmp_path_factory.mktemp("data")
    ports = {"host": HOST, "amqp_port": None, "amqps_port": 5671, "https_port": https_port}
    with BackgroundServer(NamespaceConfig(name="live"), data, **ports) as running:
        certificate = running.server.certificate
        assert certificate is not None
        import_module("certifi").__dict__["where"] = lambda: str(certificate.authority_file)
        yield running


@pytest.fixture
def live_eventhub(hub: BackgroundServer) -> Iterator[dict[str, Any]]:
    name = f"eh{uuid.uuid4()}"
    management = hub.server.namespace.management
    management.create_event_hub(EventHubConfig(name=name, partition_count=len(PARTITIONS)))
    yield {
        "hostname": HOST,
        "key_name": KEY_NAME,
        "access_key": KEY,
        "namespace": "live",
        "event_hub": name,
        "consumer_group": "$Default",
        "partition": "0",
        "connection_str": connection_string(name),
    }
    management.delete_event_hub(name)


@pytest.fixture
def get_credential() -> Callable[[], Any]:
    return lambda: EventHubSharedKeyCredential(KEY_NAME, KEY)


@pytest.fixture
def get_credential_async() -> Callable[[], Any]:
    return lambda: AsyncSharedKeyCredential(KEY_NAME, KEY)


@pytest.fixture(params=[False], ids=["pyamqp"])
def uamqp_transport(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=TRANSPORTS)
def socket_transport(request: pytest.FixtureRequest) -> TransportType:
    return TransportType(request.param)


@pytest.fixture
def client_args() -> dict[str, Any]:
    return {}


@pytest.fixture
def sleep() -> bool:
    return True


@pytest.fixture
def timeout_factor() -> int:
    return 1


@pytest.fixture
def fake_span() -> Any:
    return __import__("tracing_common").FakeSpan


@pytest.fixture
def enable_tracing(fake_span: Any) -> Iterator[Any]:
    settings.tracing_implementation.set_value(fake_span)
    yield fake_span
    settings.tracing_implementation.set_value(None)


@pytest.fixture
def connection_str(live_eventhub: dict[str, Any]) -> str:
    return str(live_eventhub["connection_str"])


@pytest.fixture
def invalid_hostname(live_eventhub: dict[str, Any]) -> str:
    return connection_string(live_eventhub["event_hub"], host="invalid123.invalid")


@pytest.fixture
def invalid_key(live_eventhub: dict[str, Any]) -> str:
    return connection_string(live_eventhub["event_hub"], key="invalid")


@pytest.fixture
def invalid_policy(live_eventhub: dict[str, Any]) -> str:
    return connection_string(live_eventhub["event_hub"], key_name="invalid")


@pytest.fixture
def receivers(live_eventhub: dict[str, Any]) -> Iterator[list[ReceiveClient]]:
    opened = []
    for partition in PARTITIONS:
        uri = f"sb://{HOST}/{live_eventhub['event_hub']}"
        source = f"amqps://{HOST}/{live_eventhub['event_hub']}/ConsumerGroups/$Default/Partitions/{partition}"
        auth = SASTokenAuth(uri, uri, KEY_NAME, KEY)
        client = ReceiveClient(HOST, source, auth=auth, network_trace=False, timeout=30, link_credit=500)
        client.open()
        opened.append(client)
    yield opened
    for client in opened:
        client.close()


@pytest.fixture
def senders(live_eventhub: dict[str, Any]) -> Iterator[list[Any]]:
    client = EventHubProducerClient(HOST, live_eventhub["event_hub"], EventHubSharedKeyCredential(KEY_NAME, KEY))
    opened = [client._create_producer(partition_id=partition) for partition in PARTITIONS]
    yield opened
    for sender in opened:
        sender.close()
    client.close()


@pytest.fixture
def connstr_receivers(connection_str: str, receivers: list[ReceiveClient]) -> tuple[Any, ...]:
    return connection_str, receivers


@pytest.fixture
def auth_credentials(live_eventhub: dict[str, Any]) -> tuple[Any, ...]:
    return HOST, live_eventhub["event_hub"], partial(EventHubSharedKeyCredential, KEY_NAME, KEY)


@pytest.fixture
def auth_credentials_async(live_eventhub: dict[str, Any]) -> tuple[Any, ...]:
    return HOST, live_eventhub["event_hub"], partial(AsyncSharedKeyCredential, KEY_NAME, KEY)


@pytest.fixture
def auth_credential_receivers(auth_credentials: tuple[Any, ...], receivers: list[ReceiveClient]) -> tuple[Any, ...]:
    return *auth_credentials, receivers


@pytest.fixture
def auth_credential_receivers_async(
    auth_credentials_async: tuple[Any, ...], receivers: list[ReceiveClient]
) -> tuple[Any, ...]:
    return *auth_credentials_async, receivers


@pytest.fixture
def auth_credential_senders(auth_credentials: tuple[Any, ...], senders: list[Any]) -> tuple[Any, ...]:
    return *auth_credentials, senders


@pytest.fixture
def auth_credential_senders_async(auth_credentials_async: tuple[Any, ...], senders: list[Any]) -> tuple[Any, ...]:
    return *auth_credentials_async, senders
