"""LAG, and what LAST and ISFIRST share with it: rows that look back at one row of their key.
https://learn.microsoft.com/stream-analytics-query/lag-azure-stream-analytics

Theory. Number the rows of a key's sequence that pass WHEN. If p of them precede a row, LAG(…, k) is the one with number
p − k, and LAST, for which a row precedes itself, the one with number p − 1. There is such a row if the sequence has
that number and the row is within (t − limit, t]. Rows of the same time precede each other in the order of arrival.

Look-back. Only rows in (t − limit, t] matter to a row at t: L is the limit. Of the rows before W a later row can see
only the last k that pass (one, for LAST), and of these only rows after W − limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from tidegate.engine.aggregates.states.state import Column
from tidegate.engine.stateful.analytics.specification import AnalyticFunction, Evaluator, Past
from tidegate.engine.values.sequences import Sequences
from tidegate.engine.values.vectors import BoolArray, Int64Array, Vector
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.analytics import Role
from tidegate.sql.plan.explain import expression
from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import read_signature


def lag(times: Int64Array, sequences: Sequences, passing: BoolArray, offset: int, limit_ticks: int) -> Int64Array:
    """Return int64[n]: the row that each row looks back at, −1 for none.

    Args:
        times: int64[n], ascending.
        sequences: the rows by PARTITION BY; every row is in one.
        passing: bool[n], which rows pass WHEN.
        offset: 1 or more for LAG, 0 for LAST.
    """
    passes = passing[sequences.rows]
    places = np.flatnonzero(passes)
    before = np.cumsum(passes) - (passes if offset else 0)
    at_start: Int64Array = (np.cumsum(passes) - passes)[sequences.starts()]
    number = before - max(offset, 1)
    there = np.flatnonzero(number >= at_start)
    rows, seen = sequences.rows[there], sequences.rows[places[number[there]]]
    recent = times[seen] > times[rows] - limit_ticks
    result = np.full(len(times), -1, dtype=np.int64)
    result[rows[recent]] = seen[recent]
    return result


def still_seen(
    times: Int64Array, sequences: Sequences, passing: BoolArray, offset: int, limit_ticks: int, until: int | Int64Array
) -> BoolArray:
    """Return bool[n]: which rows LAG or LAST of a row at ``until`` or later may look back at."""
    return among_last(sequences, passing, max(offset, 1)) & (times > until - limit_ticks)


def among_last(sequences: Sequences, passing: BoolArray, count: int) -> BoolArray:
    """Return which rows are among the last ``count`` of their key that pass."""
    passes = passing[sequences.rows]
    until_here = np.cumsum(passes)
    finals = np.flatnonzero(sequences.last())
    total = np.repeat(until_here[finals], np.diff(finals, prepend=-1))
    result = np.zeros(len(passing), dtype=np.bool_)
    result[sequences.rows] = passes & (total - until_here < count)
    return result


class Lag(AnalyticFunction):
    """The value of an earlier row, by default of the one before."""

    spelling = "LAG"
    signature = read_signature("value any, [offset integer], [default any]")
    description = "The value of the row that is `offset` (1) rows before."
    example = ("LAG(v) OVER (LIMIT DURATION(minute, 1))", "4")
    roles: ClassVar[tuple[Role, ...]] = (Role.OFFSET, Role.DEFAULT)
    offset = 1
    takes_rows = True

    def result_type(self, argument: Type) -> Type:
        return argument

    def evaluator(self, call: plan.TemporalCall) -> Evaluator:
        return _Lag(call)

    def kept(self, call: plan.TemporalCall, when: str) -> str:
        count = max(call.offset, 1)
        rows = "the last row" if count == 1 else f"the last {count} rows"
        return f"{expression(call.args[0])} of {rows}{when}"


class _Lag:
    """A call of LAG, or of LAST, which is LAG 0 among the rows that pass."""

    def __init__(self, call: plan.TemporalCall) -> None:
        self._value: Column = (call.args[0], False)
        self._default: Column | None = None if call.default is None else (call.default, False)
        self._offset, self._limit = call.offset, call.limit_ticks
        self.held = [self._value]
        self.asked = [] if self._default is None else [self._default]

    def values(self, past: Past, new: Callable[[Column], Vector]) -> Vector:
        seen = lag(past.times, past.sequences, past.passing, self._offset, self._limit)[past.from_row :]
        held = past.column(self._value)
        values = Vector.concat([held, Vector.nulls(1)]).take(np.where(seen < 0, len(held), seen))
        if self._default is None:
            return values
        return Vector.choose((seen < 0).astype(np.int64), [values, new(self._default)])

    def still(self, past: Past, reached: int | Int64Array) -> BoolArray:
        return still_seen(past.times, past.sequences, past.passing, self._offset, self._limit, reached)
