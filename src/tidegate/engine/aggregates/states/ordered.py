"""Ordered values of each group: the least or the greatest, distinct values with their counts, and ranked rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from tidegate.engine.aggregates.states.state import (
    AdditiveState,
    Column,
    DominatedState,
    Evaluated,
    Hops,
    State,
    Summarized,
    Summary,
    least,
    ranks_of,
    records,
    totals,
)
from tidegate.engine.values.grouping import group, ordered_keys, ranges, sort_keys, sorted_rows, unified
from tidegate.engine.values.vectors import Int64Array, Kind, Reason, Vector
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
        failed = (least < most) | (most == _FAMILIES[Kind.ERROR])
        return cls(found.take(where).failing(failed, Reason.NOT_COMPARABLE), largest)

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
        failed = several | inside[_FAMILIES[Kind.ERROR]]
        return Extremes(found.failing(failed, Reason.NOT_COMPARABLE), self.largest)

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


MOST_RANKED = 32
"""Rankings of more rows than this are rebuilt for each window: finding the useless rows takes one pass per rank."""


@dataclass(slots=True)
class Multisets(DominatedState):
    """Several ordered values for each group: a set of distinct values with their counts, or ranked rows.

    Attributes:
        starts: int64[g + 1], where each group's values begin.
        values: the values of all groups, one group after the other.
        counts: int64[…], how often each value occurred.
        columns: vectors that decide the order of the values; () for a set, which is ordered by the values themselves.
        descending: for each column, whether its order is descending.
        numbers: int64 columns that break ties: the order of arrival.
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
    def distinct(cls, codes: Int64Array, size: int, values: Vector) -> Multisets:
        """Return the distinct values of each group, without NULL."""
        kept = np.flatnonzero(values.kinds != Kind.NULL)
        return cls._ordered(codes[kept], size, cls(_EMPTY, values.take(kept), np.ones(len(kept), dtype=np.int64)))

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
    ) -> Multisets:
        """Return the rows of each group, ordered by ``columns`` and then by ``numbers``."""
        ones = np.ones(len(values), dtype=np.int64)
        return cls._ordered(
            codes, size, cls(_EMPTY, values, ones, tuple(columns), tuple(descending), tuple(numbers), limit)
        )

    @classmethod
    def _ordered(cls, codes: Int64Array, size: int, unordered: Multisets) -> Multisets:
        """Order values by group; remove duplicates from sets, and from ranked rows those beyond the limit."""
        keys = [codes]
        ranked = bool(unordered.columns or unordered.numbers)
        if ranked:
            keys.extend(unordered._column_keys())
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
        ordered = unordered._at(order, np.bincount(codes[order], minlength=size))
        return replace(ordered, counts=counts)

    def sizes(self) -> Int64Array:
        """Return int64[g]: how many values each group has."""
        return np.diff(self.starts)

    def occurrences(self) -> Int64Array:
        """Return int64[g]: how often values occurred in each group."""
        return np.diff(np.concatenate([[0], np.cumsum(self.counts)])[self.starts])

    def nth(self, groups: Int64Array, places: Int64Array) -> Vector:
        """Return a value of each of some groups: the one at its place among all that occurred, in their order."""
        reached = np.cumsum(self.counts)
        before = np.concatenate([[0], reached])[self.starts[groups]]
        return self.values.take(np.searchsorted(reached, before + places, side="right"))

    def take(self, indices: Int64Array) -> Multisets:
        sizes = self.sizes()[indices]
        return self._at(ranges(self.starts[indices], sizes), sizes)

    def merge(self, codes: Int64Array, size: int) -> Multisets:
        return Multisets._ordered(np.repeat(codes, self.sizes()), size, self)

    @classmethod
    def concat(cls, states: Sequence[Multisets]) -> Multisets:
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
        """Return the group of each value."""
        return np.repeat(np.arange(len(self.starts) - 1), self.sizes())

    def lists(self) -> list[list[Any]]:
        """Return the values of each group."""
        values = self.values.to_list()
        bounds = self.starts.tolist()
        return [values[start:end] for start, end in pairwise(bounds)]

    def undominated(self, ids: Int64Array, ends: Int64Array) -> tuple[Int64Array, Multisets]:
        """Find the rows that fewer than ``limit`` later ones of their key surpass, in ``limit`` passes.

        A pass goes back from the latest row and keeps the records, the rows better than all seen so far; the next pass
        does so with the remaining rows. A row that no pass has kept is surpassed by ``limit`` later ones.
        """
        every = np.arange(len(ids))
        if self.limit is None or self.limit > MOST_RANKED:
            return every, self
        group = self.codes()
        row_ids, row_ends = ids[group], ends[group]
        ranks = np.empty(len(group), dtype=np.int64)
        ranks[sorted_rows([*self._column_keys(), *self.numbers])] = np.arange(len(group))[::-1]
        left = sorted_rows([row_ids, -row_ends, -ranks])
        kept = np.zeros(len(group), dtype=np.bool_)
        for _ in range(self.limit):
            best = records(row_ids[left], ranks[left])
            kept[left[best]] = True
            left = left[~best]
            if not len(left):
                return every, self
        places = np.flatnonzero(kept)
        with_rows, sizes = np.unique(group[places], return_counts=True)
        return with_rows, self._at(places, sizes)

    def _column_keys(self) -> list[Int64Array]:
        return [
            ~sort_keys(unified(column)) if down else sort_keys(unified(column))
            for column, down in zip(self.columns, self.descending, strict=True)
        ]

    def _at(self, places: Int64Array, sizes: Int64Array) -> Multisets:
        """Return the values at some places, ``sizes`` of them for each group."""
        return Multisets(
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            self.values.take(places),
            self.counts[places],
            tuple(column.take(places) for column in self.columns),
            self.descending,
            tuple(number[places] for number in self.numbers),
            self.limit,
        )


@dataclass(slots=True)
class OverlappingSets(Summarized):
    """The ordered values of ranges of rows that overlap, without a set for each range.

    Theory. The place of a value in the order of a range is found as in a wavelet matrix (Claude, Navarro and Ordóñez,
    "The wavelet matrix", 2015, https://doi.org/10.1016/j.is.2014.06.002). The rows are parted by the highest bit of
    their ranks, those with 0 first, and keep their order otherwise, so each part of a range is a range again. How many
    of its rows have 0 says in which part the value is that is looked for; and so on with each lower bit.

    Attributes:
        values: in their order.
        ranks: int64[n], which of the values each row has.
        lows, highs: int64[g], the ranges [low, high) of the rows.
    """

    values: Vector
    ranks: Int64Array
    lows: Int64Array
    highs: Int64Array

    @classmethod
    def of(cls, values: Vector, lows: Int64Array, highs: Int64Array) -> OverlappingSets:
        """Return the values of ranges, without NULL."""
        present = values.kinds != Kind.NULL
        before = np.concatenate([[0], np.cumsum(present)])
        values = values.take(np.flatnonzero(present))
        order = sorted_rows([sort_keys(values)])
        return cls(values.take(order), ranks_of(order), before[lows], before[highs])

    def take(self, indices: Int64Array) -> OverlappingSets:
        return replace(self, lows=self.lows[indices], highs=self.highs[indices])

    def occurrences(self) -> Int64Array:
        """Return int64[g]: how often values occurred in each range."""
        return self.highs - self.lows

    def nth(self, groups: Int64Array, places: Int64Array) -> Vector:
        """Return a value of each of some ranges: the one at its place among all that occurred, in their order."""
        lows, highs, ranks = self.lows[groups], self.highs[groups], self.ranks
        found = np.zeros(len(groups), dtype=np.int64)
        for bit in reversed(range(len(ranks).bit_length())):
            has_one = (ranks >> bit & 1).astype(np.bool_)
            zeros = np.concatenate([[0], np.cumsum(~has_one)])
            low_zeros, high_zeros = zeros[lows], zeros[highs]
            is_one = places >= high_zeros - low_zeros
            lows = np.where(is_one, zeros[-1] + lows - low_zeros, low_zeros)
            highs = np.where(is_one, zeros[-1] + highs - high_zeros, high_zeros)
            places = np.where(is_one, places - (high_zeros - low_zeros), places)
            found |= is_one.astype(np.int64) << bit
            ranks = np.concatenate([ranks[~has_one], ranks[has_one]])
        return self.values.take(found)


@dataclass(frozen=True, slots=True)
class DistinctValues(Summary):
    """The distinct values of a column except NULL, with how often each occurred.

    Attributes:
        inner: what an aggregate with DISTINCT keeps of the distinct values. If its states are additive, hopping windows
            keep a running total of it instead of the values.
    """

    column: Column
    inner: Summary | None = None

    def columns(self) -> tuple[Column, ...]:
        return (self.column,)

    def fold(self, codes: Int64Array, size: int, rows: Evaluated) -> Multisets:
        values = rows.vectors[self.column]
        # Percentiles return one of the values, so each is kept as it is.
        return Multisets.distinct(codes, size, values if self.inner is None else unified(values, everywhere=True))

    @property
    def hops(self) -> Hops:
        return Hops.DISTINCT if self.inner is not None and self.inner.hops is Hops.ADDED else Hops.REBUILT

    @property
    def folds_ranges(self) -> bool:
        return self.inner is None or self.hops is Hops.DISTINCT

    def fold_ranges(self, rows: Evaluated, lows: Int64Array, highs: Int64Array) -> Summarized:
        """Return the inner state of the distinct values of each range; without an inner one, its values in order.

        Theory. In the order of their bounds, the ranges that hold a row follow one another, and a later row enters and
        leaves no earlier. So a row brings its value into those ranges alone that the last row with the same value has
        left. The value is added at the first of these and subtracted after the last, and the state of a range is a
        running total: each row costs the same, however many ranges it is in.
        """
        if self.inner is None:
            return OverlappingSets.of(rows.vectors[self.column], lows, highs)
        by_bounds = np.lexsort((highs, lows))
        assert not (np.diff(highs[by_bounds]) < 0).any()
        values = unified(rows.vectors[self.column], everywhere=True)
        present = np.flatnonzero(values.kinds != Kind.NULL)
        values = values.take(present)
        enters = np.searchsorted(highs[by_bounds], present, side="right")
        leaves = np.searchsorted(lows[by_bounds], present, side="right")
        codes = group(len(present), (values,)).codes
        by_value = np.argsort(codes, kind="stable")
        repeats = np.flatnonzero(codes[by_value[1:]] == codes[by_value[:-1]])
        enters[by_value[repeats + 1]] = np.maximum(enters[by_value[repeats + 1]], leaves[by_value[repeats]])
        brings = np.flatnonzero(enters < leaves)
        state = self.of_values(np.arange(len(brings)), len(brings), values.take(brings))
        assert isinstance(state, AdditiveState)
        changes = np.concatenate([enters[brings], leaves[brings]])
        order = np.argsort(changes, kind="stable")
        running = type(state).concat([state, state.negated()]).take(order)
        done = np.searchsorted(changes[order], np.arange(len(lows)), side="right")
        places = np.empty(len(lows), dtype=np.int64)
        places[by_bounds] = np.arange(len(lows))
        return running.merge_ranges(np.zeros(len(lows), dtype=np.int64), done).take(places)

    def of_values(self, codes: Int64Array, size: int, values: Vector) -> State:
        """Return the inner state of distinct values."""
        assert self.inner is not None
        return self.inner.fold(codes, size, Evaluated({self.column: values}, ()))

    def of_state(self, state: Summarized) -> Summarized:
        """Return the inner state; a hopping window may have computed it already."""
        if not isinstance(state, Multisets):
            return state
        return self.of_values(state.codes(), len(state.starts) - 1, state.values)


@dataclass(frozen=True, slots=True)
class RankedRows(Summary):
    """The ``value`` of the first ``limit`` rows by ``order_by`` and then by arrival, or of all rows."""

    value: plan.Expr
    order_by: tuple[plan.Order, ...] = ()
    limit: int | None = None

    def columns(self) -> tuple[Column, ...]:
        return ((self.value, False), *((order.expr, False) for order in self.order_by))

    def fold(self, codes: Int64Array, size: int, rows: Evaluated) -> Multisets:
        columns = [rows.vectors[order.expr, False] for order in self.order_by]
        descending = [order.descending for order in self.order_by]
        value = rows.vectors[self.value, False]
        return Multisets.ranked(codes, size, value, columns, descending, rows.ordering, self.limit)

    @property
    def hops(self) -> Hops:
        return Hops.UNDOMINATED if self.limit is not None and self.limit <= MOST_RANKED else Hops.REBUILT

    @property
    def folds_ranges(self) -> bool:
        return self.limit is not None

    def fold_ranges(self, rows: Evaluated, lows: Int64Array, highs: Int64Array) -> Summarized:
        if self.limit is None:
            # Not super(): dataclass(slots=True) replaces the class that super() would refer to.
            return Summary.fold_ranges(self, rows, lows, highs)
        columns = [(unified(rows.vectors[order.expr, False]), order.descending) for order in self.order_by]
        keys = [~sort_keys(column) if descending else sort_keys(column) for column, descending in columns]
        order = sorted_rows([*keys, *rows.ordering])
        ranked = OverlappingSets(rows.vectors[self.value, False].take(order), ranks_of(order), lows, highs)
        sizes = np.minimum(ranked.occurrences(), self.limit)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        values = ranked.nth(np.repeat(np.arange(len(lows)), sizes), ranges(np.zeros(len(lows), dtype=np.int64), sizes))
        return Multisets(starts, values, np.ones(len(values), dtype=np.int64))


_EMPTY = np.empty(0, dtype=np.int64)
