"""Aggregates against the statistics module and fractions, over any split of the rows and any order of merging."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.streams import Events, program, run, task
from tidegate.engine.aggregates.aggregation import Aggregation
from tidegate.engine.aggregates.states.state import Evaluated
from tidegate.engine.values.conversions import as_ordered, to_numbers
from tidegate.engine.values.vectors import Datetime, Failure, Reason, Vector
from tidegate.ordering import Policy, parse_time
from tidegate.sql.plan.catalog import AS_ORDERED
from tidegate.sql.plan.nodes import AggregateCall, Call, Column, Order

X = Column("t", ("x",))
NUMBERS = st.none() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
TAME = st.none() | st.integers(-1000, 1000) | st.floats(-1000, 1000)
GROUPS = 3


def values_of(
    calls: Sequence[AggregateCall], rows: Sequence[tuple[int, Any]], cuts: Sequence[int] = ()
) -> list[list[Any]]:
    """Each call's value for each group, of rows folded in parts and merged."""
    aggregation = Aggregation(calls)
    bounds = [0, *sorted(cut % (len(rows) + 1) for cut in cuts), len(rows)]
    merged: tuple[Any, ...] | None = None
    for start, stop in reversed(list(pairwise(bounds))):
        part = rows[start:stop]
        values = Vector.of([value for _, value in part])
        order = np.arange(start, stop)
        vectors = {
            (X, False): values,
            (X, True): to_numbers(values),
            (Call(AS_ORDERED, (X,)), False): as_ordered(values),
        }
        states = aggregation.fold(
            np.array([code for code, _ in part], dtype=np.int64), GROUPS, Evaluated(vectors, (order,))
        )
        if merged is not None:
            codes = np.tile(np.arange(GROUPS), 2)
            states = tuple(
                type(state).concat([state, other]).merge(codes, GROUPS)
                for state, other in zip(states, merged, strict=True)
            )
        merged = states
    assert merged is not None
    return [vector.to_list() for vector in aggregation.finish(merged)]


def of_group(rows: Sequence[tuple[int, Any]], group: int) -> list[Any]:
    return [value for code, value in rows if code == group and value is not None]


def expected_sum(values: list[Any]) -> Any:
    if not values:
        return None
    total = sum(map(Fraction, values))
    if all(isinstance(value, int) for value in values):
        return int(total) if -(2**63) <= total < 2**63 else Failure(Reason.OVERFLOW)
    return nearest(total)


def nearest(number: Fraction) -> Any:
    try:
        return float(number) + 0.0
    except OverflowError:
        return Failure(Reason.OVERFLOW)


ROWS = st.lists(st.tuples(st.integers(0, GROUPS - 1), NUMBERS), max_size=30)
CUTS = st.lists(st.integers(0, 30), max_size=4)


@given(ROWS, CUTS)
def test_count_sum_avg_min_max(rows: list[tuple[int, Any]], cuts: list[int]) -> None:
    calls = [AggregateCall("count", ())] + [AggregateCall(name, (X,)) for name in ("count", "sum", "avg", "min", "max")]
    every, count, total, average, least, greatest = values_of(calls, rows, cuts)
    for group in range(GROUPS):
        values = of_group(rows, group)
        assert every[group] == sum(code == group for code, _ in rows)
        assert count[group] == len(values)
        assert repr(total[group]) == repr(expected_sum(values))
        assert average[group] == (nearest(sum(map(Fraction, values)) / len(values)) if values else None)
        assert least[group] == min(values, default=None)
        assert greatest[group] == max(values, default=None)


@given(st.lists(st.tuples(st.integers(0, GROUPS - 1), TAME), max_size=20), CUTS)
def test_variance(rows: list[tuple[int, Any]], cuts: list[int]) -> None:
    names = ("var", "varp", "stdev", "stdevp")
    results = values_of([AggregateCall(name, (X,)) for name in names], rows, cuts)
    for group in range(GROUPS):
        values = [Fraction(float(value)) for value in of_group(rows, group)]
        var = float(statistics.variance(values)) if len(values) > 1 else None
        varp = float(statistics.pvariance(values)) if values else None
        roots = [None if one is None else math.sqrt(one) for one in (var, varp)]
        assert [result[group] for result in results] == [var, varp, *roots]


def test_variance_of_extreme_values_is_exact_too() -> None:
    rows = [(0, 1e300), (0, -1e300), (1, 5e-324), (1, 0.0), (2, 1e-200), (2, 3e-200)]
    var, stdevp = values_of([AggregateCall("var", (X,)), AggregateCall("stdevp", (X,))], rows)
    assert var == [Failure(Reason.OVERFLOW), 0.0, 0.0]
    assert stdevp[1] == 0.0


@given(ROWS, CUTS)
def test_distinct(rows: list[tuple[int, Any]], cuts: list[int]) -> None:
    calls = [AggregateCall(name, (X,), distinct=True) for name in ("count", "sum", "avg", "max")]
    count, total, average, greatest = values_of(calls, rows, cuts)
    for group in range(GROUPS):
        different = list({(type(value), value): value for value in of_group(rows, group)}.values())
        assert count[group] == len(different)
        assert repr(total[group]) == repr(expected_sum(different))
        assert average[group] == (nearest(sum(map(Fraction, different)) / len(different)) if different else None)
        assert greatest[group] == max(different, default=None)


MIXED = (
    st.none()
    | st.integers(-3, 3)
    | st.sampled_from([-1.5, 1.0, 2.0])
    | st.sampled_from(["", "a", "B", "é"])
    | st.booleans()
    | st.integers(0, 3).map(Datetime)
    | st.lists(st.integers(0, 1), max_size=2)
    | st.dictionaries(st.sampled_from("ab"), st.integers(0, 1), max_size=2)
)


def rank(value: Any) -> tuple[Any, ...]:
    """The order of values of all types, from `grouping`'s text."""
    if isinstance(value, Datetime):
        return (3, int(value))
    if isinstance(value, (bool, int, float)):
        return (1, value, [int, float, bool].index(type(value)))
    if isinstance(value, str):
        return (2, value.lower(), value)
    return (5 if isinstance(value, dict) else 6, str(value).replace("'", '"').replace(" ", ""))


ORDERED = st.none() | st.integers(-9, 9) | st.floats(-9, 9) | st.booleans() | st.sampled_from(["a", "A", "7", "07", ""])
TIMES = st.builds(Datetime, st.integers(0, 3))


@given(st.lists(st.tuples(st.integers(0, GROUPS - 1), ORDERED | TIMES), max_size=12), CUTS)
def test_the_least_is_a_value_as_it_is_unless_types_cannot_be_compared(
    rows: list[tuple[int, Any]], cuts: list[int]
) -> None:
    least, greatest = values_of([AggregateCall("min", (X,)), AggregateCall("max", (X,))], rows, cuts)
    for group in range(GROUPS):
        values = sorted((normal(value) for value in of_group(rows, group)), key=rank)
        if len({rank(value)[0] for value in values}) > 1:
            assert least[group] == greatest[group] == Failure(Reason.NOT_COMPARABLE)
            continue
        assert repr(least[group]) == repr(values[0] if values else None)
        assert repr(greatest[group]) == repr(values[-1] if values else None)


@given(st.lists(st.tuples(st.integers(0, GROUPS - 1), TAME), max_size=20), CUTS, st.booleans())
def test_ranked_rows(rows: list[tuple[int, Any]], cuts: list[int], descending: bool) -> None:
    order = (Order(X, descending),)
    calls = [
        AggregateCall("collect", (X,)),
        AggregateCall("collecttop", (X,), order_by=order, parameters=(2,)),
        AggregateCall("topone", (X,), order_by=order),
    ]
    collected, top, first = values_of(calls, rows, cuts)
    for group in range(GROUPS):
        values = [value for code, value in rows if code == group]
        ranked = sorted(
            values,
            key=lambda value: (value is not None, value or 0, isinstance(value, float)),
            reverse=descending,
        )
        assert repr(collected[group]) == repr([normal(value) for value in values])
        best = [normal(value) for value in ranked[:2]]
        assert [entry["rank"] for entry in top[group]] == list(range(1, len(best) + 1))
        assert [entry["value"] for entry in top[group]] == best
        assert first[group] == (best[0] if best else None)


def normal(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def cont(values: list[float], fraction: float) -> float:
    place = fraction * (len(values) - 1)
    low = math.floor(place)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (place - low)


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("descending", [False, True])
@given(rows=st.lists(st.tuples(st.integers(0, GROUPS - 1), st.none() | st.integers(-9, 9)), max_size=20), cuts=CUTS)
def test_percentiles(fraction: float, descending: bool, rows: list[tuple[int, Any]], cuts: list[int]) -> None:
    order = (Order(X, descending),)
    calls = [
        AggregateCall(name, (), order_by=order, parameters=(fraction,))
        for name in ("percentile_cont", "percentile_disc")
    ]
    continuous, discrete = values_of(calls, rows, cuts)
    for group in range(GROUPS):
        values = sorted(of_group(rows, group), reverse=descending)
        if not values:
            assert continuous[group] is discrete[group] is None
            continue
        assert continuous[group] == cont([float(value) for value in values], fraction)
        # The first value whose cumulative distribution reaches the fraction.
        reached = next(place for place in range(len(values)) if (place + 1) / len(values) >= fraction)
        assert discrete[group] == values[reached]


def test_text_that_was_not_cast_is_compared_as_the_time_or_number_it_is() -> None:
    rows = [(0, "2026-01-01T00:00:00+01:00"), (0, "2026-01-01"), (1, "2026"), (1, "010"), (2, "b"), (2, "7")]
    uncast = Call(AS_ORDERED, (X,))
    least, greatest = values_of([AggregateCall("min", (uncast,)), AggregateCall("max", (uncast,))], rows)
    times = [Datetime(parse_time(text)) for text in ("2025-12-31T23:00:00Z", "2026-01-01T00:00:00Z")]
    assert (least[0], greatest[0]) == (times[0], times[1])
    assert (least[1], greatest[1]) == (10, 2026)
    assert least[2] == greatest[2] == Failure(Reason.NOT_COMPARABLE)


TEXT_STEPS = [
    "SELECT MAX(CAST(c AS nvarchar(max))) AS high, MIN(TRY_CAST(c AS nvarchar(max))) AS low INTO o FROM i {}",
    "SELECT MAX(CONCAT(c, '')) AS high, MIN(LTRIM(c)) AS low INTO o FROM i {}",
    "WITH s AS (SELECT CAST(c AS nvarchar(max)) AS d FROM i) SELECT MAX(d) AS high, MIN(d) AS low INTO o FROM s {}",
    "WITH s AS (SELECT *, CAST(c AS nvarchar(max)) AS d FROM i), t AS (SELECT * FROM s) "
    "SELECT MAX(d) AS high, MIN(d) AS low INTO o FROM t {}",
    "WITH s AS (SELECT CAST(c AS nvarchar(max)) AS d FROM i UNION SELECT CAST(c AS nvarchar(max)) AS d FROM i) "
    "SELECT MAX(d) AS high, MIN(d) AS low INTO o FROM s {}",
    "WITH s AS (SELECT LAST(CAST(c AS nvarchar(max))) OVER (LIMIT DURATION(minute, 1)) AS d FROM i) "
    "SELECT MAX(d) AS high, MIN(d) AS low INTO o FROM s {}",
    "WITH s AS (SELECT MIN(CAST(c AS nvarchar(max))) AS d FROM i GROUP BY System.Timestamp()) "
    "SELECT MAX(d) AS high, MIN(d) AS low INTO o FROM s {}",
    "WITH s AS (SELECT a.c AS e, CAST(b.c AS nvarchar(max)) AS d FROM i a JOIN i b "
    "ON DATEDIFF(second, a, b) BETWEEN 0 AND 0) SELECT MAX(d) AS high, MIN(d) AS low INTO o FROM s {}",
    *(
        f"WITH s AS (SELECT {more}, CAST(c AS nvarchar(max)) AS d FROM i), t AS ({step}) "
        f"SELECT MAX({value}) AS high, MIN({value}) AS low INTO o FROM t {{}}"
        for more, step, value in [
            ("*", "SELECT d, COUNT(*) AS n FROM s GROUP BY d, System.Timestamp()", "d"),
            ("*", "SELECT MIN(d) AS d FROM s GROUP BY System.Timestamp()", "d"),
            ("*", "SELECT TopOne(d) OVER (ORDER BY d) AS e FROM s GROUP BY System.Timestamp()", "t.e"),
            ("*", "SELECT LAST(d) OVER (LIMIT DURATION(minute, 1)) AS e FROM s", "e"),
            ("*", "SELECT COALESCE(NULLIF(d, '?'), '?') AS e FROM s", "CASE WHEN e = '?' THEN NULL ELSE e END"),
            ("*", "SELECT TopOne() OVER (ORDER BY d) AS r FROM s GROUP BY System.Timestamp()", "r.d"),
            ("*", "SELECT LAST(s) OVER (LIMIT DURATION(minute, 1)) AS r FROM s", "t.r.D"),
            ("c", "SELECT s AS r FROM s", "r.d"),
            ("c", "SELECT r.* FROM (SELECT s AS r FROM s) u", "d"),
            ("c", "SELECT q.r AS p FROM (SELECT u AS q FROM (SELECT s AS r FROM s) u) v", "p.d"),
            (
                "*",
                "SELECT * FROM s MATCH_RECOGNIZE (LIMIT DURATION(minute, 1) MEASURES LAST(A.d) AS e "
                "AFTER MATCH SKIP TO NEXT ROW PATTERN (A) DEFINE A AS A.c <> '?') AS m",
                "e",
            ),
        ]
    ),
]


@pytest.mark.parametrize("sql", TEXT_STEPS)
@pytest.mark.parametrize("texts", [("007", "06"), ("2025-12-31T00:00:00", "2026-01-01"), ("1e1", "2"), ("a", "b")])
def test_text_that_was_made_text_is_compared_and_returned_as_text(sql: str, texts: tuple[str, str]) -> None:
    rows = run(sql.format("GROUP BY TumblingWindow(minute, 1)"), [{"c": text} for text in reversed(texts)])
    assert rows == [{"high": texts[1], "low": texts[0]}]


def test_text_is_text_over_the_rows_before_too() -> None:
    value = "CAST(c AS nvarchar(max))"
    sql = f"SELECT MAX({value}) OVER (LIMIT DURATION(minute, 1)) AS high, c INTO o FROM i"
    assert run(sql, [{"c": "007"}, {"c": "06"}, {"c": "05"}]) == [
        {"high": "007", "c": "007"},
        {"high": "06", "c": "06"},
        {"high": "06", "c": "05"},
    ]
    sql = f"SELECT TopOne(c) OVER (ORDER BY {value}) AS first INTO o FROM i GROUP BY TumblingWindow(minute, 1)"
    assert run(sql, [{"c": "06"}, {"c": "007"}]) == [{"first": "007"}]


def test_words_that_were_not_cast_are_data_errors() -> None:
    of = program("SELECT MAX(c) AS high, COUNT(*) AS n INTO o FROM i GROUP BY TumblingWindow(minute, 1)")
    partial, _ = task(of, "i", "0", Events.of([{"c": "word"}, {"c": {}}, {"c": "7"}]), Policy.none(), of.new_carry("i"))
    assert [(error.reason, len(error.rows)) for error in partial.errors] == [(Reason.NOT_COMPARABLE, 2)]
    assert "CAST" in partial.errors[0].message
    assert run(of, [{"c": "word"}, {"c": "7"}]) == [{"high": 7, "n": 1}]


def test_sum_and_avg_of_the_same_are_kept_once() -> None:
    calls = [AggregateCall(name, (X,)) for name in ("sum", "avg", "sum")]
    assert len(Aggregation(calls).summaries) == 1
