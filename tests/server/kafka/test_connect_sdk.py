"""Kafka Connect in distributed mode, unmodified, with the internal topics that it creates on the hub.

Its connectors for files know no keys, and its sinks begin where their group is, or at the beginning. So of the steps of
the other clients, keys and seeking by time are missing.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.jars import class_path, free_ports, java
from tests.patience import PATIENCE_S, eventually
from tests.server.conftest import receive_events
from tidegate.server import Server

FOLDER = Path(__file__).parent / "java"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required username='$ConnectionString' password='{}';"


def settings_of(server: Server) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"127.0.0.1:{server.kafka_port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": server.connection_string(),
    }


def read(server: Server, topic: str, partitions: int) -> list[tuple[str | None, str]]:
    """Return what a topic has, as keys and values."""
    consumer = Consumer({**settings_of(server), "group.id": "reads", "enable.auto.commit": False})
    found = []
    try:
        for number in range(partitions):
            place = TopicPartition(topic, number, 0)
            _, end = consumer.get_watermark_offsets(place, PATIENCE_S)
            consumer.assign([place])
            at = 0
            while at < end:
                message = consumer.poll(PATIENCE_S)
                assert message is not None
                assert message.error() is None
                key = message.key()
                found.append((None if key is None else key.decode(), message.value().decode()))
                at = (message.offset() or 0) + 1
    finally:
        consumer.close()
    return found


def ask(port: int, path: str, body: Any = None, method: str = "GET") -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", data, {"Content-Type": "application/json"})
    request.method = method
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read() or "null")


def plugins(folder: Path) -> Path:
    """Return a folder with the connectors for files, and nothing else to look through."""
    place = folder / "plugins" / "file"
    place.mkdir(parents=True, exist_ok=True)
    for jar in (FOLDER / "jars").glob("connect-file-*.jar"):
        if not (place / jar.name).exists():
            (place / jar.name).symlink_to(jar)
    return place.parent


@contextmanager
def worker(server: Server, name: str, folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of a cluster of Connect, which is there when it answers."""
    security = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": JAAS.format(server.connection_string()),
    }
    settings = {
        "bootstrap.servers": f"127.0.0.1:{server.kafka_port}",
        "group.id": name,
        **{f"{topic}.storage.topic": f"{name}-{topic}" for topic in ("config", "offset", "status")},
        **{f"{topic}.storage.replication.factor": "1" for topic in ("config", "offset", "status")},
        "offset.storage.partitions": "2",
        "status.storage.partitions": "2",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "offset.flush.interval.ms": "500",
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.discovery": "service_load",
        "plugin.path": str(plugins(folder)),
        **{
            f"{prefix}{key}": value
            for prefix in ("", "producer.", "consumer.", "admin.")
            for key, value in security.items()
        },
    }
    path = folder / f"worker-{port}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = java("-cp", class_path(FOLDER), "org.apache.kafka.connect.cli.ConnectDistributed", str(path))
    log_path = folder / f"worker-{port}.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)

    def answers() -> bool:
        assert process.poll() is None, log_path.read_text()[-3000:]
        try:
            return isinstance(ask(port, "connectors"), list)
        except (urllib.error.URLError, OSError):
            return False

    try:
        eventually(answers, 4 * PATIENCE_S)
        yield process
    finally:
        process.kill()
        process.wait()


def running(port: int, connector: str) -> bool:
    try:
        status = ask(port, f"connectors/{connector}/status")
    except urllib.error.HTTPError:
        return False
    tasks = [task["state"] for task in status["tasks"]]
    return status["connector"]["state"] == "RUNNING" and set(tasks) == {"RUNNING"}


FILE = "org.apache.kafka.connect.file.FileStream"


def members(server: Server, connector: str) -> list[int]:
    """Return how many partitions each task of a sink reads."""
    group = f"connect-{connector}"
    admin = AdminClient(settings_of(server))
    found = admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
    return sorted(len(member.assignment.topic_partitions) for member in found.members)


@pytest.mark.soak
def test_connect_moves_a_file_through_the_hub_and_survives_the_death_of_a_worker(
    server: Server, connection: str, producer: EventHubProducerClient, hub: str, tmp_path: Path
) -> None:
    ports = free_ports(2)
    source, sink = tmp_path / "source", tmp_path / "sink"
    source.write_text("one\ntwo\n")
    tasks = {"tasks.max": "2"}
    header = {
        "transforms": "colour",
        "transforms.colour.type": "org.apache.kafka.connect.transforms.InsertHeader",
        "transforms.colour.header": "colour",
        "transforms.colour.value.literal": "red",
    }
    writes = {**tasks, **header, "topic": hub, "producer.override.compression.type": "zstd"}
    into, out = f"in-{hub}", f"out-{hub}"

    def lines() -> list[str]:
        return sink.read_text().splitlines() if sink.exists() else []

    with worker(server, f"connect-{hub}", tmp_path, ports[0]) as first:
        reads = {"connector.class": f"{FILE}SinkConnector", "file": str(sink), "topics": hub, **tasks}
        ask(ports[0], f"connectors/{out}/config", reads, "PUT")
        writes = {"connector.class": f"{FILE}SourceConnector", "file": str(source), **writes}
        ask(ports[0], f"connectors/{into}/config", writes, "PUT")
        eventually(lambda: sorted(lines()) == ["one", "two"], 3 * PATIENCE_S)
        kinds = {name.rpartition("-")[2] for name in server.namespace.event_hubs if name.startswith(f"connect-{hub}-")}
        assert kinds == {"config", "offset", "status"}
        events = receive_events(connection, hub, 2)
        assert {(event.body_as_str(), event.properties[b"colour"]) for event in events} == {
            ("one", b"red"),
            ("two", b"red"),
        }
        for partition in ("0", "1"):
            batch = producer.create_batch(partition_id=partition)
            batch.add(EventData(f"of AMQP {partition}"))
            producer.send_batch(batch)
        eventually(lambda: {"of AMQP 0", "of AMQP 1"} <= set(lines()), 3 * PATIENCE_S)
        eventually(lambda: members(server, out) == [1, 1], 3 * PATIENCE_S)
        time.sleep(1)  # the source's position is flushed every half a second
        with worker(server, f"connect-{hub}", tmp_path, ports[1]):
            first.kill()
            first.wait()
            with source.open("a") as more:
                more.write("three\n")
            eventually(lambda: running(ports[1], into) and running(ports[1], out), 6 * PATIENCE_S)
            eventually(lambda: "three" in lines(), 3 * PATIENCE_S)
            eventually(lambda: members(server, out) == [1, 1], 3 * PATIENCE_S)
            assert set(lines()) == {"one", "two", "of AMQP 0", "of AMQP 1", "three"}
            assert lines().count("three") == 1
            for name in (into, out):
                ask(ports[1], f"connectors/{name}", method="DELETE")
    assert {value for _, value in read(server, hub, 2)} == {"one", "two", "of AMQP 0", "of AMQP 1", "three"}
