"""AMQP over web sockets: the handshake."""

from __future__ import annotations

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.patience import PATIENCE_S
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
