"""The least or the greatest value of each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.engine.aggregates.states.ranges import least, ranks_of, records, totals
from tidegate.engine.aggregates.states.state import Column, DominatedState, Evaluated, Hops, Summary
from tidegate.engine.values.grouping import ordered_keys, sorted_rows
from tidegate.engine.values.vectors import BoolArray, Int64Array, Kind, Reason, Vector
from tidegate.sql.plan import nodes as plan

_FAMILIES = np.zeros(len(Kind), dtype=np.int64)
_FAMILIES[[Kind.BIGINT, Kind.FLOAT, Kind.BIT]] = 1
_FAMILIES[Kind.NVARCHAR] = 2
_FAMILIES[Kind.DATETIME] = 3
_FAMILIES[Kind.ERROR] = 4
"""By kind, the values that can be compared with each other; 0 for what has no order."""


@dataclass(slots=True)
class Extremes(DominatedState):
    """The least or the greatest value of each group; NULL for none, a failure if the values cannot be compared.

    Such a failure stays one whatever it is merged with, so merging gives the same in every order.
    """

    values: Vector
    largest: bool

    @classmethod
    def fold(cls, codes: Int64Array, size: int, values: Vector, *, largest: bool) -> Extremes:
        """Return the least or the greatest value that is not NULL, in the order of `grouping`."""
        if values.uniform is None or values.uniform == Kind.NULL:
            kept = np.flatnonzero(values.kinds != Kind.NULL)
            values, codes = values.take(kept), codes[kept]
        if not len(values):
            return cls(Vector.nulls(size), largest)
        keys = ordered_keys(values)
        best = np.full(size, np.iinfo(np.int64).min if largest else np.iinfo(np.int64).max)
        (np.maximum if largest else np.minimum).at(best, codes, keys)
        where = np.full(size, -1, dtype=np.int64)
        winners = np.flatnonzero(keys == best[codes])
        where[codes[winners]] = winners
        # The NULL for a group without a value comes after all values.
        found = values if (where >= 0).all() else Vector.concat([values, Vector.nulls(1)])
        where[where < 0] = len(values)
        families = _families(values)
        if families is None:
            return cls(found.take(where), largest)
        least, most = np.full(size, len(Kind)), np.zeros(size, dtype=np.int64)
        np.minimum.at(least, codes, families)
        np.maximum.at(most, codes, families)
        return cls(_failing(found.take(where), (least < most) | (most == _FAMILIES[Kind.ERROR])), largest)

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
        keys = ordered_keys(values)
        best = least(ranks_of(sorted_rows([~keys if self.largest else keys])), before[lows], before[highs])
        places = np.where(best < 0, len(values), best)
        found = Vector.concat([values, Vector.nulls(1)]).take(places)
        families = _families(values)
        if families is None:
            return Extremes(found, self.largest)
        inside = [totals((families == family).astype(np.int64), before[lows], before[highs]) > 0 for family in range(5)]
        several = np.sum(inside, axis=0) > 1
        return Extremes(_failing(found, several | inside[_FAMILIES[Kind.ERROR]]), self.largest)

    def undominated(self, ids: Int64Array, ends: Int64Array) -> tuple[Int64Array, Extremes]:
        """Find the values that no later one of their key equals or surpasses, or that cannot be compared with those."""
        families = _families(self.values)
        if families is not None:
            ids = ids * (int(_FAMILIES.max()) + 1) + families
        order = sorted_rows([ids, ends])
        values = self.values.take(order)
        keys = ordered_keys(values)
        ranks = np.unique(keys if self.largest else ~keys, return_inverse=True)[1]
        # A group without a value is never the best.
        ranks = np.where(values.kinds == Kind.NULL, -1, ranks)
        # From the latest backwards.
        kept = order[records(ids[order][::-1], ranks[::-1])[::-1] & (ranks >= 0)]
        return kept, self.take(kept)


def _families(values: Vector) -> Int64Array | None:
    """Return which values can be compared with each other; None if all can."""
    if values.uniform is not None and values.uniform != Kind.ERROR:
        return None
    families: Int64Array = _FAMILIES[values.kinds]
    present = _FAMILIES[list(values.present() - {Kind.NULL})]
    comparable = not len(present) or bool((present == present[0]).all() and present[0] != _FAMILIES[Kind.ERROR])
    return None if comparable else families


def _failing(values: Vector, failed: BoolArray) -> Vector:
    return values.with_kinds(
        np.where(failed, np.uint8(Kind.ERROR), values.kinds),
        ints=np.where(failed, np.int64(Reason.NOT_COMPARABLE), values.int_values()),
    )


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
