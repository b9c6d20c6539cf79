"""Kafka Streams, unmodified, with the internal topics that it creates on the hub.

It begins an hour ago, which is its way to seek by time, and its instances are the members of its group.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.jars import class_path, java
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


def produce(server: Server, topic: str, *values: str) -> None:
    producer = Producer({**settings_of(server), "enable.idempotence": True, "compression.type": "lz4"})
    for number, value in enumerate(values):
        producer.produce(topic, value, headers=[("colour", b"red")], partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0


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


@contextmanager
def counting(server: Server, source: str, target: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    arguments = [f"127.0.0.1:{server.kafka_port}", server.connection_string(), source, target, str(folder)]
    command = java("-cp", class_path(FOLDER), str(FOLDER / "CountWords.java"), *arguments)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True)
    try:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0, (folder / "log").read_text()[-3000:]
    finally:
        process.kill()
        process.wait()


def members(server: Server, hub: str) -> list[int]:
    """Return how many partitions each member has, of those that have any."""
    group = f"words-of-{hub}"
    admin = AdminClient(settings_of(server))
    found = admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
    counts: Counter[str] = Counter()
    for member in found.members:
        counts[member.client_id.rpartition("-StreamThread-")[0]] += len(member.assignment.topic_partitions)
    return sorted(counts.values())


FIRST = ("to be or not to be", "that is the question")


def words(*lines: str) -> Counter[str | None]:
    return Counter(word for line in lines for word in line.split())


@pytest.fixture
def target(server: Server, hub: str) -> str:
    name = f"{hub}-counts"
    config = server.namespace.event_hub(hub).config.model_copy(update={"name": name})
    return server.namespace.management.create_event_hub(config).name


def counts(server: Server, target: str) -> dict[str | None, int]:
    return {key: int(value) for key, value in read(server, target, 2)}


def test_streams_counts_through_repartition_and_changelog_topics(
    server: Server, connection: str, hub: str, target: str, tmp_path: Path
) -> None:
    produce(server, hub, *FIRST)
    with counting(server, hub, target, tmp_path):
        eventually(lambda: counts(server, target) == words(*FIRST), 3 * PATIENCE_S)
    made = {name for name in server.namespace.event_hubs if name.startswith(f"words-of-{hub}")}
    assert {name.rpartition("-")[2] for name in made} == {"repartition", "changelog"}
    events = receive_events(connection, target, 10)
    assert {(event.partition_key or b"").decode() for event in events} == set(words(*FIRST))
    assert [event.properties for event in events] == [{b"colour": b"red"}] * 10


@pytest.mark.soak
def test_streams_divides_the_work_and_takes_it_over_with_the_state(
    server: Server, hub: str, target: str, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("one", "two", "three")]
    for folder in folders:
        folder.mkdir()
    sent = list(FIRST)

    def more(line: str) -> None:
        produce(server, hub, line, line)
        sent.extend((line, line))
        eventually(lambda: counts(server, target) == words(*sent), 3 * PATIENCE_S)

    produce(server, hub, *FIRST)
    with counting(server, hub, target, folders[0]):
        eventually(lambda: counts(server, target) == words(*FIRST), 3 * PATIENCE_S)
        with counting(server, hub, target, folders[1]):
            eventually(lambda: len(members(server, hub)) == 2 and min(members(server, hub)) > 0, 3 * PATIENCE_S)
            more("to divide")
        more("to take over")
    produce(server, hub, "to be", "to be")
    sent += ["to be", "to be"]
    with counting(server, hub, target, folders[2]):  # from what is committed, and the changelog
        eventually(lambda: counts(server, target) == words(*sent), 3 * PATIENCE_S)
