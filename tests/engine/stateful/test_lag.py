"""LAG, LAST and ISFIRST, against a walk over the rows before."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.stateful.rows import BASES, Rows, rows
from tidegate.engine.stateful.analytics.earlier_rows import is_first, lag, still_first, still_seen
from tidegate.engine.values.vectors import BoolArray
from tidegate.ordering.ticks import FIRST_TICKS


def lag_by_the_rule(given_rows: Rows, offset: int, limit: int) -> list[int]:
    """Walk back from each row over those of its key that pass and are recent, until the offset-th."""
    results = []
    for row in range(len(given_rows)):
        left = offset
        found = -1
        for earlier in range(row if offset == 0 else row - 1, -1, -1):
            if given_rows.keys[earlier] != given_rows.keys[row] or not given_rows.passing[earlier]:
                continue
            if given_rows.times[earlier] <= given_rows.times[row] - limit:
                break
            left -= 1
            if left <= 0:
                found = earlier
                break
        results.append(found)
    return results


def first_by_the_rule(given_rows: Rows, length: int) -> list[bool]:
    """Note for each key and interval whether a passing row has been seen."""
    seen: set[tuple[int, int]] = set()
    results = []
    for time, key, passes in zip(given_rows.times, given_rows.keys, given_rows.passing, strict=True):
        # (start, end]: a row at a multiple belongs to the interval that ends there.
        interval = (key, (time - FIRST_TICKS - 1) // length)
        results.append(passes and interval not in seen)
        if passes:
            seen.add(interval)
    return results


def since(given_rows: Rows, still: BoolArray) -> tuple[Rows, list[int]]:
    """The rows that are kept, and their numbers."""
    kept = np.flatnonzero(still).tolist()
    return (
        Rows(
            [given_rows.times[row] for row in kept],
            [given_rows.keys[row] for row in kept],
            [given_rows.passing[row] for row in kept],
        ),
        kept,
    )


offsets, limits, cuts = st.integers(0, 3), st.integers(1, 9), st.integers(-1, 26)


@given(st.data(), BASES, offsets, limits)
def test_lag_is_that_of_the_rule(data: st.DataObject, base: int, offset: int, limit: int) -> None:
    given_rows = data.draw(rows(base))
    assert lag(*given_rows.columns(), offset, limit).tolist() == lag_by_the_rule(given_rows, offset, limit)


@given(st.data(), BASES, limits)
def test_is_first_is_that_of_the_rule(data: st.DataObject, base: int, length: int) -> None:
    given_rows = data.draw(rows(base))
    assert is_first(*given_rows.columns(), length).tolist() == first_by_the_rule(given_rows, length)


def _cut(given_rows: Rows, start: int, kept: Callable[[Rows], BoolArray]) -> tuple[Rows, list[int]]:
    """The rows from `start` on, after those before that are kept."""
    new, gone = given_rows.since(start)
    before = Rows(given_rows.times[:gone], given_rows.keys[:gone], given_rows.passing[:gone])
    held, numbers = since(before, kept(before))
    joined = Rows(held.times + new.times, held.keys + new.keys, held.passing + new.passing)
    return joined, [*numbers, *range(gone, len(given_rows))]


@given(st.data(), BASES, offsets, limits, cuts)
def test_lag_sees_the_same_in_the_rows_that_are_kept(
    data: st.DataObject, base: int, offset: int, limit: int, cut: int
) -> None:
    given_rows = data.draw(rows(base))
    joined, numbers = _cut(
        given_rows, base + cut, lambda before: still_seen(*before.columns(), offset, limit, base + cut)
    )
    seen = [-1 if row < 0 else numbers[row] for row in lag(*joined.columns(), offset, limit).tolist()]
    new = sum(time >= base + cut for time in given_rows.times)
    assert seen[len(seen) - new :] == lag_by_the_rule(given_rows, offset, limit)[len(given_rows) - new :]


@given(st.data(), BASES, limits, cuts)
def test_is_first_sees_the_same_in_the_rows_that_are_kept(
    data: st.DataObject, base: int, length: int, cut: int
) -> None:
    given_rows = data.draw(rows(base))
    joined, _ = _cut(given_rows, base + cut, lambda before: still_first(*before.columns(), length, base + cut))
    new = sum(time >= base + cut for time in given_rows.times)
    seen = is_first(*joined.columns(), length).tolist()
    assert seen[len(seen) - new :] == first_by_the_rule(given_rows, length)[len(given_rows) - new :]


@given(st.data(), BASES, offsets, limits, cuts)
def test_rows_older_than_the_limit_change_nothing(
    data: st.DataObject, base: int, offset: int, limit: int, cut: int
) -> None:
    given_rows = data.draw(rows(base))
    kept, gone = given_rows.since(base + cut - limit)
    new = sum(time >= base + cut for time in given_rows.times)
    seen = [-1 if row < 0 else row + gone for row in lag(*kept.columns(), offset, limit).tolist()]
    assert seen[len(seen) - new :] == lag_by_the_rule(given_rows, offset, limit)[len(given_rows) - new :]
    first = is_first(*kept.columns(), limit).tolist()
    assert first[len(first) - new :] == first_by_the_rule(given_rows, limit)[len(given_rows) - new :]


def test_rows_of_the_same_time_see_each_other_in_the_order_of_arrival() -> None:
    assert lag(*Rows([5, 5, 5], [0, 0, 0], [True] * 3).columns(), 1, 10).tolist() == [-1, 0, 1]


def test_a_row_just_the_limit_ago_is_forgotten() -> None:
    assert lag(*Rows([0, 10, 19], [0, 0, 0], [True] * 3).columns(), 1, 10).tolist() == [-1, -1, 1]


def test_a_row_is_kept_until_no_row_to_come_can_see_it() -> None:
    times, sequences, passing = Rows([0, 10], [0, 1], [True] * 2).columns()
    assert still_seen(times, sequences, passing, 1, 10, 9).tolist() == [True, True]
    assert still_seen(times, sequences, passing, 1, 10, 10).tolist() == [False, True]
