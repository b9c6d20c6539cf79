"""Counts of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.engine.aggregates.states.ranges import totals
from tidegate.engine.aggregates.states.state import AdditiveState, Column, Evaluated, Hops, Summary
from tidegate.engine.values.vectors import Int64Array, Kind, Vector
from tidegate.sql.plan import nodes as plan


@dataclass(slots=True)
class Counts(AdditiveState):
    """The number of rows of each group, int64[g]."""

    counts: Int64Array

    @classmethod
    def fold(cls, codes: Int64Array, size: int, values: Vector | None) -> Counts:
        """Count rows, or those whose value is not NULL."""
        if values is not None and values.uniform is None:
            codes = codes[values.kinds != Kind.NULL]
        elif values is not None and values.uniform == Kind.NULL:
            codes = codes[:0]
        return cls(np.bincount(codes, minlength=size).astype(np.int64))

    def take(self, indices: Int64Array) -> Counts:
        return Counts(self.counts[indices])

    def merge(self, codes: Int64Array, size: int) -> Counts:
        merged = np.zeros(size, dtype=np.int64)
        np.add.at(merged, codes, self.counts)
        return Counts(merged)

    @classmethod
    def concat(cls, states: Sequence[Counts]) -> Counts:
        return cls(np.concatenate([state.counts for state in states]))

    def merge_ranges(self, lows: Int64Array, highs: Int64Array) -> Counts:
        return Counts(totals(self.counts, lows, highs))

    def negated(self) -> Counts:
        return Counts(-self.counts)


@dataclass(frozen=True, slots=True)
class FloatCount(Summary):
    """The number of values of a column that are float."""

    column: Column

    def columns(self) -> tuple[Column, ...]:
        return (self.column,)

    def fold(self, codes: Int64Array, size: int, rows: Evaluated) -> Counts:
        floats = rows.vectors[self.column].kinds == Kind.FLOAT
        return Counts(np.bincount(codes[floats], minlength=size).astype(np.int64))

    @property
    def hops(self) -> Hops:
        return Hops.ADDED


@dataclass(frozen=True, slots=True)
class RowCount(Summary):
    """The number of rows, or of rows whose ``value`` is not NULL."""

    value: plan.Expr | None

    def columns(self) -> tuple[Column, ...]:
        return () if self.value is None else ((self.value, False),)

    def fold(self, codes: Int64Array, size: int, rows: Evaluated) -> Counts:
        return Counts.fold(codes, size, None if self.value is None else rows.vectors[self.value, False])

    @property
    def hops(self) -> Hops:
        return Hops.ADDED

    @property
    def folds_ranges(self) -> bool:
        return True

    def fold_ranges(self, rows: Evaluated, lows: Int64Array, highs: Int64Array) -> Counts:
        if self.value is None:
            return Counts(highs - lows)
        present = rows.vectors[self.value, False].kinds != Kind.NULL
        return Counts(totals(present.astype(np.int64), lows, highs))
