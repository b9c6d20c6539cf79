"""Keys that are equal share a shard, in every process and whatever is beside them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.functions.operators import Comparison, compare, is_true
from tidegate.engine.sharding.payloads import shard_codes
from tidegate.engine.values.grouping import group, unified
from tidegate.engine.values.vectors import Vector

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.integers(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
    st.sampled_from(
        ["1", "1.0", " 1 ", "01", "true", "TRUE", "True\u00a0", "-0.0", "a", "A", "\u00c4", "\u00e4", "x" * 40]
    ),
    st.sampled_from(["2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00"]),
)


def codes(values: list[Any], *, wide: bool, shards: int = 1000, seed: int = 7) -> list[int]:
    found: list[int] = shard_codes([Vector.of(values)], len(values), shards, seed, wide=wide).tolist()
    return found


@given(st.lists(VALUES, min_size=1, max_size=20))
def test_what_group_by_finds_equal_shares_a_shard(values: list[Any]) -> None:
    groups = group(len(values), [unified(Vector.of(values))]).codes.tolist()
    for wide in (False, True):
        shards = codes(values, wide=wide)
        assert len(set(zip(groups, shards, strict=True))) == len(set(groups))


@given(VALUES, VALUES)
def test_what_a_join_finds_equal_shares_a_shard(one: Any, other: Any) -> None:
    if is_true(compare(Comparison.EQUAL, Vector.of([one]), Vector.of([other])))[0]:
        assert codes([one], wide=True) == codes([other], wide=True)


@pytest.mark.parametrize(("one", "other"), [(1, "1.0"), ("a", "A"), (True, "true"), (0, "-0.0"), (1, 1.0)])
def test_a_join_converts(one: Any, other: Any) -> None:
    assert codes([one], wide=True) == codes([other], wide=True)


@given(st.lists(VALUES, min_size=1, max_size=20), st.integers(0, 19))
def test_a_value_has_its_shard_whatever_is_beside_it(values: list[Any], place: int) -> None:
    value = values[place % len(values)]
    for wide in (False, True):
        assert codes(values, wide=wide)[place % len(values)] == codes([value], wide=wide)[0]


def test_keys_are_spread_evenly() -> None:
    shards = codes([f"device-{number}" for number in range(10_000)], wide=False, shards=7)
    assert 1300 < min(np.bincount(shards)) <= max(np.bincount(shards)) < 1560


@pytest.mark.slow
def test_another_process_finds_the_same_shards_and_another_seed_others() -> None:
    values = ["a", 1, 2.5, None, "device-7"]
    script = f"from tests.engine.sharding.test_codes import codes; print(codes({values!r}, wide=True))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert found.strip() == str(codes(values, wide=True))
    assert codes(values, wide=True) != codes(values, wide=True, seed=8)
