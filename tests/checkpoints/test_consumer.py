"""What becomes of an event: handled at least once or at most once, tried again, put aside."""

import asyncio
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.amqp import AmqpAnnotatedMessage

from tests.patience import PATIENCE_S, eventually
from tests.profiles import scaled
from tidegate.checkpoints import CheckpointError, SqliteCheckpointStore
from tidegate.checkpoints.consumer import Consumer, ConsumerSettings, Delivery, EventFailed, GiveUp, Retry

CRASHES = (3, 14, 55)[: scaled(1)]
QUICK = Retry(attempts=3, first_delay_s=0.01, longest_delay_s=0.02)
HUB = "tolls"
sdk = pytest.mark.sdk


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteCheckpointStore]:
    opened = SqliteCheckpointStore(tmp_path / "checkpoints.db")
    yield opened
    opened.close()


# -- without a hub: what the client would call is called here


class Context:
    """A partition context of a consumer."""

    fully_qualified_namespace = "localhost"
    eventhub_name = HUB
    consumer_group = "$Default"
    partition_id = "0"

    def __init__(self) -> None:
        self.checkpoints: list[int] = []

    async def update_checkpoint(self, event: Any) -> None:
        self.checkpoints.append(event.sequence_number)


def events(first: int, last: int) -> list[Any]:
    return [SimpleNamespace(sequence_number=number, offset=str(number)) for number in range(first, last + 1)]


def consumer(handle: Callable[..., Any], store: Any = None, **settings: Any) -> Consumer:
    return Consumer(
        "Endpoint=sb://nowhere/", handle, eventhub_name=HUB, store=store, settings=ConsumerSettings(**settings)
    )


class Handler:
    """Handles events, except those that are to fail a number of times first."""

    def __init__(self, failures: dict[int, int] | None = None) -> None:
        self.failures = dict(failures or {})
        self.attempts: Counter[int] = Counter()
        self.handled: list[int] = []

    def __call__(self, context: Any, event: Any) -> None:
        number = event.sequence_number
        self.attempts[number] += 1
        if self.attempts[number] <= self.failures.get(number, 0):
            raise ValueError(f"no {number}")
        self.handled.append(number)


def test_the_checkpoint_is_behind_what_was_handled() -> None:
    handler, context = Handler(), Context()
    asyncio.run(consumer(handler)._on_batch(context, events(0, 4)))
    assert (handler.handled, context.checkpoints) == ([0, 1, 2, 3, 4], [4])


def test_an_event_is_tried_again_and_its_partition_waits() -> None:
    handler, context = Handler({1: 2}), Context()
    asyncio.run(consumer(handler, retry=QUICK)._on_batch(context, events(0, 2)))
    assert handler.attempts == {0: 1, 1: 3, 2: 1}
    assert (handler.handled, context.checkpoints) == ([0, 1, 2], [2])


def test_without_a_dead_letter_hub_an_event_that_keeps_failing_ends_the_consumer() -> None:
    handler, context = Handler({2: 99}), Context()
    failing = consumer(handler, retry=QUICK)
    asyncio.run(failing._on_batch(context, events(0, 4)))
    assert (handler.handled, context.checkpoints) == ([0, 1], [1])
    assert isinstance(failing._failure, EventFailed)
    assert "event 2 of tolls/0" in str(failing._failure)
    asyncio.run(failing._on_batch(context, events(3, 4)))
    assert handler.handled == [0, 1]


def test_coroutine_functions_are_handlers_too() -> None:
    seen = []

    async def handle(context: Any, event: Any) -> None:
        await asyncio.sleep(0)
        seen.append(event.sequence_number)

    asyncio.run(consumer(handle)._on_batch(Context(), events(0, 2)))
    assert seen == [0, 1, 2]


def test_of_two_that_hold_the_same_events_one_handles_them(store: SqliteCheckpointStore) -> None:
    handlers = [Handler(), Handler()]
    both = [consumer(handler, store, delivery=Delivery.AT_MOST_ONCE) for handler in handlers]

    async def hand_out() -> None:
        await both[0]._on_batch(Context(), events(0, 4))
        await both[1]._on_batch(Context(), events(5, 7))
        await both[0]._on_batch(Context(), events(5, 9))  # has lost the partition and does not know it
        await both[1]._on_batch(Context(), events(8, 9))

    asyncio.run(hand_out())
    assert [handler.handled for handler in handlers] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_at_most_once_handles_a_failing_event_once_and_goes_on(
    store: SqliteCheckpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Handler({1: 1})
    asyncio.run(consumer(handler, store, delivery=Delivery.AT_MOST_ONCE)._on_batch(Context(), events(0, 2)))
    assert handler.attempts == {0: 1, 1: 1, 2: 1}
    assert "event 1 of tolls/0 could not be handled" in caplog.text
    (checkpoint,) = store.list_checkpoints("localhost", HUB, "$Default")
    assert checkpoint["sequence_number"] == 2


def test_at_most_once_the_checkpoint_is_made_first(store: SqliteCheckpointStore) -> None:
    found: list[int] = []

    def handle(context: Any, event: Any) -> None:
        (checkpoint,) = store.list_checkpoints("localhost", HUB, "$Default")
        found.append(checkpoint["sequence_number"])

    asyncio.run(consumer(handle, store, delivery=Delivery.AT_MOST_ONCE)._on_batch(Context(), events(0, 2)))
    assert found == [2, 2, 2]


def test_at_most_once_knows_no_second_attempt() -> None:
    with pytest.raises(ValueError, match="one attempt"):
        consumer(Handler(), delivery=Delivery.AT_MOST_ONCE, retry=QUICK)


def test_a_database_that_is_away_loses_nothing_at_least_once(caplog: pytest.LogCaptureFixture) -> None:
    class Away(Context):
        async def update_checkpoint(self, event: Any) -> None:
            raise CheckpointError("the database is unavailable")

    handler = Handler()
    asyncio.run(consumer(handler)._on_batch(Away(), events(0, 2)))
    assert handler.handled == [0, 1, 2]
    assert "the database is unavailable" in caplog.text


# -- with a hub and Microsoft's client


@pytest.fixture
def producer(connection: str) -> Iterator[EventHubProducerClient]:
    with EventHubProducerClient.from_connection_string(connection, eventhub_name=HUB) as client:
        yield client


def publish(producer: EventHubProducerClient, bodies: list[Any], partition: str = "0") -> None:
    batch = producer.create_batch(partition_id=partition)
    for body in bodies:
        batch.add(body if isinstance(body, EventData | AmqpAnnotatedMessage) else EventData(body))
    producer.send_batch(batch)


class Running:
    """A consumer in a thread of its own."""

    def __init__(self, connection: str, handle: Callable[..., Any], store: Any, **settings: Any) -> None:
        settings = {"retry": QUICK, "client_options": {"load_balancing_interval": 0.3}} | settings
        self.consumer = Consumer(
            connection, handle, eventhub_name=HUB, store=store, settings=ConsumerSettings(**settings)
        )
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.consumer.run_forever()
        except BaseException as failure:
            self.failure = failure

    def stop(self) -> None:
        self.consumer.stop()
        self.join()

    def join(self) -> None:
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


def received(connection: str, hub: str, count: int) -> list[EventData]:
    found: list[EventData] = []
    client = EventHubConsumerClient.from_connection_string(connection, "$Default", eventhub_name=hub)

    def on_event(context: Any, event: EventData | None) -> None:
        if event is not None:
            found.append(event)

    reading = threading.Thread(
        target=client.receive, args=(on_event,), kwargs={"starting_position": "-1", "max_wait_time": 0.2}, daemon=True
    )
    reading.start()
    eventually(lambda: len(found) >= count)
    client.close()
    reading.join(PATIENCE_S)
    return found


def text(properties: Any) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return value.decode() if isinstance(value, bytes) else value

    return {plain(name): plain(value) for name, value in properties.items()}


@sdk
def test_a_bad_event_is_put_aside_and_its_partition_goes_on(
    connection: str, producer: EventHubProducerClient, store: SqliteCheckpointStore
) -> None:
    bad = EventData(b"bad \xff")
    bad.properties = {"colour": "red", "number": 7}
    bad.content_type = "application/json"
    bad.message_id = "m-1"
    publish(producer, ["0", "1", bad, "3", "4"])
    publish(producer, [AmqpAnnotatedMessage(value_body={"a": "value"})], partition="1")
    handled: dict[str, list[int]] = defaultdict(list)
    attempts: Counter[str] = Counter()

    def handle(context: Any, event: EventData) -> None:
        if context.partition_id == "1":
            raise GiveUp("no use")
        if event.sequence_number == 2:
            attempts[event.sequence_number] += 1
            raise RuntimeError("this one never works")
        handled[context.partition_id].append(event.sequence_number)

    running = Running(connection, handle, store, dead_letter_hub="dead")
    eventually(lambda: handled["0"] == [0, 1, 3, 4])
    dead = received(connection, "dead", 2)
    running.stop()
    assert running.failure is None
    assert attempts == {2: 3}

    by_source = {text(event.properties)["tidegate-source-partition"]: event for event in dead}
    assert len(dead) == 2
    properties = text(by_source["0"].properties)
    assert b"".join(by_source["0"].body) == b"bad \xff"
    assert (by_source["0"].content_type, by_source["0"].message_id) == ("application/json", "m-1")
    assert (
        properties.items()
        >= {
            "colour": "red",
            "number": 7,
            "DeadLetterReason": "RuntimeError",
            "DeadLetterErrorDescription": "this one never works",
            "tidegate-attempts": 3,
            "tidegate-source-hub": HUB,
            "tidegate-source-consumer-group": "$Default",
            "tidegate-source-sequence-number": 2,
        }.items()
    )
    assert text(by_source["1"].raw_amqp_message.body) == {"a": "value"}
    assert text(by_source["1"].properties)["tidegate-attempts"] == 1
    positions = {row.partition_id: row.sequence_number for row in store.positions()}
    assert positions == {"0": 4, "1": 0}


@sdk
def test_while_one_partition_waits_others_go_on(
    connection: str, producer: EventHubProducerClient, store: SqliteCheckpointStore
) -> None:
    publish(producer, ["slow"], partition="0")
    publish(producer, [str(number) for number in range(30)], partition="1")
    handled: list[int] = []

    def handle(context: Any, event: EventData) -> None:
        if context.partition_id == "0":
            raise RuntimeError("not yet")
        handled.append(event.sequence_number)

    retry = Retry(attempts=100, first_delay_s=5, longest_delay_s=5)
    running = Running(connection, handle, store, retry=retry, dead_letter_hub="dead")
    eventually(lambda: handled == list(range(30)))
    running.stop()
    assert running.failure is None
    assert {row.partition_id: row.sequence_number for row in store.positions()} == {"1": 29}


@sdk
def test_after_the_mistake_is_mended_reading_goes_on_at_the_event_that_failed(
    connection: str, producer: EventHubProducerClient, store: SqliteCheckpointStore
) -> None:
    publish(producer, ["0", "1", "2", "3"])
    handler = Handler({2: 3})
    first = Running(connection, handler, store)
    first.join()
    assert isinstance(first.failure, EventFailed)
    second = Running(connection, handler, store)
    eventually(lambda: handler.handled == [0, 1, 2, 3])
    second.stop()
    assert second.failure is None


def crash_and_go_on(connection: str, store: Path, folder: Path, delivery: Delivery) -> list[int]:
    """The numbers of the events handled, over crashes in the middle of an event and a good end."""
    seen = folder / "seen"
    for crash_at in (*CRASHES, -1):
        command = [sys.executable, "-m", "tests.checkpoints.consumer_child", connection, str(store), delivery.value]
        ended = subprocess.run([*command, str(seen), str(crash_at)], timeout=PATIENCE_S, check=False)
        assert ended.returncode == (0 if crash_at == -1 else 9)
    return [int(line) for line in seen.read_text().split()]


@sdk
@pytest.mark.parametrize("delivery", Delivery)
def test_a_crash_repeats_or_leaves_out_a_batch_at_most(connection: str, tmp_path: Path, delivery: Delivery) -> None:
    with EventHubProducerClient.from_connection_string(connection, eventhub_name="dead") as client:
        publish(client, [str(number) for number in range(100)])
    handled = crash_and_go_on(connection, tmp_path / "store.db", tmp_path, delivery)
    missing = set(range(100)) - set(handled)
    repeated = len(handled) - len(set(handled))
    if delivery is Delivery.AT_LEAST_ONCE:
        assert (missing, repeated > 0) == (set(), True)
        assert repeated <= 30
    else:
        assert (bool(missing), repeated) == (True, 0)
        assert len(missing) <= 30
        assert not missing & {3, 14, 55}
