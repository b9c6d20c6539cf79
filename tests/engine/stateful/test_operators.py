"""Whole queries that look back, against a walk over the events that follows the rule and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.streams import SECOND, START, Events, program, run_log
from tidegate.engine import Program
from tidegate.ordering import Policy
from tidegate.ordering.ticks import FIRST_TICKS

Event = tuple[int, dict[str, Any]]
"""A time and a body."""
Row = tuple[int, dict[str, Any]]
"""A result's time and its columns."""

HALF = SECOND // 2


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    events, now = [], START
    for gap in draw(st.lists(st.sampled_from([0, 0, 1, HALF - 1, HALF, HALF, SECOND, 5 * HALF]), max_size=14)):
        now += gap
        value = draw(st.one_of(st.none(), st.integers(-3, 3)))
        events.append((now, {"k": draw(st.sampled_from(["x", "y"])), "v": value}))
    return events


def of_key(log: list[Event], key: str) -> list[Event]:
    return [event for event in log if event[1]["k"] == key]


def total(values: list[Any]) -> Any:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def sliding(log: list[Event]) -> list[Row]:
    """Two seconds, by k: COUNT(*) and SUM(v)."""
    rows = []
    for key in ("x", "y"):
        own = of_key(log, key)
        for instant in {time + exit_ for time, _ in own for exit_ in (0, 2 * SECOND)}:
            inside = [body["v"] for time, body in own if instant - 2 * SECOND < time <= instant]
            if inside:
                rows.append((instant, {"k": key, "n": len(inside), "s": total(inside)}))
    return rows


def sessions(log: list[Event]) -> list[Row]:
    """Timeout one second, at most three, by k; grouped by the sign of v."""
    rows: list[Row] = []
    longest = 3 * SECOND
    for key in ("x", "y"):
        own, ends = of_key(log, key), {}
        opened = last = None
        for place, (time, _) in enumerate(own):
            if last is None or time - last > SECOND:
                opened = time
            last = time
            assert opened is not None
            first_check = opened + longest + (FIRST_TICKS - opened - longest) % longest
            over = next(
                (
                    own[i][0]
                    for i in range(place, len(own))
                    if own[i + 1 : i + 2] == [] or own[i + 1][0] - own[i][0] > SECOND
                ),
                time,
            )
            check = max(first_check, time + (FIRST_TICKS - time) % longest)
            ends[place] = min(check, over + SECOND)
        for end in set(ends.values()):
            members = [own[place][1]["v"] for place in ends if ends[place] == end]
            for missing in {value is None for value in members}:
                group = [value for value in members if (value is None) == missing]
                rows.append((end, {"k": key, "none": int(missing), "n": len(group)}))
    return rows


def before(log: list[Event]) -> list[Row]:
    """LAG over two seconds by k with a default, LAST when v > 0 over one second, ISFIRST of every second by k."""
    rows = []
    seen = set()
    for place, (time, body) in enumerate(log):
        earlier = [e for e in log[:place] if e[1]["k"] == body["k"] and e[0] > time - 2 * SECOND]
        until = [e for e in log[: place + 1] if (e[1]["v"] or 0) > 0 and e[0] > time - SECOND]
        interval = (body["k"], (time - FIRST_TICKS - 1) // SECOND)
        row = {
            "lag": earlier[-1][1]["v"] if earlier else 9,
            "last": until[-1][1]["v"] if until else None,
            "first": int(interval not in seen),
        }
        seen.add(interval)
        rows.append((time, row))
    return rows


def running(log: list[Event]) -> list[Row]:
    """SUM by k over two seconds, and how many events had v > 0 in the last second."""
    rows = []
    for place, (time, body) in enumerate(log):
        until = log[: place + 1]
        own = [e[1]["v"] for e in until if e[1]["k"] == body["k"] and e[0] > time - 2 * SECOND]
        positive = [e for e in until if (e[1]["v"] or 0) > 0 and e[0] > time - SECOND]
        rows.append((time, {"s": total(own), "n": len(positive)}))
    return rows


def seconds_crossed(one: int, other: int) -> int:
    return (other - FIRST_TICKS) // SECOND - (one - FIRST_TICKS) // SECOND


def pairs(log: list[Event], low: int, high: int) -> list[tuple[Event, Event]]:
    """Match rows of the same k within a number of second boundaries, if the right v is not below the left one."""
    return [
        (left, right)
        for left in log
        for right in log
        if left[1]["k"] == right[1]["k"]
        and low <= seconds_crossed(left[0], right[0]) <= high
        and None not in (left[1]["v"], right[1]["v"])
        and left[1]["v"] <= right[1]["v"]
    ]


def inner(log: list[Event]) -> list[Row]:
    return [
        (max(left[0], right[0]), {"one": left[1]["v"], "other": right[1]["v"]}) for left, right in pairs(log, -1, 2)
    ]


def left_outer(log: list[Event]) -> list[Row]:
    found = pairs(log, 1, 2)
    rows = [(max(left[0], right[0]), {"one": left[1]["v"], "other": right[1]["v"]}) for left, right in found]
    met = {id(left) for left, _ in found}
    return rows + [
        (event[0] + 2 * SECOND, {"one": event[1]["v"], "other": None}) for event in log if id(event) not in met
    ]


RULES: dict[str, tuple[Callable[[list[Event]], list[Row]], Program]] = {
    rule.__name__: (rule, program(sql))
    for rule, sql in {
        sliding: "SELECT k, COUNT(*) AS n, SUM(v) AS s INTO out FROM a GROUP BY k, SlidingWindow(second, 2)",
        sessions: "SELECT k, CASE WHEN v IS NULL THEN 1 ELSE 0 END AS [none], COUNT(*) AS n INTO out FROM a "
        "GROUP BY k, CASE WHEN v IS NULL THEN 1 ELSE 0 END, SessionWindow(second, 1, 3) OVER (PARTITION BY k)",
        before: "SELECT LAG(v, 1, 9) OVER (PARTITION BY k LIMIT DURATION(second, 2)) AS lag, "
        "LAST(v) OVER (LIMIT DURATION(second, 1) WHEN v > 0) AS last, "
        "ISFIRST(second, 1) OVER (PARTITION BY k) AS first INTO out FROM a",
        running: "SELECT SUM(v) OVER (PARTITION BY k LIMIT DURATION(second, 2)) AS s, "
        "COUNT(*) OVER (LIMIT DURATION(second, 1) WHEN v > 0) AS n INTO out FROM a",
        inner: "SELECT l.v AS one, r.v AS other INTO out FROM a l JOIN a r "
        "ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN -1 AND 2 AND l.v <= r.v",
        left_outer: "SELECT l.v AS one, r.v AS other INTO out FROM a l LEFT JOIN a r "
        "ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN 1 AND 2 AND l.v <= r.v",
    }.items()
}


@pytest.mark.parametrize("name", RULES)
@given(log=logs())
def test_queries_follow_their_rule(name: str, log: list[Event]) -> None:
    rule, of = RULES[name]
    events = Events.of([body for _, body in log], [time for time, _ in log])
    rows = run_log(of, {("a", "0"): events}, Policy.none()).get("out", [])
    assert sorted(rows, key=repr) == sorted(rule(log), key=repr)
    assert [time for time, _ in rows] == sorted(time for time, _ in rows)


def test_a_null_that_is_there_is_not_the_default() -> None:
    of = program("SELECT LAG(v, 1, 9) OVER (LIMIT DURATION(second, 5)) AS lag INTO out FROM a")
    rows = run_log(of, {("a", "0"): Events.of([{"v": None}, {"v": 1}])}, Policy.none())["out"]
    assert [row for _, row in rows] == [{"lag": 9}, {"lag": None}]


def test_a_row_whose_key_fails_is_lost_and_counted() -> None:
    sql = "SELECT v, COUNT(*) OVER (PARTITION BY CAST(v AS bigint) LIMIT DURATION(second, 9)) AS n INTO out FROM a"
    of = program(sql)
    rows = run_log(of, {("a", "0"): Events.of([{"v": "x"}, {"v": "1"}, {"v": 1}])}, Policy.none())["out"]
    assert [row for _, row in rows] == [{"v": "1", "n": 1}, {"v": 1, "n": 2}]


def test_a_side_without_a_row_has_no_time() -> None:
    sql = (
        "SELECT DATEDIFF(second, START, System.Timestamp()) AS later, z.v AS z INTO out FROM a x "
        "LEFT JOIN b y ON DATEDIFF(second, x, y) BETWEEN 0 AND 3 "
        "LEFT JOIN a z ON DATEDIFF(second, y, z) BETWEEN 0 AND 3 AND DATEDIFF(second, x, z) BETWEEN 0 AND 9"
    ).replace("START", "CAST('2026-01-01' AS datetime)")
    log = {("a", "0"): Events.of([{"v": 1}]), ("b", "0"): Events.of([], [])}
    # y has no row, so no z can be near it; which is known when it is known that there is no y.
    assert [row for _, row in run_log(program(sql), log, Policy.none())["out"]] == [{"later": 4, "z": None}]
