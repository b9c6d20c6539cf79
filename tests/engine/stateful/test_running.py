"""Aggregates OVER LIMIT DURATION, against the set of rows that the rule names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.engine.stateful.rows import BASES, Rows, rows
from tidegate.engine.stateful.analytics.earlier_rows import running_ranges, still_counted


def by_the_rule(given_rows: Rows, limit: int) -> list[list[int]]:
    """For each row those of its key that pass, are within the limit, and are not behind it."""
    return [
        [
            other
            for other in range(row + 1)
            if given_rows.keys[other] == given_rows.keys[row]
            and given_rows.passing[other]
            and given_rows.times[other] > given_rows.times[row] - limit
        ]
        for row in range(len(given_rows))
    ]


def computed(given_rows: Rows, limit: int, from_row: int = 0) -> list[list[int]]:
    ranges = running_ranges(*given_rows.columns(), limit, from_row)
    found = {
        row: ranges.members[low:high].tolist()
        for row, low, high in zip(ranges.rows.tolist(), ranges.lows.tolist(), ranges.highs.tolist(), strict=True)
    }
    return [found[row] for row in sorted(found)]


limits, cuts = st.integers(1, 9), st.integers(-1, 26)


@given(st.data(), BASES, limits, st.integers(0, 14))
def test_ranges_are_those_of_the_rule(data: st.DataObject, base: int, limit: int, from_row: int) -> None:
    given_rows = data.draw(rows(base))
    assert computed(given_rows, limit, from_row) == by_the_rule(given_rows, limit)[from_row:]


@given(st.data(), BASES, limits, cuts)
def test_rows_that_are_not_kept_change_nothing(data: st.DataObject, base: int, limit: int, cut: int) -> None:
    given_rows = data.draw(rows(base))
    times, _, passing = given_rows.columns()
    still = still_counted(times, passing, limit, base + cut).tolist()
    numbers = [row for row, time in enumerate(given_rows.times) if still[row] or time >= base + cut]
    assert all(given_rows.times[row] > base + cut - limit for row in numbers)
    kept = Rows(
        [given_rows.times[row] for row in numbers],
        [given_rows.keys[row] for row in numbers],
        [given_rows.passing[row] for row in numbers],
    )
    from_row = sum(time < base + cut for time in kept.times)
    seen = [[numbers[row] for row in inside] for inside in computed(kept, limit, from_row)]
    assert seen == by_the_rule(given_rows, limit)[len(given_rows) - len(seen) :]
