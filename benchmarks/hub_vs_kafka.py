"""The hub's Kafka endpoint compared with a broker of Apache Kafka: the same client, the same records.

    python -m benchmarks.hub_vs_kafka [--seconds N] [--runs N]

Both are on this machine, with one topic of four partitions, and confluent-kafka produces records of 200 bytes with
acks=all, 5 ms of linger and no compression. Each is measured with a sync before it acknowledges (the hub as it comes,
the topic with flush.messages=1) and without one (the hub not durable, Kafka as it comes). "server µs" is the processor
time of the server's process for a record, which does not depend on how busy the machine is; "client" is the share of a
core that the client took: near 100 %, it is the client that limits. The latency is from `produce` to the delivery
report at a steady 10,000 records a second. Consuming reads what was produced, from the beginning. The four alternate
and figures are medians of the runs.

Kafka's jars come from Maven Central, as for the tests (`mvn`, Java 17).
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from tests import kafka
from tests.jars import class_path, free_ports
from tests.programs import program
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import Server, ServerSettings

TOPIC, PARTITIONS = "measured", 4
VALUE = b"x" * 200
RATE = 10_000
TICK_S = 0.005
START_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Broker:
    """A server that is measured."""

    name: str
    settings: dict[str, Any]
    pid: int

    def cpu_seconds(self) -> float:
        """Return what its process has used so far, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100


@contextmanager
def hub(name: str, *, durable: bool) -> Iterator[Broker]:
    """A hub in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as data:
        command = [sys.executable, "-m", "benchmarks.hub_vs_kafka", "--serve", data, str(int(durable))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            port, connection = process.stdout.readline().strip().split(" ", 1)
            settings = {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "$ConnectionString",
                "sasl.password": connection,
            }
            yield Broker(name, settings, process.pid)
        finally:
            process.terminate()
            process.wait()


async def _serve(data: str, durable: bool) -> None:
    hubs = (EventHubConfig(name=TOPIC, partition_count=PARTITIONS),)
    server = Server(
        NamespaceConfig(name="bench", event_hubs=hubs),
        Path(data),
        ServerSettings(amqp_port=0, kafka_port=0, durable=durable),
    )
    await server.start()
    print(server.kafka_port, server.connection_string(), flush=True)
    await asyncio.Event().wait()


@contextmanager
def apache(name: str, *, durable: bool) -> Iterator[Broker]:
    """A node of Kafka, with its own defaults."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as text:
        folder = Path(text)
        port, controller = free_ports(2)
        (folder / "log").mkdir()
        identity = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        meta = f"version=1\ncluster.id={identity}\nnode.id=1\ndirectory.id={identity}\n"
        (folder / "log" / "meta.properties").write_text(meta, encoding="utf-8")
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(folder / "log"),
            "offsets.topic.replication.factor": "1",
        }
        path = folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
        command = [program("java"), "-Xmx1g", "-cp", class_path(kafka.FOLDER), "kafka.Kafka", str(path)]
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            settings = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}
            admin = AdminClient(settings)
            deadline = time.monotonic() + START_TIMEOUT_S
            while True:
                try:
                    admin.list_topics(timeout=1)
                    break
                except KafkaException:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError((folder / "output").read_text()[-2000:]) from None
            config = {"flush.messages": "1"} if durable else {}
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=config)])[TOPIC].result(START_TIMEOUT_S)
            yield Broker(name, settings, process.pid)
        finally:
            process.kill()
            process.wait()


@dataclass(frozen=True, slots=True)
class Figures:
    """One run of one server."""

    produced_per_s: float
    produce_us: float
    client_share: float
    consumed_per_s: float
    consume_us: float
    p50_ms: float
    p99_ms: float


def measure(broker: Broker, seconds: float) -> Figures:
    """Produce as fast as possible, read it all, and produce at a steady rate."""
    count, took_s, produce_us, client_share = produce(broker, seconds)
    consumed, read_s, consume_us = consume(broker)
    latencies = sorted(steady(broker, seconds))
    return Figures(
        count / took_s,
        produce_us,
        client_share,
        consumed / read_s,
        consume_us,
        latencies[len(latencies) // 2] * 1e3,
        latencies[len(latencies) * 99 // 100] * 1e3,
    )


def producer_of(broker: Broker) -> Producer:
    return Producer({**broker.settings, "acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 200_000})


def produce(broker: Broker, seconds: float) -> tuple[int, float, float, float]:
    """Return how many records were acknowledged, in which time, with how much of the server's and the client's."""
    producer = producer_of(broker)
    producer.produce(TOPIC, VALUE)
    producer.flush()
    sent, cpu_s, own_s, began_s = 0, broker.cpu_seconds(), time.process_time(), time.monotonic()
    while time.monotonic() < began_s + seconds:
        try:
            for _ in range(1000):
                producer.produce(TOPIC, VALUE)
                sent += 1
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    took_s = time.monotonic() - began_s
    return sent, took_s, (broker.cpu_seconds() - cpu_s) / sent * 1e6, (time.process_time() - own_s) / took_s


def consume(broker: Broker) -> tuple[int, float, float]:
    """Return how many records were read, in which time, with how much of the server's."""
    consumer = Consumer({**broker.settings, "group.id": "bench", "enable.auto.commit": False})
    places = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
    total = sum(high - low for low, high in (consumer.get_watermark_offsets(place) for place in places))
    cpu_s, began_s, count = broker.cpu_seconds(), time.monotonic(), 0
    consumer.assign(places)
    while count < total:
        count += len(consumer.consume(10_000, 1))
    took_s = time.monotonic() - began_s
    consumer.close()
    return count, took_s, (broker.cpu_seconds() - cpu_s) / count * 1e6


def steady(broker: Broker, seconds: float) -> list[float]:
    """Return the latencies at a steady rate, in seconds."""
    producer, latencies = producer_of(broker), list[float]()
    began_s = time.monotonic()
    for tick in range(round(seconds / TICK_S)):
        time.sleep(max(0.0, began_s + tick * TICK_S - time.monotonic()))
        for _ in range(round(RATE * TICK_S)):
            sent_s = time.monotonic()
            producer.produce(
                TOPIC, VALUE, on_delivery=lambda *_, sent_s=sent_s: latencies.append(time.monotonic() - sent_s)
            )
        producer.poll(0)
    producer.flush()
    return latencies


def main() -> None:
    """Measure the four, and print the table."""
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(_serve(sys.argv[2], sys.argv[3] == "1"))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5, help="how long each produces, and how long steadily (5)")
    parser.add_argument("--runs", type=int, default=3, help="how often each is measured (3)")
    given = parser.parse_args()
    names = "hub, synced", "Kafka, synced", "hub, not synced", "Kafka, not synced"
    found: dict[str, list[Figures]] = {name: [] for name in names}
    for _ in range(given.runs):
        for name in names:
            with ExitStack() as stack:
                start = hub if name.startswith("hub") else apache
                found[name].append(measure(stack.enter_context(start(name, durable="not" not in name)), given.seconds))
    table = Table(title=f"Records of {len(VALUE)} bytes, {PARTITIONS} partitions; medians of {given.runs}")
    columns = "produced/s", "server µs", "client", "consumed/s", "server µs", "p50 ms", "p99 ms"
    for column in ("", *columns):
        table.add_column(column, justify="right" if column else "left")
    for name in names:
        runs = [astuple(one) for one in found[name]]
        middle = [statistics.median(values) for values in zip(*runs, strict=True)]
        table.add_row(
            name,
            f"{middle[0]:,.0f}",
            f"{middle[1]:.2f}",
            f"{middle[2]:.0%}",
            f"{middle[3]:,.0f}",
            f"{middle[4]:.2f}",
            f"{middle[5]:.1f}",
            f"{middle[6]:.1f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
