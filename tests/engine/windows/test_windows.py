"""Tumbling, hopping and snapshot windows against the rule, window by window, over steps of release."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.streams import SECOND, START, Events, program, task
from tidegate.engine import KeyedSide, Program
from tidegate.engine.windows.kind import Panes
from tidegate.ordering import END_OF_TIME, NO_TIME, Policy, format_time, parse_time
from tidegate.ordering.ticks import FIRST_TICKS, LAST_TICKS

SELECT = (
    "SELECT System.Timestamp() AS e, k, COUNT(*) AS n, SUM(v) AS s, AVG(v) AS a, MIN(v) AS low, MAX(v) AS high, "
    "COUNT(DISTINCT v) AS d, VARP(v) AS vp INTO out FROM a GROUP BY k, {}"
)
WINDOWS = {
    "TumblingWindow(second, 3)": (3, 3, 0),
    "TumblingWindow(Duration(second, 4), Offset(second, -1))": (4, 4, -1),
    "HoppingWindow(second, 6, 2)": (6, 2, 0),
    "HoppingWindow(second, 5, 2)": (5, 2, 0),
    "HoppingWindow(second, 2, 5)": (2, 5, 0),
    "HoppingWindow(second, 2, 6)": (2, 6, 0),
    "HoppingWindow(Duration(second, 9), Hop(second, 3), Offset(second, 1))": (9, 3, 1),
}
ROWS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 1, 2, 7, 40]),
        st.sampled_from("xyz"),
        st.none() | st.integers(-3, 3) | st.floats(-1e6, 1e6) | st.sampled_from([1e300, -1e300, 5e-324]),
    ),
    max_size=25,
)
Row = tuple[int, str, Any]


def windows_of(rows: list[Row], size: int, hop: int, offset: int) -> Iterator[tuple[int, str, list[Any]]]:
    """(start, end] for every end at a multiple of the hop plus the offset, that holds a row of the key."""
    if not rows:
        return
    first = (min(time for time, _, _ in rows) - FIRST_TICKS) // SECOND - 1
    last = (max(time for time, _, _ in rows) - FIRST_TICKS) // SECOND + size + hop + 1
    for seconds in range(first, last + 1):
        if (seconds - offset) % hop:
            continue
        end = FIRST_TICKS + seconds * SECOND
        for key in sorted({key for _, key, _ in rows}):
            values = [value for time, one, value in rows if one == key and end - size * SECOND < time <= end]
            if values:
                yield end, key, values


def expected_of(end: int, key: str, values: list[Any]) -> dict[str, Any] | None:
    """None where a sum overflows, which loses the row."""
    present = [value + 0.0 if isinstance(value, float) else value for value in values if value is not None]
    exact = [Fraction(value) for value in present]
    total = sum(exact, Fraction(0))
    floats = any(isinstance(value, float) for value in present)
    mean = total / len(exact) if exact else Fraction(0)
    spread = [Fraction(float(value)) for value in present]
    center = sum(spread, Fraction(0)) / len(spread) if spread else Fraction(0)
    try:
        return {
            "e": format_time(end),
            "k": key,
            "n": len(values),
            "s": (float(total) + 0.0 if floats else int(total)) if present else None,
            "a": float(mean) + 0.0 if present else None,
            "low": min(present, key=lambda value: (value, isinstance(value, float)), default=None),
            "high": max(present, key=lambda value: (value, isinstance(value, float)), default=None),
            "d": len({(type(value), value) for value in present}),
            "vp": float(sum((one - center) ** 2 for one in spread) / len(spread)) if spread else None,
        }
    except OverflowError:
        return None


@pytest.mark.parametrize("window", WINDOWS)
@settings(max_examples=settings().max_examples // 2)
@given(gaps=ROWS, steps=st.lists(st.integers(0, 25), max_size=5))
def test_windows_hold_what_the_rule_says(window: str, gaps: list[Row], steps: list[int]) -> None:
    rows = at_times(gaps)
    got = released(program(SELECT.format(window)), rows, steps)
    expected = [expected_of(*one) for one in windows_of(rows, *WINDOWS[window])]
    assert repr(got) == repr([row for row in expected if row is not None])


def at_times(gaps: list[Row]) -> list[Row]:
    now, rows = START, []
    for gap, key, value in gaps:
        now += gap * SECOND // 2
        rows.append((now, key, value))
    return rows


def released(of: Program, rows: list[Row], steps: list[int]) -> list[dict[str, Any]]:
    """The rows of a query that is released in steps."""
    keyed, carry, got = KeyedSide(of), of.new_carry("a"), []
    bounds = [*sorted(min(step, len(rows)) for step in steps), len(rows)]
    done, released = 0, NO_TIME
    for bound in bounds:
        part = rows[done:bound]
        events = Events.of([{"k": key, "v": value} for _, key, value in part], [time for time, _, _ in part], done)
        if part:
            partial, carry = task(of, "a", "0", events, Policy.none(), carry)
            keyed.absorb([partial])
        done = bound
        watermark = rows[bound - 1][0] if bound else NO_TIME
        if watermark > released:
            got += [row for result in keyed.emit(NO_TIME, watermark) for row in result.to_dicts()]
            released = watermark
    return got + [row for result in keyed.emit(NO_TIME, END_OF_TIME) for row in result.to_dicts()]


BROUGHT_FORWARD = (
    "SELECT System.Timestamp() AS e, k, SUM(DISTINCT v) AS s, COUNT(DISTINCT v) AS d, VARP(DISTINCT v) AS vp, "
    "CollectTop(2) OVER (ORDER BY v DESC) AS top, TopOne() OVER (ORDER BY v) AS low, MIN(v) AS least, "
    "PERCENTILE_DISC(0.5) OVER (ORDER BY v) AS middle INTO out FROM a GROUP BY k, {}"
)


def brought_forward(end: int, key: str, values: list[Any]) -> dict[str, Any]:
    present = [value for value in values if value is not None]
    distinct = sorted(set(present))
    mean = Fraction(sum(distinct), len(distinct) or 1)
    # NULL is the smallest; of equal values the earlier row comes first.
    ranked = sorted(values, key=lambda value: (value is not None, value or 0), reverse=True)[:2]
    return {
        "e": format_time(end),
        "k": key,
        "s": sum(distinct) if distinct else None,
        "d": len(distinct),
        "vp": float(sum((one - mean) ** 2 for one in distinct) / len(distinct)) if distinct else None,
        "top": [{"rank": rank, "value": {"k": key, "v": value}} for rank, value in enumerate(ranked, start=1)],
        "low": {"k": key, "v": None if None in values else min(present)},
        "least": min(present, default=None),
        "middle": sorted(present)[(len(present) + 1) // 2 - 1] if present else None,
    }


WHOLE_NUMBERS = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, 7, 40]), st.sampled_from("xy"), st.none() | st.integers(-3, 3)), max_size=25
)


@pytest.mark.parametrize("window", WINDOWS)
@settings(max_examples=settings().max_examples // 2)
@given(gaps=WHOLE_NUMBERS, steps=st.lists(st.integers(0, 25), max_size=6))
def test_what_is_brought_forward_is_what_each_window_holds(window: str, gaps: list[Row], steps: list[int]) -> None:
    rows = at_times(gaps)
    got = released(program(BROUGHT_FORWARD.format(window)), rows, steps)
    assert got == [brought_forward(*one) for one in windows_of(rows, *WINDOWS[window])]
    assert not any(math.isinf(value) for row in got for value in row.values() if isinstance(value, float))


def test_snapshots_are_rows_of_one_instant() -> None:
    sql = "SELECT System.Timestamp() AS e, k, SUM(v) AS s INTO out FROM a GROUP BY k, System.Timestamp()"
    of = program(sql)
    keyed = KeyedSide(of)
    bodies = [{"k": "y", "v": 1}, {"k": "x", "v": 2}, {"k": "y", "v": 3}, {"k": "y", "v": 4}]
    events = Events.of(bodies, [START, START, START, START + 1])
    keyed.absorb([task(of, "a", "0", events, Policy.none(), of.new_carry("a"))[0]])
    first = keyed.emit(NO_TIME, START + 1)[0].to_dicts()
    assert [(row["k"], row["s"]) for row in first] == [("x", 2), ("y", 4)]
    assert [row["s"] for row in keyed.emit(START + 1, END_OF_TIME)[0].to_dicts()] == [4]


def test_a_long_window_holds_no_more_than_a_short_one() -> None:
    sizes = []
    for days in (1, 7):
        of = program(f"SELECT k, AVG(v) AS a INTO out FROM a GROUP BY k, TumblingWindow(day, {days})")
        keyed = KeyedSide(of)
        for _ in range(8):
            events = Events.of([{"k": f"k{place % 50}", "v": 1.5} for place in range(500)], [START + 1] * 500)
            keyed.absorb([task(of, "a", "0", events, Policy.none(), of.new_carry("a"))[0]])
            keyed.emit(NO_TIME, START + 1)
        (chunks,) = keyed.state.operators[0].chunks
        sizes.append(len(chunks.tables))
    assert sizes == [50, 50]


def test_what_ended_before_the_start_is_not_computed() -> None:
    of = program(
        "SELECT System.Timestamp() AS e, COUNT(*) AS n INTO out FROM a GROUP BY HoppingWindow(minute, 10080, 1)"
    )
    day = 86_400 * SECOND
    keyed, start = KeyedSide(of), START + 7 * day
    events = Events.of([{}, {}, {}], [START + 1, START + day, start - 1])
    keyed.absorb([task(of, "a", "0", events, Policy.none(), of.new_carry("a"))[0]])
    keyed.emit(start, start)
    (hopping,) = keyed.state.operators[0].assembling
    assert hopping.known.hops.tolist() == [(start - FIRST_TICKS) // (60 * SECOND) - 1]
    rows = [row for result in keyed.emit(start, start + 120 * SECOND) for row in result.to_dicts()]
    assert rows == [{"e": format_time(start), "n": 3}, {"e": format_time(start + 60 * SECOND), "n": 2}]


def test_the_calendar_has_ends() -> None:
    of = program(
        "SELECT System.Timestamp() AS e, COUNT(*) AS n INTO out FROM a TIMESTAMP BY t GROUP BY {}".format(
            "HoppingWindow(day, 7, 1)"
        )
    )
    keyed = KeyedSide(of)
    events = Events.of([{"t": "9999-12-31T23:00:00Z"}, {"t": "0001-01-01T00:00:00Z"}])
    keyed.absorb([task(of, "a", "0", events, Policy.none(), of.new_carry("a"))[0]])
    rows = keyed.emit(NO_TIME, END_OF_TIME)[0].to_dicts()
    assert rows[0] == {"e": "0001-01-01T00:00:00.0000000Z", "n": 1}
    assert {row["e"] for row in rows[7:]} == {format_time(LAST_TICKS)}


def test_panes_are_as_long_as_size_and_hop_allow() -> None:
    assert Panes.of(10, 4) == Panes(2, 5, 2)
    assert Panes.of(7, 7, 3) == Panes(7, 1, 1, 3)
    assert parse_time("0001-01-01T00:00:00Z") == FIRST_TICKS
