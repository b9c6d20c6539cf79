"""Groups: the coordinator of the protocol on the server's clock, and committed positions on its disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidegate.hub.access_rules import Right
from tidegate.hub.group_offsets import MAX_METADATA_BYTES, GroupOffset, GroupOffsets, PartitionKey
from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.groups import Group, GroupCoordinator, Joining
from tidegate.kafka.messages import Message, RequestHeader
from tidegate.log import LogClosed, LogError
from tidegate.server.context.context import ServerContext
from tidegate.server.kafka.records_api import Fields, Later, Refused, answered, find_partition
from tidegate.server.kafka.session import Session
from tidegate.server.kafka.topics_api import NODE

TICK_S = 0.1
_CLASSIC = "classic"
FIRST_WITH_NOT_FOUND = 6
"""The first version in which a description of no group is an error."""
FIRST_BATCHED_OFFSETS = 8
"""The first version that asks for the offsets of several groups."""
EXPIRY_INTERVAL_S = 600.0
_ASKS_FOR_ID_SINCE = 4
_SKIPS_ASSIGNMENT_SINCE = 9
_GROUP, _TRANSACTION = 0, 1
_NO_POSITION = {"committed_offset": -1, "metadata": ""}


class GroupsApi:
    """Requests about groups. `run` must be running for members to expire."""

    def __init__(self, context: ServerContext, offsets: GroupOffsets) -> None:
        self._context = context
        self._offsets = offsets
        self.coordinator = GroupCoordinator()

    async def run(self) -> None:
        """Expire members, and positions that nobody has committed for long, for ever."""
        due_s = time.monotonic() + EXPIRY_INTERVAL_S
        while True:
            await asyncio.sleep(TICK_S)
            now_s = time.monotonic()
            self.coordinator.expire(now_s)
            if now_s >= due_s:
                due_s = now_s + EXPIRY_INTERVAL_S
                self.expire_positions()

    def expire_positions(self) -> None:
        """Drop positions that are too old, except those of groups with members, and those of deleted hubs."""
        hubs = {hub.definition.directory for hub in self._context.namespace.event_hubs.values()}
        self._offsets.expire(lambda group, key: key.directory in hubs and group in self.coordinator.groups)

    async def find_coordinator(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Name this hub, which coordinates every group."""
        return answered(coordinator_answer(session, body))

    # -- membership

    async def join(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Take part in the next generation."""
        if not self._may_use_groups(session):
            return answered({"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED, "member_id": body.member_id})
        joining = Joining(
            body.group_id,
            body.member_id,
            body.group_instance_id,
            header.client_id or "",
            f"/{session.peer.rpartition(':')[0]}",
            body.session_timeout_ms,
            body.rebalance_timeout_ms if body.rebalance_timeout_ms > 0 else body.session_timeout_ms,
            body.protocol_type,
            tuple((protocol.name, protocol.metadata) for protocol in body.protocols),
            session.scope,
            names_itself=header.version >= _ASKS_FOR_ID_SINCE,
            skips_assignment=header.version >= _SKIPS_ASSIGNMENT_SINCE,
        )
        waiting = _Waiting()
        self.coordinator.join(joining, time.monotonic(), waiting.answer)
        return waiting.future

    async def sync(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Learn what is assigned to a member."""
        if not self._may_use_groups(session):
            return answered({"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED})
        waiting = _Waiting()
        self.coordinator.sync(
            body.group_id,
            body.member_id,
            body.generation_id,
            [(one.member_id, one.assignment) for one in body.assignments],
            time.monotonic(),
            waiting.answer,
            instance_id=body.group_instance_id,
            protocol_type=body.protocol_type,
            protocol=body.protocol_name,
        )
        return waiting.future

    async def heartbeat(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Note that a member is alive, unless it may no longer read: others are to get its partitions."""
        if not self._may_use_groups(session):
            return answered({"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED})
        error = self.coordinator.heartbeat(
            body.group_id, body.member_id, body.generation_id, time.monotonic(), body.group_instance_id
        )
        return answered({"error_code": error})

    async def leave(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Remove members."""
        if not self._may_use_groups(session):
            return answered({"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED})
        now_s = time.monotonic()
        if header.version < 3:
            return answered({"error_code": self.coordinator.leave(body.group_id, body.member_id, now_s)})
        if not self._is_visible(session, body.group_id):
            return answered({"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED})
        members = [
            {
                "member_id": one.member_id,
                "group_instance_id": one.group_instance_id,
                "error_code": self.coordinator.leave(body.group_id, one.member_id, now_s, one.group_instance_id),
            }
            for one in body.members
        ]
        return answered({"error_code": ErrorCode.NONE, "members": members})

    # -- positions

    async def commit(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Keep positions; answered when they are on the disk."""
        error = self.coordinator.check_commit(
            body.group_id,
            body.member_id,
            body.generation_id_or_member_epoch,
            time.monotonic(),
            body.group_instance_id,
        )
        if error is ErrorCode.NONE and not (body.group_id and self._may_use_groups(session)):
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED if body.group_id else ErrorCode.INVALID_GROUP_ID
        now_ms = self._offsets.now_ms()
        accepted: dict[PartitionKey, GroupOffset] = {}
        errors: dict[tuple[str, int], ErrorCode] = {}
        for topic in body.topics:
            for part in topic.partitions:
                place = (topic.name, part.partition_index)
                errors[place] = error
                if error is not ErrorCode.NONE:
                    continue
                try:
                    hub, _ = find_partition(session, Right.LISTEN, *place)
                    metadata = part.committed_metadata
                    if metadata is not None and len(metadata.encode()) > MAX_METADATA_BYTES:
                        raise Refused(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                    key = PartitionKey(hub.definition.directory, part.partition_index)
                    accepted[key] = GroupOffset(part.committed_offset, part.committed_leader_epoch, metadata, now_ms)
                except Refused as refused:
                    errors[place] = refused.code
        return self._committed(body, accepted, errors)

    async def _committed(
        self, body: Message, accepted: Mapping[PartitionKey, GroupOffset], errors: Mapping[tuple[str, int], ErrorCode]
    ) -> Fields:
        failure = ErrorCode.NONE
        if accepted:
            failure = await self._stored(lambda done: self._offsets.commit(body.group_id, accepted, done))
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": part.partition_index,
                        "error_code": errors[topic.name, part.partition_index] or failure,
                    }
                    for part in topic.partitions
                ],
            }
            for topic in body.topics
        ]
        return {"topics": topics}

    async def _stored(self, store: Callable[[Callable[[LogError | None], None]], None]) -> ErrorCode:
        waiting: asyncio.Future[LogError | None] = asyncio.get_running_loop().create_future()

        def done(result: LogError | None) -> None:
            self._context.completions.report(_settle, waiting, result)

        try:
            store(done)
        except LogClosed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE if await waiting is None else ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def fetch_offsets(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Return committed positions of one group, or of several."""
        if header.version >= FIRST_BATCHED_OFFSETS:
            groups = [
                {"group_id": group.group_id, **self._positions(session, group.group_id, group.topics)}
                for group in body.groups
            ]
            return answered({"groups": groups})
        return answered(self._positions(session, body.group_id, body.topics))

    def _positions(self, session: Session, group: str, wanted: Iterable[Message] | None) -> Fields:
        if not self._may_use_groups(session):
            return {"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED}
        known = self._offsets.of(group)
        topics: list[Fields] = []
        if wanted is None:
            for hub in session.visible_hubs():
                keys = [PartitionKey(hub.definition.directory, number) for number in range(len(hub.partitions))]
                rows = [_position_row(key.partition, known[key]) for key in keys if key in known]
                if rows and session.may(Right.LISTEN, hub.name):
                    topics.append({"name": hub.name, "partitions": rows})
            return {"topics": topics}
        for topic in wanted:
            rows = []
            for number in topic.partition_indexes:
                try:
                    hub, _ = find_partition(session, Right.LISTEN, topic.name, number)
                    position = known.get(PartitionKey(hub.definition.directory, number))
                    rows.append(_position_row(number, position))
                except Refused as refused:
                    rows.append({"partition_index": number, **_NO_POSITION, "error_code": refused.code})
            topics.append({"name": topic.name, "partitions": rows})
        return {"topics": topics}

    async def delete_offsets(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Drop positions of partitions that no member reads any more."""
        if not self._is_visible(session, body.group_id):
            return answered({"error_code": ErrorCode.GROUP_ID_NOT_FOUND})
        group = self.coordinator.groups.get(body.group_id)
        in_use = group is not None and bool(group.members)
        dropped: list[PartitionKey] = []
        topics = []
        for topic in body.topics:
            rows = []
            for part in topic.partitions:
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if in_use else ErrorCode.NONE
                try:
                    hub, _ = find_partition(session, Right.LISTEN, topic.name, part.partition_index)
                    if not in_use:
                        dropped.append(PartitionKey(hub.definition.directory, part.partition_index))
                except Refused as refused:
                    error = refused.code
                rows.append({"partition_index": part.partition_index, "error_code": error})
            topics.append({"name": topic.name, "partitions": rows})

        async def dropping() -> Fields:
            failure = ErrorCode.NONE
            if dropped:
                failure = await self._stored(lambda done: self._offsets.forget(body.group_id, dropped, done))
            return {"error_code": failure, "topics": topics}

        return dropping()

    # -- administration

    async def list_groups(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """List the groups that the client may see."""
        wanted = {state.lower() for state in body.states_filter}
        kinds = {kind.lower() for kind in body.types_filter}
        if kinds and _CLASSIC not in kinds:
            return answered({"groups": []})
        found = []
        for name in dict.fromkeys([*self.coordinator.groups, *self._offsets.groups()]):
            group = self.coordinator.groups.get(name)
            state = "Empty" if group is None else group.state.value
            if self._is_visible(session, name) and (not wanted or state.lower() in wanted):
                kind = "" if group is None else group.protocol_type
                found.append({"group_id": name, "protocol_type": kind, "group_state": state, "group_type": _CLASSIC})
        return answered({"groups": found})

    async def describe_groups(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Describe groups with their members."""
        groups = [self._description(session, name) for name in body.groups]
        if header.version >= FIRST_WITH_NOT_FOUND:
            missing = {"error_code": ErrorCode.GROUP_ID_NOT_FOUND, "error_message": "there is no such group"}
            groups = [{**group, **missing} if group["group_state"] == "Dead" else group for group in groups]
        return answered({"groups": groups})

    def _description(self, session: Session, name: str) -> Fields:
        group = self.coordinator.groups.get(name)
        if not self._is_visible(session, name):
            return {"group_id": name, "group_state": "Dead"}
        if group is None:
            return {"group_id": name, "group_state": "Empty" if name in self._offsets.groups() else "Dead"}
        protocol = group.protocol or ""
        return {
            "group_id": name,
            "group_state": group.state.value,
            "protocol_type": group.protocol_type,
            "protocol_data": protocol,
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.instance_id,
                    "client_id": member.client_id,
                    "client_host": member.client_host,
                    "member_metadata": member.metadata(protocol),
                    "member_assignment": member.assignment,
                }
                for member in group.members.values()
            ],
        }

    async def delete_groups(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Delete groups without members, with their positions."""

        async def deleting() -> Fields:
            errors = [(name, await self._delete(session, name)) for name in body.groups_names]
            return {"results": [{"group_id": name, "error_code": error} for name, error in errors]}

        return deleting()

    async def _delete(self, session: Session, name: str) -> ErrorCode:
        if not self._is_visible(session, name) or not self._may_use_groups(session):
            return ErrorCode.GROUP_ID_NOT_FOUND
        error = self.coordinator.delete(name)
        known = self._offsets.of(name)
        if error is ErrorCode.NON_EMPTY_GROUP or (error is ErrorCode.GROUP_ID_NOT_FOUND and not known):
            return error
        visible = {hub.definition.directory for hub in session.visible_hubs()}
        keys = None if not session.scope else [key for key in known if key.directory in visible]
        return await self._stored(lambda done: self._offsets.forget(name, keys, done))

    # -- rights

    def _may_use_groups(self, session: Session) -> bool:
        return session.may(Right.LISTEN, *session.scope)

    def _is_visible(self, session: Session, name: str) -> bool:
        """Return whether a group is the client's to see: all its members, or its positions, are in the key's scope."""
        group: Group | None = self.coordinator.groups.get(name)
        scope = session.scope
        if not self._may_use_groups(session):
            return False
        if not scope:
            return True
        if group is not None and group.members:
            return group.scope[: len(scope)] == scope
        directories = {hub.definition.directory for hub in session.visible_hubs()}
        return any(key.directory in directories for key in self._offsets.of(name))


def coordinator_answer(session: Session, body: Message, error: ErrorCode = ErrorCode.NONE) -> Fields:
    """Return an answer that names this hub for every group, unless there is an error."""
    host, port = session.advertised
    if body.key_type == _GROUP:
        found: Fields = {"node_id": NODE, "host": host, "port": port}
    elif body.key_type == _TRANSACTION:
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        found = {"error_message": "transactions are not supported"}
    else:
        error, found = ErrorCode.INVALID_REQUEST, {}
    if error is not ErrorCode.NONE:
        found = {**found, "error_code": error, "node_id": -1, "host": "", "port": -1}
    return {**found, "coordinators": [{"key": key, **found} for key in body.coordinator_keys]}


async def refuse_consumer_protocol(session: Session, header: RequestHeader, body: Message) -> Later:
    """Tell a member of KIP-848's protocol which one the hub has."""
    message = "the hub has the classic protocol of groups: set group.protocol=classic"
    return answered({"error_code": ErrorCode.UNSUPPORTED_VERSION, "error_message": message})


class _Waiting:
    """An answer of the coordinator that may come later."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Fields | None] = asyncio.get_running_loop().create_future()

    def answer(self, fields: Fields) -> None:
        _settle(self.future, fields)


def _settle(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)


def _position_row(number: int, position: GroupOffset | None) -> Fields:
    if position is None:
        return {"partition_index": number, **_NO_POSITION}
    return {
        "partition_index": number,
        "committed_offset": position.offset,
        "committed_leader_epoch": position.leader_epoch,
        "metadata": position.metadata or "",
    }
