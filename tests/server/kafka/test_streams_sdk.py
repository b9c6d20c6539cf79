"""Kafka Streams, unmodified, with the internal topics that it creates on the hub."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.jars import class_path, java
from tests.patience import PATIENCE_S, eventually
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
    for value in values:
        producer.produce(topic, value)
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


@pytest.mark.parametrize("is_restarted", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_streams_counts_through_repartition_and_changelog_topics(
    server: Server, hub: str, tmp_path: Path, is_restarted: bool
) -> None:
    target = f"{hub}-counts"
    server.namespace.management.create_event_hub(
        server.namespace.event_hub(hub).config.model_copy(update={"name": target})
    )
    produce(server, hub, "to be or not to be", "that is the question")
    expected = Counter(["to", "be", "or", "not", "to", "be", "that", "is", "the", "question"])

    def counts() -> dict[str | None, int]:
        return {key: int(value) for key, value in read(server, target, 2)}

    with counting(server, hub, target, tmp_path):
        eventually(lambda: counts() == expected, 3 * PATIENCE_S)
    made = {name for name in server.namespace.event_hubs if name.startswith(f"words-of-{hub}")}
    assert {name.rpartition("-")[2] for name in made} == {"repartition", "changelog"}
    if is_restarted:  # with its state lost, it is read from the changelog
        lost = tmp_path / "another"
        lost.mkdir()
        produce(server, hub, "to be")
        with counting(server, hub, target, lost):
            eventually(lambda: counts() == expected + Counter(["to", "be"]), 3 * PATIENCE_S)
