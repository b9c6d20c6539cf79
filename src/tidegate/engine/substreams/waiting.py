"""Rows and panes that wait, in the parts they came in.

What has left is marked in its part, which is written anew once half of it has left; small neighbours are put together.
So what waits is copied a few times, however often a little of it leaves, and there are few parts. With a watermark for
each substream, only rows of those that have moved are compared with theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from tidegate.engine.substreams.watermarks import Watermark, passed
from tidegate.engine.values.vectors import BoolArray, Int64Array

SMALL_ROWS = 16_384
"""Parts that have no more together are put together."""


class Table(Protocol):
    """Rows with a time and, where results leave by those, a substream."""

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
    """A table, which of its rows have left, and whether it has been compared with no watermark yet."""

    table: T
    left: BoolArray | None = None
    new: bool = True

    def __len__(self) -> int:
        return len(self.table) - (0 if self.left is None else int(np.count_nonzero(self.left)))

    def rest(self) -> T:
        """The rows that wait."""
        return self.table if self.left is None else self.table.take(np.flatnonzero(~self.left))

    def take(self, chosen: BoolArray) -> T | None:
        """Take rows out; of those chosen that have left nothing is given again."""
        if self.left is not None:
            chosen = chosen & ~self.left
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return None
        taken = self.table if len(rows) == len(self.table) else self.table.take(rows)
        self.left = chosen if self.left is None else self.left | chosen
        if 2 * len(self) < len(self.table):
            self.table, self.left = self.rest(), None
        return taken


@dataclass(slots=True)
class Waiting(Generic[T]):
    """Rows, in the order they came."""

    parts: list[Part[T]] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def append(self, table: T) -> None:
        """Rows behind the others."""
        if len(table):
            self.parts.append(Part(table))
            self._put_together()

    def take_before(self, watermark: Watermark) -> T | None:
        """Take out the rows with a time before the watermark; where each substream has one, at each of its moves."""

        def complete(part: Part[T]) -> BoolArray:
            new, part.new = part.new, False
            return passed(watermark, part.table.times, part.table.substreams, new=new)

        return self.take(complete)

    def take(self, chosen: Callable[[Part[T]], BoolArray]) -> T | None:
        """Take out the chosen rows of each part."""
        taken = [table for part in self.parts if (table := part.take(chosen(part))) is not None]
        if not taken:
            return None
        self._put_together()
        return type(taken[0]).concat(taken)

    def _put_together(self) -> None:
        """Small parts, so that each is half as large as the one before it at the most; empty ones go."""
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
