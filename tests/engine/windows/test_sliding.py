"""Sliding windows, against the rule looked at instant by instant."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.engine.stateful.rows import BASES, KEYS, Rows, rows
from tidegate.engine.windows.kinds.sliding import sliding_windows
from tidegate.ordering import END_OF_TIME, NO_TIME
from tidegate.ordering.ticks import LAST_TICKS

Result = tuple[int, int, tuple[int, ...]]
"""A key, the end of a window, and the rows inside."""


def by_the_rule(given_rows: Rows, size: int) -> list[Result]:
    """Look at every instant: is there a row, or an exit, and what is in (instant − size, instant]?"""
    results = []
    for key in range(KEYS):
        own = [(time, row) for row, time in enumerate(given_rows.times) if given_rows.keys[row] == key]
        for instant in range(
            min((time for time, _ in own), default=0), max((time for time, _ in own), default=-1) + 1 + size
        ):
            changes = any(time in (instant, instant - size) for time, _ in own)
            inside = tuple(row for time, row in own if instant - size < time <= instant)
            if changes and inside and instant <= LAST_TICKS:
                results.append((key, instant, inside))
    return results


def computed(given_rows: Rows, size: int, from_ticks: int = NO_TIME, to_ticks: int = END_OF_TIME) -> list[Result]:
    times, sequences, _ = given_rows.columns()
    windows = sliding_windows(times, sequences, size, from_ticks, to_ticks)
    results = []
    for end, low, high in zip(windows.ends.tolist(), windows.lows.tolist(), windows.highs.tolist(), strict=True):
        results.append((int(sequences.keys[low]), end, tuple(sequences.rows[low:high].tolist())))
    return sorted(results)


@given(st.data(), BASES, st.integers(1, 6))
def test_windows_are_those_of_the_rule(data: st.DataObject, base: int, size: int) -> None:
    given_rows = data.draw(rows(base))
    assert computed(given_rows, size) == by_the_rule(given_rows, size)


@given(st.data(), st.integers(1, 6))
def test_there_is_no_instant_beyond_the_calendar(data: st.DataObject, size: int) -> None:
    given_rows = data.draw(rows(LAST_TICKS - 24))
    assert computed(given_rows, size) == by_the_rule(given_rows, size)


@given(st.data(), BASES, st.integers(1, 6), st.integers(-1, 32), st.integers(-1, 32))
def test_rows_older_than_the_size_change_nothing(
    data: st.DataObject, base: int, size: int, start: int, length: int
) -> None:
    given_rows = data.draw(rows(base))
    start += base
    kept, gone = given_rows.since(start - size)
    whole = [(key, end, inside) for key, end, inside in by_the_rule(given_rows, size) if start <= end < start + length]
    cut = [
        (key, end, tuple(row + gone for row in inside))
        for key, end, inside in computed(kept, size, start, start + length)
    ]
    assert cut == whole
