"""What a side of a join holds: its rows in the parts they arrived in, each with the times that it is about.

Theory. To a join a row is an interval of right times: those that a left row reaches, or the one time of a right row.
Two rows can only be a pair if their intervals overlap, and a row is needed until the watermark has passed its interval.
A part knows the extremes of its intervals. So a step neither copies nor reads a part that is out of reach and not about
to be dropped, and its memory depends on the rows that it brings and on those near them, not on all that are held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from tidegate.engine.expressions.frames import Frame
from tidegate.engine.stateful.joins import Reach
from tidegate.engine.substreams.waiting import Part, Waiting
from tidegate.engine.substreams.watermarks import Watermark
from tidegate.engine.values.vectors import BoolArray, Int64Array, Vector
from tidegate.ordering import END_OF_TIME, NO_TIME

_MOST_ROWS = 2**18
"""Neighbours from several parts are gathered until there are this many."""

Reaching: TypeAlias = Callable[[Frame], Reach]
"""Returns the intervals of the rows of a side."""


@dataclass(frozen=True, slots=True)
class HeldRows:
    """n rows of one side, in order, and the extremes of their intervals; those of a part of the rows may be wider.

    The order of the rows is their number; their keys are in place of aggregates.

    Attributes:
        first: no interval begins earlier.
        soonest: no interval ends earlier.
        last: no interval ends later.
        matched: bool[n], which rows have found a match; None where it makes no difference.
    """

    frame: Frame
    first: int
    soonest: int
    last: int
    matched: BoolArray | None = None

    @classmethod
    def of(cls, frame: Frame, reach: Reach, *, marked: bool) -> HeldRows:
        """Return rows with these intervals, without matches so far if those are to be ``marked``."""
        return cls(
            frame,
            int(reach.first.min(initial=END_OF_TIME)),
            int(reach.last.min(initial=END_OF_TIME)),
            int(reach.last.max(initial=NO_TIME)),
            np.zeros(len(frame), dtype=np.bool_) if marked else None,
        )

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def times(self) -> Int64Array:
        return self.frame.times

    @property
    def substreams(self) -> Int64Array | None:
        return self.frame.substreams

    def take(self, rows: Int64Array) -> HeldRows:
        """Return these rows, in this order."""
        matched = None if self.matched is None else self.matched[rows]
        return replace(self, frame=self.frame.take(rows), matched=matched)

    @classmethod
    def concat(cls, tables: Sequence[HeldRows]) -> HeldRows:
        """Concatenate rows of the same side."""
        if len(tables) == 1:
            return tables[0]
        marks = [table.matched for table in tables if table.matched is not None]
        return cls(
            Frame.concat([table.frame for table in tables]),
            min(table.first for table in tables),
            min(table.soonest for table in tables),
            max(table.last for table in tables),
            np.concatenate(marks) if marks else None,
        )


@dataclass(slots=True)
class Side:
    """The rows of one source: those waiting for the watermark, those held, and how many there have been.

    If the rows are ``tied``, they keep what orders them among the rows of other shards.
    """

    waiting: Waiting[Frame] = field(default_factory=Waiting)
    held: Waiting[HeldRows] = field(default_factory=Waiting)
    count: int = 0
    tied: bool = False

    def take_new(self, watermark: Watermark) -> Frame | None:
        """Remove and return the waiting rows before the watermark, in order and numbered; None for none."""
        new = self.waiting.take_before(watermark)
        if new is None:
            return None
        new = new.in_shards_order() if self.tied else new.in_order()
        new = new.with_order((self.count + np.arange(len(new)),))
        self.count += len(new)
        return new


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Rows of some parts of a side, which may be near the rows of the other.

    Attributes:
        parts: each with the rows of it that are meant, or None for all.
        starts: int64[parts], where the rows of each part start among all.
        keys: of all rows.
        reach: of all rows.
    """

    parts: Sequence[tuple[Part[HeldRows], Int64Array | None]]
    starts: Int64Array
    keys: tuple[Vector, ...]
    reach: Reach

    @classmethod
    def of_part(cls, part: Part[HeldRows], reach: Reach) -> Neighbours:
        """Return all rows of one part, of which none has been removed."""
        return cls([(part, None)], np.zeros(1, dtype=np.int64), part.table.frame.aggregates, reach)

    def __len__(self) -> int:
        return len(self.reach.first)

    def take(self, rows: Int64Array) -> Frame:
        """Return some of the rows, in the order given."""
        if len(self.parts) == 1:
            return self._take_of(0, rows)
        of = self._parts_of(rows)
        order = np.argsort(of, kind="stable")
        taken = Frame.concat([self._take_of(*one) for one in self._by_part(rows[order], of[order])])
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return taken.take(places)

    def mark(self, rows: Int64Array) -> None:
        """Note that these rows have a match, where that makes a difference."""
        if self.parts[0][0].table.matched is None:
            return
        rows = np.unique(rows)
        for index, which in self._by_part(rows, self._parts_of(rows)):
            part, chosen = self.parts[index]
            before = part.table.matched
            assert before is not None
            # What was read from a disk is read-only.
            matched = before.copy()
            matched[which if chosen is None else chosen[which]] = True
            part.table = replace(part.table, matched=matched)

    def _take_of(self, index: int, rows: Int64Array) -> Frame:
        """Return rows of one part by their places among those that are meant."""
        part, chosen = self.parts[index]
        return part.table.frame.take(rows if chosen is None else chosen[rows])

    def _parts_of(self, rows: Int64Array) -> Int64Array:
        """Return which part each row is of."""
        return np.searchsorted(self.starts, rows, side="right") - 1

    def _by_part(self, rows: Int64Array, of: Int64Array) -> Iterator[tuple[int, Int64Array]]:
        """Return the parts that ``rows`` are of, which are ordered by part, and the places of its rows in each."""
        for index in np.unique(of).tolist():
            begin, end = np.searchsorted(of, [index, index + 1])
            yield index, rows[begin:end] - self.starts[index]


def neighbours(parts: Sequence[Part[HeldRows]], reaching: Reaching, others: HeldRows) -> Iterator[Neighbours]:
    """Return the rows of a side whose intervals overlap those of the others, a bounded number at a time."""
    found: list[tuple[Part[HeldRows], Int64Array | None, Reach]] = []
    count = 0
    for part in parts:
        if part.table.first > others.last or part.table.last < others.first:
            continue
        reach = reaching(part.table.frame)
        near = (reach.first <= others.last) & (reach.last >= others.first)
        if part.removed is not None:
            near &= ~part.removed
        rows = np.flatnonzero(near)
        if not len(rows):
            continue
        if len(rows) == len(near):
            found.append((part, None, reach))
        else:
            found.append((part, rows, reach.take(rows)))
        count += len(rows)
        if count >= _MOST_ROWS:
            yield _gathered(found)
            found, count = [], 0
    if found:
        yield _gathered(found)


def _gathered(found: Sequence[tuple[Part[HeldRows], Int64Array | None, Reach]]) -> Neighbours:
    keys = [
        part.table.frame.aggregates if rows is None else tuple(key.take(rows) for key in part.table.frame.aggregates)
        for part, rows, _ in found
    ]
    lengths = [len(reach.first) for _, _, reach in found]
    return Neighbours(
        [(part, rows) for part, rows, _ in found],
        np.cumsum([0, *lengths[:-1]]),
        tuple(Vector.concat(one) for one in zip(*keys, strict=True)),
        Reach(
            np.concatenate([reach.first for _, _, reach in found]),
            np.concatenate([reach.last for _, _, reach in found]),
        ),
    )
