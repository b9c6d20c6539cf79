"""The protocol of states: how they are made from rows, merged, and brought forward from window to window.

A `State` holds g groups at once, as columns. It is made from rows (`Summary.fold`), cut (`take`), joined (`concat`) and
grouped anew (`merge`), as mergeable summaries are (Agarwal et al., "Mergeable Summaries", 2012). A finished value
depends on the rows of the group and on nothing else, so merging must give the same in every order: sums are exact until
the end, and everything else is a minimum, a maximum or a multiset.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Self

import numpy as np

from tidegate.engine.values.grouping import ranges
from tidegate.engine.values.sequences import stretches
from tidegate.engine.values.vectors import Int64Array, Vector
from tidegate.sql.plan import nodes as plan

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


class State(ABC):
    """What is kept of g groups, as columns."""

    __slots__ = ()

    @abstractmethod
    def take(self, indices: Int64Array) -> Self:
        """Return the state of these groups alone, in this order."""

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

    def fold_ranges(self, rows: Evaluated, lows: Int64Array, highs: Int64Array) -> State:
        """Return the state of the rows [low, high) of each range; the ranges may overlap or be empty."""
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
