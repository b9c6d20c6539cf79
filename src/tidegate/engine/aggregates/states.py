"""Aggregates that merge: what is kept of a group's rows, how two such states become one, and what comes out.

A state holds g groups at once, as columns. It is made from rows (`fold`), cut (`take`), joined (`concat`), grouped
anew (`merge`) and finished. A finished value depends on the rows of the group and on nothing else: sums are exact
until the end, and everything else is a minimum, a maximum or a set. NULLs are ignored, but by COUNT(*).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, Self

import numpy as np

from tidegate.engine.values.exact_sums import ExactSums, quotient
from tidegate.engine.values.grouping import ranges, sort_keys, sorted_rows
from tidegate.engine.values.vectors import BoolArray, Failure, FloatArray, Int64Array, Kind, Reason, Vector


class State(Protocol):
    """What is kept of g groups."""

    def take(self, indices: Int64Array) -> Self:
        """Only these groups, in this order."""

    def merge(self, codes: Int64Array, size: int) -> Self:
        """Group the groups: ``codes`` int64[g] says which of ``size`` each goes to; every one of them occurs."""

    @classmethod
    def concat(cls, states: Sequence[Self]) -> Self:
        """The groups of several, one after the other."""


@dataclass(slots=True)
class Counts:
    """COUNT: int64[g]."""

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

    def finish(self) -> Vector:
        """COUNT."""
        return Vector.bigints(self.counts)


@dataclass(slots=True)
class Sums:
    """SUM and AVG: the exact sum, and how many values were bigint and how many float."""

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

    def finish_sum(self) -> Vector:
        """SUM: bigint of bigints, float once a value is float; NULL of nothing."""
        return self._finish(np.ones(len(self.floats), dtype=np.int64), self.floats > 0)

    def finish_average(self) -> Vector:
        """AVG: float; NULL of nothing."""
        counts = self.bigints + self.floats
        return self._finish(np.maximum(counts, 1), counts > 0)

    def _finish(self, divisors: Int64Array, as_floats: BoolArray) -> Vector:
        """Sums divided: floats where ``as_floats``, else bigints (which are not divided), NULL of nothing."""
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


@dataclass(slots=True)
class Moments:
    """VAR, STDEV and their population forms: exact sums of the values and of their squares."""

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

    def finish(self, *, population: bool, root: bool) -> Vector:
        """The variance (n² of it exactly, then divided and rounded once) or its root; NULL of too few values."""
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


@dataclass(slots=True)
class Extremes:
    """MIN and MAX: a value for each group, NULL for none."""

    values: Vector
    largest: bool

    @classmethod
    def fold(cls, codes: Int64Array, size: int, values: Vector, *, largest: bool) -> Extremes:
        """The least or the greatest of the values that are not NULL, in the order of `grouping`."""
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
        # The NULL of a group without a value stands behind the values.
        where[where < 0] = len(values)
        return cls(Vector.concat([values, Vector.nulls(1)]).take(where), largest)

    def take(self, indices: Int64Array) -> Extremes:
        return Extremes(self.values.take(indices), self.largest)

    def merge(self, codes: Int64Array, size: int) -> Extremes:
        return Extremes.fold(codes, size, self.values, largest=self.largest)

    @classmethod
    def concat(cls, states: Sequence[Extremes]) -> Extremes:
        return cls(Vector.concat([state.values for state in states]), states[0].largest)

    def finish(self) -> Vector:
        """MIN or MAX."""
        return self.values


@dataclass(slots=True)
class Bags:
    """Several values for each group, in one order: a set of distinct values with their counts, or ranked rows.

    Attributes:
        starts: int64[g + 1], where each group's values begin.
        values: one vector after the other.
        counts: int64[…], how often each value was there.
        columns: vectors beside the values that decide the order; () for a set, ordered by the values themselves.
        descending: for each column, whether it is ordered from the greatest down.
        numbers: int64 columns that decide between rows that are equal by that: the order of rows.
        limit: how many values of each group are kept; None for all.
    """

    starts: Int64Array
    values: Vector
    counts: Int64Array
    columns: tuple[Vector, ...] = ()
    descending: tuple[bool, ...] = ()
    numbers: tuple[Int64Array, ...] = ()
    limit: int | None = None

    @classmethod
    def distinct(cls, codes: Int64Array, size: int, values: Vector) -> Bags:
        """The distinct values of each group, without NULL."""
        kept = np.flatnonzero(values.kinds != Kind.NULL)
        return cls._of(codes[kept], size, cls(_EMPTY, values.take(kept), np.ones(len(kept), dtype=np.int64)))

    @classmethod
    def ranked(
        cls,
        codes: Int64Array,
        size: int,
        values: Vector,
        columns: Sequence[Vector],
        descending: Sequence[bool],
        numbers: Sequence[Int64Array],
        limit: int | None,
    ) -> Bags:
        """The rows of each group, ordered by ``columns`` and then by ``numbers``."""
        ones = np.ones(len(values), dtype=np.int64)
        return cls._of(codes, size, cls(_EMPTY, values, ones, tuple(columns), tuple(descending), tuple(numbers), limit))

    @classmethod
    def _of(cls, codes: Int64Array, size: int, unordered: Bags) -> Bags:
        """Put values in order, group by group; sets lose their doubles, limited bags what is beyond the limit."""
        keys = [codes]
        ranked = bool(unordered.columns or unordered.numbers)
        if ranked:
            for column, down in zip(unordered.columns, unordered.descending, strict=True):
                keys.append(~sort_keys(column) if down else sort_keys(column))
            keys.extend(unordered.numbers)
        else:
            keys.append(sort_keys(unordered.values))
        order = sorted_rows(keys)
        if not ranked:
            by_code, by_key = keys[0][order], keys[1][order]
            new = np.ones(len(order), dtype=np.bool_)
            new[1:] = (by_code[1:] != by_code[:-1]) | (by_key[1:] != by_key[:-1])
            firsts = np.flatnonzero(new)
            counts = np.add.reduceat(unordered.counts[order], firsts) if len(firsts) else unordered.counts[:0]
            order = order[firsts]
        else:
            counts = unordered.counts[order]
            if unordered.limit is not None:
                sizes = np.bincount(codes, minlength=size)
                rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
                kept = rank < unordered.limit
                order, counts = order[kept], counts[kept]
        sizes = np.bincount(codes[order], minlength=size)
        return Bags(
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            unordered.values.take(order),
            counts,
            tuple(column.take(order) for column in unordered.columns),
            unordered.descending,
            tuple(number[order] for number in unordered.numbers),
            unordered.limit,
        )

    def sizes(self) -> Int64Array:
        """int64[g]: how many values each group has."""
        return np.diff(self.starts)

    def take(self, indices: Int64Array) -> Bags:
        sizes = self.sizes()[indices]
        places = ranges(self.starts[indices], sizes)
        return Bags(
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            self.values.take(places),
            self.counts[places],
            tuple(column.take(places) for column in self.columns),
            self.descending,
            tuple(number[places] for number in self.numbers),
            self.limit,
        )

    def merge(self, codes: Int64Array, size: int) -> Bags:
        return Bags._of(np.repeat(codes, self.sizes()), size, self)

    @classmethod
    def concat(cls, states: Sequence[Bags]) -> Bags:
        first = states[0]
        sizes = np.concatenate([state.sizes() for state in states])
        return cls(
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            Vector.concat([state.values for state in states]),
            np.concatenate([state.counts for state in states]),
            tuple(Vector.concat([state.columns[index] for state in states]) for index in range(len(first.columns))),
            first.descending,
            tuple(np.concatenate([state.numbers[index] for state in states]) for index in range(len(first.numbers))),
            first.limit,
        )

    def codes(self) -> Int64Array:
        """The group of each value."""
        return np.repeat(np.arange(len(self.starts) - 1), self.sizes())

    def lists(self) -> list[list[Any]]:
        """Each group's values."""
        values = self.values.to_list()
        bounds = self.starts.tolist()
        return [values[start:end] for start, end in pairwise(bounds)]


def finish_collected(bags: Bags) -> Vector:
    """Collect: an array of the values."""
    return Vector.of(bags.lists())


def finish_ranked(bags: Bags) -> Vector:
    """CollectTop: an array of {rank, value}."""
    return Vector.of(
        [[{"rank": rank, "value": value} for rank, value in enumerate(values, start=1)] for values in bags.lists()]
    )


def finish_first(bags: Bags) -> Vector:
    """TopOne: the first value."""
    return Vector.of([values[0] if values else None for values in bags.lists()])


def finish_percentile(bags: Bags, fraction: float, *, continuous: bool, descending: bool) -> Vector:
    """PERCENTILE_CONT (between the two nearest values) and PERCENTILE_DISC (a value) of bags of numbers."""
    results: list[Any] = []
    bounds = bags.starts.tolist()
    for values, (start, end) in zip(bags.lists(), pairwise(bounds), strict=True):
        if not values:
            results.append(None)
            continue
        ranks = np.cumsum(bags.counts[start:end])
        total = int(ranks[-1])

        def at(place: int, values: list[Any] = values, ranks: Int64Array = ranks, total: int = total) -> Any:
            ascending = total - 1 - place if descending else place
            return values[int(np.searchsorted(ranks, ascending, side="right"))]

        if continuous:
            place = fraction * (total - 1)
            low = math.floor(place)
            below, above = float(at(low)), float(at(min(low + 1, total - 1)))
            results.append(below + (above - below) * (place - low))
        else:
            results.append(at(max(math.ceil(fraction * total) - 1, 0)))
    return Vector.of(results)


def finish_count_of_distinct(state: Bags | Counts) -> Vector:
    """COUNT(DISTINCT), of sets or where they have been counted already."""
    return state.finish() if isinstance(state, Counts) else Vector.bigints(state.sizes())


def sums_of_distinct(bags: Bags | Sums) -> Sums:
    """SUM and AVG of distinct values, of sets or where they have been added up already."""
    if isinstance(bags, Sums):
        return bags
    return Sums.fold(bags.codes(), len(bags.starts) - 1, bags.values)


def moments_of_distinct(bags: Bags | Moments) -> Moments:
    """VAR and STDEV of distinct values, of sets or where they have been added up already."""
    if isinstance(bags, Moments):
        return bags
    return Moments.fold(bags.codes(), len(bags.starts) - 1, bags.values)


_EMPTY = np.empty(0, dtype=np.int64)
_SPLITTER = 2.0**27 + 1


def _as_floats(values: Vector) -> Vector:
    whole = values.kinds == Kind.BIGINT
    floats = np.where(whole, values.int_values().astype(np.float64), values.float_values())
    return values.with_kinds(np.where(whole, np.uint8(Kind.FLOAT), values.kinds), floats=floats)


def _add_squares(sums: ExactSums, codes: Int64Array, values: FloatArray) -> None:
    """Add the exact square of each value, as products of its halves of 26 and 27 bits (Dekker 1971)."""
    sizes = np.abs(values)
    extreme = (sizes > 2.0**500) | ((sizes < 2.0**-400) & (sizes > 0))
    if extreme.any():
        # Their products would overflow or underflow; there are hardly ever any.
        for code, value in zip(codes[extreme].tolist(), values[extreme].tolist(), strict=True):
            numerator, denominator = value.as_integer_ratio()
            sums.add_scaled(code, numerator * numerator, -2 * (denominator.bit_length() - 1))
        codes, values = codes[~extreme], values[~extreme]
    split = values * _SPLITTER
    high = split - (split - values)
    low = values - high
    for part in (high * high, 2.0 * (high * low), low * low):
        sums.add_floats(codes, part)
