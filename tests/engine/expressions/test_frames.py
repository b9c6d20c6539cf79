"""Frames on their way from a task to the keyed side."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.expressions.frames import Frame

_INT64 = st.integers(-(2**63), 2**63 - 1)


def order_after_pickling(values: list[int]) -> list[int]:
    frame = Frame(np.zeros(len(values), dtype=np.int64), order=(np.array(values, dtype=np.int64),))
    (column,) = pickle.loads(pickle.dumps(frame)).order
    assert column.dtype == np.int64
    found: list[int] = column.tolist()
    return found


@given(st.lists(_INT64) | st.builds(lambda first, n: [first] * n, _INT64, st.integers(0, 9)))
def test_the_order_of_rows_survives_pickling(values: list[int]) -> None:
    assert order_after_pickling(values) == values


@pytest.mark.parametrize("step", [0, 1, -3, 2**40])
def test_a_progression_travels_as_three_numbers(step: int) -> None:
    values = [7 + step * place for place in range(10_000)]
    assert order_after_pickling(values) == values
    frame = Frame(np.zeros(0, dtype=np.int64), order=(np.array(values, dtype=np.int64),))
    assert len(pickle.dumps(frame)) < 1_000


def test_a_progression_that_leaves_int64_on_its_way_is_kept_as_it_is() -> None:
    values = [-(2**63), 2**63 - 1, -(2**63) + 2]
    assert order_after_pickling(values) == values
