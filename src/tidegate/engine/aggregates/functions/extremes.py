"""MIN and MAX.
https://learn.microsoft.com/stream-analytics-query/min-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/max-azure-stream-analytics
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tidegate.engine.aggregates.states.ranges import least, ranks_of, records
from tidegate.engine.aggregates.states.specification import AggregateFunction, ordered
from tidegate.engine.aggregates.states.state import Column, DominatedState, Evaluated, Hops, Summary
from tidegate.engine.values.grouping import sort_keys, sorted_rows
from tidegate.engine.values.vectors import Int64Array, Kind, Vector
from tidegate.saql.plan import nodes as plan
from tidegate.saql.plan.aggregates import Distinct
from tidegate.saql.plan.nodes import Type
from tidegate.saql.plan.signatures import read_signature


@dataclass(slots=True)
class Extremes(DominatedState):
    """The least or the greatest value of each group, NULL for none."""

    values: Vector
    largest: bool

    @classmethod
    def fold(cls, codes: Int64Array, size: int, values: Vector, *, largest: bool) -> Extremes:
        """Return the least or the greatest value that is not NULL, in the order of `grouping`."""
        kept = None
        if values.uniform is None or values.uniform == Kind.NULL:
            kept = np.flatnonzero(values.kinds != Kind.NULL)
            values, codes = values.take(kept), codes[kept]
        if not len(values):
            return cls(Vector.nulls(size), largest)
        keys = sort_keys(values)
        best = np.full(size, np.iinfo(np.int64).min if largest else np.iinfo(np.int64).max)
        (np.maximum if largest else np.minimum).at(best, codes, keys)
        where = np.full(size, -1, dtype=np.int64)
        winners = np.flatnonzero(keys == best[codes])
        where[codes[winners]] = winners
        if (where >= 0).all():
            return cls(values.take(where), largest)
        # The NULL for a group without a value comes after all values.
        where[where < 0] = len(values)
        return cls(Vector.concat([values, Vector.nulls(1)]).take(where), largest)

    def take(self, indices: Int64Array) -> Extremes:
        return Extremes(self.values.take(indices), self.largest)

    def merge(self, codes: Int64Array, size: int) -> Extremes:
        return Extremes.fold(codes, size, self.values, largest=self.largest)

    @classmethod
    def concat(cls, states: Sequence[Extremes]) -> Extremes:
        return cls(Vector.concat([state.values for state in states]), states[0].largest)

    def merge_ranges(self, lows: Int64Array, highs: Int64Array) -> Extremes:
        present = self.values.kinds != Kind.NULL
        before = np.concatenate([[0], np.cumsum(present)])
        values = self.values.where(present)
        keys = sort_keys(values)
        best = least(ranks_of(sorted_rows([~keys if self.largest else keys])), before[lows], before[highs])
        places = np.where(best < 0, len(values), best)
        return Extremes(Vector.concat([values, Vector.nulls(1)]).take(places), self.largest)

    def undominated(self, ids: Int64Array, ends: Int64Array) -> tuple[Int64Array, Extremes]:
        """Find the values that no later one of their key equals or surpasses."""
        order = sorted_rows([ids, ends])
        values = self.values.take(order)
        keys = sort_keys(values)
        ranks = np.unique(keys if self.largest else ~keys, return_inverse=True)[1]
        # A group without a value is never the best.
        ranks = np.where(values.kinds == Kind.NULL, -1, ranks)
        # From the latest backwards.
        kept = order[records(ids[order][::-1], ranks[::-1])[::-1] & (ranks >= 0)]
        return kept, self.take(kept)


@dataclass(frozen=True, slots=True)
class Extreme(Summary):
    """The least or the greatest of a value."""

    value: plan.Expr
    largest: bool

    def columns(self) -> tuple[Column, ...]:
        return ((self.value, False),)

    def fold(self, codes: Int64Array, size: int, rows: Evaluated) -> Extremes:
        return Extremes.fold(codes, size, rows.vectors[self.value, False], largest=self.largest)

    @property
    def hops(self) -> Hops:
        return Hops.UNDOMINATED

    @property
    def folds_ranges(self) -> bool:
        return True

    def fold_ranges(self, rows: Evaluated, lows: Int64Array, highs: Int64Array) -> Extremes:
        return Extremes(rows.vectors[self.value, False], self.largest).merge_ranges(lows, highs)


class _FromExtremes(AggregateFunction):
    """The least or the greatest value; text that is a number or a time is compared, and returned, as that."""

    signature = read_signature("value ordered")
    distinct = Distinct.WITHOUT_EFFECT
    with_limit = True
    largest: ClassVar[bool]

    def result_type(self, argument: Type) -> Type:
        return argument if argument in (Type.BIGINT, Type.FLOAT, Type.DATETIME) else Type.ANY

    def summary(self, call: plan.AggregateCall) -> Extreme:
        return Extreme(ordered(call.args[0]), self.largest)

    def finish(self, state: Extremes, call: plan.AggregateCall) -> Vector:
        return state.values

    def kept(self, call: plan.AggregateCall) -> tuple[str, bool]:
        return f"the {'greatest' if self.largest else 'least'} value", True


class Minimum(_FromExtremes):
    """The least value."""

    spelling = "MIN"
    description = "The least value; text that is a number or a time is compared as one."
    example = ("MIN(v)", "2")
    largest = False


class Maximum(_FromExtremes):
    """The greatest value."""

    spelling = "MAX"
    description = "The greatest value; text that is a number or a time is compared as one."
    example = ("MAX(v)", "9")
    largest = True
