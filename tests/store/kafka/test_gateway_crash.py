"""Three gateways behind a balancer while they, brokers and links fail at random, and while they restart one by one.

Clients are unmodified and know the balancer alone. A seed draws the faults; the histories are checked afterwards.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.exceptions import EventHubError
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.jars import free_ports
from tests.kafka.cluster import Cluster, cluster
from tests.kafka.links import Balancer, Links
from tests.patience import PATIENCE_S, eventually
from tests.profiles import scaled
from tests.server.conftest import RawClient, Refused, receive_events
from tests.server.process import Hub
from tests.store.kafka.histories import (
    Bound,
    Event,
    Ownership,
    Stored,
    check_batches,
    check_bounds,
    check_gateways_agree,
    check_group,
    check_log,
    check_numbered,
    check_owners,
    longest_joint_ownership_s,
    longest_silence_s,
)
from tidegate.amqp import Closed, Detached, Transfer
from tidegate.client import ClientError, ConnectionString, HubClient

pytestmark = [pytest.mark.soak, pytest.mark.sdk]

FAULTS = int(os.environ.get("TIDEGATE_FAULTS", "20"))
SEED = int(os.environ.get("TIDEGATE_FAULT_SEED", "1"))
GATEWAYS = ("a", "b", "c")
PARTITIONS = range(3)
EPOCH = "com.microsoft:epoch"
GATEWAY_FAULTS = (
    *("kill gateway", "pause gateway", "stop gateway", "cut gateway", "cut gateway back", "reset gateway"),
    *("delay gateway", "half open gateway"),
)
BROKER_FAULTS = (
    *("kill leader", "pause leader", "cut leader", "kill controller", "pause controller", "cut controller"),
    *("kill broker", "cut brokers back"),
)
LONGEST_S = {"pause gateway": 12.0, "pause leader": 8.0, "pause controller": 8.0, "cut gateway": 12.0}
"""How long some faults last at most, so that others take over; the rest last three seconds at most."""


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
                        "Entities": [{"Name": "hub", "PartitionCount": "3", "ConsumerGroups": [{"Name": "cg1"}]}],
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
        self.faults: list[tuple[str, float, float]] = []
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

    @property
    def topic(self) -> str:
        """The topic of the hub."""
        admin = AdminClient({"bootstrap.servers": self.brokers.clients["a"], "log_level": 0})
        return next(name for name in admin.list_topics(timeout=PATIENCE_S).topics if ".hub-" in name)

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
    """Sends batches of three with Microsoft's client to one partition, one after the other, with a pause at times."""

    def __init__(self, connection: str, name: str, partition: int, longest_pause_s: float = 0.0) -> None:
        super().__init__(daemon=True)
        self._connection = connection
        self.name = name
        self._partition = str(partition)
        self._draw = random.Random(SEED)
        self._longest_pause_s = longest_pause_s
        self.is_over = False
        self.acknowledged: list[int] = []
        self.acknowledged_at_s: list[float] = []
        self.attempted = 0
        self.failures: list[Exception] = []

    def run(self) -> None:
        with EventHubProducerClient.from_connection_string(self._connection, eventhub_name="hub") as client:
            while not self.is_over:
                number, self.attempted = self.attempted, self.attempted + 1
                try:
                    batch = client.create_batch(partition_id=self._partition)
                    for part in range(3):
                        batch.add(EventData(f"{self.name}/{number}/{part}"))
                    client.send_batch(batch)
                except EventHubError as error:
                    self.failures.append(error)
                    continue
                self.acknowledged.append(number)
                self.acknowledged_at_s.append(time.monotonic())
                time.sleep(self._draw.choice((0, 0, self._draw.uniform(0, self._longest_pause_s))))


class KafkaPublisher(threading.Thread):
    """Sends numbered records to partition 1 with Kafka's client, as an idempotent producer."""

    def __init__(self, settings: dict[str, object]) -> None:
        super().__init__(daemon=True)
        self._settings = settings
        self.is_over = False
        self.acknowledged: list[int] = []
        self.acknowledged_at_s: list[float] = []
        self.attempted = 0
        self.failures: list[KafkaError] = []

    def run(self) -> None:
        producer = Producer({**self._settings, "enable.idempotence": True, "linger.ms": 5})

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.acknowledged.append(int((message.value() or b"").decode().split("/")[1]))
                self.acknowledged_at_s.append(time.monotonic())
            else:
                self.failures.append(error)

        while not self.is_over:
            for _ in range(10):
                producer.produce("hub", f"kafka/{self.attempted}", partition=1, on_delivery=delivered)
                self.attempted += 1
            producer.poll(0.05)
        producer.flush(PATIENCE_S)


class GroupReader(threading.Thread):
    """Reads all partitions in a group of Kafka's, and commits."""

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
    """Reads partition 0 with Microsoft's client from the beginning, in a group that has no owners."""

    def __init__(self, connection: str) -> None:
        super().__init__(daemon=True)
        self.client = EventHubConsumerClient.from_connection_string(connection, "$Default", eventhub_name="hub")
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


class Owner(threading.Thread):
    """Reads partition 0 through one gateway with an owner level above all before, and again when it has lost it.

    It reads slowly and from the beginning, so the gateway has events for it whether or not it hears the cluster.
    """

    def __init__(self, gateway: Gateway, name: str, levels: Iterator[int]) -> None:
        super().__init__(daemon=True)
        self._gateway = gateway
        self._name = name
        self._levels = levels
        self._draw = random.Random(f"{SEED}/{name}")
        self.is_over = False
        self.owned: list[Ownership] = []

    def run(self) -> None:
        while not self.is_over:
            with suppress(OSError, Refused):
                self._own()
            time.sleep(self._draw.uniform(0.3, 3))

    def _own(self) -> None:
        client = RawClient(SimpleNamespace(amqp_port=self._gateway.port), "hub")
        try:
            level = next(self._levels)
            source = "hub/ConsumerGroups/cg1/Partitions/0"
            link = client.reader(source, selector="amqp.annotation.x-opt-offset > '-1'", properties={EPOCH: level})
            granted_s = time.monotonic()
            client.socket.settimeout(1)
            while not self.is_over:
                link.top_up_to(1)
                with suppress(TimeoutError):
                    client.exchange()
                if any(isinstance(event, Detached | Closed) for event in client.events):
                    return
                if any(isinstance(event, Transfer) for event in client.events):
                    if not self.owned or self.owned[-1].level != level:
                        self.owned.append(Ownership(self._name, level, granted_s, 0.0))
                    self.owned[-1].read_s = time.monotonic()
                client.events.clear()
                time.sleep(0.05)
        finally:
            client.close()


class BoundWatcher(threading.Thread):
    """Asks one gateway for the lower bounds on the arrivals of all partitions, as a job does."""

    def __init__(self, gateway: Gateway, name: str) -> None:
        super().__init__(daemon=True)
        self._gateway = gateway
        self._name = name
        self.is_over = False
        self.bounds: dict[int, list[Bound]] = {partition: [] for partition in PARTITIONS}

    def run(self) -> None:
        asked = {str(partition): {"tidegate:awaits-lower-bound": True} for partition in PARTITIONS}
        while not self.is_over:
            with suppress(ClientError):
                client = HubClient(ConnectionString.parse(self._gateway.connection, "hub"))
                try:
                    while not self.is_over:
                        for partition, found in client.partitions_properties(tuple(asked), asked).items():
                            assert found.arrival_lower_bound_ms is not None
                            bound = Bound(self._name, found.end, found.arrival_lower_bound_ms)
                            self.bounds[int(partition)].append(bound)
                        time.sleep(0.2)
                finally:
                    client.close()
            time.sleep(0.2)


def fault(running: Gateways, kind: str, draw: random.Random) -> None:
    """Let something fail for a while."""
    brokers, number, began_s = running.brokers, draw.randrange(3), time.monotonic()
    if kind.endswith("leader"):
        number = brokers.leader(running.topic, 0)
    elif kind.endswith("controller"):
        number = brokers.active_controller()
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
    elif kind == "delay gateway":
        for link in links:
            link.delay_s = draw.uniform(0.05, 0.5)
        back += [link.mend for link in links]
    elif kind == "half open gateway":
        for link in links:
            link.half_open()
        back += [link.mend for link in links]
    elif kind.startswith("kill"):
        brokers.kill(number)
        back.append(lambda: brokers.start(number))
    elif kind.startswith("pause"):
        brokers.pause(number)
        back.append(lambda: brokers.resume(number))
    elif kind == "cut controller":
        brokers.to_controller[number].cut()
        back.append(brokers.to_controller[number].mend)
    else:
        brokers.to_broker["brokers", number].cut(there=not kind.endswith("back"))
        back.append(brokers.to_broker["brokers", number].mend)
    time.sleep(draw.uniform(0.2, LONGEST_S.get(kind, 3.0)))
    for undo in back:
        undo()
    time.sleep(draw.uniform(0, 1))
    running.faults.append((kind, began_s, time.monotonic()))


def stored(gateway: Gateway, partition: int, count: int) -> list[Event]:
    """What a gateway gives a reader."""
    events = receive_events(gateway.connection, "hub", count, partition=str(partition)) if count else []
    return [
        Event(one.sequence_number or 0, round(one.enqueued_time.timestamp() * 1000), one.body_as_str())
        for one in events
        if one.enqueued_time is not None
    ]


def records_of(running: Gateways, partition: int) -> list[Stored]:
    """What the brokers have of a partition."""
    settings = {"bootstrap.servers": running.brokers.clients["a"], "group.id": "checker", "log_level": 0}
    consumer = Consumer({**settings, "enable.auto.commit": False, "isolation.level": "read_uncommitted"})
    place = TopicPartition(running.topic, partition, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
    consumer.assign([place])
    records: list[Stored] = []

    def are_all_read() -> bool:
        for message in consumer.consume(10_000, timeout=0.2):
            assert message.error() is None
            names = [header[0] for header in message.headers() or ()]
            records.append(Stored(message.offset() or 0, message.timestamp()[1], "tidegate-marker" in names))
        return len(records) >= end

    eventually(are_all_read)
    consumer.close()
    return records[:end]


@dataclass
class Clients:
    """All who work during a run, and what they have seen."""

    amqp: AmqpPublisher
    pausing: AmqpPublisher
    kafka: KafkaPublisher
    reader: GroupReader
    owners: list[Owner]
    watchers: list[BoundWatcher]

    @property
    def all(self) -> tuple[AmqpPublisher | KafkaPublisher | GroupReader | Owner | BoundWatcher, ...]:
        return self.amqp, self.pausing, self.kafka, self.reader, *self.owners, *self.watchers

    @property
    def ownerships(self) -> list[Ownership]:
        return [one for owner in self.owners for one in owner.owned]


def check(running: Gateways, clients: Clients) -> None:
    """Check that all that was acknowledged is there, in order and whole, that nothing else is, and that all see it."""
    for partition in PARTITIONS:
        records = records_of(running, partition)
        count = sum(not one.is_marker for one in records)
        histories = {gateway.data.name: stored(gateway, partition, count) for gateway in running.all}
        events = check_gateways_agree(histories)
        check_log(events, records)
        if partition == 1:
            check_numbered(events, clients.kafka.acknowledged, clients.kafka.attempted, name="kafka")
        else:
            sent = clients.pausing if partition else clients.amqp
            check_batches(events, sent.acknowledged, sent.attempted, name=sent.name, size=3)
        for watcher in clients.watchers:
            check_bounds(events, watcher.bounds[partition])
        check_group(events, clients.reader.found)
    check_owners(clients.ownerships)


def run(running: Gateways, faults: Callable[[], None]) -> Clients:
    """Let clients work while something happens, and return them when they have ended."""
    levels = itertools.count(1)
    clients = Clients(
        AmqpPublisher(running.connection, "amqp", 0),
        AmqpPublisher(running.connection, "pausing", 2, longest_pause_s=6.0),
        KafkaPublisher(running.kafka_settings),
        GroupReader(running.kafka_settings),
        [Owner(gateway, gateway.data.name, levels) for gateway in running.all],
        [BoundWatcher(gateway, gateway.data.name) for gateway in running.all],
    )
    for client in clients.all:
        client.start()
    amqp, pausing, kafka, reader = clients.amqp, clients.pausing, clients.kafka, clients.reader
    eventually(lambda: amqp.acknowledged and kafka.acknowledged and reader.found and clients.ownerships)
    faults()
    eventually(running.all_ready)
    ending = (amqp, pausing, kafka, *clients.owners, *clients.watchers)
    for one in ending:
        one.is_over = True
    for one in ending:
        one.join(PATIENCE_S)
    wanted = {f"kafka/{number}" for number in kafka.acknowledged}
    for sent in (amqp, pausing):
        wanted |= {f"{sent.name}/{number}/{part}" for number in sent.acknowledged for part in range(3)}
    eventually(lambda: wanted <= reader.found)
    return clients


def report(running: Gateways, clients: Clients) -> None:
    """Print what happened, and the longest times without an acknowledgement."""
    kinds = Counter(kind for kind, _, _ in running.faults)
    print(f"seed {SEED}, {sum(kinds.values())} faults: {dict(kinds)}")
    for sent in (clients.amqp, clients.kafka):
        longest_s: dict[str, float] = {}
        for kind, began_s, ended_s in running.faults:
            silence_s = longest_silence_s(sent.acknowledged_at_s, began_s, ended_s)
            longest_s[kind] = round(max(silence_s, longest_s.get(kind, 0.0)), 1)
        print(f"{len(sent.acknowledged)} of {sent.attempted} acknowledged, longest silences, s: {longest_s}")
    bounds = sum(len(one) for watcher in clients.watchers for one in watcher.bounds.values())
    joint_s = longest_joint_ownership_s(clients.ownerships)
    print(f"{len(clients.ownerships)} ownerships, two of them for {joint_s:.1f} s at most; {bounds} lower bounds")


def test_faults_of_gateways_brokers_and_links_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    with gateways(tmp_path) as running:

        def faults() -> None:
            for _ in range(scaled(FAULTS)):
                kind = draw.choice(GATEWAY_FAULTS if draw.random() < 0.6 else BROKER_FAULTS)
                fault(running, kind, draw)

        clients = run(running, faults)
        report(running, clients)
        check(running, clients)
        assert len(clients.ownerships) > len(running.all), "the partition was hardly ever taken over"


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

        clients = run(running, restart)
        amqp, kafka, reader = clients.amqp, clients.kafka, clients.reader
        eventually(lambda: len(set(watching.found)) >= 3 * len(amqp.acknowledged))
        watching.stop()
        check(running, clients)
        assert (amqp.failures, kafka.failures, reader.failures, watching.failures) == ([], [], [], [])
        assert amqp.attempted == len(amqp.acknowledged)
        assert watching.found == list(dict.fromkeys(watching.found)), "nothing is read twice by one reader"
        longest_s = longest_silence_s(amqp.acknowledged_at_s, 0, time.monotonic())
    print(f"longest time without an acknowledgement: {longest_s:.1f} s")
