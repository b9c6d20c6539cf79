"""A cluster as its clients see it: who leads which partition, and requests that find their way to the leader."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from uuid import UUID

from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.messages import Api, Message
from tidegate.store.client.connection import BrokerError, Connection, KafkaError, LoginRefused, TooOld, Unreachable
from tidegate.store.client.settings import ClientSettings

_logger = logging.getLogger(__name__)
EARLIEST, LATEST = -2, -1
_BACKOFF_S = 0.05
_MAX_BACKOFF_S = 1.0
RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        8,  # BROKER_NOT_AVAILABLE
        9,  # REPLICA_NOT_AVAILABLE
        13,  # NETWORK_EXCEPTION
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        19,  # NOT_ENOUGH_REPLICAS
        20,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
        41,  # NOT_CONTROLLER
        ErrorCode.KAFKA_STORAGE_ERROR,
        72,  # LISTENER_NOT_FOUND
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        78,  # OFFSET_NOT_AVAILABLE
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors after which the same request may succeed: a leader has moved, or replicas are missing."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Who has a partition. `leader` is None while there is none."""

    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class Produced(NamedTuple):
    """Where a record batch was appended. A duplicate that the broker no longer remembers has the offset -1."""

    base_offset: int
    append_time_ms: int


class Fetched(NamedTuple):
    """What a fetch found: encoded record batches, the last of which may be cut off, and where the partition ends."""

    records: bytes | memoryview
    high_watermark: int
    log_start: int


class Cluster:
    """Connections to the brokers of one cluster. Everything runs in the event loop that first uses it.

    A broker answers the requests of one connection one after the other, so requests that wait (a fetch at the end, a
    produce that waits for replicas) have connections of their own, by purpose.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._connections: dict[tuple[int, str], Connection] = {}
        self._opening: dict[tuple[int, str], asyncio.Lock] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, dict[int, PartitionInfo]] = {}
        self._topic_ids: dict[str, str] = {}
        self._wanted: set[str] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._is_closed = False
        self.cluster_id = ""
        self.controller: int | None = None

    @property
    def brokers(self) -> Mapping[int, tuple[str, int]]:
        """Host and port of the known brokers by their ids."""
        return self._brokers

    # -- connections

    async def connection(self, node: int, purpose: str) -> Connection:
        """Return a connection to a broker, which is opened if there is none. Raises KafkaError."""
        key = node, purpose
        connection = self._connections.get(key)
        if connection is not None and connection.failure is None:
            return connection
        async with self._opening.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is not None and connection.failure is None:
                return connection
            if self._is_closed:
                raise Unreachable("the client is closed")
            if node not in self._brokers:
                raise Unreachable(f"the cluster has no broker {node} now")
            opened = self._connections[key] = await Connection.open(self.settings, *self._brokers[node])
            return opened

    async def ask(
        self,
        node: int,
        purpose: str,
        api: Api,
        values: Mapping[str, object],
        *,
        timeout_s: float | None = None,
        most: int | None = None,
        client_id: str | None = None,
    ) -> Message:
        """Send a request to one broker and return its answer. Raises KafkaError."""
        connection = await self.connection(node, purpose)
        return await connection.request(api, values, timeout_s=timeout_s, most=most, client_id=client_id)

    def close_connections(self, purpose: str) -> None:
        """Close the connections that have a purpose."""
        for key in [key for key in self._connections if key[1] == purpose]:
            self._connections.pop(key).close()
            self._opening.pop(key, None)

    async def ask_any(self, api: Api, values: Mapping[str, object]) -> Message:
        """Send a request to any broker that answers. Raises KafkaError."""
        failures: list[KafkaError] = []
        for node in sorted(self._brokers, key=lambda node: not self._is_connected(node)):
            try:
                return await self.ask(node, "control", api, values)
            except (Unreachable, LoginRefused) as error:
                failures.append(error)
        for host, port in self.settings.bootstrap:
            connection = None
            try:
                connection = await Connection.open(self.settings, host, port)
                return await connection.request(api, values)
            except (Unreachable, LoginRefused) as error:
                failures.append(error)
            finally:
                if connection is not None:
                    connection.close()
        refused = next((error for error in failures if isinstance(error, LoginRefused)), None)
        if refused is not None:
            raise refused
        raise Unreachable(f"no broker can be reached: {'; '.join(dict.fromkeys(map(str, failures)))}")

    def _is_connected(self, node: int) -> bool:
        """Return whether a broker is connected for such requests: one that hangs answers no new connection either."""
        connection = self._connections.get((node, "control"))
        return connection is not None and connection.failure is None

    # -- metadata

    async def refresh(self, topics: Sequence[str] = ()) -> None:
        """Learn anew who leads the partitions of the known topics and of some others. Raises KafkaError."""
        self._wanted.update(topics)
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.ensure_future(self._refresh())
        elif topics:
            await asyncio.wait([self._refreshing])
            self._refreshing = asyncio.ensure_future(self._refresh())
        await asyncio.shield(self._refreshing)

    async def _refresh(self) -> None:
        names = [{"name": name} for name in sorted(self._wanted)]
        answer = await self.ask_any(Api.METADATA, {"topics": names, "allow_auto_topic_creation": False})
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        self.cluster_id, self.controller = answer.cluster_id or "", answer.controller_id
        for topic in answer.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._topics.pop(topic.name, None)
                self._topic_ids.pop(topic.name, None)
            elif not topic.error_code:
                self._topic_ids[topic.name] = topic_id(topic)
                self._topics[topic.name] = {
                    one.partition_index: PartitionInfo(
                        one.leader_id if one.leader_id >= 0 else None, tuple(one.replica_nodes), tuple(one.isr_nodes)
                    )
                    for one in topic.partitions
                }
            elif topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise BrokerError(topic.error_code, f"the topic {topic.name}")

    async def partitions(self, topic: str) -> Mapping[int, PartitionInfo] | None:
        """Return who has a topic's partitions as of now, None if there is no such topic. Raises KafkaError."""
        await self.refresh([topic])
        return self._topics.get(topic)

    def known_partitions(self, topic: str) -> Mapping[int, PartitionInfo]:
        """Return who had a topic's partitions when that was last learned."""
        return self._topics.get(topic, {})

    def topic_id(self, topic: str) -> str | None:
        """Return the identity that a topic had when that was last learned, None if there was no such topic."""
        return self._topic_ids.get(topic)

    def leader(self, where: TopicPartition) -> int | None:
        """Return the broker that led a partition when that was last learned, None if none is known."""
        info = self._topics.get(where.topic, {}).get(where.partition)
        return None if info is None else info.leader

    # -- requests to leaders

    async def retrying(
        self, what: str, timeout_s: float, attempt: Callable[[], Awaitable[Message | None]], topics: Sequence[str] = ()
    ) -> Message:
        """Repeat an attempt until it returns something, with metadata refreshed in between.

        Args:
            what: What is attempted, for the message of an error.
            timeout_s: When to stop trying.
            attempt: Returns None, or raises BrokerError with a passing code or Unreachable, if it may be repeated.
            topics: The topics whose metadata it needs.

        Raises:
            KafkaError: The last error.
        """
        end_s = time.monotonic() + timeout_s
        backoff_s = _BACKOFF_S
        last: KafkaError = Unreachable(f"{what}: the partition has no leader")
        while True:
            try:
                answer = await attempt()
                if answer is not None:
                    return answer
            except (LoginRefused, TooOld):
                raise
            except BrokerError as error:
                if error.code not in RETRIABLE:
                    raise
                last = error
            except Unreachable as error:
                last = error
            if time.monotonic() + backoff_s > end_s:
                raise last
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)
            try:
                await self.refresh(topics)
            except Unreachable as error:
                last = error

    async def list_offset(self, where: TopicPartition, timestamp_ms: int, timeout_s: float = 30.0) -> int:
        """Return the first offset whose record has this timestamp or a later one, -1 if none has.

        EARLIEST and LATEST stand for the begin and the end. Raises KafkaError.
        """

        async def attempt() -> Message | None:
            found = await self.list_offsets({where: timestamp_ms})
            result = found.get(where)
            if result is not None and result.error_code:
                raise BrokerError(result.error_code, f"{where.topic}/{where.partition}")
            return result

        return int((await self.retrying(f"{where.topic}/{where.partition}", timeout_s, attempt, [where.topic])).offset)

    async def list_offsets(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, Message]:
        """Look some positions up, once, and return the brokers' answers. Partitions without a leader are left out."""
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for where, timestamp_ms in timestamps_ms.items():
            leader = self.leader(where)
            if leader is not None:
                by_leader.setdefault(leader, {})[where] = timestamp_ms
        found: dict[TopicPartition, Message] = {}
        for leader, some in by_leader.items():
            topics = _by_topic(some, lambda where, time_ms: {"partition_index": where.partition, "timestamp": time_ms})
            answer = await self.ask(leader, "control", Api.LIST_OFFSETS, {"replica_id": -1, "topics": topics})
            for topic in answer.topics:
                for one in topic.partitions:
                    found[TopicPartition(topic.name, one.partition_index)] = one
        return found

    async def produce(
        self, node: int, batches: Mapping[TopicPartition, bytes], timeout_s: float, *, purpose: str = "produce"
    ) -> dict[TopicPartition, Produced | BrokerError]:
        """Append a record batch to each of some partitions that a broker leads, acknowledged by all in-sync replicas.

        Raises Unreachable and other KafkaErrors if the whole request failed; it may have been carried out.
        """
        topics = _by_topic(batches, lambda where, batch: {"index": where.partition, "records": batch}, "partition_data")
        values = {"acks": -1, "timeout_ms": int(timeout_s * 1000), "topic_data": topics}
        answer = await self.ask(node, purpose, Api.PRODUCE, values, timeout_s=timeout_s + 2)
        results: dict[TopicPartition, Produced | BrokerError] = {}
        for topic in answer.responses:
            for one in topic.partition_responses:
                where = TopicPartition(topic.name, one.index)
                if one.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    results[where] = Produced(-1, -1)
                elif one.error_code:
                    results[where] = BrokerError(one.error_code, f"{topic.name}/{one.index}", one.error_message)
                else:
                    results[where] = Produced(one.base_offset, one.log_append_time_ms)
        return results

    async def fetch(
        self,
        node: int,
        positions: Mapping[TopicPartition, int],
        *,
        purpose: str,
        wait_s: float = 0.0,
        max_bytes: int = 1 << 20,
        total_bytes: int = 8 << 20,
    ) -> dict[TopicPartition, Fetched | BrokerError]:
        """Read some partitions that a broker leads from offsets on. Raises KafkaError if the whole request failed."""
        topics = _by_topic(
            positions,
            lambda where, offset: {
                "partition": where.partition,
                "fetch_offset": offset,
                "partition_max_bytes": max_bytes,
            },
            name="topic",
        )
        values = {
            "max_wait_ms": int(wait_s * 1000),
            "min_bytes": 1 if wait_s else 0,
            "max_bytes": total_bytes,
            "topics": topics,
        }
        answer = await self.ask(node, purpose, Api.FETCH, values, timeout_s=wait_s + 10)
        if answer.error_code:
            raise BrokerError(answer.error_code, "fetching")
        found: dict[TopicPartition, Fetched | BrokerError] = {}
        for topic in answer.responses:
            for one in topic.partitions:
                where = TopicPartition(topic.topic, one.partition_index)
                if one.error_code:
                    found[where] = BrokerError(one.error_code, f"{topic.topic}/{one.partition_index}")
                else:
                    found[where] = Fetched(one.records or b"", one.high_watermark, one.log_start_offset)
        return found

    async def fetch_one(
        self, where: TopicPartition, offset: int, *, max_bytes: int = 1 << 20, timeout_s: float = 30.0
    ) -> Fetched:
        """Read one partition from an offset on, and retry until it has a leader. Raises KafkaError."""
        result: list[Fetched] = []

        async def attempt() -> Message | None:
            leader = self.leader(where)
            if leader is None:
                return None
            found = (await self.fetch(leader, {where: offset}, purpose="read", max_bytes=max_bytes)).get(where)
            if isinstance(found, BrokerError):
                raise found
            if found is None:
                return None
            result[:] = [found]
            return Message()

        await self.retrying(f"{where.topic}/{where.partition}", timeout_s, attempt, [where.topic])
        return result[0]

    async def delete_before(self, where: TopicPartition, offset: int, timeout_s: float = 30.0) -> int:
        """Delete the records before an offset, and return where the partition begins. Raises KafkaError."""

        async def attempt() -> Message | None:
            leader = self.leader(where)
            if leader is None:
                return None
            topics = _by_topic({where: offset}, lambda one, at: {"partition_index": one.partition, "offset": at})
            answer = await self.ask(leader, "control", Api.DELETE_RECORDS, {"topics": topics, "timeout_ms": 10_000})
            found: Message = answer.topics[0].partitions[0]
            if found.error_code:
                raise BrokerError(found.error_code, f"{where.topic}/{where.partition}")
            return found

        what = f"{where.topic}/{where.partition}"
        return int((await self.retrying(what, timeout_s, attempt, [where.topic])).low_watermark)

    async def init_producer_id(self, timeout_s: float = 30.0) -> tuple[int, int]:
        """Return an id and epoch for an idempotent producer that nobody else has. Raises KafkaError."""

        async def attempt() -> Message | None:
            values = {"transactional_id": None, "transaction_timeout_ms": 60_000}
            answer = await self.ask_any(Api.INIT_PRODUCER_ID, values)
            if answer.error_code:
                raise BrokerError(answer.error_code, "a producer id")
            return answer

        answer = await self.retrying("a producer id", timeout_s, attempt)
        return answer.producer_id, answer.producer_epoch

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        if self._refreshing is not None:
            self._refreshing.cancel()
        for connection in self._connections.values():
            connection.close()


def topic_id(topic: Message) -> str:
    """Return the identity of a topic that metadata describe, its name for one that has none (before Kafka 2.8)."""
    return topic.topic_id.hex if isinstance(topic.topic_id, UUID) and topic.topic_id.int else str(topic.name)


_T = TypeVar("_T")


def _by_topic(
    values: Mapping[TopicPartition, _T],
    entry: Callable[[TopicPartition, _T], Mapping[str, object]],
    field: str = "partitions",
    name: str = "name",
) -> list[dict[str, object]]:
    """Return what some partitions are to be asked, in the nested form of requests."""
    topics: dict[str, list[Mapping[str, object]]] = {}
    for where, value in values.items():
        topics.setdefault(where.topic, []).append(entry(where, value))
    return [{name: topic, field: entries} for topic, entries in topics.items()]
