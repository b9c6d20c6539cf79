"""Groups on a gateway over Kafka: requests go on to the cluster's coordinator, under the namespace's names."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from tidegate.hub.access_rules import Right
from tidegate.hub.cluster_groups import ClusterGroups, GroupsUnavailable, fields_of, translate_subscription
from tidegate.hub.group_offsets import MAX_METADATA_BYTES
from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.messages import Api, Message, RequestHeader
from tidegate.server.context.context import ServerContext
from tidegate.server.kafka.groups_api import FIRST_BATCHED_OFFSETS, FIRST_WITH_NOT_FOUND, coordinator_answer
from tidegate.server.kafka.records_api import Fields, Later, Refused, answered, find_partition
from tidegate.server.kafka.session import Session

_CONSUMER = "consumer"
_GRACE_S = 10.0
_MAX_REBALANCE_MS = 1_800_000
_NO_POSITION = {"committed_offset": -1, "metadata": ""}

_Rename = Callable[[str], str]


class ForwardedGroups:
    """Requests about groups. Each client has a connection to its coordinator, as a join holds up what comes after."""

    def __init__(self, context: ServerContext, groups: ClusterGroups) -> None:
        self._context = context
        self._groups = groups
        self._numbers = itertools.count()

    async def run(self) -> None:
        """Wait for ever: the cluster expires members."""
        await asyncio.Event().wait()

    # -- forwarding

    def _forward(
        self,
        session: Session,
        header: RequestHeader,
        group: str,
        values: Mapping[str, Any],
        timeout_s: float | None = None,
    ) -> Awaitable[Message]:
        """Send a request of a client on, at once: those of one client arrive in their order. The answer may raise."""
        if session.upstream is None:
            session.upstream = f"group-member-{next(self._numbers)}"
            session.on_close = partial(self._groups.forget_connection, session.upstream)
        return asyncio.wrap_future(
            self._groups.start(
                group,
                Api(header.api),
                values,
                purpose=session.upstream,
                most=header.version,
                client_id=header.client_id,
                timeout_s=timeout_s,
            )
        )

    async def _answer(self, waiting: Awaitable[Message], failed: Callable[[ErrorCode], Fields]) -> Fields:
        """Return the answer of the coordinator, or one that says that it cannot be asked."""
        try:
            return fields_of(await waiting)
        except GroupsUnavailable as error:
            return failed(error.code)

    def _may(self, session: Session) -> bool:
        return session.may(Right.LISTEN, *session.scope)

    def _name(self, session: Session, group: str) -> str:
        return self._groups.cluster_name(session.scope, group)

    def _to_topic(self, session: Session) -> _Rename:
        """Return what renames a hub to its topic, and leaves what is none, or not the client's to see."""

        def rename(name: str) -> str:
            hub = session.namespace.event_hubs.get(name.lower())
            return name if hub is None or not session.sees(hub.name) else self._groups.topic(hub.definition.directory)

        return rename

    def _to_hub(self, session: Session) -> _Rename:
        names = {self._groups.topic(hub.definition.directory): hub.name for hub in session.visible_hubs()}
        return lambda topic: names.get(topic, topic)

    async def find_coordinator(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Name this gateway, once the cluster has a coordinator."""

        async def found() -> Fields:
            keys = body.coordinator_keys or [body.key]
            finding = [self._groups.start_finding(self._name(session, key)) for key in keys]
            error = ErrorCode.NONE
            for one in finding:
                try:
                    await asyncio.wrap_future(one)
                except GroupsUnavailable as failure:
                    error = failure.code
            return coordinator_answer(session, body, error)

        return found() if body.key_type == 0 else answered(coordinator_answer(session, body))

    # -- membership

    async def join(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Take part in the next generation."""

        def failed(error: ErrorCode) -> Fields:
            return {"error_code": error, "member_id": body.member_id}

        if not self._may(session):
            return answered(failed(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        if not body.group_id:
            return answered(failed(ErrorCode.INVALID_GROUP_ID))
        rename = self._to_topic(session) if body.protocol_type == _CONSUMER else str
        protocols = [
            {"name": one.name, "metadata": translate_subscription(one.metadata, rename)} for one in body.protocols
        ]
        rebalance_ms = body.rebalance_timeout_ms if body.rebalance_timeout_ms > 0 else body.session_timeout_ms
        values = {
            **fields_of(body),
            "group_id": self._name(session, body.group_id),
            "protocols": protocols,
            "rebalance_timeout_ms": rebalance_ms,
        }
        waits_s = min(max(rebalance_ms, body.session_timeout_ms), _MAX_REBALANCE_MS) / 1000 + _GRACE_S
        waiting = self._forward(session, header, values["group_id"], values, waits_s)

        async def joined() -> Fields:
            answer = await self._answer(waiting, failed)
            if body.protocol_type != _CONSUMER or not answer.get("members"):
                return answer
            back = self._to_hub(session)
            members = [
                {**fields_of(one), "metadata": translate_subscription(one.metadata, back)} for one in answer["members"]
            ]
            return {**answer, "members": members}

        return joined()

    async def sync(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Learn what is assigned to a member."""
        return self._passed_on(session, header, body, _MAX_REBALANCE_MS / 1000)

    async def heartbeat(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Note that a member is alive."""
        return self._passed_on(session, header, body)

    async def leave(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Remove members."""
        return self._passed_on(session, header, body)

    def _passed_on(
        self, session: Session, header: RequestHeader, body: Message, timeout_s: float | None = None
    ) -> Later:
        if not self._may(session):
            return answered({"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED})
        values = {**fields_of(body), "group_id": self._name(session, body.group_id)}
        waiting = self._forward(session, header, values["group_id"], values, timeout_s)
        return self._answer(waiting, lambda error: {"error_code": error})

    # -- positions

    def _checked(self, session: Session, name: str, number: int, metadata: str | None = None) -> ErrorCode:
        try:
            find_partition(session, Right.LISTEN, name, number)
        except Refused as refused:
            return refused.code
        if metadata is not None and len(metadata.encode()) > MAX_METADATA_BYTES:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    async def commit(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Keep positions; answered when the cluster has them."""
        error = ErrorCode.NONE
        if not body.group_id or not self._may(session):
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED if body.group_id else ErrorCode.INVALID_GROUP_ID
        to_topic = self._to_topic(session)
        errors: dict[tuple[str, int], int] = {}
        topics = []
        for topic in body.topics:
            accepted = []
            for part in topic.partitions:
                place = (topic.name, part.partition_index)
                errors[place] = error or self._checked(session, *place, part.committed_metadata)
                if not errors[place]:
                    accepted.append(part)
            if accepted:
                topics.append({"name": to_topic(topic.name), "partitions": accepted})
        if not topics:
            return answered(_by_partition(body, errors))
        values = {**fields_of(body), "group_id": self._name(session, body.group_id), "topics": topics}
        waiting = self._forward(session, header, values["group_id"], values)

        async def committed() -> Fields:
            try:
                answer = await waiting
            except GroupsUnavailable as failure:
                code = failure.code
                return _by_partition(body, {place: known or code for place, known in errors.items()})
            found = {
                (topic.name, part.partition_index): part.error_code
                for topic in answer.topics
                for part in topic.partitions
            }
            merged = {
                place: known or found.get((to_topic(place[0]), place[1]), ErrorCode.UNKNOWN_SERVER_ERROR)
                for place, known in errors.items()
            }
            return _by_partition(body, merged)

        return committed()

    async def fetch_offsets(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Return committed positions of one group, or of several."""
        if header.version < FIRST_BATCHED_OFFSETS:
            return self._positions(session, header, body.group_id, body.topics, body)
        asked = [self._positions(session, header, one.group_id, one.topics, body, one) for one in body.groups]

        async def all_positions() -> Fields:
            return {
                "groups": [
                    {"group_id": group.group_id, **await one} for group, one in zip(body.groups, asked, strict=True)
                ]
            }

        return all_positions()

    def _positions(
        self,
        session: Session,
        header: RequestHeader,
        group: str,
        wanted: Iterable[Message] | None,
        body: Message,
        batched: Message | None = None,
    ) -> Awaitable[dict[str, Any]]:
        async def refused(code: ErrorCode) -> dict[str, Any]:
            return {"error_code": code}

        if not self._may(session):
            return refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        to_topic = self._to_topic(session)
        errors: dict[tuple[str, int], ErrorCode] = {}
        topics: list[dict[str, Any]] | None = None
        if wanted is not None:
            topics, wanted = [], list(wanted)
            for topic in wanted:
                for number in topic.partition_indexes:
                    errors[topic.name, number] = self._checked(session, topic.name, number)
                numbers = [number for number in topic.partition_indexes if not errors[topic.name, number]]
                if numbers:
                    topics.append({"name": to_topic(topic.name), "partition_indexes": numbers})
        name = self._name(session, group)
        values: dict[str, Any] = {"group_id": name, "topics": topics or [], "require_stable": body.require_stable}
        if wanted is None:
            values["topics"] = None
        if batched is not None:
            values = {
                "groups": [{**fields_of(batched), "group_id": name, "topics": values["topics"]}],
                "require_stable": body.require_stable,
            }
        waiting = self._forward(session, header, name, values)

        async def positions() -> dict[str, Any]:
            try:
                answer = await waiting
            except GroupsUnavailable as failure:
                return {"error_code": failure.code}
            found = answer.groups[0] if answer.groups else answer
            rows = {(topic.name, part.partition_index): part for topic in found.topics for part in topic.partitions}
            if wanted is not None:
                shown = [
                    {
                        "name": topic.name,
                        "partitions": [
                            {"partition_index": number, **_NO_POSITION, "error_code": errors[topic.name, number]}
                            if errors[topic.name, number] or (to_topic(topic.name), number) not in rows
                            else rows[to_topic(topic.name), number]
                            for number in topic.partition_indexes
                        ],
                    }
                    for topic in wanted
                ]
            else:
                names = {self._groups.topic(hub.definition.directory): hub.name for hub in session.visible_hubs()}
                shown = [
                    {"name": names[topic.name], "partitions": topic.partitions}
                    for topic in found.topics
                    if topic.name in names and session.may(Right.LISTEN, names[topic.name])
                ]
            return {"topics": shown, "error_code": found.error_code}

        return positions()

    async def delete_offsets(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Drop positions of partitions that no member reads any more."""
        if not self._may(session):
            return answered({"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED})
        to_topic = self._to_topic(session)
        errors = {
            (topic.name, part.partition_index): self._checked(session, topic.name, part.partition_index)
            for topic in body.topics
            for part in topic.partitions
        }
        topics = [
            {
                "name": to_topic(topic.name),
                "partitions": [part for part in topic.partitions if not errors[topic.name, part.partition_index]],
            }
            for topic in body.topics
        ]
        values: dict[str, Any] = {
            "group_id": self._name(session, body.group_id),
            "topics": [topic for topic in topics if topic["partitions"]],
        }
        waiting = self._forward(session, header, values["group_id"], values)

        async def deleted() -> Fields:
            answer = await self._answer(waiting, lambda error: {"error_code": error})
            found = {
                (topic.name, part.partition_index): part.error_code
                for topic in answer.get("topics", ())
                for part in topic.partitions
            }
            merged = {place: code or found.get((to_topic(place[0]), place[1]), 0) for place, code in errors.items()}
            return {"error_code": answer["error_code"], **_by_partition(body, merged)}

        return deleted()

    # -- administration

    async def list_groups(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """List the groups of the client's scope."""
        if not self._may(session):
            return answered({"groups": []})
        listing = self._groups.start_listing(list(body.states_filter), list(body.types_filter))

        async def listed() -> Fields:
            try:
                found = await asyncio.wrap_future(listing)
            except GroupsUnavailable as failure:
                return {"error_code": failure.code}
            names = [(self._groups.parse_name(one.group_id), one) for one in found]
            return {
                "groups": [
                    {**fields_of(one), "group_id": name[1]}
                    for name, one in names
                    if name is not None and name[0] == session.scope
                ]
            }

        return listed()

    async def describe_groups(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Describe groups with their members."""
        may = self._may(session)
        asked = [
            self._forward(session, header, self._name(session, group), {"groups": [self._name(session, group)]})
            for group in (body.groups if may else ())
        ]

        async def described() -> Fields:
            pairs = zip(body.groups, asked, strict=True)
            return {"groups": [await self._description(session, group, waiting) for group, waiting in pairs]}

        if may:
            return described()
        dead = {"error_code": ErrorCode.GROUP_ID_NOT_FOUND} if header.version >= FIRST_WITH_NOT_FOUND else {}
        return answered({"groups": [{"group_id": group, "group_state": "Dead", **dead} for group in body.groups]})

    async def _description(self, session: Session, group: str, waiting: Awaitable[Message]) -> Fields:
        try:
            found = (await waiting).groups[0]
        except GroupsUnavailable as failure:
            return {"group_id": group, "error_code": failure.code}
        back = self._to_hub(session) if found.protocol_type == _CONSUMER else str
        members = [
            {**fields_of(one), "member_metadata": translate_subscription(one.member_metadata, back)}
            for one in found.members
        ]
        return {**fields_of(found), "group_id": group, "members": members}

    async def delete_groups(self, session: Session, header: RequestHeader, body: Message) -> Later:
        """Delete groups without members, with their positions."""
        may = self._may(session)
        asked = [
            self._forward(session, header, self._name(session, group), {"groups_names": [self._name(session, group)]})
            for group in (body.groups_names if may else ())
        ]

        async def deleted() -> Fields:
            results = []
            for group, waiting in zip(body.groups_names, asked, strict=True):
                try:
                    code = (await waiting).results[0].error_code
                except GroupsUnavailable as failure:
                    code = failure.code
                results.append({"group_id": group, "error_code": code})
            return {"results": results}

        if may:
            return deleted()
        error = ErrorCode.GROUP_ID_NOT_FOUND
        return answered({"results": [{"group_id": group, "error_code": error} for group in body.groups_names]})


def _by_partition(body: Message, errors: Mapping[tuple[str, int], int]) -> dict[str, Any]:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": part.partition_index, "error_code": errors[topic.name, part.partition_index]}
                    for part in topic.partitions
                ],
            }
            for topic in body.topics
        ]
    }
