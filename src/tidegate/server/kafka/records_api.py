"""Producing and fetching: record batches into partitions and out of them, and where offsets lie in time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from tidegate.hub.access_rules import Right
from tidegate.hub.errors import HubError, NotFound, OutOfOrderSequence, ProducerFenced
from tidegate.hub.namespace import EventHub, Partition
from tidegate.hub.producers import AppendRefused, Numbers
from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.messages import Message, RequestHeader
from tidegate.kafka.records import (
    BatchError,
    OldMagic,
    RecordBatch,
    RecordsTooLarge,
    UnknownCompression,
    decode,
    parse_batches,
)
from tidegate.kafka.translation import RESERVED_HEADERS
from tidegate.log import Appended, LogClosed, LogDamaged, LogError, NumbersRefused, PartitionStore
from tidegate.server.context.context import ServerContext
from tidegate.server.context.metrics import hub_in
from tidegate.server.kafka.session import FetchSession, Session

_logger = logging.getLogger(__name__)

Fields = Mapping[str, Any]
"""Of a response, or of an element of it."""
Later = Awaitable[Fields | None]
"""The answer to a request that has been begun; None for a request without one."""
MAX_FETCH_BYTES = 8 << 20
MAX_FETCH_WAIT_S = 60.0
MAX_FETCH_PARTITIONS = 10_000
_FETCHES_BY_ID_SINCE = 13
_ID_MARK = "\0"
"""Before the id of a topic, where its name would be: no name holds it."""
_LATEST, _EARLIEST, _LATEST_TIME, _EARLIEST_LOCAL = -1, -2, -3, -4
_ERRORS_OF_BATCHES: tuple[tuple[type[BatchError], ErrorCode], ...] = (
    (OldMagic, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    (RecordsTooLarge, ErrorCode.MESSAGE_TOO_LARGE),
    (UnknownCompression, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    (BatchError, ErrorCode.CORRUPT_MESSAGE),
)
_ERRORS_OF_APPENDS: tuple[tuple[type[HubError], ErrorCode], ...] = (
    (OutOfOrderSequence, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (ProducerFenced, ErrorCode.INVALID_PRODUCER_EPOCH),
    (NotFound, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
)


class Refused(Exception):
    """A part of a request that is answered with an error."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message = message
        super().__init__(message)


def find_partition(session: Session, right: Right, topic: str, number: int) -> tuple[EventHub, Partition]:
    """Return a partition that the client has a right on. Raises Refused, alike for every hub it has none on."""
    if not session.may(right, topic):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    hub = session.namespace.event_hubs.get(topic.lower())
    if hub is None or not 0 <= number < len(hub.partitions):
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return hub, hub.partitions[number]


class RecordsApi:
    """Produce, Fetch, ListOffsets and OffsetForLeaderEpoch."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    # -- producing

    async def produce(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Hand the batches to their partitions, in the order of requests; the answer waits until all are durable."""
        throttled_s = 0.0
        topics: list[tuple[str, list[tuple[int, asyncio.Future[Fields]]]]] = []
        for topic in body.topic_data:
            begun: list[tuple[int, asyncio.Future[Fields]]] = []
            for part in topic.partition_data:
                answer: asyncio.Future[Fields] = asyncio.get_running_loop().create_future()
                begun.append((part.index, answer))
                try:
                    throttled_s += await self._produce_to(session, body, topic.name, part, answer)
                except Refused as refused:
                    hub = hub_in(session.namespace, topic.name)
                    self._context.metrics.refuse(f"kafka:{refused.code.name.lower()}", hub)
                    fields = {"error_code": refused.code, "base_offset": -1, "error_message": refused.message}
                    answer.set_result(fields)
            topics.append((topic.name, begun))
        return self._produced(topics, throttled_s, body.acks)

    async def _produced(
        self, topics: list[tuple[str, list[tuple[int, asyncio.Future[Fields]]]]], throttled_s: float, acks: int
    ) -> Fields | None:
        responses = [
            {"name": name, "partition_responses": [{"index": index, **await answer} for index, answer in begun]}
            for name, begun in topics
        ]
        return {"responses": responses, "throttle_time_ms": round(throttled_s * 1000)} if acks else None

    async def _produce_to(
        self, session: Session, body: Message, topic: str, part: Message, answer: asyncio.Future[Fields]
    ) -> float:
        """Begin to store a batch, and return how long its client was made to wait first. Raises Refused."""
        if body.transactional_id is not None:
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not supported")
        if body.acks not in (0, 1, -1):
            raise Refused(ErrorCode.INVALID_REQUIRED_ACKS)
        hub, partition = find_partition(session, Right.SEND, topic, part.index)
        batch = _checked_batch(part.records or b"", hub.admission.max_message_bytes)
        throttled_s = await self._admit(hub, partition, batch)
        finish = partial(self._finish, partition, answer)
        try:
            if batch.producer_id < 0:
                partition.log.append_batch(batch, finish)
            else:
                numbers = Numbers(batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence)
                if not partition.producers.append_batch(numbers, batch, finish):
                    first = partition.producers.sequence_number_of(numbers)
                    answer.set_result(_stored(partition, -1 if first is None else first, -1))
                    return throttled_s
        except HubError as error:
            raise Refused(_code_of(error), error.description) from None
        except LogClosed:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if hub.is_deleted else ErrorCode.KAFKA_STORAGE_ERROR
            raise Refused(code, "the hub is stopping, or was deleted") from None
        self._context.metrics.publications += 1
        return throttled_s

    async def _admit(self, hub: EventHub, partition: Partition, batch: RecordBatch) -> float:
        """Wait until the throughput units allow the batch, and return how long that took."""
        throughput = hub.admission.throughput
        waited_s = 0.0
        while throughput is not None:
            wait_s = throughput.partition_wait_s(partition.ingress)
            if wait_s <= 0:
                wait_s = throughput.ingress_wait_s(len(batch.data), batch.count, partition.ingress)
            if wait_s <= 0:
                break
            await asyncio.sleep(wait_s)
            waited_s += wait_s
        return waited_s

    def _finish(self, partition: Partition, answer: asyncio.Future[Fields], result: Appended | LogError) -> None:
        """Report that the log stored a batch, or failed to. Runs in a committer thread."""
        fields: Fields
        if isinstance(result, LogError):
            fields = {"error_code": _code_of_failure(result), "base_offset": -1, "error_message": str(result)}
        else:
            fields = _stored(partition, result.first_sequence_number, result.enqueued_time_ms)
        self._context.completions.report(_settle, answer, fields)

    # -- fetching

    async def fetch(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Read, and wait for enough to read, without holding up the client's other requests."""
        return asyncio.ensure_future(self._fetch(session, header, body))

    async def _fetch(self, session: Session, header: RequestHeader, body: Message) -> Fields:
        by_id = header.version >= _FETCHES_BY_ID_SINCE
        if by_id:  # one incarnation of a hub: its successor of the same name has another id
            for topic in (*body.topics, *body.forgotten_topics_data):
                topic.topic = _ID_MARK + topic.topic_id.hex
        error, wanted, kept = _fetch_session(session, body, by_id=by_id)
        if error is not ErrorCode.NONE:
            return {"error_code": error, "session_id": 0}
        throttled_s = await self._wait_for_egress()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + min(body.max_wait_ms / 1000, MAX_FETCH_WAIT_S)
        arrived = asyncio.Event()
        unseen = await self._catch_up(session, wanted, is_in_haste=body.max_wait_ms <= 0)
        watched = self._watched(session, wanted)
        for partition in watched:
            self._context.arrivals.watch(partition, arrived.set)
        try:
            while True:
                found = _Found(min(body.max_bytes, MAX_FETCH_BYTES))
                for place, asked in list(wanted.items()):
                    if place in unseen:
                        found.fail(place, ErrorCode.KAFKA_STORAGE_ERROR)
                    else:
                        found.rows[place] = await self._read(session, *place, asked, found)
                left_s = deadline_s - loop.time()
                if found.size >= body.min_bytes or found.is_urgent or left_s <= 0:
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await arrived.wait()
                arrived.clear()
                if session.has_expired():
                    break  # it had the right when it asked; its next request ends the connection
        finally:
            for partition in watched:
                self._context.arrivals.unwatch(partition, arrived.set)
        self._count_delivered(found)
        return {
            "throttle_time_ms": round(throttled_s * 1000),
            "session_id": 0 if kept is None else kept.session_id,
            "responses": _grouped(_news(found, kept), by_id=by_id),
        }

    async def _wait_for_egress(self) -> float:
        waited_s = 0.0
        throughput = self._context.namespace.throughput
        while throughput.units is not None and (wait_s := throughput.egress_wait_s()) > 0:
            await asyncio.sleep(wait_s)
            waited_s += wait_s
        return waited_s

    async def _catch_up(
        self, session: Session, wanted: Mapping[tuple[str, int], Message], *, is_in_haste: bool
    ) -> Collection[tuple[str, int]]:
        """See how partitions go on that the client has read further in, at another gateway, than was seen here.

        A worker of this machine sees a moment later than others what they have stored; a client that does not wait for
        more has it see that first. Return the partitions of which it cannot be seen now how they go on.
        """
        unseen = set()
        for place, asked in wanted.items():
            try:
                log = _find_to_fetch(session, *place)[1].log
            except Refused:
                continue
            end = log.next_sequence_number
            if asked.fetch_offset > end or (is_in_haste and asked.fetch_offset == end and log.topic is None):
                try:
                    await _see_end(log)
                except Refused:
                    unseen.add(place)
        return unseen

    def _watched(self, session: Session, wanted: Mapping[tuple[str, int], Message]) -> list[Partition]:
        watched = []
        for topic, number in wanted:
            try:
                watched.append(_find_to_fetch(session, topic, number)[1])
            except Refused:
                continue
        return watched

    async def _read(self, session: Session, topic: str, number: int, asked: Message, found: _Found) -> Fields:
        try:
            hub, partition = _find_to_fetch(session, topic, number)
            log = partition.log
            end, begin = log.next_sequence_number, log.begin_sequence_number
            row = {"high_watermark": end, "last_stable_offset": end, "log_start_offset": begin, "records": b""}
            if not begin <= asked.fetch_offset <= end:
                raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
            room = min(asked.partition_max_bytes, found.room)
            if asked.fetch_offset == end or (room <= 0 and found.size):
                return row
            wanted = partition, asked.fetch_offset, max(room, 0), not found.size
            if log.topic is not None and log.read_cached(asked.fetch_offset, max_events=1) is None:
                # other clients must not wait for a cluster that may not answer
                data, count = await asyncio.to_thread(_batches_from, *wanted)
            else:
                data, count = _batches_from(*wanted)
        except Refused as refused:
            found.is_urgent = True
            return {"error_code": refused.code, "high_watermark": -1, "records": b""}
        except LogError as error:
            _logger.error("%s/%s cannot be read: %s", hub.name, number, error)
            found.is_urgent = True
            return {"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "high_watermark": -1, "records": b""}
        found.add(hub.name, len(data), count)
        return {**row, "records": data}

    def _count_delivered(self, found: _Found) -> None:
        context = self._context
        for hub, (count, size) in found.events.items():
            context.metrics.delivered_events += count
            context.metrics.deliveries.count(hub, count, size)
        if found.size and context.namespace.throughput.units is not None:
            context.namespace.throughput.spend_egress(found.size, sum(count for count, _ in found.events.values()))

    # -- offsets

    async def list_offsets(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Return the offsets of times, of the beginning and of the end."""
        topics = []
        for topic in body.topics:
            rows = []
            for part in topic.partitions:
                try:
                    _, partition = find_partition(session, Right.LISTEN, topic.name, part.partition_index)
                    if partition.log.topic is None or part.timestamp not in (_EARLIEST, _EARLIEST_LOCAL):
                        await _see_end(partition.log)
                    if partition.log.topic is not None and part.timestamp >= 0:
                        offset, time_ms = await asyncio.to_thread(_offset_at, partition, part.timestamp)
                    else:
                        offset, time_ms = _offset_at(partition, part.timestamp)
                    row: Fields = {"offset": offset, "timestamp": time_ms, "leader_epoch": 0}
                except Refused as refused:
                    row = {"error_code": refused.code}
                except LogError as error:
                    _logger.error("%s/%s cannot be searched: %s", topic.name, part.partition_index, error)
                    row = {"error_code": ErrorCode.KAFKA_STORAGE_ERROR}
                rows.append({"partition_index": part.partition_index, **row})
            topics.append({"name": topic.name, "partitions": rows})
        return answered({"topics": topics})

    async def end_of_epoch(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Return where an epoch of a leader ends: there is one leader and one epoch."""
        topics = []
        for topic in body.topics:
            rows = []
            for part in topic.partitions:
                try:
                    _, partition = find_partition(session, Right.LISTEN, topic.topic, part.partition)
                    await _see_end(partition.log)
                    row: Fields = {"leader_epoch": 0, "end_offset": partition.log.next_sequence_number}
                except Refused as refused:
                    row = {"error_code": refused.code}
                rows.append({"partition": part.partition, **row})
            topics.append({"topic": topic.topic, "partitions": rows})
        return answered({"topics": topics})


class _Found:
    """What a fetch has read so far."""

    def __init__(self, max_bytes: int) -> None:
        self.rows: dict[tuple[str, int], Fields] = {}
        self.events: dict[str, tuple[int, int]] = {}
        """Of each hub, how many events and bytes."""
        self.size = 0
        self.room = max_bytes
        self.is_urgent = False

    def fail(self, place: tuple[str, int], code: ErrorCode) -> None:
        self.rows[place] = {"error_code": code, "high_watermark": -1, "records": b""}
        self.is_urgent = True

    def add(self, hub: str, size: int, count: int) -> None:
        self.size += size
        self.room -= size
        before = self.events.get(hub, (0, 0))
        self.events[hub] = before[0] + count, before[1] + size


class _Batches(NamedTuple):
    data: bytes
    events: int


def _batches_from(partition: Partition, offset: int, max_bytes: int, at_least_one: bool) -> _Batches:
    """Return batches from an offset on; damaged events are passed over. Raises LogError."""
    while True:
        try:
            found = partition.log.read_record_batches(offset, max_bytes=max_bytes)
        except LogDamaged as damage:
            _logger.error("%s/%s: skipping damaged events: %s", partition.hub_name, partition.partition_id, damage)
            offset = damage.resume_sequence_number
            continue
        data = b"".join(found.batches)
        if len(data) > max_bytes and not at_least_one:
            return _Batches(b"", 0)
        return _Batches(data, found.event_count)


def _checked_batch(data: bytes, max_bytes: int) -> RecordBatch:
    """Return the one batch of a request, completely checked. Raises Refused."""
    if len(data) > max_bytes:
        message = f"a record batch may have {max_bytes} bytes, this one has {len(data)}"
        raise Refused(ErrorCode.MESSAGE_TOO_LARGE, message)
    try:
        batches = list(parse_batches(data))
        if len(batches) != 1:
            raise Refused(ErrorCode.INVALID_RECORD, f"a request has one batch for a partition, this one {len(batches)}")
        (batch,) = batches
        batch.check()
        if batch.is_control or not batch.count or batch.count != batch.last_offset_delta + 1:
            raise Refused(ErrorCode.INVALID_RECORD, "a batch has records, as many as it has offsets, and no markers")
        if batch.is_transactional:
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not supported")
        columns = decode(batch)
        if not RESERVED_HEADERS.isdisjoint(columns.headers):
            names = " or ".join(repr(name) for ((name, _),) in sorted(RESERVED_HEADERS))
            raise Refused(ErrorCode.INVALID_RECORD, f"{names} without a value cannot be a record's only header")
        if batch.compression and max(len(value or b"") for value in columns.values) > max_bytes:
            raise Refused(ErrorCode.MESSAGE_TOO_LARGE, f"a record may have {max_bytes} bytes")
    except BatchError as error:
        code = next(code for kind, code in _ERRORS_OF_BATCHES if isinstance(error, kind))
        raise Refused(code, str(error)) from None
    return batch


def _code_of(error: HubError) -> ErrorCode:
    """Return Kafka's error for a publication that is refused."""
    return next((code for kind, code in _ERRORS_OF_APPENDS if isinstance(error, kind)), ErrorCode.KAFKA_STORAGE_ERROR)


def _code_of_failure(error: LogError) -> ErrorCode:
    """Return Kafka's error for a batch that a log did not store."""
    if isinstance(error, AppendRefused):
        return _code_of(error.error)
    if isinstance(error, NumbersRefused):
        return ErrorCode.INVALID_PRODUCER_EPOCH if error.is_epoch_over else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    return ErrorCode.KAFKA_STORAGE_ERROR


def _stored(partition: Partition, offset: int, time_ms: int) -> Fields:
    """Describe a batch that is stored; of a duplicate that is not among the latest, the offset (-1) is unknown."""
    return {
        "error_code": ErrorCode.NONE if offset >= 0 else ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        "base_offset": offset,
        "log_append_time_ms": time_ms,
        "log_start_offset": partition.log.begin_sequence_number,
    }


def _settle(answer: asyncio.Future[Fields], fields: Fields) -> None:
    if not answer.done():
        answer.set_result(fields)


async def _see_end(log: PartitionStore) -> None:
    """Learn where a partition ends that others append to as well. Raises Refused if that cannot be learned."""
    try:
        await asyncio.to_thread(log.catch_up)
    except LogError as error:
        _logger.info("where a partition ends cannot be looked up: %s", error)
        raise Refused(ErrorCode.KAFKA_STORAGE_ERROR) from None


def _offset_at(partition: Partition, timestamp: int) -> tuple[int, int]:
    """Return the offset that a timestamp, or a number below zero, stands for, and its time. Raises LogError."""
    log = partition.log
    end, begin = log.next_sequence_number, log.begin_sequence_number
    if timestamp == _LATEST:
        return end, -1
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return begin, -1
    if timestamp == _LATEST_TIME:
        return (end - 1, log.last_enqueued_time_ms) if end > begin else (-1, -1)
    if timestamp < 0:
        return -1, -1
    offset = log.sequence_at_time(timestamp, inclusive=True)
    if offset >= end:
        return -1, -1
    found = log.read_batches(offset, max_events=1)
    return offset, found[0].enqueued_time_ms if found else -1


def _fetch_session(
    session: Session, body: Message, *, by_id: bool
) -> tuple[ErrorCode, Mapping[tuple[str, int], Message], FetchSession | None]:
    """Return what a fetch wants to read, and the session that it goes on with or begins."""
    named = {(topic.topic, part.partition): part for topic in body.topics for part in topic.partitions}
    if body.session_epoch == -1 or (body.session_id == 0 and body.session_epoch != 0):
        session.fetch = None
        return ErrorCode.NONE, named, None
    if body.session_epoch == 0:
        if len(named) > MAX_FETCH_PARTITIONS:
            return ErrorCode.INVALID_REQUEST, {}, None
        session.fetch = FetchSession(secrets.randbelow(2**31 - 2) + 1, by_id, partitions=named)
        return ErrorCode.NONE, named, session.fetch
    kept = session.fetch
    if kept is None or kept.session_id != body.session_id:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND, {}, None
    if kept.epoch != body.session_epoch:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH, {}, None
    if kept.by_id != by_id:
        return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, {}, None
    kept.epoch = kept.epoch + 1 if kept.epoch < 2**31 - 1 else 1
    for topic in body.forgotten_topics_data:
        for number in topic.partitions:
            kept.partitions.pop((topic.topic, number), None)
            kept.sent.pop((topic.topic, number), None)
    for key, part in named.items():  # changed ones go to the end, so that all get their turn
        kept.partitions.pop(key, None)
        kept.partitions[key] = part
    if len(kept.partitions) > MAX_FETCH_PARTITIONS:
        session.fetch = None
        return ErrorCode.INVALID_REQUEST, {}, None
    return ErrorCode.NONE, kept.partitions, kept


def _news(found: _Found, kept: FetchSession | None) -> dict[tuple[str, int], Fields]:
    """Return the rows that a consumer does not know yet: all of them, without a session."""
    if kept is None:
        return found.rows
    news = {}
    for key, row in found.rows.items():
        state = (int(row.get("error_code", 0)), int(row["high_watermark"]), int(row.get("log_start_offset", -1)))
        if row.get("records") or state[0] or kept.sent.get(key) != state:
            news[key] = row
        kept.sent[key] = state
    return news


def _find_to_fetch(session: Session, topic: str, number: int) -> tuple[EventHub, Partition]:
    """Return a partition by a topic's name, or by its id behind a mark. Raises Refused."""
    if not topic.startswith(_ID_MARK):
        return find_partition(session, Right.LISTEN, topic, number)
    name = session.name_of(UUID(topic.removeprefix(_ID_MARK)))
    if name is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
    return find_partition(session, Right.LISTEN, name, number)


def _grouped(rows: Mapping[tuple[str, int], Fields], *, by_id: bool) -> list[Fields]:
    topics: dict[str, list[Fields]] = {}
    for (topic, number), row in rows.items():
        topics.setdefault(topic, []).append({"partition_index": number, **row})
    if by_id:
        return [
            {"topic_id": UUID(topic.removeprefix(_ID_MARK)), "partitions": partitions}
            for topic, partitions in topics.items()
        ]
    return [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()]


async def answered(fields: Fields | None) -> Fields | None:
    """Return an answer that is there already."""
    return fields
