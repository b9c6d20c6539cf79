"""Rows and panes that wait for the watermark, in the parts they arrived in.

A removed row is only marked in its part; the part is rewritten once half of it is gone, and small neighbours are
merged. So a row is copied a few times, however often a few rows are removed, and there are few parts. With a watermark
for each substream, only rows of substreams that have advanced are compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from tidegate.engine.substreams.watermarks import Watermark, passed
from tidegate.engine.values.vectors import BoolArray, Int64Array

SMALL_ROWS = 16_384
"""Neighbouring parts with fewer rows than this together are merged."""


class Table(Protocol):
    """Rows with a time and, where each substream has its own watermark, a substream."""

    @property
    def times(self) -> Int64Array: ...

    @property
    def substreams(self) -> Int64Array | None: ...

    def __len__(self) -> int: ...

    def take(self, rows: Int64Array, /) -> Self: ...

    @classmethod
    def concat(cls, tables: Sequence[Self], /) -> Self: ...


T = TypeVar("T", bound=Table)


@dataclass(slots=True)
class Part(Generic[T]):
    """A table of which some rows have been removed.

    Attributes:
        removed: bool[n], which rows are gone; None for none.
        new: it has not been compared with a watermark yet.
    """

    table: T
    removed: BoolArray | None = None
    new: bool = True

    def __len__(self) -> int:
        return len(self.table) - (0 if self.removed is None else int(np.count_nonzero(self.removed)))

    def rest(self) -> T:
        """Return the rows that still wait."""
        return self.table if self.removed is None else self.table.take(np.flatnonzero(~self.removed))

    def remove(self, chosen: BoolArray) -> T | None:
        """Remove and return the chosen rows (bool[n] over the table) that still wait; None for none."""
        if self.removed is not None:
            chosen = chosen & ~self.removed
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return None
        taken = self.table if len(rows) == len(self.table) else self.table.take(rows)
        self.discard(chosen)
        return taken

    def discard(self, chosen: BoolArray) -> None:
        """Remove the chosen rows, bool[n] over the table."""
        self.removed = chosen if self.removed is None else self.removed | chosen
        if 2 * len(self) < len(self.table):
            self.table, self.removed = self.rest(), None


@dataclass(slots=True)
class Waiting(Generic[T]):
    """Rows in the order they were appended."""

    parts: list[Part[T]] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def append(self, table: T) -> None:
        """Append rows."""
        if len(table):
            self.parts.append(Part(table))
            self._merge_small_parts()

    def take_before(self, watermark: Watermark) -> T | None:
        """Remove and return the rows before the watermark; None for none.

        With a watermark for each substream, this must be called after each of their advances.
        """

        def complete(part: Part[T]) -> BoolArray:
            new, part.new = part.new, False
            return passed(watermark, part.table.times, part.table.substreams, new=new)

        return self.take_chosen(complete)

    def take_chosen(self, chosen: Callable[[Part[T]], BoolArray]) -> T | None:
        """Remove and return the chosen rows of each part; None for none."""
        taken = [table for part in self.parts if (table := part.remove(chosen(part))) is not None]
        if not taken:
            return None
        self._merge_small_parts()
        return type(taken[0]).concat(taken)

    def discard(self, chosen: Callable[[Part[T]], BoolArray | None]) -> None:
        """Remove the chosen rows of each part, bool[n] over its table; None for none."""
        for part in self.parts:
            rows = chosen(part)
            if rows is not None:
                part.discard(rows)
        self._merge_small_parts()

    def _merge_small_parts(self) -> None:
        """Merge small parts so that each is at most half as large as the one before it, and drop empty ones."""
        parts: list[Part[T]] = []
        for part in self.parts:
            size = len(part)
            while parts and size < SMALL_ROWS and len(parts[-1]) < min(2 * size, SMALL_ROWS - size):
                before = parts.pop()
                part = Part(type(part.table).concat([before.rest(), part.rest()]), new=before.new or part.new)
                size = len(part)
            if size:
                parts.append(part)
        self.parts = parts
