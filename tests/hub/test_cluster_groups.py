"""What groups and their subscriptions are called in a cluster."""

from __future__ import annotations

import struct
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.hub.cluster_groups import ClusterGroups, translate_subscription

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
