"""@azure/event-hubs, unmodified: over TCP in emulator mode, over TLS, and over a web socket with TLS."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests import programs
from tests.patience import PATIENCE_S
from tidegate.server import Server

pytestmark = pytest.mark.sdk

SCRIPTS = Path(__file__).parent / "js"


@pytest.fixture(scope="module")
def node() -> str:
    """Node with the client installed beside the script (`make test` and `make install` do it)."""
    return programs.node(SCRIPTS, "@azure/event-hubs")


@pytest.mark.parametrize("transport", ["tcp", "tls", "websocket"])
def test_publish_and_receive(node: str, server: Server, connection: str, hub: str, transport: str) -> None:
    if transport != "tcp":
        # Without the emulator flag the client speaks TLS, and keeps to the port of the endpoint.
        port = server.amqps_port if transport == "tls" else server.https_port
        secure = connection.replace("UseDevelopmentEmulator=true;", "")
        connection = secure.replace(f":{server.amqp_port};", f":{port};")
    result = subprocess.run(
        [node, "round_trip.js", connection, hub, transport],
        cwd=SCRIPTS,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        env={**os.environ, "NODE_EXTRA_CA_CERTS": str(server.certificate.authority_file)},
    )
    assert result.returncode == 0, result.stderr
    seen = json.loads(result.stdout)
    assert seen == {
        "name": hub,
        "partitionIds": ["0", "1"],
        "emptyBefore": True,
        "lastSequenceNumber": 19,
        "numbers": list(range(20)),
        "colours": ["red"],
        "sequenceNumbers": list(range(20)),
        "tail": [15, 16, 17, 18, 19],
        "keyed": [["keyed", "7"]],
        "buffered": [f"buffered {number}" for number in range(10)],
    }
