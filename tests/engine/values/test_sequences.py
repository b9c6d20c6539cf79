"""Rows arranged key by key."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.values.sequences import Sequences

keys = st.lists(st.integers(-1, 4), max_size=30)


@given(keys, st.sampled_from([5, 2**16 + 5]))
def test_rows_stand_by_key_and_in_their_order(keys: list[int], count: int) -> None:
    sequences = Sequences.of(np.array(keys, dtype=np.int64), count)
    expected = sorted((key, row) for row, key in enumerate(keys) if key >= 0)
    assert list(zip(sequences.keys.tolist(), sequences.rows.tolist(), strict=True)) == expected
    assert sequences.first.tolist() == [
        place == 0 or expected[place - 1][0] != key for place, (key, _) in enumerate(expected)
    ]
    assert sequences.last().tolist() == [
        place + 1 == len(expected) or expected[place + 1][0] != key for place, (key, _) in enumerate(expected)
    ]
    assert sequences.starts().tolist() == [[one for one, _ in expected].index(key) for key, _ in expected]


@given(keys, st.lists(st.tuples(st.integers(-1, 6), st.integers(0, 32)), max_size=10))
def test_find_gives_the_first_place_not_before_a_row(keys: list[int], queries: list[tuple[int, int]]) -> None:
    sequences = Sequences.of(np.array(keys, dtype=np.int64), 5)
    ordered = sorted((key, row) for row, key in enumerate(keys) if key >= 0)
    asked = np.array(queries, dtype=np.int64).reshape(-1, 2)
    found = sequences.find(asked[:, 0], asked[:, 1]).tolist()
    assert found == [sum(place < query for place in ordered) for query in queries]


@given(st.lists(st.integers(0, 4), max_size=30))
def test_numbers_by_place_return_to_their_rows(keys: list[int]) -> None:
    sequences = Sequences.of(np.array(keys, dtype=np.int64), 5)
    assert sequences.by_row(sequences.keys).tolist() == keys


def test_one_key_needs_no_sort() -> None:
    assert Sequences.of(np.zeros(4, dtype=np.int64), 1).rows.tolist() == [0, 1, 2, 3]
