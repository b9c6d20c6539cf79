"""azure-eventhub, unmodified, over plain TCP: what its users do is done."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.exceptions import ConnectionLostError, EventDataSendError

from tests.patience import PATIENCE_S
from tests.server.conftest import Receive

pytestmark = pytest.mark.sdk


def send(producer: EventHubProducerClient, bodies: list[str], **where: str) -> None:
    batch = producer.create_batch(**where)
    for body in bodies:
        batch.add(EventData(body))
    producer.send_batch(batch)


def bodies(events: list[EventData]) -> list[str]:
    return [event.body_as_str() for event in events]


def test_hub_and_partition_properties(producer: EventHubProducerClient, hub: str) -> None:
    properties = producer.get_eventhub_properties()
    assert properties["eventhub_name"] == hub
    assert properties["partition_ids"] == ["0", "1"]
    assert abs(properties["created_at"] - datetime.now(UTC)) < timedelta(minutes=10)

    empty = producer.get_partition_properties("0")
    assert empty["is_empty"] is True
    assert (empty["beginning_sequence_number"], empty["last_enqueued_sequence_number"]) == (-1, -1) or (
        empty["beginning_sequence_number"],
        empty["last_enqueued_sequence_number"],
    ) == (0, -1)
    assert empty["last_enqueued_offset"] == "-1"

    send(producer, ["a", "b", "c"], partition_id="0")
    full = producer.get_partition_properties("0")
    assert full["is_empty"] is False
    assert full["beginning_sequence_number"] == 0
    assert full["last_enqueued_sequence_number"] == 2
    assert int(full["last_enqueued_offset"]) >= 0
    assert abs(full["last_enqueued_time_utc"] - datetime.now(UTC)) < timedelta(minutes=1)


def test_events_come_back_as_they_were_sent(producer: EventHubProducerClient, receive: Receive) -> None:
    event = EventData(b"\x00\xffbody")
    event.properties = {"text": "é", "number": 7, "flag": True, "fraction": 1.5, "raw": b"\x01"}
    event.message_id = "m-1"
    event.correlation_id = "c-1"
    event.content_type = "application/json"
    batch = producer.create_batch(partition_id="1")
    batch.add(event)
    batch.add(EventData(["two ", "pieces"]))
    producer.send_batch(batch)

    first, second = receive(2, partition="1")
    assert next(first.body) == b"\x00\xffbody"
    assert {(k.decode() if isinstance(k, bytes) else k): v for k, v in first.properties.items()} == {
        "text": "é".encode(),
        "number": 7,
        "flag": True,
        "fraction": 1.5,
        "raw": b"\x01",
    } or first.properties[b"text"] == "é"
    assert first.message_id == "m-1"
    assert first.correlation_id == "c-1"
    assert first.content_type == "application/json"
    assert b"".join(second.body) == b"two pieces"
    assert (first.sequence_number, second.sequence_number) == (0, 1)
    assert int(first.offset) < int(second.offset)
    assert first.enqueued_time <= second.enqueued_time
    assert first.partition_key is None


def test_single_events_and_large_ones(producer: EventHubProducerClient, receive: Receive) -> None:
    large = "x" * 900_000
    producer.send_event(EventData("small"), partition_id="0")
    producer.send_event(EventData(large), partition_id="0")
    assert bodies(receive(2, partition="0")) == ["small", large]


def test_an_event_over_the_limit_is_refused(producer: EventHubProducerClient) -> None:
    producer.send_event(EventData("opens the link"))
    with pytest.raises((EventDataSendError, ValueError)):
        producer.send_event(EventData("x" * 1_100_000))


def test_a_key_always_goes_to_its_partition(producer: EventHubProducerClient, receive: Receive) -> None:
    # int16 hashes from the service's own function: a -16220, 7 -15263, key 11419, alpha 873; two partitions.
    for key in ("a", "7", "key", "alpha"):
        send(producer, [key], partition_key=key)
        producer.send_event(EventData(key), partition_key=key)
    even, odd = receive(2, partition="0"), receive(6, partition="1")
    assert bodies(even) == ["a", "a"]
    assert bodies(odd) == ["7", "7", "key", "key", "alpha", "alpha"]
    assert {event.partition_key for event in even} == {b"a"}


def test_keyless_events_go_round(connection: str) -> None:
    with EventHubProducerClient.from_connection_string(connection, eventhub_name="wide") as producer:
        for number in range(16):
            producer.send_event(EventData(str(number)))
        counts = [producer.get_partition_properties(str(p))["last_enqueued_sequence_number"] + 1 for p in range(8)]
    assert counts == [2] * 8


def test_every_position_inclusive_and_exclusive(producer: EventHubProducerClient, receive: Receive) -> None:
    send(producer, ["0", "1"], partition_id="0")
    time.sleep(0.02)
    send(producer, ["2", "3"], partition_id="0")
    events = receive(4, partition="0")
    third = events[2]

    positions: list[tuple[Any, bool, list[str]]] = [
        (third.offset, True, ["2", "3"]),
        (third.offset, False, ["3"]),
        (third.sequence_number, True, ["2", "3"]),
        (third.sequence_number, False, ["3"]),
        (third.enqueued_time, True, ["2", "3"]),
        (events[0].enqueued_time, False, ["2", "3"]),
    ]

    def from_position(case: tuple[Any, bool, list[str]], group: str) -> list[str]:
        position, inclusive, expected = case
        options = {"starting_position": position, "starting_position_inclusive": inclusive}
        return bodies(receive(len(expected), partition="0", group=group, **options))

    assert bodies(events) == ["0", "1", "2", "3"]
    with ThreadPoolExecutor() as threads:
        found = threads.map(from_position, positions, ["cg1", "cg2"] * 3)
    assert list(found) == [expected for _, _, expected in positions]


@pytest.fixture
def readers(server: Any, hub: str) -> Callable[[], int]:
    """How many the hub serves partition 0 to. A client does not tell when it is there."""
    return lambda: len(server.namespace.event_hub(hub).partition("0").reader_slots("$Default"))


def test_latest_sees_only_what_comes_after(
    connection: str,
    producer: EventHubProducerClient,
    hub: str,
    readers: Callable[[], int],
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    send(producer, ["before"], partition_id="0")
    seen: list[str] = []
    client = EventHubConsumerClient.from_connection_string(connection, "$Default", eventhub_name=hub)

    def on_event(_context: Any, event: EventData) -> None:
        seen.append(event.body_as_str())

    thread = threading.Thread(
        target=client.receive,
        args=(on_event,),
        kwargs={"partition_id": "0", "starting_position": "@latest"},
        daemon=True,
    )
    thread.start()
    eventually(readers)
    send(producer, ["after"], partition_id="0")
    eventually(lambda: seen)
    client.close()
    thread.join(PATIENCE_S)
    assert seen == ["after"]


def test_every_group_and_every_reader_gets_every_event(
    connection: str, producer: EventHubProducerClient, hub: str, receive: Receive
) -> None:
    send(producer, [str(n) for n in range(500)], partition_id="0")
    results: dict[int, list[str]] = {}

    def read(reader: int, group: str) -> None:
        results[reader] = bodies(receive(500, partition="0", group=group))

    threads = [threading.Thread(target=read, args=(n, g)) for n, g in enumerate(["$Default", "cg1", "cg1", "cg2"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    expected = [str(n) for n in range(500)]
    assert results == dict.fromkeys(range(4), expected)


def test_many_events_across_many_credits_keep_their_order(producer: EventHubProducerClient, receive: Receive) -> None:
    for start in range(0, 5000, 1000):
        send(producer, [str(n) for n in range(start, start + 1000)], partition_id="1")
    assert bodies(receive(5000, partition="1", prefetch=100)) == [str(n) for n in range(5000)]


def test_a_consumer_of_all_partitions(producer: EventHubProducerClient, receive: Receive) -> None:
    send(producer, ["left"], partition_id="0")
    send(producer, ["right"], partition_id="1")
    assert Counter(bodies(receive(2))) == Counter(["left", "right"])


class Owner:
    """A consumer with an owner level that keeps receiving in the background."""

    def __init__(self, connection: str, hub: str, owner_level: int | None) -> None:
        self.errors: list[Exception] = []
        self.events: list[str] = []
        self._client = EventHubConsumerClient.from_connection_string(
            connection, "$Default", eventhub_name=hub, retry_total=0
        )
        options = {} if owner_level is None else {"owner_level": owner_level}
        self._thread = threading.Thread(
            target=self._client.receive,
            args=(self._on_event,),
            kwargs={
                "partition_id": "0",
                "on_error": self._on_error,
                "starting_position": "-1",
                **options,
            },
            daemon=True,
        )
        self._thread.start()

    def _on_event(self, _context: Any, event: EventData) -> None:
        self.events.append(event.body_as_str())

    def _on_error(self, _context: Any, error: Exception) -> None:
        self.errors.append(error)

    def close(self) -> None:
        self._client.close()
        self._thread.join(PATIENCE_S)


def test_a_higher_owner_level_evicts_and_a_lower_one_is_refused(
    connection: str,
    producer: EventHubProducerClient,
    hub: str,
    readers: Callable[[], int],
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    first = Owner(connection, hub, 1)
    eventually(lambda: readers() or first.errors)
    assert not first.errors
    second = Owner(connection, hub, 2)
    eventually(lambda: first.errors)
    assert isinstance(first.errors[0], ConnectionLostError)
    first.close()

    newcomer = Owner(connection, hub, None)
    eventually(lambda: newcomer.errors)
    assert isinstance(newcomer.errors[0], ConnectionLostError)
    newcomer.close()

    send(producer, ["kept"], partition_id="0")
    eventually(lambda: second.events == ["kept"])
    assert not second.errors
    second.close()


def test_runtime_metrics_ride_on_deliveries_when_asked_for(
    connection: str, producer: EventHubProducerClient, hub: str
) -> None:
    send(producer, ["a", "b", "c"], partition_id="0")
    known: list[dict[str, Any]] = []
    done = threading.Event()
    client = EventHubConsumerClient.from_connection_string(connection, "$Default", eventhub_name=hub)

    def on_event(context: Any, _event: EventData | None) -> None:
        known.append(context.last_enqueued_event_properties)
        done.set()

    options = {"partition_id": "0", "starting_position": "-1", "track_last_enqueued_event_properties": True}
    thread = threading.Thread(target=client.receive, args=(on_event,), kwargs=options, daemon=True)
    thread.start()
    assert done.wait(PATIENCE_S)
    client.close()
    thread.join(PATIENCE_S)
    assert known[0]["sequence_number"] == 2
    assert int(known[0]["offset"]) > 0
    assert abs(known[0]["retrieval_time"] - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_buffered_producer(connection: str, hub: str, receive: Receive) -> None:
    failures: list[Any] = []
    with EventHubProducerClient.from_connection_string(
        connection,
        eventhub_name=hub,
        buffered_mode=True,
        on_success=lambda _events, _partition: None,
        on_error=lambda events, partition, error: failures.append(error),
        max_wait_time=1,
    ) as producer:
        for number in range(50):
            producer.send_event(EventData(str(number)))
        producer.flush()
    assert not failures
    assert sorted(bodies(receive(50)), key=int) == [str(n) for n in range(50)]
