"""Keys of joins, against comparing each pair."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.functions.operators import Comparison, compare, is_true
from tidegate.engine.stateful.joins import JoinKeys
from tidegate.engine.values.vectors import Datetime, Vector
from tidegate.ordering import parse_time

TEXTS = st.sampled_from(
    ["a", "A", "5", "5.0", " 5 ", "1", "-0.0", "é", "É", "e\u0301", "2026-01-01", "2026-01-01T00:00:00Z", ""]
)
VALUES = st.one_of(
    TEXTS,
    st.sampled_from([None, 5, 5.0, 1, 1.0, -0.0, 0, 2**53 + 1, float(2**53), True, False, [1], [1.0]]),
    st.sampled_from([{"a": 1}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"A": 1}, ["a"], ["A"]]),
    st.just(Datetime(parse_time("2026-01-01T00:00:00Z"))),
)
COLUMNS = st.one_of(
    st.lists(VALUES, max_size=6),
    st.lists(TEXTS, max_size=6),
    st.lists(st.integers(0, 2), max_size=6),
    st.lists(st.sampled_from([{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1}, None]), max_size=6),
)


@given(COLUMNS, COLUMNS)
def test_pairs_are_those_that_compare_equal(left: list[Any], right: list[Any]) -> None:
    one, other = Vector.of(left), Vector.of(right)
    keys = JoinKeys.of([one], [other], len(left), len(right))
    every = [(i, j) for i in range(len(left)) for j in range(len(right))]
    rows = np.array(every, dtype=np.int64).reshape(-1, 2)
    equal = is_true(compare(Comparison.EQUAL, one.take(rows[:, 0]), other.take(rows[:, 1])))
    same = (keys.left[rows[:, 0]] == keys.right[rows[:, 1]]) & (keys.left[rows[:, 0]] >= 0)
    if keys.unsure:
        assert not (equal & ~same).any()
    else:
        assert equal.tolist() == same.tolist()


@given(
    st.lists(st.tuples(st.integers(0, 2), TEXTS), max_size=6), st.lists(st.tuples(st.integers(0, 2), TEXTS), max_size=6)
)
def test_all_keys_must_be_equal(left: list[tuple[int, str]], right: list[tuple[int, str]]) -> None:
    columns = [[Vector.of([row[index] for row in side]) for index in (0, 1)] for side in (left, right)]
    keys = JoinKeys.of(columns[0], columns[1], len(left), len(right))
    assert keys.unsure == ()
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            assert (keys.left[i] == keys.right[j]) == (one[0] == other[0] and one[1].lower() == other[1].lower())


def test_without_keys_all_rows_are_equal() -> None:
    keys = JoinKeys.of([], [], 2, 3)
    assert keys.left.tolist() == [0, 0]
    assert keys.right.tolist() == [0, 0, 0]
