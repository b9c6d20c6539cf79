"""A new aggregate, a new function of the rows before and a new window are one class each; all else asks the class.

The kinds here are no part of the language. They are put into the catalog, as those of a new module would be found, and
then go through the compiler, all kinds of windows, functions of the rows before, the estimate of memory, `explain`, the
schema of outputs and the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import pytest

from scripts.reference import aggregates, analytics, windows
from tests.engine.streams import START, run
from tidegate.connectors.outputs.shape import shape_of
from tidegate.engine import CATALOG
from tidegate.engine.aggregates import aggregation
from tidegate.engine.aggregates.states.state import AggregateFunction, Column, Evaluated, State, Summary
from tidegate.engine.stateful import temporal_operator
from tidegate.engine.stateful.analytics.earlier_rows import AnalyticFunction, Past, running_ranges, still_counted
from tidegate.engine.values.vectors import BoolArray, FloatArray, Int64Array, Vector
from tidegate.engine.windows.kind import PaneWindow
from tidegate.job.analysis.event_explanation import destination_of
from tidegate.job.analysis.query_plan import plan_of
from tidegate.ordering import format_time
from tidegate.ordering.ticks import TICKS_PER_SECOND
from tidegate.sql import QueryError, compile_query
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import ArgumentRole, Distinct, read_signature


@dataclass(slots=True)
class Spreads(State):
    """The least and the greatest number of each group; infinities where there is none."""

    least: FloatArray
    greatest: FloatArray

    def take(self, indices: Int64Array) -> Spreads:
        return Spreads(self.least[indices], self.greatest[indices])

    def merge(self, codes: Int64Array, size: int) -> Spreads:
        merged = Spreads(np.full(size, np.inf), np.full(size, -np.inf))
        np.minimum.at(merged.least, codes, self.least)
        np.maximum.at(merged.greatest, codes, self.greatest)
        return merged

    @classmethod
    def concat(cls, states: Sequence[Spreads]) -> Spreads:
        return cls(
            np.concatenate([state.least for state in states]), np.concatenate([state.greatest for state in states])
        )


@dataclass(frozen=True, slots=True)
class LeastAndGreatest(Summary):
    """The least and the greatest of a value."""

    value: plan.Expr

    def columns(self) -> tuple[Column, ...]:
        return ((self.value, True),)

    def fold(self, codes: Int64Array, size: int, rows: Evaluated) -> Spreads:
        numbers = [np.nan if number is None else float(number) for number in rows.vectors[self.value, True].to_list()]
        there = ~np.isnan(numbers)
        found = np.array(numbers, dtype=np.float64)[there]
        return Spreads(found, found).merge(codes[there], size)


class Spread(AggregateFunction):
    """The greatest number less the least one."""

    spelling = "SPREAD"
    signature = read_signature("value number", Type.FLOAT)
    description = "The greatest number less the least one."
    distinct = Distinct.APPLIES
    with_limit = True

    def summary(self, call: plan.AggregateCall) -> LeastAndGreatest:
        return LeastAndGreatest(call.args[0])

    def finish(self, state: Spreads, call: plan.AggregateCall) -> Vector:
        spreads = (state.greatest - state.least).tolist()
        return Vector.of([None if spread == -np.inf else spread for spread in spreads])

    def kept(self, call: plan.AggregateCall) -> tuple[str, bool]:
        return "two numbers", True


class Rank(AnalyticFunction):
    """How many rows there are up to this one, times a constant."""

    spelling = "RANK_SO_FAR"
    signature = read_signature("value any, factor integer", Type.BIGINT)
    description = "How many rows there are so far, times a factor."
    roles = (ArgumentRole.CONSTANT,)

    def faults(self, parameters: Sequence[int | float | str]) -> Iterator[tuple[int, str]]:
        if parameters and parameters[0] == 0:
            yield 1, "the factor is not 0"

    def evaluator(self, call: plan.TemporalCall) -> Counted:
        return Counted(call)

    def kept(self, call: plan.TemporalCall, when: str) -> str:
        return f"the times of the rows{when}"


class Counted:
    """A call of RANK_SO_FAR."""

    held: tuple[Column, ...] = ()
    asked: tuple[Column, ...] = ()

    def __init__(self, call: plan.TemporalCall) -> None:
        self.limit, self.factor = call.limit_ticks, int(call.parameters[0])

    def values(self, past: Past, new: Callable[[Column], Vector]) -> Vector:
        found = running_ranges(past.times, past.sequences, past.passing, self.limit, past.from_row)
        counts = np.zeros(len(found.rows), dtype=np.int64)
        counts[found.rows - past.from_row] = (found.highs - found.lows) * self.factor
        return Vector.bigints(counts)

    def still(self, past: Past, reached: int | Int64Array) -> BoolArray:
        return still_counted(past.times, past.passing, self.limit, reached)


TEN = 10 * TICKS_PER_SECOND


@dataclass(frozen=True, slots=True)
class TenSeconds(PaneWindow):
    """Windows of ten seconds from the start of the test's log."""

    names = ("TenSecondWindow", "TenSeconds")
    lengths = ()
    word = "ten-second"
    example = "TenSecondWindow()"
    description = "Ten seconds."

    @property
    def lookback_ticks(self) -> int:
        return TEN

    @property
    def windows_of_an_event(self) -> int:
        return 1

    def pane_ends(self, times: Int64Array) -> Int64Array:
        ends: Int64Array = START + np.ceil((times - START) / TEN).astype(np.int64) * TEN
        return ends

    def spans_of(self, time: int) -> tuple[tuple[int, int], ...]:
        end = START + ceil((time - START) / TEN) * TEN
        return ((end - TEN, end),)

    def describe(self) -> str:
        return "ten seconds"


@pytest.fixture(autouse=True)
def new_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the kinds where those of the language are."""
    monkeypatch.setitem(aggregation.AGGREGATES, "spread", Spread())
    monkeypatch.setitem(temporal_operator.ANALYTICS, "rank_so_far", Rank())
    monkeypatch.setitem(CATALOG.windows, "tensecondwindow", TenSeconds)
    monkeypatch.setitem(CATALOG.windows, "tenseconds", TenSeconds)


# An event each second, from one second after the start.
EVENTS = [{"k": "a", "v": value} for value in (5, 1, None, 9, 9, 2)]


def rows(select: str, group: str) -> list[list[object]]:
    found = run(f"SELECT System.Timestamp() AS e, {select} AS s FROM i {group}", EVENTS)
    return [[row["e"][17:19], row["s"]] for row in found]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("TumblingWindow(second, 3)", [["03", 4.0], ["06", 7.0]]),
        ("HoppingWindow(second, 4, 2)", [["02", 4.0], ["04", 8.0], ["06", 7.0], ["08", 7.0]]),
        ("SlidingWindow(second, 2)", [["01", 0.0], ["02", 4.0], ["03", 0.0], ["04", 0.0], ["05", 0.0], ["06", 7.0]]),
        ("SessionWindow(second, 2, 60)", [["08", 8.0]]),
        ("System.Timestamp()", [["01", 0.0], ["02", 0.0], ["03", None], ["04", 0.0], ["05", 0.0], ["06", 0.0]]),
    ],
)
def test_a_new_aggregate_runs_in_every_kind_of_window(window: str, expected: list[list[object]]) -> None:
    assert rows("SPREAD(v)", f"GROUP BY k, {window}")[: len(expected)] == expected
    assert rows("spread(DISTINCT v)", f"GROUP BY k, {window}")[: len(expected)] == expected


def test_a_new_aggregate_runs_over_the_rows_before() -> None:
    found = rows("SPREAD(v) OVER (PARTITION BY k LIMIT DURATION(second, 3))", "")
    assert [spread for _, spread in found] == [0.0, 4.0, 4.0, 8.0, 0.0, 7.0]


def test_a_new_function_of_the_rows_before_runs() -> None:
    found = rows("RANK_SO_FAR(v, 10) OVER (PARTITION BY k LIMIT DURATION(second, 3) WHEN v > 1)", "")
    assert [rank for _, rank in found] == [10, 10, 10, 10, 20, 30]
    sql = "SELECT RANK_SO_FAR(v, 10) OVER (LIMIT DURATION(second, 3)) AS r INTO o FROM i"
    query = compile_query(sql, catalog=CATALOG)
    assert "the times of the rows" in plan_of(query).kept()[0]
    assert (
        "| `RANK_SO_FAR(value, factor) OVER (LIMIT DURATION(unit, n))` | `bigint` "
        "| How many rows there are so far, times a factor. |  | the times of the rows |" in analytics()
    )


def test_a_new_window_runs_beside_others() -> None:
    assert rows("COUNT(*)", "GROUP BY TenSecondWindow()") == [["10", 6]]
    found = rows("SPREAD(v)", "GROUP BY Windows(Window('a', TenSeconds()), Window('b', TumblingWindow(second, 5)))")
    assert found == [["05", 8.0], ["10", 8.0], ["10", 0.0]]


def test_compiler_estimates_schema_and_reference_ask_the_new_kinds() -> None:
    query = compile_query("SELECT SPREAD(v) AS s INTO o FROM i GROUP BY TenSecondWindow()", catalog=CATALOG)
    group = query.outputs[0].relation.source  # type of the relation below the SELECT list
    assert isinstance(group, plan.Aggregate)
    assert query.lookback_ticks == TEN
    shape = shape_of(query.outputs[0].relation)
    assert shape is not None
    assert shape[0].type is Type.FLOAT
    assert plan_of(query).kept()[0] == "o: two numbers for each open window; rows are not kept"
    said = destination_of(group, query, START + 1)
    assert said.windows == ((START, START + TEN),)
    assert "the ten-second window of 10 s (" in said.sentence
    assert format_time(START)[11:19] in said.sentence
    assert "| `SPREAD(value)` | `float` | The greatest number less the least one. |  | yes | yes | two numbers |" in (
        aggregates()
    )
    assert "| `TenSecondWindow()` | Ten seconds. | `TenSecondWindow()` |" in windows()


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT SPREAD(v, 1) FROM i GROUP BY TenSecondWindow()", "SPREAD takes 1 argument, not 2"),
        ("SELECT SPREAD(*) FROM i GROUP BY TenSecondWindow()", "SPREAD takes a value, not *"),
        ("SELECT SPREAD(CreatePoint(1, 2)) FROM i GROUP BY TenSecondWindow()", "a record is not a number"),
        ("SELECT RANK_SO_FAR(v, 1) FROM i", "RANK_SO_FAR needs OVER (… LIMIT DURATION(unit, n)): how far back to look"),
        ("SELECT RANK_SO_FAR(v, 0) OVER (LIMIT DURATION(second, 3)) FROM i", "the factor is not 0"),
        ("SELECT RANK_SO_FAR(v, k) OVER (LIMIT DURATION(second, 3)) FROM i", "expected a constant"),
        ("SELECT RANK_SO_FOR(v, 1) FROM i", "there is no function RANK_SO_FOR"),
        ("SELECT SPREED(v) FROM i GROUP BY TenSecondWindow()", "there is no function SPREED"),
        ("SELECT k FROM i GROUP BY k, TenSecondWindow(second, 1)", "TenSecondWindow takes no argument"),
        ("SELECT k FROM i GROUP BY k, TenSecondWindows()", "there is no function TenSecondWindows"),
    ],
)
def test_what_is_wrong_with_a_call_of_a_new_kind_is_said(sql: str, message: str) -> None:
    with pytest.raises(QueryError) as raised:
        compile_query(sql, catalog=CATALOG)
    assert message in [diagnostic.message for diagnostic in raised.value.diagnostics]
