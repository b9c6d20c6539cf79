"""kafkajs and @platformatic/kafka, unmodified."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import programs
from tests.patience import PATIENCE_S
from tests.server.conftest import receive_events
from tidegate.server import Server

pytestmark = pytest.mark.sdk

SCRIPTS = Path(__file__).parent.parent / "js"


def run(script: str, package: str, server: Server, hub: str) -> Any:
    node = programs.node(SCRIPTS, package)
    command = [node, script, f"127.0.0.1:{server.kafka_port}", server.connection_string(), hub]
    result = subprocess.run(command, cwd=SCRIPTS, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def rows(times: int) -> list[Any]:
    """What both scripts send, so many times."""
    return [
        [partition, offset, f"device {partition}", f"body {partition}", [["colour", "red"]]]
        for partition in range(2)
        for offset in range(times)
    ]


def check_amqp(connection: str, hub: str) -> None:
    """Check what a client of AMQP finds of what a script sent to partition 0."""
    events = receive_events(connection, hub, 3, partition="0")
    found = [(event.partition_key, event.body_as_str(), event.properties) for event in events]
    assert found == [*[(b"device 0", "body 0", {b"colour": b"red"})] * 2, (None, "later", {})]


def test_kafkajs(server: Server, connection: str, hub: str) -> None:
    assert run("kafkajs_round_trip.js", "kafkajs", server, hub) == {
        "first": rows(2),
        "again": [[0, 2, None, "later", []]],
        "byTime": ["2", "2"],
        "partitions": 3,
        "committed": ["3", "2"],
    }
    check_amqp(connection, hub)


def test_platformatic(server: Server, connection: str, hub: str) -> None:
    seen = run("platformatic_round_trip.js", "@platformatic/kafka", server, hub)
    assert seen["first"] == rows(2)
    assert seen["again"] == [[0, 2, None, "later", []]]
    assert seen["byTime"][0] == str(2 if len(seen["first"]) == 4 else 3)
    assert seen["partitions"] == 2
    check_amqp(connection, hub)
