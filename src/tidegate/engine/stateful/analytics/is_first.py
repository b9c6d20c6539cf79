"""ISFIRST: whether a row is the first of its key in its interval.
https://learn.microsoft.com/stream-analytics-query/isfirst-azure-stream-analytics

Theory. ISFIRST says whether the row passes WHEN and the passing row before it is in another of the intervals (start,
end] that end at the multiples of the duration, counted from 0001-01-01.

Look-back. Only rows in the same interval matter: L is the duration. Of the rows before W a later row can see only the
last one that passes, and only if its interval ends at W or later.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tidegate.engine.aggregates.states.state import Column
from tidegate.engine.stateful.analytics.lag import among_last, lag
from tidegate.engine.stateful.analytics.specification import AnalyticFunction, Evaluator, Past
from tidegate.engine.values.sequences import Sequences
from tidegate.engine.values.vectors import BoolArray, Int64Array, Vector
from tidegate.engine.windows.boundaries import ceil_to
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import read_signature


def is_first(times: Int64Array, sequences: Sequences, passing: BoolArray, length_ticks: int) -> BoolArray:
    """Return bool[n]: which rows are the first of their key in their interval that pass."""
    ends = ceil_to(times, length_ticks)
    before = lag(times, sequences, passing, 1, length_ticks)
    first: BoolArray = passing & ((before < 0) | (ends[before] != ends))
    return first


def still_first(
    times: Int64Array, sequences: Sequences, passing: BoolArray, length_ticks: int, until: int | Int64Array
) -> BoolArray:
    """Return bool[n]: which rows may prevent a row at ``until`` or later from being the first."""
    return among_last(sequences, passing, 1) & (ceil_to(times, length_ticks) >= until)


class IsFirst(AnalyticFunction):
    """Whether the row is the first of its key in its interval."""

    spelling = "ISFIRST"
    signature = read_signature("unit unit, length integer", Type.BIGINT)
    description = "1 for the first row of its interval, 0 for others."
    example = ("ISFIRST(minute, 1)", "0")
    aligned = True

    def evaluator(self, call: plan.TemporalCall) -> Evaluator:
        return _IsFirst(call)

    def kept(self, call: plan.TemporalCall, when: str) -> str:
        return f"the time of the first row{when}"


class _IsFirst:
    """A call of ISFIRST."""

    def __init__(self, call: plan.TemporalCall) -> None:
        self._length = call.limit_ticks
        self.held: list[Column] = []
        self.asked: list[Column] = []

    def values(self, past: Past, new: Callable[[Column], Vector]) -> Vector:
        first = is_first(past.times, past.sequences, past.passing, self._length)[past.from_row :]
        return Vector.bigints(first.astype(np.int64))

    def still(self, past: Past, reached: int | Int64Array) -> BoolArray:
        return still_first(past.times, past.sequences, past.passing, self._length, reached)
