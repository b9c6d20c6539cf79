"""Joins: which left row matches which right row.
https://learn.microsoft.com/stream-analytics-query/join-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/datediff-azure-stream-analytics

Theory. DATEDIFF(unit, l, r) counts the boundaries of the unit that lie between two times, that is floor(r / unit) −
floor(l / unit), both counted from 0001-01-01. So low ≤ DATEDIFF ≤ high says

    (floor(l / unit) + low) · unit  ≤  r  <  (floor(l / unit) + high + 1) · unit

and each left row *reaches* one interval of right times; with several bounds, their intersection. Among the right rows
of the same key, in the order of time, that is a range.

Times. The result of a pair has the later of the two times. A left row of a LEFT JOIN without a match has the time l +
high · unit, but not before its own (System.Timestamp page: the earliest logical time at which the result could be
known). Because boundaries are counted, a right row can still match it until the end of its interval, which lies up to
one unit less a tick after that time. Such results are complete only that much later (`unmatched_delay`).

Look-back. Whether there is a pair or an unmatched row at T ≥ S depends on rows that reach each other: the rows of a
pair are at most as far apart as the bounds reach, |low| + 1 or |high| + 1 units. Older rows reach nothing at S or
later. A left row is no longer needed once its interval is before W; a right row, once it is before the interval of
every later left row.

Codes for the values that a join compares: values that may be equal have the same code.

Nearly always both sides of `left.key = right.key` have one type, and equal values have equal codes (texts regardless of
case). Where types differ, equality converts (`operators.compare`): a text that is a number equals that number, and so
may another, different text. Then all values that may be equal share a code, and each pair is compared again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.engine.expressions.evaluation import evaluate
from tidegate.engine.expressions.frames import Frame
from tidegate.engine.expressions.relations import columns_of
from tidegate.engine.functions.operators import is_true
from tidegate.engine.values.conversions import parse_number, truth
from tidegate.engine.values.datetimes import parse_datetime
from tidegate.engine.values.grouping import group, ranges, unified
from tidegate.engine.values.json_lines import texts_of
from tidegate.engine.values.sequences import Sequences, stretches
from tidegate.engine.values.vectors import Failure, Int64Array, Kind, Vector
from tidegate.ordering.ticks import FIRST_TICKS, LAST_TICKS, NO_TIME
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.walking import sources_in


def keys_of_side(relation: plan.Join, side: int, frame: Frame) -> tuple[Vector, ...]:
    """Return the keys of the rows of one side, 0 for the left one.

    A key that fails is NULL where the rest of ON excludes the row: the row has no match, whatever its key.
    """
    keys = tuple(evaluate(pair[side], frame) for pair in relation.keys)
    if not any(Kind.ERROR in key.present() for key in keys):
        return keys
    may_match = np.ones(len(frame), dtype=np.bool_)
    for condition in _conditions_of_side(relation, side):
        true = evaluate(condition, frame)
        may_match &= is_true(true) | true.is_kind(Kind.ERROR)
    return tuple(key.with_kinds(np.where(may_match, key.kinds, np.uint8(Kind.NULL))) for key in keys)


def _conditions_of_side(relation: plan.Join, side: int) -> list[plan.Expr]:
    rest = relation.residual
    conditions = (
        rest.args if isinstance(rest, plan.Call) and rest.function == "and" else () if rest is None else (rest,)
    )
    right = columns_of(relation.right).keys()
    reads = [(condition, sources_in(condition)) for condition in conditions]
    return [each for each, read in reads if read and (read <= right if side else not read & right)]


@dataclass(frozen=True, slots=True)
class Bound:
    """low ≤ DATEDIFF(unit, left, right) ≤ high, None for unbounded."""

    unit_ticks: int
    low: int | None
    high: int | None

    def edges(self, left: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the first and the last right time that each left time reaches; NO_TIME reaches none."""
        units = (left - FIRST_TICKS) // self.unit_ticks
        first, last = np.full(len(left), FIRST_TICKS), np.full(len(left), LAST_TICKS)
        if self.low is not None:
            first = (units + self.low) * self.unit_ticks + FIRST_TICKS
        if self.high is not None:
            last = (units + self.high + 1) * self.unit_ticks + FIRST_TICKS - 1
        nowhere = left == NO_TIME
        return np.where(nowhere, LAST_TICKS, first), np.where(nowhere, NO_TIME, last)


@dataclass(frozen=True, slots=True)
class Reach:
    """The right times that each of n left rows can match: from ``first`` to ``last``, int64[n], both included."""

    first: Int64Array
    last: Int64Array

    @classmethod
    def of(cls, bounds: Sequence[tuple[Bound, Int64Array]]) -> Reach:
        """Return the intersection of bounds, each with the left times it applies to (NO_TIME where there is none)."""
        edges = [bound.edges(left) for bound, left in bounds]
        return cls(
            np.maximum.reduce([first for first, _ in edges]),
            np.minimum.reduce([last for _, last in edges]),
        )

    def take(self, rows: Int64Array) -> Reach:
        """Return the intervals of some rows."""
        return Reach(self.first[rows], self.last[rows])


@dataclass(frozen=True, slots=True)
class PairRanges:
    """For each of n left rows, the range [low, high) of places of the right ``sequences`` that it matches."""

    sequences: Sequences
    lows: Int64Array
    highs: Int64Array

    def pairs(self, begin: int, end: int) -> tuple[Int64Array, Int64Array]:
        """Return the pairs of left rows ``begin`` to ``end`` − 1, as left rows and right rows, ordered by both."""
        lows, counts = self.lows[begin:end], self.highs[begin:end] - self.lows[begin:end]
        left = np.repeat(np.arange(begin, end), counts)
        return left, self.sequences.rows[ranges(lows, counts)]

    def stretches(self, most_pairs: int) -> list[tuple[int, int]]:
        """Divide the left rows into stretches of at most a given number of pairs, or of one row."""
        return stretches(self.highs - self.lows, most_pairs)


def meet(
    reach: Reach,
    left_keys: Int64Array,
    right_times: Int64Array,
    right_keys: Int64Array,
) -> PairRanges:
    """Return the right rows that each left row matches.

    Args:
        reach: of the left rows.
        left_keys, right_keys: codes of what must be equal, from one numbering; −1 matches nothing.
        right_times: int64[m], ascending for each key.
    """
    count = 1 + max(int(left_keys.max(initial=0)), int(right_keys.max(initial=0)))
    sequences = Sequences.of(right_keys, count)
    ascending, ranked = sequences.by_time(right_times)
    lows = ranked.find(left_keys, np.searchsorted(ascending, reach.first, side="left"))
    highs = np.maximum(lows, ranked.find(left_keys, np.searchsorted(ascending, reach.last, side="right")))
    return PairRanges(sequences, lows, np.where(left_keys < 0, lows, highs))


def unmatched_times(times: Int64Array, bounds: Sequence[tuple[Bound, Int64Array]]) -> Int64Array:
    """Return int64[n]: the result time of left rows without a match.

    Args:
        times: int64[n], of the left rows.
        bounds: with the left times that each applies to, as `Reach.of` takes them.
    """
    known: Int64Array = np.full(len(times), LAST_TICKS)
    for bound, left in bounds:
        if bound.high is not None:
            # A left row without a time matches nothing, which is known immediately.
            upper = np.where(left == NO_TIME, times, left + bound.high * bound.unit_ticks)
            known = np.minimum(known, upper)
    results: Int64Array = np.maximum(times, known)
    return results


def unmatched_delay(bounds: Sequence[Bound]) -> int:
    """Return how many ticks after its result time a left row may still find a match."""
    return max((bound.unit_ticks - 1 for bound in bounds if bound.high is not None), default=0)


def meet_always(left_keys: Int64Array, right_keys: Int64Array) -> PairRanges:
    """Return the right rows that each left row matches regardless of time, as in reference data."""
    count = 1 + max(int(left_keys.max(initial=0)), int(right_keys.max(initial=0)))
    sequences = Sequences.of(right_keys, count)
    lows = np.searchsorted(sequences.keys, left_keys, side="left")
    return PairRanges(sequences, lows, np.searchsorted(sequences.keys, left_keys, side="right"))


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """Codes of the keys of n left and m right rows, from one numbering; −1 is equal to nothing.

    Attributes:
        unsure: which of the keys must be compared again.
    """

    left: Int64Array
    right: Int64Array
    unsure: tuple[int, ...]

    @classmethod
    def of(cls, left: Sequence[Vector], right: Sequence[Vector], left_count: int, right_count: int) -> JoinKeys:
        """Return the codes of the keys; without keys, all rows are equal."""
        vectors, unsure = [], []
        null = np.zeros(left_count + right_count, dtype=np.bool_)
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            both = Vector.concat([one, other])
            null |= (both.kinds == Kind.NULL) | (both.kinds == Kind.ERROR)
            if len(both.present() - {Kind.NULL, Kind.ERROR}) > 1:
                unsure.append(index)
                both = _coarse(both)
            else:
                both = unified(both)
            vectors.append(both)
        codes = np.where(null, -1, group(left_count + right_count, vectors).codes)
        return cls(codes[:left_count], codes[left_count:], tuple(unsure))


def _coarse(values: Vector) -> Vector:
    """Return the same text for all values that may be equal once converted."""
    values = unified(values)
    texts = texts_of(values) if values.objects is not None else [""] * len(values)
    kinds = values.kinds.tolist()
    found = [class_of(*one) for one in zip(kinds, values.to_list(), texts, strict=True)]
    return Vector.of([f"{family} {value!r}" for family, value in found])


def class_of(kind: int, value: Any, json: str) -> tuple[str, Any]:
    """Return the class of the values that may equal this one: its family, and the value that stands for it there.

    Args:
        value: of a text, its small letters.
        json: of a record or array, its text.
    """
    if kind == Kind.NVARCHAR:
        if (bit := truth(value)) is not None:
            return _number(bit)
        number, ticks = parse_number(value), parse_datetime(value)
        if not isinstance(number, Failure):
            return _number(number)
        return ("text", value) if ticks is None else ("time", ticks)
    if kind in (Kind.BIGINT, Kind.FLOAT, Kind.BIT):
        return _number(value)
    return ("time", int(value)) if kind == Kind.DATETIME else (str(int(kind)), json)


def _number(value: float) -> tuple[str, float]:
    # The text '-0.0' equals 0.
    return "number", float(value) + 0.0
