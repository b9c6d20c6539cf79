"""kill -9 under load: what was acknowledged is there, in order, unchanged."""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient

from tests.patience import PATIENCE_S, PROMPTLY_S
from tests.profiles import scaled
from tests.server.conftest import RawClient
from tests.server.process import Hub
from tidegate.amqp import ACCEPTED
from tidegate.amqp.encoding.types import CONNECTION_FORCED

pytestmark = [pytest.mark.sdk, pytest.mark.crash]


@pytest.fixture
def up(data: Path) -> Iterator[Any]:
    hub = Hub(data)
    hub.start()
    yield hub
    if hub.process.poll() is None:
        hub.kill()


class Publisher:
    """Publishes batches one after the other and remembers which were acknowledged."""

    def __init__(self, connection: str, partition: str) -> None:
        self.acknowledged: list[str] = []
        self.attempted = 0
        self._connection = connection
        self._partition = partition
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        producer = EventHubProducerClient.from_connection_string(self._connection, eventhub_name="eh1", retry_total=0)
        try:
            with producer:
                while True:
                    bodies = [f"{self._partition}:{n}" for n in range(self.attempted, self.attempted + 10)]
                    self.attempted += 10
                    producer.send_batch([EventData(b) for b in bodies], partition_id=self._partition)
                    self.acknowledged += bodies
        except Exception:  # the hub was killed: whatever the client makes of that, this batch has no answer
            return


class RawPublisher:
    """Numbers its events over all lives of the hub; sends runs of single events and repeats none."""

    def __init__(self, name: str, partition: str) -> None:
        self.name = name
        self.partition = partition
        self.attempted = 0
        self.acknowledged: set[int] = set()
        self.failures: list[Exception] = []

    def run(self, client: Any, count: int) -> None:
        """Until the hub is gone."""
        try:
            link = client.publisher(f"eh1/Partitions/{self.partition}")
            while True:
                numbers = range(self.attempted, self.attempted + count)
                self.attempted += count
                answers = client.publish(link, *(f"{self.name}:{n}:{'x' * (n % 300)}".encode() for n in numbers))
                assert all(answer.state == ACCEPTED for answer in answers)
                self.acknowledged.update(numbers)
                time.sleep(0.002)  # reading it all takes the test longer than publishing
        except Exception as error:  # the hub was killed, or the test has found something
            if not isinstance(error, OSError) and str(error) != CONNECTION_FORCED:
                self.failures.append(error)


class Record:
    """What has been read of a partition, and that it can all be true: kept small, for many lives of the hub."""

    def __init__(self, partition: str) -> None:
        self.partition = partition
        self.hashes = array("q")
        self.numbers: dict[str, array[int]] = {}
        self._last: tuple[int, int, int] = (-1, -1, 0)

    def read_on(self, client: Any) -> None:
        """Read what has come since."""
        arguments = {"operation": "READ", "type": "com.microsoft:partition", "name": "eh1", "partition": self.partition}
        last = client.request("$management", arguments)["body"]["last_enqueued_sequence_number"]
        selector = f"amqp.annotation.x-opt-sequence-number > '{self._last[0]}'" if self.hashes else None
        address = f"eh1/ConsumerGroups/$Default/Partitions/{self.partition}"
        if last == self._last[0]:
            return
        link = client.reader(address, credit=1000, selector=selector)
        while self._last[0] < last:
            self._add(*client.receive(link, 1))
        link.detach()

    def _add(self, message: Any) -> None:
        named = {str(name): value for name, value in message.message_annotations.items()}
        place = (named["x-opt-sequence-number"], int(named["x-opt-offset"]), int(named["x-opt-enqueued-time"]))
        body = b"".join(message.body).decode()
        publisher, number, padding = body.split(":")
        assert place[0] == self._last[0] + 1
        assert place[1] > self._last[1]
        assert place[2] >= self._last[2]
        assert padding == "x" * (int(number) % 300)
        self._last = place
        self.hashes.append(hash((place, body)))
        self.numbers.setdefault(publisher, array("q")).append(int(number))


def test_no_acknowledged_event_is_lost_however_often_the_hub_is_killed(
    data: Path, sign_in: Callable[..., RawClient]
) -> None:
    """TIDEGATE_TEST_SEED says at which moments."""
    kills = scaled(2)
    seed = int(os.environ.get("TIDEGATE_TEST_SEED", "1"))
    moments = random.Random(seed)
    hub = Hub(data)
    publishers = [RawPublisher(f"p{number}", str(number % 2)) for number in range(4)]
    records = [Record("0"), Record("1")]
    slowest_s = 0.0

    def count_acknowledged() -> int:
        return sum(len(publisher.acknowledged) for publisher in publishers)

    for _ in range(kills):
        enough = count_acknowledged() + 10
        started = time.monotonic()
        hub.start()
        slowest_s = max(slowest_s, time.monotonic() - started)
        read_on(sign_in, hub, records)
        clients = [sign_in(SimpleNamespace(amqp_port=hub.port), "eh1") for _ in publishers]
        threads = [
            threading.Thread(target=publisher.run, args=(client, moments.choice((1, 5, 25))))
            for publisher, client in zip(publishers, clients, strict=True)
        ]
        for thread in threads:
            thread.start()
        while count_acknowledged() < enough and any(thread.is_alive() for thread in threads):
            time.sleep(0.001)
        time.sleep(moments.uniform(0.0, 0.4))
        hub.kill()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        for client in clients:
            client.close()
    hub.start()
    read_on(sign_in, hub, records)
    again = [Record("0"), Record("1")]
    read_on(sign_in, hub, again)
    assert [record.hashes for record in again] == [record.hashes for record in records]
    hub.stop()
    acknowledged = sum(check_publications(publisher, records[int(publisher.partition)]) for publisher in publishers)
    stored = sum(len(record.hashes) for record in records)
    print(
        f"\n{kills} kills: {acknowledged} acknowledged, {stored} stored, slowest start {slowest_s:.2f} s (seed {seed})"
    )
    assert acknowledged >= 10 * kills


def read_on(sign_in: Any, hub: Hub, records: list[Record]) -> None:
    client = sign_in(SimpleNamespace(amqp_port=hub.port), "eh1")
    for record in records:
        record.read_on(client)
    client.close()


def check_publications(publisher: RawPublisher, record: Record) -> int:
    """Its events are there once and in order; how many were acknowledged."""
    assert not publisher.failures
    numbers = record.numbers.get(publisher.name, array("q"))
    assert all(a < b for a, b in itertools.pairwise(numbers))
    assert publisher.acknowledged <= set(numbers)
    assert not numbers or numbers[-1] < publisher.attempted
    return len(publisher.acknowledged)


Stored = tuple[str, int, str, Any]


def read_all(connection: str, partition: str) -> list[Stored]:
    seen: list[Stored] = []
    client = EventHubConsumerClient.from_connection_string(connection, "$Default", eventhub_name="eh1")
    last = client.get_partition_properties(partition)["last_enqueued_sequence_number"]
    done = threading.Event()

    def on_event_batch(_context: Any, events: list[EventData]) -> None:
        seen.extend((e.body_as_str(), e.sequence_number, e.offset, e.enqueued_time) for e in events)
        if seen and seen[-1][1] >= last:
            done.set()

    options = {"partition_id": partition, "starting_position": "-1", "max_wait_time": 0.1}
    thread = threading.Thread(target=client.receive_batch, args=(on_event_batch,), kwargs=options, daemon=True)
    thread.start()
    assert done.wait(PATIENCE_S)
    client.close()
    thread.join(PATIENCE_S)
    return seen


def read_both(connection: str) -> list[list[Stored]]:
    with ThreadPoolExecutor() as threads:
        return list(threads.map(read_all, [connection] * 2, ["0", "1"]))


@pytest.mark.soak
def test_every_acknowledged_event_survives_kill_9(up: Any, eventually: Callable[[Callable[[], object]], None]) -> None:
    publishers = [Publisher(up.connection, partition) for partition in ("0", "1")]
    eventually(lambda: all(len(p.acknowledged) > 200 for p in publishers))
    before = dict(zip(("0", "1"), read_both(up.connection), strict=True))
    up.kill()
    for publisher in publishers:
        publisher.thread.join(PATIENCE_S)
    up.start()
    for partition, publisher, after in zip(("0", "1"), publishers, read_both(up.connection), strict=True):
        bodies = [event[0] for event in after]
        assert bodies[: len(publisher.acknowledged)] == publisher.acknowledged
        assert len(bodies) <= publisher.attempted
        assert after[: len(before[partition])] == before[partition]
        assert [event[1] for event in after] == list(range(len(after)))
        assert all(a[3] <= b[3] and int(a[2]) < int(b[2]) for a, b in itertools.pairwise(after))
    assert up.stop() < PROMPTLY_S


def test_a_bit_that_flips_in_the_last_acknowledged_group_is_reported_and_costs_no_number(
    data: Path, sign_in: Callable[..., RawClient], capfd: pytest.CaptureFixture[str]
) -> None:
    hub = Hub(data)
    hub.start()
    client = sign_in(SimpleNamespace(amqp_port=hub.port), "eh1")
    link = client.publisher("eh1/Partitions/0")
    for number in range(5):
        (answer,) = client.publish(link, b"event %d" % number)
        assert answer.state == ACCEPTED
    hub.kill()
    (segment,) = data.glob("hubs/*/0/*.log")
    content = bytearray(segment.read_bytes())
    content[-10] ^= 16
    segment.write_bytes(content)
    hub.start()
    client = sign_in(SimpleNamespace(amqp_port=hub.port), "eh1")
    (answer,) = client.publish(client.publisher("eh1/Partitions/0"), b"later")
    assert answer.state == ACCEPTED
    reader = client.reader("eh1/ConsumerGroups/$Default/Partitions/0", credit=100)
    found = client.receive(reader, 5)
    assert [b"".join(message.body) for message in found] == [*(b"event %d" % n for n in range(4)), b"later"]
    assert [message.message_annotations["x-opt-sequence-number"] for message in found] == [0, 1, 2, 3, 5]
    assert "events 4 to 4 cannot be read" in capfd.readouterr().err
    hub.stop()
