"""Aggregates over overlapping ranges, against a fold over each range by itself."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.aggregates import aggregation as aggregation_module
from tidegate.engine.aggregates.aggregation import Aggregation
from tidegate.engine.aggregates.states.state import least
from tidegate.engine.expressions.frames import Frame, NamedColumns
from tidegate.engine.values.vectors import Int64Array, Vector
from tidegate.sql.plan.nodes import AggregateCall, Column, Order

V = Column("s", ("v",))
NUMBERS = st.one_of(
    st.none(),
    st.integers(-5, 5),
    st.sampled_from([2**62, -(2**63), 1.0, -0.0, 0.1, 0.2, 0.3, 1e16, -1e16, 1e-7, 1e300, -1e300]),
)

QUICK = {
    "count": AggregateCall("count", ()),
    "count of values": AggregateCall("count", (V,)),
    "sum": AggregateCall("sum", (V,)),
    "average": AggregateCall("avg", (V,)),
    "least": AggregateCall("min", (V,)),
    "greatest": AggregateCall("max", (V,)),
    "variance": AggregateCall("var", (V,)),
    "population deviation": AggregateCall("stdevp", (V,)),
    "top one": AggregateCall("topone", (V,), order_by=(Order(V),)),
    "last one": AggregateCall("topone", (V,), order_by=(Order(V, descending=True),)),
    "top two": AggregateCall("collecttop", (V,), order_by=(Order(V),), parameters=(2,)),
    "last nine": AggregateCall("collecttop", (V,), order_by=(Order(V, descending=True),), parameters=(9,)),
    "median": AggregateCall("percentile_cont", (), order_by=(Order(V),), parameters=(0.5,)),
    "nine tenths from above": AggregateCall(
        "percentile_cont", (), order_by=(Order(V, descending=True),), parameters=(0.9,)
    ),
    "a third as a value": AggregateCall("percentile_disc", (), order_by=(Order(V),), parameters=(0.3,)),
    "the greatest as a value": AggregateCall("percentile_disc", (), order_by=(Order(V),), parameters=(1.0,)),
}
SLIDING = {
    "count of distinct": AggregateCall("count", (V,), distinct=True),
    "sum of distinct": AggregateCall("sum", (V,), distinct=True),
    "average of distinct": AggregateCall("avg", (V,), distinct=True),
    "deviation of distinct": AggregateCall("stdev", (V,), distinct=True),
}
"""These are quick over ranges of which one that begins later does not end earlier."""
FOLDED = {
    "collect": AggregateCall("collect", (V,)),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[Any], Int64Array, Int64Array]:
    """Values, and ranges of them."""
    values = draw(st.lists(NUMBERS, max_size=20))
    bounds = draw(
        st.lists(st.tuples(st.integers(0, len(values)), st.integers(0, len(values))).map(sorted), max_size=12)
    )
    edges = np.array(bounds, dtype=np.int64).reshape(-1, 2)
    return values, edges[:, 0], edges[:, 1]


def _frame(values: list[Any]) -> Frame:
    return Frame(np.arange(len(values)), {"s": NamedColumns(("v",), (Vector.of(values),))})


@pytest.mark.parametrize("name", [*QUICK, *FOLDED])
@given(columns())
def test_each_range_is_aggregated_as_if_alone(
    name: str, given_columns: tuple[list[Any], Int64Array, Int64Array]
) -> None:
    check_ranges({**QUICK, **FOLDED}[name], *given_columns)


@pytest.mark.parametrize("name", SLIDING)
@given(columns(), st.randoms(use_true_random=False))
def test_each_of_ranges_that_slide_is_aggregated_as_if_alone(
    name: str, given_columns: tuple[list[Any], Int64Array, Int64Array], dice: random.Random
) -> None:
    values, lows, highs = given_columns
    order = dice.sample(range(len(lows)), len(lows))
    check_ranges(SLIDING[name], values, np.sort(lows)[order], np.sort(highs)[order])


@given(st.lists(st.sampled_from([None, "a", "A", "", 1, 1.0, "1", {"a": 1}, [1], [1.0]]), max_size=12), columns())
def test_distinct_values_of_every_kind_are_counted_over_ranges_that_slide(
    values: list[Any], given_columns: tuple[list[Any], Int64Array, Int64Array]
) -> None:
    lows, highs = (np.minimum(np.sort(edges), len(values)) for edges in given_columns[1:])
    check_ranges(SLIDING["count of distinct"], values, lows, highs)


def check_ranges(call: AggregateCall, values: list[Any], lows: Int64Array, highs: Int64Array) -> None:
    aggregation = Aggregation([call])
    assert all(one.folds_ranges for one in aggregation.summaries) == (call not in FOLDED.values())
    rows = aggregation.evaluate(_frame(values))
    expected = []
    for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
        inside = rows.take(np.arange(low, high))
        (value,) = aggregation.finish(aggregation.fold(np.zeros(high - low, dtype=np.int64), 1, inside))
        expected += value.to_list()
    (computed,) = aggregation.over_ranges(rows, lows, highs)
    assert repr(computed.to_list()) == repr(expected)


def test_ranges_are_folded_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation_module, "MOST_ROWS", 4)
    aggregation = Aggregation([FOLDED["collect"], QUICK["count"]])
    rows = aggregation.evaluate(_frame(list(range(9))))
    lows, highs = np.array([0, 2, 3, 0, 8]), np.array([2, 4, 3, 9, 9])
    collected, counted = aggregation.over_ranges(rows, lows, highs)
    assert collected.to_list() == [[0, 1], [2, 3], [], list(range(9)), [8]]
    assert counted.to_list() == [2, 2, 0, 9, 1]


@given(st.permutations(range(40)), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted)))
def test_the_least_of_a_range_is_where_its_lowest_rank_stands(ranks: list[int], bounds: list[list[int]]) -> None:
    edges = np.array(bounds, dtype=np.int64).reshape(-1, 2)
    found = least(np.array(ranks), edges[:, 0], edges[:, 1]).tolist()
    assert found == [min(range(low, high), key=ranks.__getitem__) if low < high else -1 for low, high in bounds]


def test_long_ranges_of_large_limbs_do_not_overflow() -> None:
    values = [float(2**59 - 2**8)] * 5000
    aggregation = Aggregation([QUICK["sum"]])
    rows = aggregation.evaluate(_frame(values))
    (total,) = aggregation.over_ranges(rows, np.array([0, 1]), np.array([5000, 5000]))
    assert total.to_list() == [float(5000 * int(values[0])), float(4999 * int(values[0]))]
