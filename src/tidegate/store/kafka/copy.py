"""Copies the events of a data directory to a cluster, while its hub serves clients, and in pieces.

A partition's first copied event gets the offset 0, so numbers are those of before less that of the first event, which
is noted in the data directory. Where a copy continues follows from where the topic ends. While they are copied to,
topics take the timestamps that the copy gives them, so that enqueued times stay; gateways refuse them until `finish`
has the brokers stamp what is appended, and writes what else belongs to the namespace: last of all its definitions,
without which no gateway serves it. Until then everything can be repeated.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

from tidegate.durable_files import read_checked, write_checked
from tidegate.kafka.compression import Compression
from tidegate.kafka.messages import Api, Message
from tidegate.kafka.records import encode
from tidegate.log import EventBatch, LogDamaged, LogError, SegmentReader
from tidegate.store.client.cluster import EARLIEST, LATEST, RETRIABLE, Cluster, TopicPartition
from tidegate.store.client.connection import BrokerError, KafkaError, Unreachable
from tidegate.store.client.settings import ClientSettings
from tidegate.store.kafka.check import SHARED_PREFIX, read_shared_state
from tidegate.store.kafka.records import encode_messages, read_records
from tidegate.store.kafka.shared import SharedState
from tidegate.store.kafka.topics import (
    SHARED_SETTINGS,
    alter_topic,
    create_topic,
    find_topic,
    hub_settings,
    possible_replication,
)

NOTES = "store-copy.json"
_STAMPS = "message.timestamp.type"
_BATCH_BYTES = 900_000
_BATCH_EVENTS = 10_000
_PRODUCE_TIMEOUT_S = 10.0
_RETRY_FOR_S = 120.0
_SHARED_BATCH_BYTES = 200_000
_LAST_SINGLE_FETCH = 7
"""The last version of OffsetFetch that asks for one group."""
_BEFORE_EVENT = Struct(">qI")


class CopyError(Exception):
    """The copy cannot continue; the message says why, and what to do."""


class SourceHub(NamedTuple):
    """An event hub of the data directory."""

    name: str
    directory: str
    retention_ms: int | None
    retention_bytes: int | None


class SourcePartition(NamedTuple):
    """Where a partition's segments are, and what of them is durable."""

    segments: Path
    begin: int
    end: int


class GroupPosition(NamedTuple):
    """What a group of Kafka's clients has committed: the number that it reads next, and what the client added."""

    offset: int
    metadata: str | None


class SharedContent(NamedTuple):
    """What belongs to a namespace beside its events.

    Attributes:
        definitions: Hubs, rules and keys.
        entries: By list, its entries in their order.
        documents: By name, the content of small documents.
        groups: By group, under the name that it has in the cluster, its positions.
    """

    definitions: Mapping[str, Any]
    entries: Mapping[str, Sequence[Mapping[str, Any]]]
    documents: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, Mapping[TopicPartition, GroupPosition]]


class Verified(NamedTuple):
    """What a partition holds on both sides: its events, and their checksum with times and lengths."""

    partition: int
    events: int
    checksum: int


class StoreCopy:
    """One copy. Use it in one event loop, and close it."""

    def __init__(self, settings: ClientSettings, namespace: str, data: Path) -> None:
        self._cluster = Cluster(settings)
        self._namespace = namespace
        self._notes = data / NOTES

    async def open(self) -> None:
        """Connect. Raises KafkaError, and CopyError if the cluster has the namespace already."""
        await self._cluster.refresh()
        shared = SHARED_PREFIX + self._namespace
        if await find_topic(self._cluster, shared) is not None:
            state = await read_shared_state(self._cluster, TopicPartition(shared, 0))
            if state.version:
                raise CopyError(
                    f"the cluster has the namespace {self._namespace} already: it was copied before, or gateways began "
                    f"it anew. To copy it again, delete the topics {shared} and {self._namespace}.*, and {self._notes}"
                )

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()

    def firsts(self, hub: SourceHub) -> list[int]:
        """Return by partition the number of the event that has the offset 0. Raises FileDamaged, OSError."""
        noted = (read_checked(self._notes) or {}).get("firsts", {})
        return list(noted.get(self._topic(hub), []))

    async def copy(self, hub: SourceHub, partitions: Sequence[SourcePartition]) -> int:
        """Copy what is there and was not copied yet, and return how many events that were.

        Raises CopyError, KafkaError, LogError, FileDamaged, OSError.
        """
        topic = self._topic(hub)
        firsts = await self._prepare(hub, partitions)
        copied = 0
        for number, (source, first) in enumerate(zip(partitions, firsts, strict=True)):
            try:
                copied += await self._copy_partition(TopicPartition(topic, number), source, first)
            except LogDamaged as damage:
                raise CopyError(
                    f"{hub.name}/{number}: {damage}: restore {damage.path} from a backup and run the copy again; to do "
                    "without those events and all before them, delete the records before "
                    f"{damage.resume_sequence_number} first, with kafka-delete-records.sh at the hub"
                ) from damage
        return copied

    async def _prepare(self, hub: SourceHub, partitions: Sequence[SourcePartition]) -> list[int]:
        topic, firsts = self._topic(hub), self.firsts(hub)
        facts = await find_topic(self._cluster, topic)
        if facts is None:
            replication = await possible_replication(self._cluster)
            settings = hub_settings(replication, hub.retention_ms, hub.retention_bytes)
            await create_topic(self._cluster, topic, len(partitions), {**settings, _STAMPS: "CreateTime"})
            firsts = [source.begin for source in partitions]
            document = read_checked(self._notes) or {}
            document.pop("checksum", None)
            write_checked(self._notes, {"firsts": {**document.get("firsts", {}), topic: firsts}})
        elif not firsts:
            raise CopyError(f"the topic {topic} exists, and {self._notes} does not know it: delete the topic")
        elif facts.partitions != len(partitions):
            raise CopyError(
                f"the topic {topic} has {facts.partitions} partitions, the event hub {hub.name} {len(partitions)}: "
                "delete the topic, and its line in the notes, to begin anew"
            )
        elif facts.settings.get(_STAMPS) != "CreateTime":  # it failed while it was finished
            await alter_topic(self._cluster, topic, {_STAMPS: "CreateTime"})
        return firsts

    async def _copy_partition(self, where: TopicPartition, source: SourcePartition, first: int) -> int:
        end = await self._cluster.list_offset(where, LATEST)
        start = first + end
        if start < source.begin:
            raise CopyError(
                f"{where.topic}/{where.partition}: the events {start} to {source.begin - 1} were deleted by retention "
                "before they were copied: delete the topic to begin anew"
            )
        producer = (*await self._cluster.init_producer_id(), 0)
        copied = 0
        for batch in _source_batches(source, start):
            encoded = encode_messages(batch.events, batch.enqueued_time_ms, producer)
            await self._append(where, encoded, end + copied)
            copied += len(batch.events)
            producer = (producer[0], producer[1], copied & 0x7FFFFFFF)
        return copied

    async def _append(self, where: TopicPartition, encoded: bytes, offset: int) -> None:
        async def attempt() -> Message | None:
            leader = self._cluster.leader(where)
            if leader is None:
                return None
            result = (await self._cluster.produce(leader, {where: encoded}, _PRODUCE_TIMEOUT_S))[where]
            if isinstance(result, BrokerError):
                raise result
            return Message(offset=result.base_offset)

        what = f"{where.topic}/{where.partition}"
        stored = int((await self._cluster.retrying(what, _RETRY_FOR_S, attempt, [where.topic])).offset)
        if stored != offset:
            raise CopyError(f"{what}: events were appended at {stored}, expected {offset}: somebody else writes there")

    async def verify(self, hub: SourceHub, partitions: Sequence[SourcePartition]) -> list[Verified]:
        """Read both sides, and return what they hold. Raises CopyError if that differs, and what `copy` raises."""
        topic, found = self._topic(hub), []
        for number, (source, first) in enumerate(zip(partitions, self.firsts(hub), strict=True)):
            where = TopicPartition(topic, number)
            await self._cluster.refresh([topic])
            begin = max(await self._cluster.list_offset(where, EARLIEST), source.begin - first)
            end = await self._cluster.list_offset(where, LATEST)
            here = _Sum()
            for batch in _source_batches(source, first + begin):
                here.add(batch)
            there = _Sum()
            async for batch in self._target_batches(where, begin, end):
                there.add(batch)
            if (here.events, here.checksum) != (there.events, there.checksum):
                raise CopyError(
                    f"{topic}/{number} differs: {here.events} events with the checksum {here.checksum:08x} in the data "
                    f"directory, {there.events} with {there.checksum:08x} in the cluster"
                )
            found.append(Verified(number, there.events, there.checksum))
        return found

    async def _target_batches(self, where: TopicPartition, offset: int, end: int) -> AsyncIterator[EventBatch]:
        floor_ms = 0
        while offset < end:
            fetched = await self._cluster.fetch_one(where, offset, max_bytes=4 << 20)
            stretch = read_records(fetched.records, offset, floor_ms)
            if stretch.next_offset == offset:
                raise KafkaError(f"{where.topic}/{where.partition} cannot be read at {offset}")
            offset, floor_ms = stretch.next_offset, stretch.floor_ms
            for batch in stretch.batches:
                yield batch

    async def finish(self, hubs: Sequence[SourceHub], content: SharedContent) -> None:
        """Have brokers stamp what is appended from now on, and let gateways serve the namespace.

        Raises CopyError if the cluster does not have what was written, and KafkaError.
        """
        for hub in hubs:
            await alter_topic(self._cluster, self._topic(hub), {_STAMPS: "LogAppendTime"})
        where = TopicPartition(SHARED_PREFIX + self._namespace, 0)
        await create_topic(self._cluster, where.topic, 1, SHARED_SETTINGS)
        known = await read_shared_state(self._cluster, where)
        records = list(_missing_entries(known, content)) + list(_changed_documents(known, content))
        await self._write(where, records)
        await self._commit(content.groups)
        await self._check(where, content)
        await self._write(where, [("definitions/copy", {"version": 1, "state": content.definitions})])

    async def _write(self, where: TopicPartition, records: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        producer_id, epoch = await self._cluster.init_producer_id()
        offset, number = await self._cluster.list_offset(where, LATEST), 0
        values = iter([(key.encode(), json.dumps(value, separators=(",", ":")).encode()) for key, value in records])
        while some := list(_fitting_records(values)):
            encoded = encode(
                [value for _, value in some],
                timestamps_ms=[0] * len(some),
                keys=[key for key, _ in some],
                producer=(producer_id, epoch, number),
                compression=Compression.GZIP,
            )
            await self._append(where, encoded, offset + number)
            number += len(some)

    async def _commit(self, groups: Mapping[str, Mapping[TopicPartition, GroupPosition]]) -> None:
        for group, positions in groups.items():
            topics = [
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partition_index": where.partition,
                            "committed_offset": position.offset,
                            "committed_metadata": position.metadata,
                        }
                        for where, position in positions.items()
                        if where.topic == topic
                    ],
                }
                for topic in sorted({where.topic for where in positions})
            ]
            answer = await self._ask_coordinator(group, Api.OFFSET_COMMIT, {"group_id": group, "topics": topics}, 8)
            codes = {part.error_code for topic in answer.topics for part in topic.partitions} - {0}
            if codes:
                raise BrokerError(codes.pop(), f"committing the offsets of the group {group}")

    async def _ask_coordinator(self, group: str, api: Api, values: Mapping[str, object], most: int) -> Message:
        async def attempt() -> Message:
            find = {"key": group, "key_type": 0, "coordinator_keys": [group]}
            answer = await self._cluster.ask_any(Api.FIND_COORDINATOR, find)
            found = answer.coordinators[0] if answer.coordinators else answer
            if found.error_code:
                raise BrokerError(found.error_code, f"the coordinator of the group {group}", found.error_message)
            if found.node_id not in self._cluster.brokers:
                raise Unreachable(f"the broker {found.node_id}, which coordinates the group {group}, is not known yet")
            offsets = await self._cluster.ask(found.node_id, "control", api, values, most=most)
            moved = {part.error_code for topic in offsets.topics for part in topic.partitions} & RETRIABLE
            if moved:
                raise BrokerError(moved.pop(), f"the offsets of the group {group}")
            return offsets

        return await self._cluster.retrying(f"the offsets of the group {group}", _RETRY_FOR_S, attempt)

    async def _check(self, where: TopicPartition, content: SharedContent) -> None:
        """Read back what was written. Raises CopyError, KafkaError."""
        state = await read_shared_state(self._cluster, where)
        for name, entries in content.entries.items():
            if [entry for _, entry in state.entries.get(name, [])] != list(entries):
                raise CopyError(f"the entries of {name} in {where.topic} differ from those of the data directory")
        for name, document in content.documents.items():
            if name not in state.documents or state.documents[name].content != document:
                raise CopyError(f"the document {name} in {where.topic} differs from that of the data directory")
        for group, positions in content.groups.items():
            values = {"group_id": group, "topics": None}
            answer = await self._ask_coordinator(group, Api.OFFSET_FETCH, values, _LAST_SINGLE_FETCH)
            found = {
                TopicPartition(topic.name, part.partition_index): part.committed_offset
                for topic in answer.topics
                for part in topic.partitions
            }
            if {place: found.get(place) for place in positions} != {
                place: position.offset for place, position in positions.items()
            }:
                raise CopyError(f"the offsets of the group {group} in the cluster are not those of the data directory")

    def _topic(self, hub: SourceHub) -> str:
        return f"{self._namespace}.{hub.directory}"


class _Sum:
    def __init__(self) -> None:
        self.events = 0
        self.checksum = 0

    def add(self, batch: EventBatch) -> None:
        for event in batch.events:
            self.checksum = crc32(event, crc32(_BEFORE_EVENT.pack(batch.enqueued_time_ms, len(event)), self.checksum))
        self.events += len(batch.events)


def _source_batches(source: SourcePartition, start: int) -> Iterator[EventBatch]:
    """Yield the events from a number on, as many of one enqueued time at once as a record batch takes.

    Raises LogError, also for events that cannot be read.
    """
    expected = start
    for entry in SegmentReader(source.segments).read_entries(start, source.end):
        first = max(start - entry.base_sequence_number, 0)
        stop = min(source.end - entry.base_sequence_number, entry.count)
        if entry.base_sequence_number + first != expected:
            raise LogError(f"{source.segments}: event {expected} is missing: retention has deleted it meanwhile")
        ends = entry.end_table()
        begins = [0, *ends[:-1]]
        events = (bytes(entry.payload[begins[index] : ends[index]]) for index in range(first, stop))
        while some := list(_fitting(events)):
            yield EventBatch(expected, entry.enqueued_time_ms, range(expected, expected + len(some)), some)
            expected += len(some)
    if expected < source.end:
        raise LogError(f"{source.segments}: event {expected} is missing")


def _fitting(events: Iterator[bytes]) -> Iterator[bytes]:
    size = 0
    for event in islice(events, _BATCH_EVENTS):
        yield event
        size += len(event)
        if size > _BATCH_BYTES:
            return


def _missing_entries(known: SharedState, content: SharedContent) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield records with the entries that an earlier attempt has not written, each with a key of its own."""
    for name, entries in content.entries.items():
        there = [entry for _, entry in known.entries.get(name, [])]
        if there != list(entries[: len(there)]):
            raise CopyError(
                f"the cluster has entries of {name} that are not those of the data directory: delete the topic that "
                "begins with _tidegate, and run --finish again"
            )
        for number, entry in enumerate(entries[len(there) :], len(there) + 1):
            yield f"entry/copy/{uuid.uuid4().hex}", {"list": name, "number": number, "entry": entry}


def _changed_documents(known: SharedState, content: SharedContent) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, document in content.documents.items():
        there = known.documents.get(name)
        if there is None or there.content != document:
            yield f"document/copy/{name}", {"version": 1 if there is None else there.version + 1, "content": document}


def _fitting_records(records: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    size = 0
    for record in islice(records, _BATCH_EVENTS):
        yield record
        size += len(record[1])
        if size > _SHARED_BATCH_BYTES:
            return
