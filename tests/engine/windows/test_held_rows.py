"""A step takes up the rows of the keys in which something happens, and leaves all others where they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.streams import SECOND, START, Events, program, task
from tidegate.engine import KeyedSide, Program
from tidegate.engine.substreams.watermarks import Part
from tidegate.engine.windows import held_rows
from tidegate.ordering import END_OF_TIME, NO_TIME, Carry, Policy

FORMS = {
    "sliding": "SELECT k, COUNT(*) AS n, SUM(v) AS s INTO o FROM i GROUP BY k, SlidingWindow(second, 3)",
    "session": "SELECT k, COUNT(*) AS n, SUM(v) AS s INTO o FROM i "
    "GROUP BY k, SessionWindow(second, 3, 7) OVER (PARTITION BY k)",
    "a match of a fixed length": "SELECT * INTO o FROM i MATCH_RECOGNIZE (LIMIT DURATION(second, 4) PARTITION BY k "
    "MEASURES FIRST(A.v) AS a, LAST(B.v) AS b PATTERN (A B) DEFINE B AS B.v > 1) AS m",
    "a match of any length": "SELECT * INTO o FROM i MATCH_RECOGNIZE (LIMIT DURATION(second, 4) PARTITION BY k "
    "MEASURES FIRST(A.v) AS a, LAST(B.v) AS b PATTERN (A B+) DEFINE B AS B.v > 1) AS m",
    "LAG": "SELECT k, v, LAG(v) OVER (PARTITION BY k LIMIT DURATION(second, 4)) AS b INTO o FROM i",
    "a sum of earlier rows": "SELECT k, SUM(v) OVER (PARTITION BY k LIMIT DURATION(second, 3)) AS s INTO o FROM i",
}

logs = st.lists(st.tuples(st.sampled_from([0, 1, 1, 2, 4]), st.sampled_from("abcA"), st.integers(0, 3)), max_size=24)


def events(log: list[tuple[int, str, int]]) -> Events:
    arrivals, now = [], START
    for gap, _, _ in log:
        now += gap * SECOND
        arrivals.append(now)
    return Events.of([{"k": key, "v": value} for _, key, value in log], arrivals)


def rows(keyed: KeyedSide, released: int, watermark: int) -> list[tuple[int, dict[str, Any]]]:
    return [
        row
        for result in keyed.emit(released, watermark)
        for row in zip(result.timestamps.tolist(), result.to_dicts(), strict=True)
    ]


def in_steps(of: Program, all_events: Events, cuts: list[int]) -> list[tuple[int, dict[str, Any]]]:
    """What leaves if the events are read in steps that end at these places."""
    keyed, found, released, begin = KeyedSide(of), [], NO_TIME, 0
    for end in [*cuts, len(all_events)]:
        part = all_events.part(begin, end)
        if len(part):
            partial, _ = task(of, "i", "0", part, Policy.none(), Carry())
            keyed.absorb([partial])
        begin = end
        watermark = END_OF_TIME if end == len(all_events) else of.complete_before(int(all_events.arrivals[end]))
        found += rows(keyed, released, watermark)
        released = watermark
    return found


@pytest.mark.parametrize("sql", FORMS.values(), ids=FORMS)
@given(log=logs, data=st.data())
def test_what_leaves_does_not_depend_on_the_rows_that_a_step_takes_up(
    sql: str, log: list[tuple[int, str, int]], data: st.DataObject
) -> None:
    of, all_events = program(sql), events(log)
    cuts = sorted(data.draw(st.lists(st.integers(0, max(0, len(log) - 1)), max_size=6))) if log else []
    at_once = in_steps(of, all_events, [])
    with mock.patch.object(held_rows, "_FEW", 0):
        assert in_steps(of, all_events, cuts) == at_once


@pytest.mark.parametrize("sql", FORMS.values(), ids=FORMS)
def test_rows_of_other_keys_stay_where_they_are(sql: str) -> None:
    log = [(0, f"other-{number}", 1) for number in range(1, 41)]
    of, all_events = program(sql), events([*log, (1, "mine", 1), (1, "mine", 2), (0, "last", 1)])
    keyed = KeyedSide(of)
    partial, _ = task(of, "i", "0", all_events.part(0, 40), Policy.none(), Carry())
    keyed.absorb([partial])
    first = of.complete_before(int(all_events.arrivals[40]))
    rows(keyed, NO_TIME, first)
    (before,) = (part for part in parts_in(keyed.state) if len(part) == 40)
    table = before.table
    partial, _ = task(of, "i", "0", all_events.part(40, 42), Policy.none(), Carry())
    keyed.absorb([partial])
    with mock.patch("tidegate.engine.substreams.watermarks.SMALL_ROWS", 0):
        rows(keyed, first, of.complete_before(int(all_events.arrivals[42])))
    assert any(part.table is table for part in parts_in(keyed.state))


def parts_in(value: Any) -> Iterator[Part[Any]]:
    """Return the parts of a state, wherever in it they are."""
    if isinstance(value, Part):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from parts_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from parts_in(each)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from parts_in(getattr(value, name))
