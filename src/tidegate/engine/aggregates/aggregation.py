"""The aggregates of one GROUP BY, computed together.

Aggregates that need the same summary share it: SUM(x) and AVG(x) are one exact sum.

`AGGREGATES` are those of the language: every public class of a module in `engine.aggregates.functions`, and those that
entry points name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tidegate.engine.aggregates import functions
from tidegate.engine.aggregates.states.ordered import DistinctValues
from tidegate.engine.aggregates.states.state import (
    MOST_ROWS,
    AggregateFunction,
    Column,
    Evaluated,
    State,
    Summarized,
    Summary,
)
from tidegate.engine.expressions.evaluation import evaluate
from tidegate.engine.expressions.frames import Frame
from tidegate.engine.expressions.registered import AGGREGATE_PREFIX
from tidegate.engine.values.conversions import to_numbers
from tidegate.engine.values.grouping import ranges
from tidegate.engine.values.sequences import stretches
from tidegate.engine.values.vectors import Int64Array, Vector
from tidegate.extensions import classes_of
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.signatures import Distinct

AGGREGATES: dict[str, AggregateFunction] = {
    aggregate.name: aggregate
    for aggregate in (
        each() for each in classes_of(functions, "tidegate.aggregates") if issubclass(each, AggregateFunction)
    )
}
"""By lower-case name; registered ones are all "uda"."""


def is_aggregate(function: str) -> bool:
    """Return whether a call names an aggregate."""
    return function.startswith(AGGREGATE_PREFIX) or function in AGGREGATES


def aggregate_of(function: str) -> AggregateFunction:
    """Return the aggregate that a call names.

    Raises:
        KeyError: There is no such aggregate.
    """
    return AGGREGATES["uda" if function.startswith(AGGREGATE_PREFIX) else function]


class Aggregation:
    """The aggregates of one GROUP BY.

    Attributes:
        summaries: what is kept of a group, in the order of the states that `fold` returns.
    """

    def __init__(self, calls: Sequence[plan.AggregateCall]) -> None:
        self.summaries: list[Summary] = []
        self._finish: list[tuple[list[int], Callable[..., Vector]]] = []
        for call in calls:
            summaries, finish = _summaries_of(call)
            self.summaries += [summary for summary in summaries if summary not in self.summaries]
            self._finish.append(([self.summaries.index(summary) for summary in summaries], finish))

    def columns(self) -> list[Column]:
        """Return what is needed of each row."""
        return list(dict.fromkeys(column for summary in self.summaries for column in summary.columns()))

    def evaluate(self, frame: Frame) -> Evaluated:
        """Evaluate the arguments for each row of a frame; some may be failures."""
        vectors = {
            (expr, numeric): to_numbers(evaluate(expr, frame)) if numeric else evaluate(expr, frame)
            for expr, numeric in self.columns()
        }
        return Evaluated(vectors, frame.ordering())

    def fold(self, codes: Int64Array, size: int, rows: Evaluated) -> tuple[State, ...]:
        """Return the states of rows, which are in the groups ``codes`` int64[n] of ``size``."""
        return tuple(summary.fold(codes, size, rows) for summary in self.summaries)

    def finish(self, states: Sequence[Summarized]) -> tuple[Vector, ...]:
        """Return the value of each aggregate for each group."""
        return tuple(finish(*(states[index] for index in indices)) for indices, finish in self._finish)

    def over_ranges(self, rows: Evaluated, lows: Int64Array, highs: Int64Array) -> tuple[Vector, ...]:
        """Return the value of each aggregate over the rows [low, high) of each range; ranges may overlap.

        Summaries that have a fast path for overlapping ranges take it; for the others, the rows of each range are
        folded, a bounded number of rows at a time.
        """
        fast = {one: one.fold_ranges(rows, lows, highs) for one in self.summaries if one.folds_ranges}
        slow = [summary for summary in self.summaries if summary not in fast]
        if not slow:
            return self.finish([fast[summary] for summary in self.summaries])
        needed = {column: rows.vectors[column] for summary in slow for column in summary.columns()}
        folded = Evaluated(needed, rows.ordering)
        parts = []
        for begin, end in stretches(highs - lows, MOST_ROWS) or [(0, 0)]:
            some_lows = lows[begin:end]
            lengths = highs[begin:end] - some_lows
            codes = np.repeat(np.arange(end - begin), lengths)
            some = folded.take(ranges(some_lows, lengths))
            places = np.arange(begin, end)
            states = [
                fast[summary].take(places) if summary in fast else summary.fold(codes, end - begin, some)
                for summary in self.summaries
            ]
            parts.append(self.finish(states))
        return tuple(Vector.concat(column) for column in zip(*parts, strict=True))


def _summaries_of(call: plan.AggregateCall) -> tuple[list[Summary], Callable[..., Vector]]:
    """Return what is kept for an aggregate, and the function that makes its value of the states."""
    aggregate = aggregate_of(call.function)
    summary = aggregate.summary(call)
    if not (call.distinct and call.args and aggregate.distinct is Distinct.APPLIES):
        return [summary], lambda state: aggregate.finish(state, call)
    (column,) = summary.columns()
    values = DistinctValues(column, summary)
    beside = aggregate.beside_distinct(call)
    return [values, *beside], lambda state, *others: aggregate.finish_distinct(values.of_state(state), others, call)
