"""AMQP over web sockets: the handshake."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.patience import PATIENCE_S
from tests.server.conftest import RULE
from tidegate.amqp.framing.frames import SASL_HEADER
from tidegate.server import Server


@pytest.mark.parametrize("path", ["/$servicebus/websocket", "/$servicebus/websocket/"])
@pytest.mark.parametrize(
    ("asked", "chosen"),
    [(["AMQPWSB10"], "AMQPWSB10"), (["amqp"], "amqp"), (["mqtt", "amqp"], "amqp"), (["amqp", "AMQPWSB10"], "amqp")],
)
def test_microsofts_and_the_registered_subprotocol_lead_to_amqp(
    server: Server, path: str, asked: list[str], chosen: str
) -> None:
    with connect(f"ws://127.0.0.1:{server.http_port}{path}", subprotocols=asked, open_timeout=PATIENCE_S) as websocket:
        assert websocket.subprotocol == chosen
        websocket.send(SASL_HEADER)
        assert websocket.recv(timeout=PATIENCE_S).startswith(SASL_HEADER)


@pytest.mark.parametrize("asked", [None, ["mqtt"]])
def test_other_subprotocols_are_refused(server: Server, asked: list[str] | None) -> None:
    with pytest.raises(InvalidStatus):
        connect(f"ws://127.0.0.1:{server.http_port}/$servicebus/websocket", subprotocols=asked)


@pytest.mark.parametrize(
    ("origin", "is_let_in"),
    [
        ("http://localhost:3000", True),
        ("http://[::1]", True),
        ("http://{host}", True),
        ("https://site.example", False),
        ("http://localhost.site.example", False),
        ("null", False),
        ("", False),
    ],
)
def test_pages_of_other_sites_do_not_reach_a_hub_of_this_machine_with_the_published_key(
    server: Server, origin: str, is_let_in: bool, caplog: pytest.LogCaptureFixture
) -> None:
    host = f"127.0.0.1:{server.http_port}"

    def ask() -> None:
        headers = {"Origin": origin.format(host=host)}
        with connect(f"ws://{host}/$servicebus/websocket", subprotocols=["amqp"], additional_headers=headers) as opened:
            opened.send(SASL_HEADER)
            assert opened.recv(timeout=PATIENCE_S).startswith(SASL_HEADER)

    if is_let_in:
        ask()
        return
    with pytest.raises(InvalidStatus):
        ask()
    assert "regenerate RootManageSharedAccessKey" in caplog.text
    rules = server.namespace.management
    published = server.namespace.access.rule_table.rule(RULE)
    rules.set_access_rule(replace(published, primary_key="one", secondary_key="another"))
    try:
        ask()
    finally:
        rules.set_access_rule(published)


@pytest.mark.parametrize("origin", ["", "https://localhost", "HTTP://other.example:81"])
def test_a_target_may_be_a_whole_url_as_the_java_client_sends_it(server: Server, origin: str) -> None:
    head = (
        f"GET {origin}/$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade,Keep-Alive\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.http_port or 0), timeout=PATIENCE_S) as peer:
        peer.sendall(head.encode())
        assert peer.recv(4096).startswith(b"HTTP/1.1 101 ")
    for path, status in ((f"{origin}/health", b"200"), (f"{origin}/nowhere?x=/health", b"404")):
        with socket.create_connection(("127.0.0.1", server.http_port or 0), timeout=PATIENCE_S) as peer:
            peer.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            assert peer.recv(4096).startswith(b"HTTP/1.1 " + status)
