"""Microsoft's consumer client, unmodified, with each store: partitions are shared out, handed over and gone on with."""

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient, LoadBalancingStrategy
from azure.eventhub.aio import EventHubConsumerClient as AioConsumerClient
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore

from tests.azurite import azurite, container
from tests.patience import PATIENCE_S, eventually
from tidegate.checkpoints import aio
from tidegate.checkpoints.store import open_store

pytestmark = pytest.mark.sdk

PARTITIONS = 4
HUB = "tolls"


@pytest.fixture(scope="module")
def blob_storage() -> Iterator[str]:
    with azurite() as connection_string:
        yield connection_string


@pytest.fixture(params=["sqlite", *(pytest.param(name, marks=pytest.mark.soak) for name in ("postgres", "blob"))])
def open_checkpoints(
    request: pytest.FixtureRequest, fresh_location: Callable[[str], str]
) -> Iterator[Callable[[], Any]]:
    """Opens the same checkpoints once more, as another process would. The Blob store is Microsoft's own."""
    opened: list[Any] = []
    if request.param == "blob":
        connection_string: str = request.getfixturevalue("blob_storage")
        blobs: Any = container(connection_string, "checkpoints")
        blobs.close()
        open_one: Callable[[], Any] = partial(
            BlobCheckpointStore.from_connection_string, connection_string, "checkpoints"
        )
    else:
        open_one = partial(open_store, fresh_location(request.param))

    def open_and_keep() -> Any:
        opened.append(open_one())
        return opened[-1]

    yield open_and_keep
    for store in opened:
        store.close()


class Reader:
    """A consumer in a thread that checkpoints each event it was handed."""

    def __init__(self, connection: str, store: Any) -> None:
        self.seen: dict[str, list[int]] = defaultdict(list)
        self.client = EventHubConsumerClient.from_connection_string(
            connection,
            "$Default",
            eventhub_name=HUB,
            checkpoint_store=store,
            load_balancing_interval=0.3,
            load_balancing_strategy=LoadBalancingStrategy.GREEDY,
            # Who closes gives back what it owns; nobody is to lose a partition because the machine stalled.
            partition_ownership_expiration_interval=60,
        )
        self.thread = threading.Thread(target=self._receive, daemon=True)
        self.thread.start()

    def _receive(self) -> None:
        self.client.receive_batch(self._on_events, starting_position="-1", max_wait_time=0.2)

    def _on_events(self, context: Any, events: list[EventData]) -> None:
        self.seen[context.partition_id].extend(event.sequence_number for event in events)
        if events:
            context.update_checkpoint(events[-1])

    def close(self) -> None:
        self.client.close()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


@pytest.fixture
def producer(connection: str) -> Iterator[EventHubProducerClient]:
    with EventHubProducerClient.from_connection_string(connection, eventhub_name=HUB) as client:
        yield client


def publish(producer: EventHubProducerClient, first: int, count: int) -> None:
    for partition in range(PARTITIONS):
        batch = producer.create_batch(partition_id=str(partition))
        for number in range(first, first + count):
            batch.add(EventData(f"{partition}/{number}"))
        producer.send_batch(batch)


def address(connection: str) -> str:
    """What the client takes for the fully qualified namespace."""
    return connection.partition("//")[2].partition(";")[0]


def owners(store: Any, connection: str) -> Counter[str]:
    listed = store.list_ownership(address(connection), HUB, "$Default")
    return Counter(str(ownership["owner_id"]) for ownership in listed if ownership["owner_id"])


def test_two_consumers_share_partitions_and_one_goes_on_alone(
    connection: str, producer: EventHubProducerClient, open_checkpoints: Callable[[], Any]
) -> None:
    looking = open_checkpoints()
    publish(producer, 0, 20)
    first = Reader(connection, open_checkpoints())
    eventually(lambda: len(first.seen) == PARTITIONS)
    second = Reader(connection, open_checkpoints())
    eventually(lambda: sorted(owners(looking, connection).values()) == [2, 2])
    publish(producer, 20, 20)
    eventually(lambda: sum(numbers.count(39) for r in (first, second) for numbers in r.seen.values()) >= PARTITIONS)

    first.close()
    publish(producer, 40, 20)
    eventually(lambda: list(owners(looking, connection).values()) == [PARTITIONS])
    eventually(lambda: all(59 in second.seen[str(partition)] for partition in range(PARTITIONS)))
    second.close()

    for partition in map(str, range(PARTITIONS)):
        assert {*first.seen[partition], *second.seen[partition]} == set(range(60)), "nothing is left out"
        for reader in (first, second):
            # A partition may return to a reader, which then continues from the checkpoint.
            assert reader.seen[partition] == sorted(reader.seen[partition])
    # Who takes a partition over repeats at most what its former owner had in hand.
    repeated = sum(len(r.seen[p]) for r in (first, second) for p in r.seen) - 60 * PARTITIONS
    assert repeated <= 20 * PARTITIONS
    checkpoints = looking.list_checkpoints(address(connection), HUB, "$Default")
    assert {c["partition_id"]: c["sequence_number"] for c in checkpoints} == {str(p): 59 for p in range(PARTITIONS)}


def test_the_asynchronous_client(connection: str, producer: EventHubProducerClient, location: str) -> None:
    publish(producer, 0, 10)

    async def read(store: Any, enough: int) -> dict[str, list[int]]:
        seen: dict[str, list[int]] = defaultdict(list)
        checkpointed = 0
        done = asyncio.Event()

        async def on_events(context: Any, events: list[EventData]) -> None:
            nonlocal checkpointed
            seen[context.partition_id].extend(event.sequence_number for event in events)
            if events:
                await context.update_checkpoint(events[-1])
            # Not before: another partition's checkpoint may still be under way, and closing cancels it.
            checkpointed += len(events)
            if checkpointed >= enough:
                done.set()

        client = AioConsumerClient.from_connection_string(
            connection, "$Default", eventhub_name=HUB, checkpoint_store=store, load_balancing_interval=0.3
        )
        async with client:
            receiving = asyncio.ensure_future(
                client.receive_batch(on_events, starting_position="-1", max_wait_time=0.2)
            )
            await asyncio.wait_for(done.wait(), PATIENCE_S)
        await receiving
        await store.close()
        return seen

    def open_aio() -> Any:
        kind = aio.PostgresCheckpointStore if location.startswith("postgresql:") else aio.SqliteCheckpointStore
        return kind(location)

    seen = asyncio.run(read(open_aio(), 10 * PARTITIONS))
    assert seen == {str(partition): list(range(10)) for partition in range(PARTITIONS)}
    publish(producer, 10, 5)
    seen = asyncio.run(read(open_aio(), 5 * PARTITIONS))
    assert seen == {str(partition): list(range(10, 15)) for partition in range(PARTITIONS)}
