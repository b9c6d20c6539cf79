"""Groups of Kafka's clients on gateways: the cluster coordinates them, and keeps the offsets that they commit.

So members of one group may be connected to different gateways, and neither a gateway's death nor a broker's loses a
position or a membership. A group has a name of its own in the cluster:

    NAMESPACE/SCOPE//GROUP      SCOPE is what the members' key covers: empty, or a hub and what is below it

Keys of different scope have different groups, so that none learns of hubs that it has no right to from the members of
others. What clients call a hub is a topic in the cluster, in commits and in the subscriptions of members too: a broker
drops offsets of topics that a group no longer subscribes to.
"""

from __future__ import annotations

import asyncio
import logging
import re
import struct
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from tidegate.hub.group_offsets import GroupOffset
from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.messages import Api, Message
from tidegate.store.client.connection import BrokerError, KafkaError, Unreachable
from tidegate.store.kafka.store import KafkaStore

_logger = logging.getLogger(__name__)
REFRESH_S = 5.0
"""How often offsets are read for people, metrics and `tidegate lag`."""
_COORDINATOR_WITHIN_S, _LOOK_AGAIN_S = 5.0, 0.1
"""A cluster has none until it has made their topic, at the first request for one, and not all clients try again."""
_SHARED = "groups"
_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_Result = TypeVar("_Result")
_SHORT, _COUNT = struct.Struct(">h"), struct.Struct(">i")


class GroupsUnavailable(Exception):
    """The cluster could not be asked; `code` is what a client is to be answered, most often to try again."""

    def __init__(self, error: KafkaError) -> None:
        self.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if isinstance(error, BrokerError) and error.code in list(ErrorCode):
            self.code = ErrorCode(error.code)
        super().__init__(str(error))


def translate_subscription(metadata: bytes, rename: Callable[[str], str]) -> bytes:
    """Return what a consumer says when it joins, with the topics that it subscribes to renamed.

    Metadata begin with a version and an array of topics (ConsumerProtocolSubscription). What follows is for other
    members alone, and stays. Bytes that are no such thing are returned unchanged.
    """
    try:
        (count,) = _COUNT.unpack_from(metadata, 2)
        if not 0 <= count <= len(metadata):
            return metadata
        at, topics = 6, []
        for _ in range(count):
            (size,) = _SHORT.unpack_from(metadata, at)
            end = at + 2 + size
            if size < 0 or end > len(metadata):
                return metadata
            renamed = rename(metadata[at + 2 : end].decode()).encode()
            topics.append(_SHORT.pack(len(renamed)) + renamed)
            at = end
    except (struct.error, UnicodeDecodeError):
        return metadata
    return b"".join((metadata[:6], *topics, metadata[at:]))


def cluster_name(namespace: str, scope: tuple[str, ...], group: str) -> str:
    """Return what a cluster calls a group of clients whose keys cover a scope."""
    return f"{namespace}/{'/'.join(scope)}//{group}"


class ClusterGroups:
    """The groups of one namespace in its cluster. Safe to call from any thread."""

    def __init__(self, store: KafkaStore, namespace: str) -> None:
        """Begin to read offsets."""
        self._store = store
        self._namespace = namespace
        self._name = re.compile(re.escape(namespace) + "/(.*?)//(.*)", re.DOTALL)
        self._coordinators: dict[str, int] = {}
        self._known: dict[str, dict[str, dict[int, GroupOffset]]] = {}
        self._reading: Future[None] = store.start_soon(self._read_on())

    def close(self) -> None:
        """Read offsets no more."""
        self._reading.cancel()

    # -- names

    def cluster_name(self, scope: tuple[str, ...], group: str) -> str:
        """Return what the cluster calls a group of clients whose keys cover a scope."""
        return cluster_name(self._namespace, scope, group)

    def parse_name(self, name: str) -> tuple[tuple[str, ...], str] | None:
        """Return the scope and the group that a name in the cluster stands for, None if it is not the namespace's."""
        found = self._name.fullmatch(name)
        return None if found is None else (tuple(found[1].split("/")) if found[1] else (), found[2])

    def topic(self, directory: str) -> str:
        """Return the topic of a hub."""
        return f"{self._namespace}.{directory}"

    # -- requests

    def start(
        self,
        group: str,
        api: Api,
        values: Mapping[str, object],
        *,
        purpose: str = _SHARED,
        most: int,
        client_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Future[Message]:
        """Send a request to a group's coordinator, and return what its answer will be, or GroupsUnavailable.

        Args:
            group: The group's name in the cluster.
            api: The request.
            values: Its fields, with names of the cluster.
            purpose: Names the connection to use. Brokers answer the requests of one connection one after the other.
            most: The highest version that the client knows, which the request may mean something else in.
            client_id: What the client calls itself.
            timeout_s: How long to wait.
        """
        work = self._ask(group, api, values, purpose, most, client_id, timeout_s)
        return self._store.start_soon(_explained(work))

    async def _ask(
        self,
        group: str,
        api: Api,
        values: Mapping[str, object],
        purpose: str,
        most: int,
        client_id: str | None,
        timeout_s: float | None,
    ) -> Message:
        cluster = self._store.cluster
        for is_last in (False, True):
            node = await self._coordinator(group)
            try:
                answer = await cluster.ask(
                    node, purpose, api, values, timeout_s=timeout_s, most=most, client_id=client_id
                )
            except Unreachable:
                self._coordinators.pop(group, None)
                with suppress(KafkaError):
                    await cluster.refresh()
                raise
            if not any(code in _MOVED for code in _codes(answer)):
                return answer
            self._coordinators.pop(group, None)
            if is_last:
                return answer
        raise AssertionError

    def start_finding(self, group: str) -> Future[int]:
        """Look up the broker that coordinates a group, and return what will be known, or GroupsUnavailable."""
        return self._store.start_soon(_explained(self._coordinator(group)))

    async def _coordinator(self, group: str) -> int:
        known = self._coordinators.get(group)
        if known is not None:
            return known
        cluster = self._store.cluster
        values = {"key": group, "key_type": 0, "coordinator_keys": [group]}
        until_s = time.monotonic() + _COORDINATOR_WITHIN_S
        while True:
            answer = await cluster.ask_any(Api.FIND_COORDINATOR, values)
            found = answer.coordinators[0] if answer.coordinators else answer
            if found.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE or time.monotonic() > until_s:
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
        if found.error_code:
            raise BrokerError(found.error_code, "the coordinator of a group", found.error_message)
        if found.node_id not in cluster.brokers:
            await cluster.refresh()
        self._coordinators[group] = found.node_id
        return int(found.node_id)

    def start_listing(self, states: list[str], kinds: list[str]) -> Future[list[Message]]:
        """List the groups of all brokers, and return what will be known, or GroupsUnavailable."""
        return self._store.start_soon(_explained(self._list(states, kinds)))

    async def _list(self, states: list[str], kinds: list[str]) -> list[Message]:
        cluster = self._store.cluster
        found: list[Message] = []
        for node in sorted(cluster.brokers):
            values = {"states_filter": states, "types_filter": kinds}
            answer = await cluster.ask(node, _SHARED, Api.LIST_GROUPS, values)
            if answer.error_code:
                raise BrokerError(answer.error_code, f"listing the groups of broker {node}")
            for one in answer.groups:
                if self.parse_name(one.group_id) is not None:
                    self._coordinators[one.group_id] = node
                    found.append(one)
        return found

    def forget_connection(self, purpose: str) -> None:
        """Close the connections of a client that is gone."""
        if not self._store.is_closed:
            self._store.call_soon(self._store.cluster.close_connections, purpose)

    # -- offsets, for people

    def in_hub(self, directory: str) -> Mapping[str, Mapping[int, GroupOffset]]:
        """Return the positions that groups had in a hub a few seconds ago, by group and partition.

        The time of a commit is when this gateway first saw it.
        """
        return self._known.get(self.topic(directory), {})

    async def _read_on(self) -> None:
        while True:
            try:
                await self._read_offsets()
            except KafkaError as error:
                _logger.info("the offsets of groups cannot be read: %s", error)
            await asyncio.sleep(REFRESH_S)

    async def _read_offsets(self) -> None:
        found: dict[str, dict[str, dict[int, GroupOffset]]] = {}
        now_ms = round(time.time() * 1000)
        for one in await self._list([], []):
            scope, group = self.parse_name(one.group_id) or ((), one.group_id)
            values = {
                "group_id": one.group_id,
                "topics": None,
                "groups": [{"group_id": one.group_id, "member_id": None, "topics": None}],
            }
            answer = await self._ask(one.group_id, Api.OFFSET_FETCH, values, _SHARED, 9, None, None)
            for topic in (answer.groups[0] if answer.groups else answer).topics:
                groups = found.setdefault(topic.name, {})
                label = group if group not in groups else f"{group} ({'/'.join(scope)})"
                known = self._known.get(topic.name, {}).get(label, {})
                for part in topic.partitions:
                    if part.committed_offset < 0 or part.error_code:
                        continue
                    former = known.get(part.partition_index)
                    at_ms = now_ms if former is None or former.offset != part.committed_offset else former[3]
                    groups.setdefault(label, {})[part.partition_index] = GroupOffset(
                        part.committed_offset, part.committed_leader_epoch, part.metadata, at_ms
                    )
        self._known = found


async def _explained(work: Coroutine[Any, Any, _Result]) -> _Result:
    try:
        return await work
    except KafkaError as error:
        raise GroupsUnavailable(error) from error


def _codes(message: Message) -> Iterator[int]:
    for name, value in vars(message).items():
        if name == "error_code":
            yield value
        elif isinstance(value, list):
            for element in value:
                if isinstance(element, Message):
                    yield from _codes(element)


def fields_of(message: Message) -> dict[str, Any]:
    """Return the fields of a message, which may then be changed."""
    return dict(vars(message))
