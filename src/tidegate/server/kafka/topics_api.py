"""Topics are event hubs: what there is, creating, changing and deleting it, through the namespace's management."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from tidegate.hub.access_rules import Right
from tidegate.hub.errors import AlreadyExists, ArgumentError, HubError, NotFound, QuotaExceeded
from tidegate.hub.namespace import EventHub
from tidegate.hub.producers import new_producer_id
from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.messages import Message, RequestHeader
from tidegate.log import LogError
from tidegate.server.context.context import ServerContext
from tidegate.server.kafka.records_api import Fields, Later, Refused, answered, find_partition
from tidegate.server.kafka.session import Session, topic_id
from tidegate.server.kafka.topic_settings import change, config_of, settings_of, settings_of_node, whole_change

NODE = 0
_TOPIC, _BROKER = 2, 4


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
            return settings_of_node()
        if kind != _TOPIC:
            raise Refused(ErrorCode.INVALID_REQUEST, "only topics and nodes have settings")
        if not session.sees(name):
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return settings_of(self._hub(name))

    def _hub(self, name: str) -> EventHub:
        """Return a hub. Raises Refused."""
        hub = self._namespace.event_hubs.get(name.lower())
        if hub is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return hub

    # -- changes

    async def create_topics(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Create hubs."""
        names = [topic.name.lower() for topic in body.topics]

        async def create(topic: Message) -> Fields:
            if names.count(topic.name.lower()) > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "the request names the topic twice")
            config = config_of(topic)
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

    async def alter_configs(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Give hubs the settings of the request, and the defaults of all others."""
        return await self._alter(session, body, whole_change)

    async def alter_some_configs(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Change the settings of hubs that the request names."""
        return await self._alter(session, body, change)

    async def _alter(
        self, session: Session, body: Message, changes: Callable[[EventHub, Iterable[Message]], dict[str, object]]
    ) -> Later:
        async def alter(resource: Message) -> Fields:
            if resource.resource_type != _TOPIC:
                raise Refused(ErrorCode.INVALID_REQUEST, "only the settings of topics can be changed")
            name = resource.resource_name
            fields = changes(self._hub(name), resource.configs)
            if fields and not body.validate_only:
                update = partial(self._namespace.management.update_event_hub, name, **fields)
                await self._change(update, ErrorCode.INVALID_CONFIG)
            return {}

        responses = []
        for one in body.resources:
            row = {"resource_type": one.resource_type, "resource_name": one.resource_name}
            responses.append(await _row(row, session, one.resource_name, "changing settings", partial(alter, one)))
        return answered({"responses": responses})

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
            count = len(self._hub(topic.name).partitions)
            if topic.count <= count:
                raise Refused(ErrorCode.INVALID_PARTITIONS, f"there are {count} partitions")
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

    async def _change(self, change: Callable[[], Any], wrong: ErrorCode = ErrorCode.INVALID_PARTITIONS) -> Any:
        """Run a change that waits for the disk. Raises Refused, with the code `wrong` for what cannot be."""
        try:
            return await asyncio.get_running_loop().run_in_executor(None, change)
        except AlreadyExists as error:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, error.description) from None
        except NotFound as error:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error.description) from None
        except (QuotaExceeded, ArgumentError) as error:
            raise Refused(wrong, error.description) from None
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


def _described(name: str, hub: EventHub) -> Fields:
    partitions = [
        {"partition_index": number, "leader_id": NODE, "leader_epoch": 0, "replica_nodes": [NODE], "isr_nodes": [NODE]}
        for number in range(len(hub.partitions))
    ]
    return {"name": name, "topic_id": topic_id(hub), "partitions": partitions}
