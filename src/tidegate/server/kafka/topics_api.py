"""Topics are event hubs: what there is, creating, changing and deleting it, through the namespace's management."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from pydantic import ValidationError

from tidegate.hub.access_rules import Right
from tidegate.hub.config import EventHubConfig
from tidegate.hub.errors import AlreadyExists, ArgumentError, HubError, NotFound, QuotaExceeded
from tidegate.hub.namespace import EventHub
from tidegate.hub.producers import new_producer_id
from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.messages import Message, RequestHeader
from tidegate.log import LogError
from tidegate.server.context.context import ServerContext
from tidegate.server.kafka.records_api import Fields, Later, Refused, answered, find_partition
from tidegate.server.kafka.session import Session, topic_id

NODE = 0
_TOPIC, _BROKER = 2, 4
_STATIC, _DEFAULT, _OF_TOPIC = 4, 5, 1
"""Where a setting comes from, by the protocol's numbers: the broker, a default, the topic."""
_FOR_EVER = "-1"
_UNKNOWN_ID = uuid.UUID(int=0)
_IGNORED_SETTINGS = frozenset(
    {
        "compression.type",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.format.version",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
"""Settings of topics that mean nothing here: clients that give them are not refused."""
_CLEANUP_POLICIES = ("delete", "compact", "compact,delete", "delete,compact")
COMPACT_MARK = "cleanup.policy=compact"
"""What the user metadata says of a hub that was asked for as a compacted topic."""


class TopicsApi:
    """Metadata, administration of topics, and ids of producers."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._namespace = context.namespace

    # -- what there is

    async def metadata(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Describe the hubs that are named, or all that the client may see; this hub leads every partition."""
        if body.topics is None or (header.version == 0 and not body.topics):
            topics = [_described(hub.name, hub) for hub in session.visible_hubs()]
        else:
            topics = [self._described(session, topic.name, topic.topic_id) for topic in body.topics]
        host, port = session.advertised
        return answered(
            {
                "brokers": [{"node_id": NODE, "host": host, "port": port}],
                "cluster_id": self._namespace.name,
                "controller_id": NODE,
                "topics": topics,
            }
        )

    def _described(self, session: Session, name: str | None, wanted: uuid.UUID) -> Fields:
        if name is None:
            hub = next((hub for hub in session.visible_hubs() if topic_id(hub) == wanted), None)
            if hub is None:
                return {"error_code": ErrorCode.UNKNOWN_TOPIC_ID, "name": None, "topic_id": wanted}
            return _described(hub.name, hub)
        if not session.sees(name):
            return {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "name": name}
        hub = self._namespace.event_hubs.get(name.lower())
        if hub is None:
            return {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "name": name}
        return _described(name, hub)

    async def describe_cluster(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Describe the one node."""
        host, port = session.advertised
        brokers = [{"broker_id": NODE, "host": host, "port": port}]
        return answered({"cluster_id": self._namespace.name, "controller_id": NODE, "brokers": brokers})

    async def describe_configs(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Describe settings as Kafka calls them, of a hub or of the node."""
        results = []
        for resource in body.resources:
            try:
                found = self._settings(session, resource.resource_type, resource.resource_name)
                wanted = resource.configuration_keys
                configs = [one for one in found if wanted is None or one["name"] in wanted]
                result: Fields = {"configs": configs}
            except Refused as refused:
                result = {"error_code": refused.code, "error_message": refused.message}
            kind = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
            results.append({**kind, **result})
        return answered({"results": results})

    def _settings(self, session: Session, kind: int, name: str) -> list[Fields]:
        if kind == _BROKER:
            if name != str(NODE):
                raise Refused(ErrorCode.INVALID_REQUEST, f"the only node is {NODE}")
            values = {"auto.create.topics.enable": "false", "default.replication.factor": "1", "num.partitions": "1"}
            return [_setting(key, value, _STATIC) for key, value in values.items()]
        if kind != _TOPIC:
            raise Refused(ErrorCode.INVALID_REQUEST, "only topics and nodes have settings")
        if not session.sees(name):
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        hub = self._namespace.event_hubs.get(name.lower())
        if hub is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        config = hub.config
        policy = "compact" if config.user_metadata == COMPACT_MARK else "delete"
        retention = [("retention.ms", config.retention_ms), ("retention.bytes", config.retention_bytes)]
        return [
            _setting("cleanup.policy", policy, _OF_TOPIC if policy == "compact" else _DEFAULT),
            *(
                _setting(key, _FOR_EVER if value is None else str(value), _DEFAULT if value is None else _OF_TOPIC)
                for key, value in retention
            ),
            _setting("compression.type", "producer", _DEFAULT),
            _setting("max.message.bytes", str(hub.admission.max_message_bytes), _STATIC),
            _setting("message.timestamp.type", "LogAppendTime", _STATIC),
            _setting("min.insync.replicas", "1", _DEFAULT),
        ]

    # -- changes

    async def create_topics(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Create hubs."""
        names = [topic.name.lower() for topic in body.topics]

        async def create(topic: Message) -> Fields:
            if names.count(topic.name.lower()) > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "the request names the topic twice")
            config = _config_of(topic)
            made = {"num_partitions": config.partition_count, "replication_factor": 1}
            if not body.validate_only:
                hub = await self._change(partial(self._namespace.management.create_event_hub, config))
                return {**made, "topic_id": topic_id(hub)}
            if topic.name.lower() in self._namespace.event_hubs:
                raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS)
            return made

        topics = [
            await _row({"name": topic.name}, session, topic.name, "creating a topic", partial(create, topic))
            for topic in body.topics
        ]
        return answered({"topics": topics})

    async def delete_topics(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Delete hubs with their events."""

        async def delete(name: str) -> Fields:
            await self._change(partial(self._namespace.management.delete_event_hub, name))
            return {}

        responses: list[Fields] = []
        named = [({"name": name}, name) for name in body.topic_names]
        named += [
            ({"name": topic.name, "topic_id": topic.topic_id}, topic.name or session.name_of(topic.topic_id))
            for topic in body.topics
        ]
        for row, name in named:
            if name is None:
                responses.append({**row, "error_code": ErrorCode.UNKNOWN_TOPIC_ID})
            else:
                responses.append(await _row(row, session, name, "deleting a topic", partial(delete, name)))
        return answered({"responses": responses})

    async def create_partitions(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Add partitions to hubs."""

        async def add(topic: Message) -> Fields:
            if not body.validate_only:
                await self._change(partial(self._namespace.management.add_partitions, topic.name, topic.count))
                return {}
            hub = self._namespace.event_hubs.get(topic.name.lower())
            if hub is None:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if topic.count <= len(hub.partitions):
                raise Refused(ErrorCode.INVALID_PARTITIONS, f"there are {len(hub.partitions)} partitions")
            return {}

        results = [
            await _row({"name": topic.name}, session, topic.name, "adding partitions", partial(add, topic))
            for topic in body.topics
        ]
        return answered({"results": results})

    async def delete_records(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Delete events before an offset, for clients of all protocols."""
        topics = []
        for topic in body.topics:
            rows = []
            for part in topic.partitions:
                try:
                    if not session.may(Right.MANAGE, topic.name):
                        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    _, partition = find_partition(session, Right.MANAGE, topic.name, part.partition_index)
                    log = partition.log
                    offset = log.next_sequence_number if part.offset == -1 else part.offset
                    if not 0 <= offset <= log.next_sequence_number:
                        raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
                    await self._change(partial(log.delete_before, offset))
                    row: Fields = {"low_watermark": log.begin_sequence_number}
                except Refused as refused:
                    row = {"low_watermark": -1, "error_code": refused.code}
                rows.append({"partition_index": part.partition_index, **row})
            topics.append({"name": topic.name, "partitions": rows})
        return answered({"topics": topics})

    async def init_producer_id(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Give an idempotent producer an id, or the next epoch of the one that it has."""
        if body.transactional_id is not None:
            # a transaction ends with a marker in the log, which would take a sequence number of its own
            return answered({"error_code": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "producer_epoch": -1})
        if body.producer_id >= 0 and 0 <= body.producer_epoch < 2**15 - 2:
            return answered({"producer_id": body.producer_id, "producer_epoch": body.producer_epoch + 1})
        return answered({"producer_id": new_producer_id(), "producer_epoch": 0})

    async def _change(self, change: Callable[[], Any]) -> Any:
        """Run a change that waits for the disk. Raises Refused."""
        try:
            return await asyncio.get_running_loop().run_in_executor(None, change)
        except AlreadyExists as error:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, error.description) from None
        except NotFound as error:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error.description) from None
        except (QuotaExceeded, ArgumentError) as error:
            raise Refused(ErrorCode.INVALID_PARTITIONS, error.description) from None
        except (HubError, LogError, OSError) as error:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None


async def _row(row: Fields, session: Session, topic: str, what: str, change: Callable[[], Awaitable[Fields]]) -> Fields:
    """Return a row of an answer with what a change of a topic added to it, or why there was none."""
    try:
        if not session.may(Right.MANAGE, topic):
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{what} needs the right Manage")
        return {**row, **await change()}
    except Refused as refused:
        return {**row, "error_code": refused.code, "error_message": refused.message}


def _config_of(topic: Message) -> EventHubConfig:
    """Return the hub that a request wants. Raises Refused."""
    count = len(topic.assignments) or (1 if topic.num_partitions == -1 else topic.num_partitions)
    values: dict[str, object] = {"name": topic.name, "partition_count": count}
    for setting in topic.configs:
        name, value = setting.name, setting.value
        if name in ("retention.ms", "retention.bytes"):
            if value is None or not value.removeprefix("-").isdecimal() or int(value) == 0 or int(value) < -1:
                raise Refused(ErrorCode.INVALID_CONFIG, f"{name} must be a number above 0, or -1, not {value!r}")
            if value != _FOR_EVER:
                values[name.replace(".", "_")] = int(value)
        elif name == "cleanup.policy":
            if value not in _CLEANUP_POLICIES:
                raise Refused(ErrorCode.INVALID_CONFIG, f"cleanup.policy cannot be {value!r}")
            if value == "compact":
                values["user_metadata"] = COMPACT_MARK
        elif name not in _IGNORED_SETTINGS:
            raise Refused(ErrorCode.INVALID_CONFIG, f"a topic has no setting {name!r}")
    try:
        return EventHubConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        is_count = first["loc"][:1] == ("partition_count",)
        code = ErrorCode.INVALID_PARTITIONS if is_count else ErrorCode.INVALID_TOPIC_EXCEPTION
        raise Refused(code, first["msg"].removeprefix("Value error, ")) from None


def _described(name: str, hub: EventHub) -> Fields:
    partitions = [
        {"partition_index": number, "leader_id": NODE, "leader_epoch": 0, "replica_nodes": [NODE], "isr_nodes": [NODE]}
        for number in range(len(hub.partitions))
    ]
    return {"name": name, "topic_id": topic_id(hub), "partitions": partitions}


def _setting(name: str, value: str, source: int) -> Fields:
    return {"name": name, "value": value, "read_only": source == _STATIC, "config_source": source}
