"""kill -9 of the hub, and of members of a group, with Kafka's producers and consumers running."""

import json
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.patience import PATIENCE_S, eventually
from tests.server.process import Hub, free_port

pytestmark = [pytest.mark.sdk, pytest.mark.crash]

PARTITIONS = 4

MEMBER = """
import json, sys
from confluent_kafka import Consumer

consumer = Consumer(json.loads(sys.argv[1]))
consumer.subscribe(["eh1"])
while True:
    for message in consumer.consume(50, 0.1):
        if message.error() is None:
            print(message.partition(), message.offset(), message.value().decode(), flush=True)
    try:
        consumer.commit(asynchronous=False)
    except Exception:
        pass
"""


class Publisher:
    """An idempotent producer that outlives the hub's lives: what it is sent, and what was acknowledged."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.sent = 0
        self.acknowledged: dict[str, tuple[int, int]] = {}
        self.failures: list[KafkaError] = []
        self.is_stopping = threading.Event()
        options = {"enable.idempotence": True, "linger.ms": 2, "message.timeout.ms": 300_000}
        self.producer = Producer({**settings, **options, "compression.type": "lz4"})
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.is_stopping.wait(0.002):
            for _ in range(10):
                value = str(self.sent)
                self.producer.produce("eh1", value, partition=self.sent % PARTITIONS, on_delivery=self._delivered)
                self.sent += 1
            self.producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.acknowledged[message.value().decode()] = (partition, offset)

    def stop(self) -> None:
        self.is_stopping.set()
        self.thread.join()
        assert self.producer.flush(PATIENCE_S) == 0


class Member:
    """A member of a group in a process of its own, which commits what it has printed."""

    def __init__(self, settings: dict[str, Any]) -> None:
        options = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        timeouts = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
        command = [sys.executable, "-c", MEMBER, json.dumps({**settings, **options, **timeouts})]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.read: list[tuple[int, int, str]] = []
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            partition, offset, value = line.split()
            self.read.append((int(partition), int(offset), value))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.thread.join()


@pytest.mark.parametrize("lives", [2, pytest.param(100, marks=pytest.mark.soak)])
def test_nothing_is_lost_or_doubled_and_groups_go_on_where_they_were(data: Path, lives: int) -> None:
    hub, port = Hub(data), free_port()
    draw = random.Random(5)
    hub.start("--kafka-port", str(port))
    settings = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": hub.connection,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    publisher = Publisher(settings)
    members = [Member(settings), Member(settings)]
    gone: list[Member] = []
    try:
        for life in range(lives):
            before = len(publisher.acknowledged)
            eventually(lambda before=before: len(publisher.acknowledged) > before + 50)
            draw_s = draw.random() * 0.3
            threading.Event().wait(draw_s)
            hub.kill()
            hub.start("--kafka-port", str(port))
            if life % 3 == 1:
                gone.append(members.pop(0))
                gone[-1].kill()
                members.append(Member(settings))
        publisher.stop()
        assert publisher.failures == []
        stored = everything(settings)
        values = [value for rows in stored.values() for value in rows]
        assert sorted(values, key=int) == [str(number) for number in range(publisher.sent)]
        for value, (partition, offset) in publisher.acknowledged.items():
            assert offset < 0 or stored[partition][offset] == value
        eventually(lambda: len(seen([*members, *gone])) == publisher.sent)
        for partition, offset, value in seen([*members, *gone]):
            assert stored[partition][offset] == value
    finally:
        for member in members:
            member.kill()
        hub.kill()


def seen(members: list[Member]) -> set[tuple[int, int, str]]:
    return {row for member in members for row in list(member.read)}


def everything(settings: dict[str, Any]) -> dict[int, list[str]]:
    """Return the values of all partitions, by a reader without a group; numbers must have no gap."""
    consumer = Consumer({**settings, "group.id": "unused"})
    places = [TopicPartition("eh1", number) for number in range(PARTITIONS)]
    ends = {place.partition: consumer.get_watermark_offsets(place, PATIENCE_S)[1] for place in places}
    consumer.assign([TopicPartition("eh1", number, 0) for number in range(PARTITIONS)])
    found: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}

    def complete() -> bool:
        for message in consumer.consume(1000, 0.1):
            assert message.error() is None
            assert message.offset() == len(found[message.partition()])
            found[message.partition()].append(message.value().decode())
        return all(len(found[number]) == end for number, end in ends.items())

    eventually(complete)
    consumer.close()
    return found
