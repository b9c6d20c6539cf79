"""Clients of plain AMQP 1.0 that know nothing of Event Hubs: rhea, and what Qpid Proton does on the wire."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import programs
from tests.patience import PATIENCE_S
from tests.server.conftest import RawClient
from tidegate.amqp import (
    Described,
    LinkAttached,
    Message,
    Properties,
    Source,
    Symbol,
    Transfer,
    Ulong,
    encode_message,
    parse_message,
)
from tidegate.server import Server

SCRIPTS = Path(__file__).parent / "js"


@pytest.fixture(scope="module")
def node() -> str:
    """Node with the client installed beside the script (`make test` does it)."""
    return programs.node(SCRIPTS, "rhea")


@pytest.mark.sdk
@pytest.mark.parametrize("transport", ["tcp", "tls", "websocket"])
def test_rhea(node: str, server: Server, key: str, hub: str, transport: str) -> None:
    port = {"tcp": server.amqp_port, "tls": server.amqps_port, "websocket": server.https_port}[transport]
    result = subprocess.run(
        [node, "rhea_round_trip.js", transport, str(port), key, hub],
        cwd=SCRIPTS,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "NODE_EXTRA_CA_CERTS": str(server.certificate.authority_file)},
    )
    assert result.returncode == 0, result.stderr
    first_six = list(range(6))
    assert json.loads(result.stdout) == {
        "outcomes": ["accepted"],
        "tooLarge": ["accepted", "amqp:link:message-size-exceeded"],
        "keyed": ["accepted"],
        "publisher": ["accepted"],
        "settledBySecond": ["accepted"],
        "bodies": list(range(20)),
        "settled": {
            "open": [False] * 3,
            "unsettled": [False] * 3,
            "settled": [True] * 3,
            "second": [False] * 3,
        },
        "afterOutcome": {"accept": first_six, "release": first_six, "reject": first_six, "modified": first_six},
        "never": first_six,
        "after": [6, 7],
        "since": [5, 6],
        "drained": [5, 0],
        "drainedAtEnd": [0, 0],
        "management": ["c", ["0", "1"]],
        "refused": {
            "hub": "amqp:not-found",
            "partition": "com.microsoft:argument-out-of-range",
            "filter": "com.microsoft:argument-error",
        },
    }


def test_each_asker_gets_its_replies_on_the_node_made_for_it(
    server: Server, sign_in: Callable[..., RawClient], hub: str
) -> None:
    """What Proton's SyncRequestResponse does: a dynamic source, and a correlation id in place of a message id."""
    raw = sign_in(server, hub)
    receivers = []
    for name in ("one", "two"):
        link = raw.session.attach_receiver(name, Source(dynamic=True), credit=10)
        raw.until(lambda event, link=link: isinstance(event, LinkAttached) and event.link is link)
        receivers.append(link)
    addresses = [link.source.address for link in receivers]
    assert len(set(addresses)) == 2
    assert all(link.source.dynamic for link in receivers)
    sender = raw.publisher("$management")
    for number in (1, 0):
        request = Message(
            properties=Properties(reply_to=addresses[number], correlation_id=number),
            application_properties={"operation": "READ", "type": "com.microsoft:eventhub", "name": hub},
            body_kind="value",
        )
        sender.send_deliveries([encode_message(request)], settled=False)
        transfer = raw.until(lambda event: isinstance(event, Transfer))
        assert transfer.link is receivers[number]
        reply = parse_message(transfer.payload)
        assert reply.properties.correlation_id == number
        assert reply.application_properties["status-code"] == 200


@pytest.mark.parametrize("node", ["hub/Partitions/0", "$cbs"])
@pytest.mark.parametrize("descriptor", [Ulong(0x30), Symbol("amqp:coordinator:list"), Symbol("no such thing")])
def test_transactions_are_refused_and_the_connection_goes_on(
    server: Server, sign_in: Callable[..., RawClient], hub: str, refused: type[Exception], descriptor: Any, node: str
) -> None:
    raw = sign_in(server, hub)
    raw.session.attach_sender("transactions", Described(descriptor, []))
    with pytest.raises(refused, match="amqp:not-implemented"):
        raw.until(lambda event: False)
    raw.events.clear()
    raw.session.attach_receiver("replies", node.replace("hub", hub), target=Described(descriptor, []))
    with pytest.raises(refused, match="amqp:not-implemented"):
        raw.until(lambda event: False)
    raw.events.clear()
    raw.publish(raw.publisher(f"{hub}/Partitions/0"), b"x")


def test_a_node_of_its_own_is_for_replies_and_not_for_events(
    server: Server, sign_in: Callable[..., RawClient], hub: str, refused: type[Exception]
) -> None:
    raw = sign_in(server, hub)
    with pytest.raises(refused, match="amqp:invalid-field"):
        raw.reader(Source())
