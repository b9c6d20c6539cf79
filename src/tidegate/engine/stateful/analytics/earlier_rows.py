"""Functions of earlier rows of the same key: LAG, LAST, ISFIRST, and aggregates OVER (… LIMIT DURATION …).

Each is one class that derives from `AnalyticFunction`. The compiler, the operator, the estimate of memory and the
reference all ask this class.

LAG, and what LAST and ISFIRST share with it: rows that look back at one row of their key.
https://learn.microsoft.com/stream-analytics-query/lag-azure-stream-analytics

Theory. Number the rows of a key's sequence that pass WHEN. If p of them precede a row, LAG(…, k) is the one with number
p − k, and LAST, for which a row precedes itself, the one with number p − 1. There is such a row if the sequence has
that number and the row is within (t − limit, t]. Rows of the same time precede each other in the order of arrival.

Look-back. Only rows in (t − limit, t] matter to a row at t: L is the limit. Of the rows before W a later row can see
only the last k that pass (one, for LAST), and of these only rows after W − limit.

LAST: the newest row of the key that passes WHEN, which may be the row itself.
https://learn.microsoft.com/stream-analytics-query/last-azure-stream-analytics

It is LAG with offset 0 among the rows that pass.

ISFIRST: whether a row is the first of its key in its interval.
https://learn.microsoft.com/stream-analytics-query/isfirst-azure-stream-analytics

Theory. ISFIRST says whether the row passes WHEN and the passing row before it is in another of the intervals (start,
end] that end at the multiples of the duration, counted from 0001-01-01.

Look-back. Only rows in the same interval matter: L is the duration. Of the rows before W a later row can see only the
last one that passes, and only if its interval ends at W or later.

Aggregates OVER (… LIMIT DURATION … WHEN …): over the rows of a row's key, up to the row itself.
https://learn.microsoft.com/stream-analytics-query/over-azure-stream-analytics

Theory. The aggregate of a row at t covers the rows of its sequence that pass WHEN, have a time in (t − limit, t] and do
not follow the row; rows of the same time follow each other in the order of arrival, and the row itself is included if
it passes. Among the passing rows of the sequence that is a range.

Look-back. L is the limit. Of the rows before W, only those that pass and are after W − limit are needed again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from tidegate.engine.aggregates.states.state import Column
from tidegate.engine.values.sequences import Sequences
from tidegate.engine.values.vectors import BoolArray, Int64Array, Vector
from tidegate.engine.windows.kind import ceil_to
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.explain import expression
from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import AnalyticSignature, ArgumentRole, read_signature


@dataclass(frozen=True, slots=True)
class Past:
    """The rows that the calls of a memory see: held ones, followed by new ones.

    Attributes:
        times: int64[n], ascending within a sequence.
        sequences: the rows by PARTITION BY; every row is in one.
        passing: bool[n], which pass WHEN.
        from_row: where the new ones begin.
        column: returns the values of a column for all of them.
    """

    times: Int64Array
    sequences: Sequences
    passing: BoolArray
    from_row: int
    column: Callable[[Column], Vector]


class AnalyticCall(Protocol):
    """One call, as it is computed."""

    @property
    def held(self) -> Sequence[Column]:
        """The columns of earlier rows that it needs."""

    @property
    def asked(self) -> Sequence[Column]:
        """The columns that it needs of new rows alone."""

    def values(self, past: Past, new: Callable[[Column], Vector]) -> Vector:
        """Return the results for the new rows.

        Args:
            new: returns the values of a column for the new rows.
        """

    def still(self, past: Past, reached: int | Int64Array) -> BoolArray:
        """Return bool[n]: which rows results of rows at ``reached`` or later may depend on."""


class AnalyticFunction(AnalyticSignature):
    """A function of the rows before."""

    @abstractmethod
    def evaluator(self, call: plan.TemporalCall) -> AnalyticCall:
        """Return what computes a call."""

    @abstractmethod
    def kept(self, call: plan.TemporalCall, when: str) -> str:
        """Return what is held of each key for ``call.limit_ticks``, in words.

        Args:
            when: which rows, as the end of a phrase; empty for all.
        """


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
    roles: ClassVar[tuple[ArgumentRole, ...]] = (ArgumentRole.OFFSET, ArgumentRole.DEFAULT)
    offset = 1
    takes_rows = True

    def result_type(self, argument: Type) -> Type:
        return argument

    def evaluator(self, call: plan.TemporalCall) -> AnalyticCall:
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


class Last(Lag):
    """The value of the newest row, the row itself included."""

    spelling = "LAST"
    signature = read_signature("value any, [default any]")
    description = "The value of the newest row, the row itself included."
    example = ("LAST(v) OVER (LIMIT DURATION(minute, 1))", "9")
    roles = (ArgumentRole.DEFAULT,)
    offset = 0


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

    def evaluator(self, call: plan.TemporalCall) -> AnalyticCall:
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


@dataclass(frozen=True, slots=True)
class RunningRanges:
    """The rows that the aggregates of q rows cover.

    Attributes:
        members: int64[m], the rows that pass, by key and then by time.
        rows: int64[q], the rows to compute aggregates for.
        lows, highs: int64[q], the range [low, high) of ``members`` for each; it may be empty.
    """

    members: Int64Array
    rows: Int64Array
    lows: Int64Array
    highs: Int64Array


def running_ranges(
    times: Int64Array, sequences: Sequences, passing: BoolArray, limit_ticks: int, from_row: int
) -> RunningRanges:
    """Return the ranges of rows ``from_row`` and later, in the order of ``sequences``.

    Args:
        times: int64[n], ascending inside each sequence.
        sequences: the rows by PARTITION BY; every row is in one.
        passing: bool[n], which rows pass WHEN.
    """
    passes = passing[sequences.rows]
    before = np.concatenate([[0], np.cumsum(passes)])
    asked = np.flatnonzero(sequences.rows >= from_row)
    rows = sequences.rows[asked]
    ascending, ranked = sequences.by_time(times)
    forgotten = np.searchsorted(ascending, times[from_row:] - limit_ticks, side="right")
    oldest = ranked.find(sequences.keys[asked], forgotten[rows - from_row])
    return RunningRanges(sequences.rows[passes], rows, before[oldest], before[asked + 1])


def still_counted(times: Int64Array, passing: BoolArray, limit_ticks: int, until: int | Int64Array) -> BoolArray:
    """Return bool[n]: which rows the aggregate of a row at ``until`` or later may cover."""
    return passing & (times > until - limit_ticks)
