"""Joins, against every pair of rows and the text of DATEDIFF."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.stateful.rows import BASES, Rows, rows
from tidegate.engine.stateful.joins import Bound, Reach, meet, meet_always, unmatched_delay, unmatched_times
from tidegate.engine.values.vectors import Int64Array
from tidegate.ordering import NO_TIME
from tidegate.ordering.ticks import FIRST_TICKS, LAST_TICKS


def datediff(unit: int, left: int, right: int) -> int:
    """Boundaries of the unit crossed on the way, told one by one where there are few."""
    low, high = min(left, right), max(left, right)
    crossed = sum((instant - FIRST_TICKS) % unit == 0 for instant in range(low + 1, high + 1))
    return crossed if right >= left else -crossed


def allows(bound: Bound, left: int, right: int) -> bool:
    difference = datediff(bound.unit_ticks, left, right)
    return (bound.low is None or difference >= bound.low) and (bound.high is None or difference <= bound.high)


@st.composite
def bounds(draw: st.DrawFn) -> Bound:
    low = draw(st.integers(-4, 4))
    return Bound(draw(st.integers(1, 5)), low, low + draw(st.integers(0, 4)))


def array(numbers: list[int]) -> Int64Array:
    return np.array(numbers, dtype=np.int64)


def all_pairs(reach: Reach, left: Rows, right: Rows, most: int = 1000) -> list[tuple[int, int]]:
    ranges = meet(reach, array(left.keys), array(right.times), array(right.keys))
    found: list[tuple[int, int]] = []
    for begin, end in ranges.stretches(most):
        one, other = ranges.pairs(begin, end)
        assert len(one) <= most or end == begin + 1
        found += zip(one.tolist(), other.tolist(), strict=True)
    return found


@given(st.data(), BASES, st.lists(bounds(), min_size=1, max_size=2), st.integers(1, 6))
def test_rows_meet_where_all_bounds_and_the_key_allow_it(
    data: st.DataObject, base: int, bounds: list[Bound], most: int
) -> None:
    left, right = data.draw(rows(base)), data.draw(rows(base))
    times = array(left.times)
    found = all_pairs(Reach.of([(bound, times) for bound in bounds]), left, right, most)
    assert found == [
        (one, other)
        for one in range(len(left))
        for other in range(len(right))
        if left.keys[one] == right.keys[other]
        and all(allows(bound, left.times[one], right.times[other]) for bound in bounds)
    ]


@given(st.data(), BASES, bounds())
def test_a_row_without_a_time_or_a_key_meets_nothing(data: st.DataObject, base: int, bound: Bound) -> None:
    left, right = data.draw(rows(base)), data.draw(rows(base))
    timeless = Reach.of([(bound, np.full(len(left), NO_TIME))])
    assert all_pairs(timeless, left, right) == []
    reach = Reach.of([(bound, array(left.times))])
    keyless = Rows(left.times, [-1] * len(left), left.passing)
    assert all_pairs(reach, keyless, right) == []
    assert all_pairs(reach, left, Rows(right.times, [-1] * len(right), right.passing)) == []


@given(st.data(), BASES, st.lists(bounds(), min_size=1, max_size=2))
def test_an_unmatched_row_is_decided_no_later_than_its_delay(
    data: st.DataObject, base: int, bounds: list[Bound]
) -> None:
    left = data.draw(rows(base))
    times = array(left.times)
    with_times = [(bound, times) for bound in bounds]
    reach, results = Reach.of(with_times), unmatched_times(times, with_times)
    for time, last, result in zip(left.times, reach.last.tolist(), results.tolist(), strict=True):
        upper = min(time + (bound.high or 0) * bound.unit_ticks for bound in bounds)
        assert result == max(time, upper)
        assert last <= result + unmatched_delay(bounds)


def test_results_stay_within_the_calendar() -> None:
    late = array([LAST_TICKS - 1])
    assert unmatched_times(late, [(Bound(10, 0, 5), late)]).tolist() == [LAST_TICKS]


@given(rows(0), rows(0))
def test_reference_rows_meet_by_key_alone(left: Rows, right: Rows) -> None:
    ranges = meet_always(array(left.keys), array(right.keys))
    one, other = ranges.pairs(0, len(left))
    assert list(zip(one.tolist(), other.tolist(), strict=True)) == [
        (a, b) for a in range(len(left)) for b in range(len(right)) if left.keys[a] == right.keys[b]
    ]
