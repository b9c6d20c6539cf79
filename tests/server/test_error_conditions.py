"""The error condition for each request that names something missing or forbidden."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.exceptions import AuthenticationError, ConnectError, ConnectionLostError, EventHubError

from tests import programs
from tests.patience import PATIENCE_S
from tests.source import ROOT
from tidegate.amqp.encoding import types
from tidegate.hub import errors as hub_errors
from tidegate.hub.access import sign
from tidegate.server import Server

SCRIPTS = Path(__file__).parent / "js"
NOT_FOUND = re.compile("The messaging entity .* could not be found")
"""What the clients for JavaScript, Java and .NET search descriptions for."""


def documented() -> dict[str, str]:
    """The conditions of docs/reference/errors.md that clients know, and the JavaScript client's class of each."""
    text = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| ([A-Za-z–]+) \|", text, re.MULTILINE)
    return dict(rows)


def test_every_condition_that_the_hub_sends_is_documented_with_what_clients_make_of_it() -> None:
    of_the_hub = {
        kind.condition
        for kind in vars(hub_errors).values()
        if isinstance(kind, type) and issubclass(kind, hub_errors.HubError)
    }
    of_the_protocol = {value for name, value in vars(types).items() if name.isupper() and isinstance(value, str)}
    assert of_the_hub | of_the_protocol == set(documented())


@pytest.mark.sdk
def test_the_javascript_client_makes_of_each_condition_what_is_documented() -> None:
    node = programs.node(SCRIPTS, "@azure/event-hubs")
    conditions = documented()
    not_found = hub_errors.entity_not_found("nowhere", "the namespace has no such hub").description
    pairs = [[condition, not_found if condition == "amqp:not-found" else "x"] for condition in conditions]
    command = [node, "errors.js", "conditions"]
    result = subprocess.run(command, cwd=SCRIPTS, input=json.dumps(pairs), capture_output=True, text=True, check=True)
    codes = [code or "–" for code in json.loads(result.stdout)]
    assert dict(zip(conditions, codes, strict=True)) == conditions


@pytest.mark.sdk
def test_the_javascript_client_tells_a_missing_hub_group_and_partition_and_a_wrong_key_apart(
    connection: str, hub: str
) -> None:
    node = programs.node(SCRIPTS, "@azure/event-hubs")
    command = [node, "errors.js", connection, hub]
    result = subprocess.run(command, cwd=SCRIPTS, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {
        "hubProperties": "MessagingEntityNotFoundError",
        "hubSend": "MessagingEntityNotFoundError",
        "hubReceive": "MessagingEntityNotFoundError",
        "groupReceive": "MessagingEntityNotFoundError",
        "partitionProperties": "ArgumentOutOfRangeError",
        "partitionSend": "ArgumentOutOfRangeError",
        "partitionReceive": "ArgumentOutOfRangeError",
        "keySend": "UnauthorizedError",
        "keyAndHubSend": "UnauthorizedError",
    }


def publish(connection: str, hub: str, **options: str) -> None:
    client = EventHubProducerClient.from_connection_string(connection, eventhub_name=hub, retry_total=0)
    with client:
        client.send_event(EventData("x"), **options)


def partition_properties(connection: str, hub: str, partition: str) -> None:
    client = EventHubProducerClient.from_connection_string(connection, eventhub_name=hub, retry_total=0)
    with client:
        client.get_partition_properties(partition)


def receive(connection: str, hub: str, group: str) -> None:
    """Raise what the client reports, because it would keep retrying."""
    client = EventHubConsumerClient.from_connection_string(connection, group, eventhub_name=hub, retry_total=0)
    reported: list[Exception] = []

    def on_error(_context: object, error: Exception) -> None:
        reported.append(error)
        client.close()

    with client:
        client.receive(lambda *_: None, partition_id="0", starting_position="-1", on_error=on_error)
    raise reported[0]


@pytest.mark.sdk
def test_the_python_client_tells_a_missing_hub_group_and_partition_and_a_wrong_key_apart(
    connection: str, key: str, hub: str
) -> None:
    """A missing hub is a ConnectError on every way to it, as its own live tests expect, and its text says so."""
    for attempt in (
        lambda: publish(connection, "nowhere"),
        lambda: publish(connection, "nowhere", partition_id="0"),
        lambda: receive(connection, "nowhere", "$Default"),
        lambda: partition_properties(connection, "nowhere", "0"),
    ):
        with pytest.raises(ConnectError, match=NOT_FOUND):
            attempt()
    with pytest.raises(ConnectionLostError, match=NOT_FOUND):
        receive(connection, hub, "nobody")
    with pytest.raises(ConnectError, match="should be between 0 and 1"):
        partition_properties(connection, hub, "99")
    with pytest.raises(AuthenticationError, match="Status code: 401"):
        publish(connection.replace(key, "wrong"), hub)


@pytest.mark.slow
def test_a_client_without_a_valid_key_does_not_learn_which_hubs_exist(connection: str, key: str, hub: str) -> None:
    answers = []
    for name in (hub, "nowhere"):
        with pytest.raises(EventHubError) as refused:
            publish(connection.replace(key, "wrong"), name)
        answers.append((type(refused.value), str(refused.value).replace(name, "HUB")))
    assert answers[0] == answers[1]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["put-token", "http"])
def test_nor_does_one_with_the_key_of_another_hub(
    server: Server, connection: str, hub: str, key: str, how: str
) -> None:
    """A token that covers one hub, presented for another that exists and for one that does not."""
    answers = []
    for name in ("wide", "nowhere"):
        token = sign(f"sb://localhost/{hub}", "RootManageSharedAccessKey", key, int(time.time()) + 60)
        if how == "http":
            url = f"http://localhost:{server.http_port}/{name}/messages"
            request = urllib.request.Request(url, b"x", {"Authorization": token})
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=PATIENCE_S)
            answers.append((refused.value.code, refused.value.read().decode().replace(name, "HUB")))
        else:
            own = f"{connection.split(';')[0]};SharedAccessSignature={token};UseDevelopmentEmulator=true"
            with pytest.raises(EventHubError) as failed:
                publish(own, name)
            answers.append((type(failed.value), str(failed.value).replace(name, "HUB")))
    assert answers[0] == answers[1]
