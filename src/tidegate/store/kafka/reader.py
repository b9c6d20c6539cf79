"""Reading hubs' topics without a gateway, as the tasks of a job do: in parallel, on any machine.

What is found is what every gateway finds: events are numbered by their offsets, markers are left out, and the enqueued
time is the running maximum of the append times, of which the start of a range is looked up.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.records import BatchError, parse_batches
from tidegate.log import EventBatch
from tidegate.store.client.cluster import EARLIEST, Cluster, Fetched, TopicPartition
from tidegate.store.client.connection import BrokerError, KafkaError, Unreachable
from tidegate.store.client.settings import ClientSettings
from tidegate.store.kafka.log import running_maximum_ms
from tidegate.store.kafka.records import Stretch, TakeApart, read_records
from tidegate.store.kafka.topics import topic_id_of

FETCH_BYTES = 4 << 20
_LEAST_FETCH_BYTES = 64 << 10
_ANSWER_WITHIN_S = 20.0
_RETRY_S = 0.02
_KNOWN_MAXIMA = 1024
_Result = TypeVar("_Result")


class OtherTopic(KafkaError):
    """The cluster has no topic of this name and identity: it is another cluster, or the topic was deleted."""


class RecordsGone(KafkaError):
    """Retention has deleted the beginning of a range; `begin` is the first offset that is left."""

    def __init__(self, where: TopicPartition, offset: int, begin: int) -> None:
        self.begin = begin
        super().__init__(f"{where.topic}/{where.partition} begins at {begin}; the record at {offset} was deleted")


class RecordsDamaged(KafkaError):
    """Records that cannot be read."""


class TopicReader:
    """Connections to one cluster for all threads of this process. Methods wait; they may be called from any thread."""

    def __init__(self, settings: ClientSettings, take_apart: TakeApart | None = None) -> None:
        """Start the thread; connections are opened when they are needed. `take_apart`: see `read_records`."""
        self._take_apart = take_apart
        self._cluster = Cluster(settings)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kafka-reader", daemon=True)
        self._thread.start()
        self._known_topics: set[tuple[str, str]] = set()
        self._maxima: dict[tuple[TopicPartition, int], int] = {}
        self._sizes: dict[TopicPartition, tuple[float, int]] = {}

    def read(self, where: TopicPartition, topic_id: str, start: int, end: int) -> Iterator[list[EventBatch]]:
        """Yield the events with start ≤ offset < end in order, as many at a time as a fetch finds.

        While events are used, the next ones are fetched.

        Raises:
            OtherTopic: The topic is not the one meant.
            RecordsGone: Retention has deleted records of the range.
            RecordsDamaged: Records cannot be read.
            KafkaError: The cluster does not answer or refuses.
        """
        self._wait(self._check(where.topic, topic_id))
        at = start
        fetching = self._begin(self._fetch(where, at, end))
        try:
            floor_ms = self._wait(self._running_maximum_ms(where, at))
            while at < end:
                fetched = fetching.result()
                following = self._note_size(where, fetched.records)
                if following < end:
                    fetching = self._begin(self._fetch(where, following, end))
                stretch = self._events(fetched, where, at, floor_ms, end)
                at, floor_ms = stretch.next_offset, stretch.floor_ms
                if at >= end:
                    self._remember((where, end), floor_ms)
                batches = _before(stretch.batches, end)
                if batches:
                    yield batches
        finally:
            fetching.cancel()

    def _events(self, fetched: Fetched, where: TopicPartition, offset: int, floor_ms: int, end: int) -> Stretch:
        try:
            return read_records(fetched.records, offset, floor_ms, end, self._take_apart)
        except BatchError as error:
            raise RecordsDamaged(
                f"{where.topic}/{where.partition}: the records at offset {offset} are damaged: {error}"
            ) from error

    def close(self) -> None:
        """Close the connections and end the thread. Idempotent."""
        if self._loop.is_closed():
            return
        with suppress(KafkaError):
            self._wait(self._cluster.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- in the thread

    def _begin(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _wait(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return self._begin(work).result()

    async def _check(self, topic: str, topic_id: str) -> None:
        if (topic, topic_id) in self._known_topics:
            return
        found = await topic_id_of(self._cluster, topic)
        if found != topic_id:
            raise OtherTopic(
                f"the cluster has no topic {topic}"
                if found is None
                else f"the topic {topic} of the cluster is another one than the gateway's"
            )
        await self._cluster.refresh([topic])
        self._known_topics.add((topic, topic_id))

    def _note_size(self, where: TopicPartition, records: bytes | memoryview) -> int:
        """Note how much space records and batches take, and return the offset after the last whole batch."""
        batches = list(parse_batches(records, partial_end=True))
        count = batches[-1].next_offset - batches[0].base_offset
        sizes = [len(batch.data) for batch in batches]
        self._sizes[where] = sum(sizes) / count, max(sizes)
        return batches[-1].next_offset

    def _wanted_bytes(self, where: TopicPartition, count: int) -> int:
        """Return how much to fetch for some records: about what they take, as the rest would be read in vain."""
        known = self._sizes.get(where)
        if known is None:
            return FETCH_BYTES
        of_record, of_batch = known
        return min(FETCH_BYTES, max(_LEAST_FETCH_BYTES, int(of_record * count) + 2 * of_batch))

    async def _fetch(self, where: TopicPartition, offset: int, end: int) -> Fetched:
        max_bytes = self._wanted_bytes(where, end - offset)
        gives_up_s = time.monotonic() + _ANSWER_WITHIN_S
        while True:
            try:
                fetched = await self._cluster.fetch_one(where, offset, max_bytes=max_bytes, timeout_s=_ANSWER_WITHIN_S)
            except BrokerError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                begin = await self._cluster.list_offset(where, EARLIEST)
                if begin > offset:
                    raise RecordsGone(where, offset, begin) from None
                self._known_topics.clear()  # it ends before what a gateway has read: perhaps it was made anew
                raise
            if next(parse_batches(fetched.records, partial_end=True), None) is not None:
                return fetched
            # A new leader shows what it has as soon as the other replicas have confirmed it.
            if time.monotonic() > gives_up_s:
                raise Unreachable(f"{where.topic}/{where.partition} shows nothing at {offset} and after it")
            await asyncio.sleep(_RETRY_S)

    async def _running_maximum_ms(self, where: TopicPartition, offset: int) -> int:
        known = self._maxima.get((where, offset))
        return await running_maximum_ms(self._cluster, where, offset) if known is None else known

    def _remember(self, place: tuple[TopicPartition, int], maximum_ms: int) -> None:
        """Keep the running maximum at the end of a range, where the next range of this process may begin."""
        self._maxima[place] = maximum_ms
        while len(self._maxima) > _KNOWN_MAXIMA:
            with suppress(KeyError, RuntimeError, StopIteration):  # another thread does the same
                del self._maxima[next(iter(self._maxima))]


def _before(batches: list[EventBatch], end: int) -> list[EventBatch]:
    """Return the events before a number."""
    while batches and batches[-1].base_sequence_number >= end:
        batches = batches[:-1]
    if batches:
        last = batches[-1]
        keep = end - last.base_sequence_number
        if keep < len(last.events):
            numbers = range(last.base_sequence_number, end)
            batches = [*batches[:-1], EventBatch(numbers.start, last.enqueued_time_ms, numbers, last.events[:keep])]
    return batches
