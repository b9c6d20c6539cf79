"""What groups and their subscriptions are called in a cluster, and how their coordinators are found."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.hub import cluster_groups
from tidegate.hub.cluster_groups import ClusterGroups, GroupsUnavailable, translate_subscription
from tidegate.kafka.errors import ErrorCode

NAMES = st.text(max_size=20)
PARTS = st.text("abc.-$", min_size=1, max_size=5)


def subscription(topics: list[str], rest: bytes, version: int = 3) -> bytes:
    encoded = [name.encode() for name in topics]
    return struct.pack(">hi", version, len(topics)) + b"".join(struct.pack(">h", len(n)) + n for n in encoded) + rest


@given(st.lists(NAMES, max_size=5), st.binary(max_size=30))
def test_topics_of_a_subscription_are_renamed_and_the_rest_stays(topics: Any, rest: bytes) -> None:
    renamed = translate_subscription(subscription(topics, rest), lambda name: f"ns.{name}-1")
    assert renamed == subscription([f"ns.{name}-1" for name in topics], rest)
    back = translate_subscription(renamed, lambda name: name.removeprefix("ns.").removesuffix("-1"))
    assert back == subscription(topics, rest)


@given(st.binary(max_size=60))
def test_what_is_no_subscription_stays_or_can_still_be_read(data: bytes) -> None:
    assert translate_subscription(data, str) == data


@pytest.mark.parametrize(
    "data", [b"", b"\0", subscription(["a"], b"")[:-1], b"\0\x03\x7f\xff\xff\xff", b"\0\0\0\0\0\1\xff\xff"]
)
def test_what_is_cut_off_stays(data: bytes) -> None:
    assert translate_subscription(data, lambda name: "renamed") == data


@given(st.lists(PARTS, max_size=3).map(tuple), st.text(max_size=10))
def test_names_in_the_cluster_are_unambiguous(scope: tuple[str, ...], group: str) -> None:
    groups = ClusterGroups(Mock(start_soon=lambda work: work.close()), "name.space")
    name = groups.cluster_name(scope, group)
    assert groups.parse_name(name) == (scope, group)
    assert ClusterGroups(Mock(start_soon=lambda work: work.close()), "name").parse_name(name) is None
    assert groups.parse_name("name-space///g") is None


class Cluster:
    """A cluster of one broker, number 2, that answers who coordinates a group with errors first."""

    brokers = (2,)

    def __init__(self, *errors: ErrorCode) -> None:
        self.errors = list(errors)
        self.requests = 0

    async def ask_any(self, *_request: Any) -> Any:
        self.requests += 1
        error = self.errors.pop(0) if self.errors else ErrorCode.NONE
        return SimpleNamespace(coordinators=[SimpleNamespace(error_code=error, error_message=None, node_id=2)])

    def start_soon(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(asyncio.run(work))
        except GroupsUnavailable as error:
            done.set_exception(error)
        return done

    @property
    def groups(self) -> ClusterGroups:
        store = Mock(cluster=self, start_soon=lambda work: work.close())
        groups = ClusterGroups(store, "ns")
        store.start_soon = self.start_soon
        return groups


def test_the_first_coordinator_of_a_cluster_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_groups, "_LOOK_AGAIN_S", 0)
    cluster = Cluster(*[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3)
    groups = cluster.groups
    assert [groups.start_finding("g").result() for _ in range(2)] == [2, 2]
    assert cluster.requests == 4


def test_a_coordinator_that_does_not_come_or_may_not_be_known_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_groups, "_COORDINATOR_WITHIN_S", 0)
    for error in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.GROUP_AUTHORIZATION_FAILED):
        cluster = Cluster(*[error] * 100)
        with pytest.raises(GroupsUnavailable) as raised:
            cluster.groups.start_finding("g").result()
        assert raised.value.code == error
        assert cluster.requests < 100
