"""Which request is answered where."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from tidegate.kafka.messages import Api, Message, RequestHeader
from tidegate.server.context.context import ServerContext
from tidegate.server.kafka.groups_api import GroupsApi
from tidegate.server.kafka.records_api import Fields, Later, RecordsApi
from tidegate.server.kafka.session import Session
from tidegate.server.kafka.topics_api import TopicsApi


class KafkaRequests:
    """All requests of authenticated clients, for the connections of one server."""

    def __init__(self, context: ServerContext) -> None:
        records, topics, self.groups = RecordsApi(context), TopicsApi(context), GroupsApi(context)
        groups = self.groups
        self._begin: Mapping[int, Callable[[Session, RequestHeader, Message], Awaitable[Later]]] = {
            Api.PRODUCE: records.produce,
            Api.FETCH: records.fetch,
            Api.LIST_OFFSETS: records.list_offsets,
            Api.OFFSET_FOR_LEADER_EPOCH: records.end_of_epoch,
            Api.METADATA: topics.metadata,
            Api.DESCRIBE_CLUSTER: topics.describe_cluster,
            Api.DESCRIBE_CONFIGS: topics.describe_configs,
            Api.CREATE_TOPICS: topics.create_topics,
            Api.DELETE_TOPICS: topics.delete_topics,
            Api.CREATE_PARTITIONS: topics.create_partitions,
            Api.DELETE_RECORDS: topics.delete_records,
            Api.INIT_PRODUCER_ID: topics.init_producer_id,
            Api.FIND_COORDINATOR: groups.find_coordinator,
            Api.JOIN_GROUP: groups.join,
            Api.SYNC_GROUP: groups.sync,
            Api.HEARTBEAT: groups.heartbeat,
            Api.LEAVE_GROUP: groups.leave,
            Api.OFFSET_COMMIT: groups.commit,
            Api.OFFSET_FETCH: groups.fetch_offsets,
            Api.OFFSET_DELETE: groups.delete_offsets,
            Api.LIST_GROUPS: groups.list_groups,
            Api.DESCRIBE_GROUPS: groups.describe_groups,
            Api.DELETE_GROUPS: groups.delete_groups,
        }

    async def begin(self, session: Session, header: RequestHeader, body: Message) -> Awaitable[Fields | None]:
        """Begin a request; what is returned waits for its answer."""
        return await self._begin[header.api](session, header, body)
