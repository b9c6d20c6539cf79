"""Steps back in arrival: counted the same however events are cut, and refused only where there are many."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.model.errors import InputError
from tidegate.ordering import TICKS_PER_SECOND
from tidegate.spark.queries.arrival_order import ArrivalOrder, ArrivalSteps

ARRIVALS = st.lists(st.integers(-5, 5).map(lambda seconds: seconds * TICKS_PER_SECOND // 2), max_size=12)


def steps(arrivals: list[int]) -> ArrivalSteps:
    return ArrivalSteps().then(np.array(arrivals, dtype=np.int64))


def arrived(seconds: list[int]) -> Any:
    """Events that arrived at these times, as far as they are looked at."""
    arrivals = np.array(seconds, dtype=np.int64) * TICKS_PER_SECOND
    return cast("Any", SimpleNamespace(arrivals=arrivals, sequence_numbers=np.arange(len(seconds))))


@given(ARRIVALS, ARRIVALS)
def test_a_cut_changes_nothing(before: list[int], after: list[int]) -> None:
    whole = steps(before + after)
    assert steps(before).then(np.array(after, dtype=np.int64)) == whole
    assert steps(before).after(steps(after)) == whole


def test_a_step_of_a_second_or_less_is_none() -> None:
    assert steps([10 * TICKS_PER_SECOND, 9 * TICKS_PER_SECOND]).back == 0
    assert steps([10 * TICKS_PER_SECOND, 9 * TICKS_PER_SECOND - 1]).back == 1


def test_a_clock_that_is_set_back_now_and_then_is_accepted() -> None:
    ArrivalOrder("i", "0").check(arrived([100, 50] * 10 + [50]))


def test_an_order_that_contradicts_the_arrival_is_refused_at_the_last_step_back() -> None:
    order = ArrivalOrder("i", "0")
    order.check(arrived([100, 50] * 10))
    with pytest.raises(InputError, match=r"input 'i', partition 0: .* 11 of 22 events .* such as number 1,"):
        order.check(arrived([100, 50]))
