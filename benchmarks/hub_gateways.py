"""A gateway over three brokers of Kafka, beside a hub with a data directory and Kafka's own client.

    python -m benchmarks.hub_gateways [--events N]

Four lean clients of hub_throughput, each with a partition of its own, publish to and read from the gateway and the hub
in turn. confluent-kafka then does the same against the brokers, to and from a topic that is replicated three times too.
Figures are processor time for an event: of the gateway, of the hub, and of the process with confluent-kafka, which is
client as well as what a gateway is to the brokers. Latency is from a batch of 100 to its acknowledgement at
10,000 events a second, with nothing else under way.

Kafka's jars come from Maven Central, as for the tests (`mvn`, Java 17).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks.hub_throughput import (
    BATCH_EVENTS,
    BATCH_FORMAT,
    BUILD,
    HUB,
    IN_FLIGHT_BATCHES,
    IN_FLIGHT_SINGLES,
    Frames,
    LeanClient,
    batch,
    event,
    settled_by,
    transfer_template,
)
from benchmarks.hub_workers import CLIENTS, UpProcess, delivering, publishing
from tests.kafka.cluster import cluster

RUNS = 5
RATE = 10_000
LATENCY_S = 5.0
TOPIC = "confluent"


def latencies_ms(hub: UpProcess) -> list[float]:
    """How long each batch took at a steady rate, one after the other."""
    client = LeanClient(hub.port)
    link = client.publisher(f"{HUB}/Partitions/0")
    head, tail = transfer_template(link.session.channel, BATCH_FORMAT, batch())
    frames = Frames(client.socket)
    found: list[float] = []
    tick_s = BATCH_EVENTS / RATE
    due_s = time.perf_counter()
    for number in range(int(LATENCY_S / tick_s)):
        due_s += tick_s
        time.sleep(max(0.0, due_s - time.perf_counter()))
        sent_s = time.perf_counter()
        client.socket.sendall(head + number.to_bytes(4, "big") + tail)
        settled = 0
        while not settled:
            for data, start, end in frames.receive():
                if data[start + 10] == 0x15:
                    settled += settled_by(data[start + 8 : end])
        found.append((time.perf_counter() - sent_s) * 1000)
    return found


def produce(brokers: str, events: int, linger_ms: int) -> float:
    """Produce events with confluent-kafka, and return the processor time that it took."""
    producer = Producer(
        {"bootstrap.servers": brokers, "acks": "all", "linger.ms": linger_ms, "queue.buffering.max.messages": 1_000_000}
    )
    payload = event()
    before = time.process_time()
    for number in range(events):
        while True:
            try:
                producer.produce(TOPIC, payload, partition=number % CLIENTS)
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush()
    return time.process_time() - before


def consume(brokers: str, events: int) -> float:
    """Read events with confluent-kafka, and return the processor time that it took."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "bench"})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(CLIENTS)])
    before = time.process_time()
    found = 0
    while found < events:
        found += len(consumer.consume(10_000, 1.0))
    used = time.process_time() - before
    consumer.close()
    return used


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000, help="for each client and run")
    events = parser.parse_args().events
    loads: dict[str, tuple[int, Callable[[UpProcess], None]]] = {
        f"publish, batches of {BATCH_EVENTS}": (
            events,
            lambda hub: publishing(hub, batch(), BATCH_FORMAT, events // BATCH_EVENTS, IN_FLIGHT_BATCHES),
        ),
        "publish, single": (events // 2, lambda hub: publishing(hub, event(), 0, events // 2, IN_FLIGHT_SINGLES)),
        "deliver": (events, lambda hub: delivering(hub, events)),
    }
    BUILD.mkdir(exist_ok=True)
    result = Table(title=f"{CLIENTS} clients: processor time for an event, \u00b5s; median of {RUNS}, in turn")
    for column in ("load", "hub", "gateway", "gateway, events per core and second", "confluent-kafka"):
        result.add_column(column, justify="left" if column == "load" else "right")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=BUILD) as name, cluster(clients=("a",)) as brokers:
        folder, address = Path(name), brokers.clients["a"]
        client = AdminClient({"bootstrap.servers": address})
        topic = NewTopic(TOPIC, CLIENTS, 3, config={"min.insync.replicas": "2"})
        client.create_topics([topic])[TOPIC].result()
        hubs = [UpProcess(folder / "hub", 1), UpProcess(folder / "gateway", 1, "--store", f"kafka://{address}")]
        try:
            for load, (each, run) in loads.items():
                costs: list[list[float]] = [[], [], []]
                for _ in range(RUNS):
                    for hub, cost in zip(hubs, costs, strict=False):
                        before = hub.cpu_seconds()
                        run(hub)
                        cost.append((hub.cpu_seconds() - before) / (CLIENTS * each) * 1e6)
                    used = consume(address, events) if load == "deliver" else produce(address, events, 5)
                    costs[2].append(used / events * 1e6)
                hub_us, gateway_us, peer_us = map(statistics.median, costs)
                rate = f"{1e6 / gateway_us:,.0f}"
                result.add_row(load, f"{hub_us:.2f}", f"{gateway_us:.2f}", rate, f"{peer_us:.2f}")
            console = Console()
            console.print(result)
            for hub, kind in zip(hubs, ("hub", "gateway"), strict=True):
                found = statistics.quantiles(latencies_ms(hub), n=100)
                console.print(f"{kind}: acknowledgement p50 {found[49]:.1f} ms, p99 {found[98]:.1f} ms")
        finally:
            for hub in hubs:
                hub.stop()


if __name__ == "__main__":
    main()
