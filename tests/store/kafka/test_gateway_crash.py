"""Three gateways behind a balancer while they, brokers and links fail at random, and while they restart one by one.

Clients are unmodified and know the balancer alone. A seed draws the faults; the histories are checked afterwards.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.exceptions import EventHubError
from confluent_kafka import Consumer, KafkaError, Message, Producer

from tests.jars import free_ports
from tests.kafka.cluster import Cluster, cluster
from tests.kafka.links import Balancer, Links
from tests.patience import PATIENCE_S, eventually
from tests.profiles import scaled
from tests.server.conftest import receive_events
from tests.server.process import Hub

pytestmark = [pytest.mark.soak, pytest.mark.sdk]

FAULTS = int(os.environ.get("TIDEGATE_FAULTS", "20"))
SEED = int(os.environ.get("TIDEGATE_FAULT_SEED", "1"))
GATEWAYS = ("a", "b", "c")
GATEWAY_FAULTS = ("kill gateway", "pause gateway", "stop gateway", "cut gateway", "cut gateway back", "reset gateway")
BROKER_FAULTS = ("kill broker", "pause broker", "cut controller", "cut brokers")


class Gateway(Hub):
    """A gateway in a process of its own, over all its lives."""

    def __init__(self, brokers: Cluster, client: str, folder: Path, advertised: int) -> None:
        super().__init__(folder / client)
        self.http_port, self.kafka_near = free_ports(2)
        config = {
            "UserConfig": {
                "NamespaceConfig": [
                    {
                        "Type": "EventHub",
                        "Name": "faults",
                        "Entities": [{"Name": "hub", "PartitionCount": "2", "ConsumerGroups": [{"Name": "cg1"}]}],
                    }
                ]
            }
        }
        file = folder / f"{client}.json"
        file.write_text(json.dumps(config), encoding="utf-8")
        self._options = (
            *("--config", str(file), "--store", f"kafka://{brokers.clients[client]}", "--drain", "1"),
            *("--http-port", str(self.http_port), "--kafka-port", str(self.kafka_near)),
            *("--kafka-advertised", f"127.0.0.1:{advertised}", "--no-portal"),
        )

    def begin(self) -> None:
        self.start(*self._options)


class Gateways:
    """The gateways, and the balancer in front of them."""

    def __init__(self, brokers: Cluster, folder: Path, links: Links) -> None:
        self.brokers = brokers
        amqp, kafka = free_ports(2)
        self.all = [Gateway(brokers, client, folder, kafka) for client in GATEWAYS]
        for gateway in self.all:
            gateway.begin()
        targets = [(gateway.port, gateway.kafka_near) for gateway in self.all]
        self.balancer = Balancer(links, (amqp, kafka), targets, [gateway.http_port for gateway in self.all])
        eventually(self.all_ready)
        self.connection = self.all[0].connection.replace(f":{self.all[0].port}", f":{amqp}")
        self.kafka_settings = {
            "bootstrap.servers": f"127.0.0.1:{kafka}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",
            "sasl.password": self.connection,
            "log_level": 0,
        }

    def all_ready(self) -> bool:
        return all(self.balancer.is_ready(number) for number in range(len(self.all)))

    def close(self) -> None:
        for gateway in self.all:
            gateway.process.kill()
            gateway.process.wait()


@contextmanager
def gateways(folder: Path) -> Iterator[Gateways]:
    links = Links()
    with cluster(clients=GATEWAYS, skew_ms={1: 30_000}) as brokers:
        started = Gateways(brokers, folder, links)
        try:
            yield started
        finally:
            started.close()
            links.close()


class AmqpPublisher(threading.Thread):
    """Sends batches of three with Microsoft's client to partition 0, one after the other."""

    def __init__(self, connection: str) -> None:
        super().__init__(daemon=True)
        self._connection = connection
        self.is_over = False
        self.acknowledged: list[int] = []
        self.attempted = 0
        self.failures: list[Exception] = []
        self.longest_s = 0.0

    def run(self) -> None:
        last_s = time.monotonic()
        with EventHubProducerClient.from_connection_string(self._connection, eventhub_name="hub") as client:
            while not self.is_over:
                number, self.attempted = self.attempted, self.attempted + 1
                try:
                    batch = client.create_batch(partition_id="0")
                    for part in range(3):
                        batch.add(EventData(f"amqp/{number}/{part}"))
                    client.send_batch(batch)
                except EventHubError as error:
                    self.failures.append(error)
                    continue
                self.acknowledged.append(number)
                self.longest_s = max(self.longest_s, time.monotonic() - last_s)
                last_s = time.monotonic()


class KafkaPublisher(threading.Thread):
    """Sends numbered records to partition 1 with Kafka's client, as an idempotent producer."""

    def __init__(self, settings: dict[str, object]) -> None:
        super().__init__(daemon=True)
        self._settings = settings
        self.is_over = False
        self.acknowledged: list[int] = []
        self.attempted = 0
        self.failures: list[KafkaError] = []

    def run(self) -> None:
        producer = Producer({**self._settings, "enable.idempotence": True, "linger.ms": 5})

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.acknowledged.append(int((message.value() or b"").decode().split("/")[1]))
            else:
                self.failures.append(error)

        while not self.is_over:
            for _ in range(10):
                producer.produce("hub", f"kafka/{self.attempted}", partition=1, on_delivery=delivered)
                self.attempted += 1
            producer.poll(0.05)
        producer.flush(PATIENCE_S)


class GroupReader(threading.Thread):
    """Reads both partitions in a group of Kafka's, and commits."""

    def __init__(self, settings: dict[str, object]) -> None:
        super().__init__(daemon=True)
        self._settings = {**settings, "group.id": "readers", "auto.offset.reset": "earliest"}
        self.is_over = False
        self.found: set[str] = set()
        self.failures: list[KafkaError] = []

    def run(self) -> None:
        consumer = Consumer({**self._settings, "session.timeout.ms": 30_000})
        consumer.subscribe(["hub"])
        while not self.is_over:
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self.found.add((message.value() or b"").decode())
            else:
                self.failures.append(error)
        consumer.close()


class EventHubReader(threading.Thread):
    """Reads partition 0 with Microsoft's client from the beginning."""

    def __init__(self, connection: str) -> None:
        super().__init__(daemon=True)
        self.client = EventHubConsumerClient.from_connection_string(connection, "cg1", eventhub_name="hub")
        self.found: list[str] = []
        self.failures: list[Exception] = []

    def run(self) -> None:
        self.client.receive(
            on_event=lambda context, event: self.found.append(event.body_as_str()),
            on_error=lambda context, error: self.failures.append(error),
            partition_id="0",
            starting_position="-1",
        )

    def stop(self) -> None:
        self.client.close()


def fault(running: Gateways, kind: str, draw: random.Random) -> None:
    """Let something fail for a while."""
    brokers, number = running.brokers, draw.randrange(3)
    gateway = running.all[number]
    links = [brokers.to_broker[GATEWAYS[number], node] for node in brokers.nodes]
    back: list[Callable[[], None]] = []
    if kind == "kill gateway":
        gateway.kill()
        back.append(gateway.begin)
    elif kind == "stop gateway":
        gateway.stop()
        back.append(gateway.begin)
    elif kind == "pause gateway":
        os.kill(gateway.process.pid, signal.SIGSTOP)
        back.append(lambda: os.kill(gateway.process.pid, signal.SIGCONT))
    elif kind.startswith("cut gateway"):
        for link in links:
            link.cut(there=not kind.endswith("back"))
        back += [link.mend for link in links]
    elif kind == "reset gateway":
        for link in links:
            link.reset()
    elif kind == "kill broker":
        brokers.kill(number)
        back.append(lambda: brokers.start(number))
    elif kind == "pause broker":
        brokers.pause(number)
        back.append(lambda: brokers.resume(number))
    elif kind == "cut controller":
        brokers.to_controller[number].cut()
        back.append(brokers.to_controller[number].mend)
    else:
        brokers.to_broker["brokers", number].cut()
        back.append(brokers.to_broker["brokers", number].mend)
    time.sleep(draw.uniform(0.2, 12 if kind == "pause gateway" else 3))
    for undo in back:
        undo()
    time.sleep(draw.uniform(0, 1))


def stored(gateway: Gateway, partition: int, end: int) -> list[tuple[int, int, str]]:
    """What a gateway gives a reader: numbers, enqueued times and bodies."""
    events = receive_events(gateway.connection, "hub", end, partition=str(partition))
    return [(one.sequence_number, round(one.enqueued_time.timestamp() * 1000), one.body_as_str()) for one in events]


def ends(gateway: Gateway) -> list[int]:
    with EventHubConsumerClient.from_connection_string(gateway.connection, "cg1", eventhub_name="hub") as client:
        return [client.get_partition_properties(str(one))["last_enqueued_sequence_number"] + 1 for one in range(2)]


def check(running: Gateways, amqp: AmqpPublisher, kafka: KafkaPublisher, reader: GroupReader) -> None:
    """Check that all that was acknowledged is there, in order and whole, that nothing else is, and that all see it."""
    both = ends(running.all[0])
    for partition, end in enumerate(both):
        histories = [stored(gateway, partition, end) for gateway in running.all]
        assert histories[0] == histories[1] == histories[2], "every gateway reads the same"
        numbers, times, bodies = zip(*histories[0], strict=True)
        assert list(numbers) == list(range(end)), "numbers are dense"
        assert list(times) == sorted(times), "enqueued times never go back"
        if partition:
            sent = [int(body.split("/")[1]) for body in bodies]
            assert max(Counter(sent).values()) == 1, "a numbered event is there once"
            assert sent == sorted(sent)
            assert set(kafka.acknowledged) <= set(sent) <= set(range(kafka.attempted))
        else:
            batches = [int(body.split("/")[1]) for body in bodies[::3]]
            expected = [f"amqp/{number}/{part}" for number in batches for part in range(3)]
            assert list(bodies) == expected, "batches are whole"
            assert set(amqp.acknowledged) <= set(batches) <= set(range(amqp.attempted))
            first = [number for number in dict.fromkeys(batches) if number in set(amqp.acknowledged)]
            assert first == amqp.acknowledged, "in the order in which they were acknowledged"
        assert set(bodies) <= reader.found, "a group misses nothing"


def run(running: Gateways, faults: Callable[[], None]) -> tuple[AmqpPublisher, KafkaPublisher, GroupReader]:
    """Let clients work while something happens, and return them when they have ended."""
    amqp, kafka = AmqpPublisher(running.connection), KafkaPublisher(running.kafka_settings)
    reader = GroupReader(running.kafka_settings)
    for one in (amqp, kafka, reader):
        one.start()
    eventually(lambda: amqp.acknowledged and kafka.acknowledged and reader.found)
    faults()
    eventually(running.all_ready)
    amqp.is_over = kafka.is_over = True
    amqp.join(PATIENCE_S)
    kafka.join(PATIENCE_S)
    wanted = {f"kafka/{number}" for number in kafka.acknowledged}
    wanted |= {f"amqp/{number}/{part}" for number in amqp.acknowledged for part in range(3)}
    eventually(lambda: wanted <= reader.found)
    return amqp, kafka, reader


def test_faults_of_gateways_brokers_and_links_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    with gateways(tmp_path) as running:
        kinds = Counter[str]()

        def faults() -> None:
            for _ in range(scaled(FAULTS)):
                kind = draw.choice(GATEWAY_FAULTS if draw.random() < 0.6 else BROKER_FAULTS)
                kinds[kind] += 1
                fault(running, kind, draw)

        amqp, kafka, reader = run(running, faults)
        check(running, amqp, kafka, reader)
    print(f"seed {SEED}: {dict(kinds)}; longest time without an acknowledgement: {amqp.longest_s:.1f} s; ", end="")
    print(f"{len(amqp.acknowledged)} batches and {len(kafka.acknowledged)} records acknowledged, ", end="")
    print(f"{len(amqp.failures)} and {len(kafka.failures)} refused")


def test_a_rolling_restart_shows_clients_nothing_but_a_reconnect(tmp_path: Path) -> None:
    with gateways(tmp_path) as running:
        watching = EventHubReader(running.connection)
        watching.start()

        def restart() -> None:
            for _ in range(2):
                for gateway in running.all:
                    gateway.stop()
                    gateway.begin()
                    eventually(running.all_ready)

        amqp, kafka, reader = run(running, restart)
        eventually(lambda: len(set(watching.found)) >= 3 * len(amqp.acknowledged))
        watching.stop()
        check(running, amqp, kafka, reader)
        assert (amqp.failures, kafka.failures, reader.failures, watching.failures) == ([], [], [], [])
        assert amqp.attempted == len(amqp.acknowledged)
        assert watching.found == list(dict.fromkeys(watching.found)), "nothing is read twice by one reader"
    print(f"longest time without an acknowledgement: {amqp.longest_s:.1f} s")
