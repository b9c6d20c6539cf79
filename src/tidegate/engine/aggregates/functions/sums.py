"""COUNT, SUM, AVG, VAR, VARP, STDEV and STDEVP: counts and exact sums, divided and rounded once at the end.
https://learn.microsoft.com/stream-analytics-query/count-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/sum-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/avg-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/var-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/stdev-azure-stream-analytics
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tidegate.engine.aggregates.states.state import (
    AdditiveState,
    AggregateFunction,
    Column,
    Counts,
    Evaluated,
    FloatCount,
    Hops,
    RowCount,
    Summary,
    exact_totals,
    totals,
)
from tidegate.engine.values.exact_sums import ExactSums, quotient
from tidegate.engine.values.vectors import BoolArray, Failure, FloatArray, Int64Array, Kind, Reason, Vector
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import Distinct, read_signature


class Count(AggregateFunction):
    """The number of rows, or of values that are not NULL."""

    spelling = "COUNT"
    signature = read_signature("[value any]", Type.BIGINT)
    description = "The number of events, or of values that are not NULL."
    example = ("COUNT(*)", "3")
    counts_rows = True
    distinct = Distinct.APPLIES
    with_limit = True

    def summary(self, call: plan.AggregateCall) -> RowCount:
        return RowCount(call.args[0] if call.args else None)

    def finish(self, state: Counts, call: plan.AggregateCall) -> Vector:
        return Vector.bigints(state.counts)

    def kept(self, call: plan.AggregateCall) -> tuple[str, bool]:
        return "a count", True


@dataclass(slots=True)
class Sums(AdditiveState):
    """The exact sum of each group, and how many of its values were bigint and how many float."""

    sums: ExactSums
    bigints: Int64Array
    floats: Int64Array

    @classmethod
    def fold(cls, codes: Int64Array, size: int, values: Vector) -> Sums:
        """Add numbers (`conversions.to_numbers`)."""
        sums = ExactSums(size)
        counts = []
        for kind, add in ((Kind.BIGINT, sums.add_bigints), (Kind.FLOAT, sums.add_floats)):
            of_kind, places = codes, None
            if values.uniform != kind:
                places = np.flatnonzero(values.kinds == kind)
                of_kind = codes[places]
            if len(of_kind):
                numbers: Any = values.int_values() if kind == Kind.BIGINT else values.float_values()
                add(of_kind, numbers if places is None else numbers[places])
            counts.append(np.bincount(of_kind, minlength=size).astype(np.int64))
        return cls(sums, counts[0], counts[1])

    def take(self, indices: Int64Array) -> Sums:
        return Sums(self.sums.take(indices), self.bigints[indices], self.floats[indices])

    def merge(self, codes: Int64Array, size: int) -> Sums:
        bigints, floats = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        np.add.at(bigints, codes, self.bigints)
        np.add.at(floats, codes, self.floats)
        return Sums(self.sums.merge(codes, size), bigints, floats)

    @classmethod
    def concat(cls, states: Sequence[Sums]) -> Sums:
        return cls(
            ExactSums.concat([state.sums for state in states]),
            np.concatenate([state.bigints for state in states]),
            np.concatenate([state.floats for state in states]),
        )

    def merge_ranges(self, lows: Int64Array, highs: Int64Array) -> Sums:
        return Sums(
            exact_totals(self.sums, lows, highs),
            totals(self.bigints, lows, highs),
            totals(self.floats, lows, highs),
        )

    def negated(self) -> Sums:
        return Sums(self.sums.negated(), -self.bigints, -self.floats)

    def trimmed(self) -> Sums:
        return Sums(self.sums.trimmed(), self.bigints, self.floats)

    def finish_sum(self) -> Vector:
        """Return SUM: bigint of bigints, float once a value is float; NULL of no values."""
        return self._finish(np.ones(len(self.floats), dtype=np.int64), self.floats > 0)

    def finish_average(self) -> Vector:
        """Return AVG: float; NULL of no values."""
        counts = self.bigints + self.floats
        return self._finish(np.maximum(counts, 1), counts > 0)

    def _finish(self, divisors: Int64Array, as_floats: BoolArray) -> Vector:
        """Return quotients as floats where ``as_floats``, else sums as bigints; NULL of no values."""
        values, sure = self.sums.quotients(divisors)
        kinds = np.where(as_floats, np.uint8(Kind.FLOAT), np.uint8(Kind.NULL))
        ints = np.zeros(len(values), dtype=np.int64)
        rest = np.flatnonzero((as_floats & ~sure) | (~as_floats & (self.bigints > 0)))
        if len(rest):
            totals, exponent = self.sums.take(rest).scaled()
            exact: list[Any] = []
            for total, divisor, is_float in zip(totals, divisors[rest].tolist(), as_floats[rest].tolist(), strict=True):
                rounded = quotient(total, divisor << -exponent) if is_float else total >> -exponent
                exact.append(Failure(Reason.OVERFLOW) if rounded is None else rounded)
            found = Vector.of(exact)
            kinds[rest], ints[rest], values[rest] = found.kinds, found.int_values(), found.float_values()
        values = np.where(kinds == Kind.FLOAT, values, 0.0) + 0.0
        return Vector(kinds, ints=ints if len(rest) else None, floats=values)


@dataclass(frozen=True, slots=True)
class _OfNumbers(Summary):
    """What is added up of a value; ``state`` folds its numbers."""

    value: plan.Expr
    state: ClassVar[type[Sums | Moments]]

    def columns(self) -> tuple[Column, ...]:
        return ((self.value, True),)

    def fold(self, codes: Int64Array, size: int, rows: Evaluated) -> Sums | Moments:
        return self.state.fold(codes, size, rows.vectors[self.value, True])

    @property
    def hops(self) -> Hops:
        return Hops.ADDED

    @property
    def folds_ranges(self) -> bool:
        return True

    def fold_ranges(self, rows: Evaluated, lows: Int64Array, highs: Int64Array) -> Sums | Moments:
        values = rows.vectors[self.value, True]
        return self.state.fold(np.arange(len(values)), len(values), values).merge_ranges(lows, highs)


class ExactSum(_OfNumbers):
    """The exact sum of a value, and the number of values."""

    __slots__ = ()
    state = Sums


class Sum(AggregateFunction):
    """The sum of numbers: bigint of bigints, float once a value is float; NULL of no values."""

    spelling = "SUM"
    signature = read_signature("value number")
    description = "The exact sum, rounded once: bigint of bigints, float once a value is float."
    example = ("SUM(v)", "15")
    distinct = Distinct.APPLIES
    with_limit = True

    def result_type(self, argument: Type) -> Type:
        return argument if argument in (Type.BIGINT, Type.FLOAT) else Type.ANY

    def summary(self, call: plan.AggregateCall) -> ExactSum:
        return ExactSum(call.args[0])

    def finish(self, state: Sums, call: plan.AggregateCall) -> Vector:
        return state.finish_sum()

    def beside_distinct(self, call: plan.AggregateCall) -> tuple[Summary, ...]:
        # 1 and 1.0 are one value, but the sum is float if one of them is.
        return (FloatCount((call.args[0], True)),)

    def finish_distinct(self, state: Sums, beside: Sequence[Counts], call: plan.AggregateCall) -> Vector:
        (floats,) = beside
        return Sums(state.sums, state.bigints, state.floats + floats.counts).finish_sum()

    def kept(self, call: plan.AggregateCall) -> tuple[str, bool]:
        return "an exact sum", True


class Average(AggregateFunction):
    """The mean of numbers: float; NULL of no values."""

    spelling = "AVG"
    signature = read_signature("value number", Type.FLOAT)
    description = "The mean: the exact sum, divided and rounded once."
    example = ("AVG(v)", "5.0")
    distinct = Distinct.APPLIES
    with_limit = True

    def summary(self, call: plan.AggregateCall) -> ExactSum:
        return ExactSum(call.args[0])

    def finish(self, state: Sums, call: plan.AggregateCall) -> Vector:
        return state.finish_average()

    def kept(self, call: plan.AggregateCall) -> tuple[str, bool]:
        return "an exact sum", True


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


class ExactMoments(_OfNumbers):
    """The exact sum of a value and that of its squares."""

    __slots__ = ()
    state = Moments


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
