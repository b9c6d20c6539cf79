"""Keys land where the service puts them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from azure.eventhub._buffered_producer._partition_resolver import PartitionResolver, generate_hash_code
from hypothesis import given
from hypothesis import strategies as st

from tidegate.hub.placement import RoundRobin, partition_for_key, partition_key_hash

HASHES = {
    "a": -16220,
    "7": -15263,
    "key": 11419,
    "alpha": 873,
    "device-1": 26788,
    "device-2": 12622,
    "device-17": -8360,
    "sensor/42": 28375,
    "exactly12chr": -4334,
    "thirteenchars": 29124,
    "twenty-four-characters!!": 8203,
    "é": -24812,
    "日本語": -23353,
}


@pytest.mark.parametrize(("key", "expected"), HASHES.items())
def test_the_hash_of_known_keys(key: Any, expected: Any) -> None:
    assert partition_key_hash(key) == expected


@given(st.text(alphabet=st.characters(max_codepoint=127), min_size=1, max_size=60))
def test_ascii_keys_hash_as_microsofts_client_hashes_them(key: str) -> None:
    assert partition_key_hash(key) == generate_hash_code(key)


@given(st.text(max_size=60), st.integers(1, 32))
def test_the_remainder_is_that_of_the_absolute_value(key: str, count: int) -> None:
    index = partition_for_key(key, count)
    assert index == abs(partition_key_hash(key)) % count
    assert 0 <= index < count


def test_the_client_agrees_where_the_hash_is_not_negative() -> None:
    resolver = PartitionResolver([str(number) for number in range(4)])
    for key in ("key", "alpha", "device-1", "device-2", "sensor/42"):
        assert resolver.get_partition_id_by_partition_key(key) == str(partition_for_key(key, 4))


def test_events_without_a_key_go_in_turn() -> None:
    turns = RoundRobin(3)
    assert [turns.next() for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_keys_spread() -> None:
    spread = Counter(partition_for_key(f"device-{number}", 8) for number in range(8000))
    assert all(800 < count < 1200 for count in spread.values())
