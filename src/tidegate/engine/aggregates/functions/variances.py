"""VAR, VARP, STDEV and STDEVP: exact sums of values and of squares, divided and rounded once at the end.
https://learn.microsoft.com/stream-analytics-query/var-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/stdev-azure-stream-analytics
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tidegate.engine.aggregates.functions.sums import Sums
from tidegate.engine.aggregates.states.ranges import exact_totals
from tidegate.engine.aggregates.states.specification import AggregateFunction
from tidegate.engine.aggregates.states.state import AdditiveState, Column, Evaluated, Hops, Summary
from tidegate.engine.values.exact_sums import ExactSums, quotient
from tidegate.engine.values.vectors import Failure, FloatArray, Int64Array, Kind, Reason, Vector
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.aggregates import Distinct
from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import read_signature

_SPLITTER = 2.0**27 + 1


@dataclass(slots=True)
class Moments(AdditiveState):
    """The exact sums of the values of each group and of their squares."""

    sums: Sums
    squares: ExactSums

    @classmethod
    def fold(cls, codes: Int64Array, size: int, values: Vector) -> Moments:
        """Add numbers (`conversions.to_numbers`)."""
        values = _as_floats(values)
        squares = ExactSums(size)
        numbers = values.kinds != Kind.NULL
        _add_squares(squares, codes[numbers], values.float_values()[numbers])
        return cls(Sums.fold(codes, size, values), squares)

    def take(self, indices: Int64Array) -> Moments:
        return Moments(self.sums.take(indices), self.squares.take(indices))

    def merge(self, codes: Int64Array, size: int) -> Moments:
        return Moments(self.sums.merge(codes, size), self.squares.merge(codes, size))

    @classmethod
    def concat(cls, states: Sequence[Moments]) -> Moments:
        return cls(Sums.concat([state.sums for state in states]), ExactSums.concat([state.squares for state in states]))

    def merge_ranges(self, lows: Int64Array, highs: Int64Array) -> Moments:
        return Moments(self.sums.merge_ranges(lows, highs), exact_totals(self.squares, lows, highs))

    def negated(self) -> Moments:
        return Moments(self.sums.negated(), self.squares.negated())

    def trimmed(self) -> Moments:
        return Moments(self.sums.trimmed(), self.squares.trimmed())

    def finish(self, *, population: bool, root: bool) -> Vector:
        """Return the variance, divided and rounded once, or its root; NULL of too few values."""
        totals, exponent = self.sums.sums.scaled()
        squares, squares_exponent = self.squares.scaled()
        common = min(2 * exponent, squares_exponent)
        values: list[Any] = []
        for total, square, count in zip(totals, squares, self.sums.floats.tolist(), strict=True):
            if count < (1 if population else 2):
                values.append(None)
                continue
            spread = count * (square << (squares_exponent - common)) - (total * total << (2 * exponent - common))
            variance = quotient(spread, (count * (count if population else count - 1)) << -common)
            if variance is None:
                values.append(Failure(Reason.OVERFLOW))
            else:
                values.append(math.sqrt(variance) if root else variance)
        return Vector.of(values)


@dataclass(frozen=True, slots=True)
class ExactMoments(Summary):
    """The exact sum of a value and that of its squares."""

    value: plan.Expr

    def columns(self) -> tuple[Column, ...]:
        return ((self.value, True),)

    def fold(self, codes: Int64Array, size: int, rows: Evaluated) -> Moments:
        return Moments.fold(codes, size, rows.vectors[self.value, True])

    @property
    def hops(self) -> Hops:
        return Hops.ADDED

    @property
    def folds_ranges(self) -> bool:
        return True

    def fold_ranges(self, rows: Evaluated, lows: Int64Array, highs: Int64Array) -> Moments:
        values = rows.vectors[self.value, True]
        return Moments.fold(np.arange(len(values)), len(values), values).merge_ranges(lows, highs)


class _FromMoments(AggregateFunction):
    """A variance (``root``: its square root) of a sample or of a whole ``population``; NULL of too few values."""

    signature = read_signature("value number", Type.FLOAT)
    distinct = Distinct.APPLIES
    population: ClassVar[bool]
    root: ClassVar[bool]

    def summary(self, call: plan.AggregateCall) -> ExactMoments:
        return ExactMoments(call.args[0])

    def finish(self, state: Moments, call: plan.AggregateCall) -> Vector:
        return state.finish(population=self.population, root=self.root)

    def kept(self, call: plan.AggregateCall) -> tuple[str, bool]:
        return "two exact sums", True


class Variance(_FromMoments):
    """The variance of a sample."""

    spelling = "VAR"
    description = "The variance of a sample; NULL of fewer than two values."
    example = ("VAR(v)", "13.0")
    population, root = False, False


class PopulationVariance(_FromMoments):
    """The variance of a population."""

    spelling = "VARP"
    description = "The variance of a population."
    example = ("VARP(v)", "8.666666666666666")
    population, root = True, False


class Deviation(_FromMoments):
    """The standard deviation of a sample."""

    spelling = "STDEV"
    description = "The standard deviation of a sample; NULL of fewer than two values."
    example = ("STDEV(v)", "3.605551275463989")
    population, root = False, True


class PopulationDeviation(_FromMoments):
    """The standard deviation of a population."""

    spelling = "STDEVP"
    description = "The standard deviation of a population."
    example = ("STDEVP(v)", "2.943920288775949")
    population, root = True, True


def _as_floats(values: Vector) -> Vector:
    whole = values.kinds == Kind.BIGINT
    floats = np.where(whole, values.int_values().astype(np.float64), values.float_values())
    return values.with_kinds(np.where(whole, np.uint8(Kind.FLOAT), values.kinds), floats=floats)


def _add_squares(sums: ExactSums, codes: Int64Array, values: FloatArray) -> None:
    """Add the exact square of each value, as products of its halves of 26 and 27 bits (Dekker 1971)."""
    sizes = np.abs(values)
    extreme = (sizes > 2.0**500) | ((sizes < 2.0**-400) & (sizes > 0))
    if extreme.any():
        # Their products would overflow or underflow; such values are rare.
        for code, value in zip(codes[extreme].tolist(), values[extreme].tolist(), strict=True):
            numerator, denominator = value.as_integer_ratio()
            sums.add_scaled(code, numerator * numerator, -2 * (denominator.bit_length() - 1))
        codes, values = codes[~extreme], values[~extreme]
    split = values * _SPLITTER
    high = split - (split - values)
    low = values - high
    for part in (high * high, 2.0 * (high * low), low * low):
        sums.add_floats(codes, part)
