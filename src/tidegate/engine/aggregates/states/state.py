"""The protocol of states: how they are made from rows, merged, and brought forward from window to window.

A `State` holds g groups at once, as columns. It is made from rows (`Summary.fold`), cut (`take`), joined (`concat`) and
grouped anew (`merge`), as mergeable summaries are (Agarwal et al., "Mergeable Summaries", 2012). A finished value
depends on the rows of the group and on nothing else, so merging must give the same in every order: sums are exact until
the end, and everything else is a minimum, a maximum or a multiset.

`AggregateFunction` is what the engine asks of an aggregate: what it keeps of a group's rows, and the value it yields.
An aggregate is one class that derives from it, and is found because a module of `engine.aggregates.functions` defines
it. The compiler, the windows, the estimate of memory, the schema of outputs and the reference all ask this class.

Ranges of rows or groups may overlap. The total of a range is the difference of two running totals. These may wrap
around, because differences of int64 are right modulo 2^64. To keep the true total of a range far below 2^63 whatever
its length, limbs are totalled in two halves of 20 bits and more.

The least of a range is the lesser of the least of two stretches of a power of two rows that cover it (a sparse table:
Bender and Farach-Colton, "The LCA Problem Revisited", 2000, https://doi.org/10.1007/10719839_9); only one level of the
table is held at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self

import numpy as np

from tidegate.engine.values.exact_sums import LIMB_BITS, ExactSums
from tidegate.engine.values.grouping import ranges
from tidegate.engine.values.sequences import stretches
from tidegate.engine.values.vectors import BoolArray, Int64Array, Kind, Vector
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.signatures import AggregateSignature

MOST_ROWS = 2**20
"""How many rows are folded or merged at a time where ranges overlap."""

Column = tuple[plan.Expr, bool]
"""An expression, and whether its values are converted to numbers."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The rows to fold: a vector for each column, and the columns that order the rows."""

    vectors: dict[Column, Vector]
    ordering: tuple[Int64Array, ...]

    def take(self, places: Int64Array) -> Evaluated:
        """Return some of the rows."""
        return Evaluated(
            {key: vector.take(places) for key, vector in self.vectors.items()},
            tuple(column[places] for column in self.ordering),
        )


class Summarized(ABC):
    """What the values of g groups are made of, as columns."""

    __slots__ = ()

    @abstractmethod
    def take(self, indices: Int64Array) -> Self:
        """Return that of these groups alone, in this order."""


class State(Summarized):
    """What is kept of g groups."""

    __slots__ = ()

    @abstractmethod
    def merge(self, codes: Int64Array, size: int) -> Self:
        """Merge groups into ``size`` groups, all of which occur in ``codes`` int64[g]."""

    @classmethod
    @abstractmethod
    def concat(cls, states: Sequence[Self]) -> Self:
        """Return the groups of several states, one after the other."""

    def merge_ranges(self, lows: Int64Array, highs: Int64Array) -> Self:
        """Merge the groups [low, high) of each range, which may overlap or be empty."""
        parts = []
        for begin, end in stretches(highs - lows, MOST_ROWS) or [(0, 0)]:
            lengths = highs[begin:end] - lows[begin:end]
            codes = np.repeat(np.arange(end - begin), lengths)
            parts.append(self.take(ranges(lows[begin:end], lengths)).merge(codes, end - begin))
        return self.concat(parts)


class AdditiveState(State):
    """A state that can be subtracted after it was merged: a count or an exact sum."""

    __slots__ = ()

    @abstractmethod
    def negated(self) -> Self:
        """Return what, merged with this state, leaves nothing."""

    def trimmed(self) -> Self:
        """Return the same state in the least memory; running totals would otherwise grow for ever."""
        return self


class DominatedState(State):
    """A state that a better one makes useless: a minimum, a maximum or a ranking."""

    __slots__ = ()

    @abstractmethod
    def undominated(self, ids: Int64Array, ends: Int64Array) -> tuple[Int64Array, Self]:
        """Find what later windows may still need, given that a window with a group has all later groups of its key.

        Args:
            ids, ends: int64[g], the key and the time of each group.

        Returns:
            The groups that may still matter, and their states.
        """


class Hops(Enum):
    """How a hopping window brings a state forward from hop to hop.

    ADDED: a running total; panes are merged when they enter and subtracted when they leave (`AdditiveState`).
    DISTINCT: as ADDED, over the distinct values inside.
    UNDOMINATED: only panes that no later ones surpass are kept (`DominatedState`).
    REBUILT: the panes of each window are merged again, at a cost that grows with the length of the window.
    """

    ADDED = "added"
    DISTINCT = "distinct"
    UNDOMINATED = "undominated"
    REBUILT = "rebuilt"


class Summary(ABC):
    """What is kept of a group's rows for one aggregate or several.

    Summaries are frozen dataclasses over expressions of the plan; equal ones are kept once.
    """

    __slots__ = ()

    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """Return what is needed of each row."""

    @abstractmethod
    def fold(self, codes: Int64Array, size: int, rows: Evaluated) -> State:
        """Return the state of rows, which are in the groups ``codes`` int64[n] of ``size``."""

    @property
    def hops(self) -> Hops:
        """How hopping windows bring its states forward; REBUILT is right for any state."""
        return Hops.REBUILT

    @property
    def folds_ranges(self) -> bool:
        """Whether `fold_ranges` costs less than folding the rows of each range."""
        return False

    def fold_ranges(self, rows: Evaluated, lows: Int64Array, highs: Int64Array) -> Summarized:
        """Return what is made of the rows [low, high) of each range; the ranges may overlap or be empty.

        Of two ranges, the one that begins later does not end earlier, as with windows of one length.
        """
        lengths = highs - lows
        codes = np.repeat(np.arange(len(lows)), lengths)
        return self.fold(codes, len(lows), rows.take(ranges(lows, lengths)))

    def nothing(self, size: int) -> State:
        """Return the state of ``size`` groups without rows."""
        nowhere = np.empty(0, dtype=np.int64)
        return self.fold(nowhere, size, Evaluated({column: Vector.nulls(0) for column in self.columns()}, ()))


def concat_states(parts: Sequence[tuple[State, ...]]) -> tuple[State, ...]:
    """Return the groups of several parts, state by state."""
    return tuple(type(one).concat([part[index] for part in parts]) for index, one in enumerate(parts[0]))


@dataclass(frozen=True, slots=True)
class StateMemory:
    """The memory that the state of one group takes.

    Attributes:
        what: in words, such as "an exact sum".
        bounded: whether it does not grow with the rows of the group.
        rebuilt: whether a hopping window merges it from its panes again at each hop.
    """

    what: str
    bounded: bool
    rebuilt: bool


class AggregateFunction(AggregateSignature):
    """An aggregate of the language."""

    @abstractmethod
    def summary(self, call: plan.AggregateCall) -> Summary:
        """Return what is kept of a group's rows; with DISTINCT, of the distinct values of its one column."""

    @abstractmethod
    def finish(self, state: Any, call: plan.AggregateCall) -> Vector:
        """Return the value of each group of a state that `summary` made."""

    def beside_distinct(self, call: plan.AggregateCall) -> tuple[Summary, ...]:
        """Return what a call with DISTINCT keeps of all values, beside what it keeps of the distinct ones."""
        return ()

    def finish_distinct(self, state: Any, beside: Sequence[Any], call: plan.AggregateCall) -> Vector:
        """Return the value of each group with DISTINCT: ``state`` is that of the distinct values."""
        return self.finish(state, call)

    @abstractmethod
    def kept(self, call: plan.AggregateCall) -> tuple[str, bool]:
        """Return what is kept of a group, in words, and whether it does not grow with the group's rows."""

    def memory(self, call: plan.AggregateCall, functions: Mapping[str, Callable[..., Any]]) -> StateMemory:
        """Return the memory that the state of one group takes.

        Args:
            functions: registered functions and aggregates, by lower-case name.
        """
        what, bounded = self.kept(call)
        return StateMemory(what, bounded, self.summary(call).hops is Hops.REBUILT)


_HALF_BITS = LIMB_BITS // 2


def totals(values: Int64Array, lows: Int64Array, highs: Int64Array) -> Int64Array:
    """Return int64[w]: the total of the values [low, high) of each range."""
    running = np.concatenate([[0], np.cumsum(values)])
    result: Int64Array = running[highs] - running[lows]
    return result


def exact_totals(each: ExactSums, lows: Int64Array, highs: Int64Array) -> ExactSums:
    """Return the exact total of the sums [low, high) of each range."""
    result = ExactSums(len(lows))
    for limb, values in each.limbs.items():
        lower = totals(values & (2**_HALF_BITS - 1), lows, highs)
        upper = totals(values >> _HALF_BITS, lows, highs)
        for number, part in (
            (limb, lower + ((upper & (2**_HALF_BITS - 1)) << _HALF_BITS)),
            (limb + 1, upper >> _HALF_BITS),
        ):
            if part.any():
                result.limbs[number] = result.limbs[number] + part if number in result.limbs else part
    if each.highs is not None and each.lows is not None:
        result.highs, result.lows = totals(each.highs, lows, highs), totals(each.lows, lows, highs)
    return result


def ranks_of(order: Int64Array) -> Int64Array:
    """Return int64[n]: the rank of each row, given the rows in order."""
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return ranks


def least(ranks: Int64Array, lows: Int64Array, highs: Int64Array) -> Int64Array:
    """Return int64[w]: the place of the lowest rank in each range [low, high); −1 where it is empty.

    Args:
        ranks: int64[n], each of 0 to n − 1 once.
    """
    lengths = highs - lows
    levels = np.frexp(lengths)[1] - 1
    best = np.full(len(lows), -1, dtype=np.int64)
    table = ranks
    for level in range(int(levels.max(initial=-1)) + 1):
        width = 2**level
        asked = np.flatnonzero(levels == level)
        best[asked] = np.minimum(table[lows[asked]], table[highs[asked] - width])
        table = np.minimum(table[:-width], table[width:])
    place = np.empty(len(ranks) + 1, dtype=np.int64)
    place[ranks] = np.arange(len(ranks))
    place[-1] = -1
    return place[best]


def records(ids: Int64Array, ranks: Int64Array) -> BoolArray:
    """Return bool[n]: which ranks are higher than all earlier ones of the same key, where keys are contiguous."""
    span = int(ranks.max(initial=0)) + 2
    # Each key starts above the highest rank of the keys before it.
    sequence = np.cumsum(np.append(True, ids[1:] != ids[:-1])) if len(ids) else ids
    heights = ranks + 1 + sequence * span
    before = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(heights)[:-1]) if len(ids) else heights
    found: BoolArray = heights > np.maximum(before, sequence * span - 1)
    return found


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

    @property
    def folds_ranges(self) -> bool:
        return True

    def fold_ranges(self, rows: Evaluated, lows: Int64Array, highs: Int64Array) -> Counts:
        floats = rows.vectors[self.column].kinds == Kind.FLOAT
        return Counts(totals(floats.astype(np.int64), lows, highs))


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
