"""Kafka's own Java client, unmodified."""

import subprocess
from pathlib import Path

import pytest

from tests import kafka
from tests.jars import class_path, java
from tests.patience import PATIENCE_S
from tests.server.conftest import receive_events
from tidegate.server import Server

pytestmark = pytest.mark.sdk

PROGRAM = Path(__file__).parent / "RoundTrip.java"


def test_java(server: Server, connection: str, hub: str) -> None:
    arguments = [f"127.0.0.1:{server.kafka_port}", server.connection_string(), hub]
    command = java("-cp", class_path(kafka.FOLDER), str(PROGRAM), *arguments)
    result = subprocess.run(command, capture_output=True, text=True, timeout=3 * PATIENCE_S)
    assert result.returncode == 0, result.stderr[-3000:]
    offsets, first, again, *rest = result.stdout.splitlines()[-1].split("|")
    assert offsets == str([offset for number in range(5) for offset in (number, number)])
    compressions = ("none", "gzip", "snappy", "lz4", "zstd")
    rows = [
        f"{partition} {offset} key {partition} {compression} colour=red"
        for partition in range(2)
        for offset, compression in enumerate(compressions)
    ]
    assert first == f"[{', '.join(rows)}]"
    assert again == "[0 5 key later ]"
    assert rest == ["5", "3", "LogAppendTime", "Empty", "6"]
    events = receive_events(connection, hub, 6, partition="0")
    read_by_amqp = [(event.partition_key, event.body_as_str(), event.properties) for event in events]
    red = [(b"key 0", compression, {b"colour": b"red"}) for compression in compressions]
    assert read_by_amqp == [*red, (b"key", "later", {})]
