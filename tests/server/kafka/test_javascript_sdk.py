"""kafkajs and @platformatic/kafka, unmodified."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import programs
from tests.patience import PATIENCE_S
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


def test_kafkajs(server: Server, hub: str) -> None:
    assert run("kafkajs_round_trip.js", "kafkajs", server, hub) == {
        "first": rows(2),
        "again": [[0, 2, None, "later", []]],
        "byTime": ["2", "2"],
        "partitions": 3,
        "committed": ["3", "2"],
    }


def test_platformatic(server: Server, hub: str) -> None:
    seen = run("platformatic_round_trip.js", "@platformatic/kafka", server, hub)
    assert seen["first"] == rows(2)
    assert seen["again"] == [[0, 2, None, "later", []]]
    assert seen["partitions"] == 2
