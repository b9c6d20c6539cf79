"""Who may do what, as azure-eventhub's users see a refusal."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from types import SimpleNamespace
from urllib.parse import quote_plus

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.eventhub.exceptions import AuthenticationError, ConnectError, EventHubError

from tests.patience import PATIENCE_S
from tests.server.conftest import KEY, RULE, RawClient, Receive, event
from tidegate.amqp import ACCEPTED, BATCH_FORMAT, Detached, Disposition, Message, Transfer, encode_message
from tidegate.amqp.encoding.types import UNAUTHORIZED_ACCESS
from tidegate.hub.access import sign
from tidegate.server import Server
from tidegate.server.connections import client_connection, delivery, link_handler, publishing

pytestmark = pytest.mark.sdk

# The modules that see whether the token of a link has expired.
CLOCKS = (client_connection, delivery, link_handler, publishing)


def signature(resource: str, key: str, expires_in: float, key_name: str = "RootManageSharedAccessKey") -> str:
    expiry = int(time.time() + expires_in)
    quoted = quote_plus(resource)
    digest = hmac.new(key.encode(), f"{quoted}\n{expiry}".encode(), hashlib.sha256).digest()
    return f"SharedAccessSignature sr={quoted}&sig={quote_plus(base64.b64encode(digest))}&se={expiry}&skn={key_name}"


def publish_once(connection: str, hub: str) -> None:
    producer = EventHubProducerClient.from_connection_string(connection, eventhub_name=hub, retry_total=0)
    with producer:
        producer.send_event(EventData("x"))


def with_signature(connection: str, token: str) -> str:
    return f"{connection.split(';')[0]};SharedAccessSignature={token};UseDevelopmentEmulator=true"


def test_a_wrong_key_is_refused_and_not_logged(
    connection: str, key: str, hub: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="tidegate"), pytest.raises(AuthenticationError):
        publish_once(connection.replace(key, "not the key"), hub)
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("tidegate")]
    refusals = [line for line in lines if hub in line]
    assert refusals
    assert all("RootManageSharedAccessKey" in line for line in refusals)
    assert not any("not the key" in line or "sig=" in line for line in lines)


def test_a_signature_made_elsewhere_is_taken_until_it_expires(
    connection: str, server: Server, key: str, hub: str
) -> None:
    resource = f"sb://localhost:{server.amqp_port}/{hub}"
    publish_once(with_signature(connection, signature(resource, key, 60)), hub)
    with pytest.raises(AuthenticationError):
        publish_once(with_signature(connection, signature(resource, key, -60)), hub)


def test_a_link_ends_with_its_token_though_the_machine_has_slept(
    server: Server, sign_in: Callable[..., RawClient], hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Timers stand still meanwhile, and the clock does not."""
    awake = time.time
    monkeypatch.setattr(client_connection, "CLOCK_LOOK_S", 0.2)
    link = (client := sign_in(server, hub)).publisher(hub)
    for module in CLOCKS:
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: awake() + 3600))
    ended = client.until(lambda event: isinstance(event, Detached) and event.link is link)
    assert "the token of this link has expired" in ended.error.description


def test_an_expired_token_publishes_nothing_before_its_link_has_ended_either(
    server: Server, sign_in: Callable[..., RawClient], hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer that ends the link stands still, as when a machine has slept."""
    awake = time.time
    link = (client := sign_in(server, hub)).publisher(f"{hub}/Partitions/0")
    assert client.publish(link, b"in time")[0].state == ACCEPTED
    for module in CLOCKS:
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: awake() + 3600))
    dispositions = client.publish(link, b"late", b"later")
    assert {answer.state.condition for answer in dispositions} == {UNAUTHORIZED_ACCESS}
    batch = encode_message(Message(body_kind="data", body=[event(b"late")]))
    link.send_deliveries([batch], message_format=BATCH_FORMAT, settled=False)
    refused = client.until(lambda came: isinstance(came, Disposition))
    assert refused.state.condition == UNAUTHORIZED_ACCESS
    assert server.namespace.event_hub(hub).partition("0").log.next_sequence_number == 1
    client.put_token(sign(client.audience, RULE, KEY, int(awake()) + 7200))
    assert client.publish(link, b"with a new token")[0].state == ACCEPTED


def test_an_expired_token_reads_nothing_before_its_link_has_ended_either(
    server: Server, sign_in: Callable[..., RawClient], hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer that ends the link stands still, as when a machine has slept."""
    awake = time.time
    address = f"{hub}/ConsumerGroups/$Default/Partitions/0"
    publisher = (writes := sign_in(server, hub)).publisher(f"{hub}/Partitions/0")
    ended, renewed = sign_in(server, hub), sign_in(server, hub)
    links = {client: client.reader(address, credit=10) for client in (ended, renewed)}
    writes.publish(publisher, b"in time")
    for client, link in links.items():
        assert [list(message.body) for message in client.receive(link, 1)] == [[b"in time"]]
    renewed.put_token(sign(renewed.audience, RULE, KEY, int(awake()) + 7200))
    for module in (delivery, link_handler):  # those of readers alone
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: awake() + 3600))
    writes.publish(publisher, b"late")
    came = ended.until(lambda event: isinstance(event, (Transfer, Detached)) and event.link is links[ended])
    assert isinstance(came, Detached), came
    assert "the token of this link has expired" in came.error.description
    assert [list(message.body) for message in renewed.receive(links[renewed], 1)] == [[b"late"]]


def test_an_unknown_hub(connection: str) -> None:
    with pytest.raises((ConnectError, AuthenticationError, EventHubError)) as refusal:
        publish_once(connection, "no-such-hub")
    assert "no-such-hub" in str(refusal.value) or "404" in str(refusal.value)


def test_an_unknown_consumer_group_and_an_unknown_partition(connection: str, receive_from: Receive, hub: str) -> None:
    with pytest.raises(EventHubError):
        receive_from(connection, hub, 1, group="nobody", partition="0")
    producer = EventHubProducerClient.from_connection_string(connection, eventhub_name=hub, retry_total=0)
    with producer, pytest.raises(EventHubError):
        producer.send_event(EventData("x"), partition_id="99")


def test_a_link_ends_when_its_token_does(
    connection: str, server: Server, key: str, receive_from: Receive, hub: str
) -> None:
    resource = f"sb://localhost:{server.amqp_port}/{hub}"
    short = with_signature(connection, signature(resource, key, 2))
    started = time.monotonic()
    with pytest.raises((AuthenticationError, ConnectError, EventHubError)):
        receive_from(short, hub, 1, partition="0")
    assert 0.5 < time.monotonic() - started < PATIENCE_S
