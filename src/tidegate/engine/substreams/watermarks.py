"""Watermarks as operators see them: one for all rows, or one for each substream.

In a query that keeps its substreams apart (`separation`), the rows of each substream are complete up to the
substream's own watermark. Rows and panes then carry the number of their substream, and a time is compared with the
watermark of its own row. No operator relates rows of different substreams, so nothing else changes.

Waiting. Rows and panes wait for the watermark in the parts that they arrived in. A removed row is only marked in its
part; the part is rewritten once half of it is gone, and small neighbours are merged. So a row is copied a few times,
however often a few rows are removed, and there are few parts. With a watermark for each substream, only rows of
substreams that have advanced are compared with it.

Emission. Where each substream has a watermark of its own, a complete result waits with its emission arrival and is
emitted once all timelines have passed that arrival (`tidegate.ordering.emission`). Results are emitted by emission
arrival, then by time, then in the order they have otherwise.

A join of streams may find keys of different substreams equal: `=` does not tell 'a' from 'A', GROUP BY and OVER do.
Whether a row will meet one of a substream that nobody has seen yet is only known from the watermark of a substream
without events. So joins, and whatever reads their results, are computed at that watermark, in the order of time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from tidegate.engine.expressions.frames import Frame
from tidegate.engine.values.grouping import sorted_rows
from tidegate.engine.values.vectors import BoolArray, Int64Array
from tidegate.ordering import END_OF_TIME, NO_TIME, Emission
from tidegate.ordering.timeline import plus


@dataclass(frozen=True, slots=True)
class SubstreamWatermarks:
    """The watermark of each substream by its number, minus a delay."""

    emission: Emission
    delay_ticks: int = 0

    def less(self, ticks: int) -> SubstreamWatermarks:
        """Return watermarks that lag by a number of ticks more."""
        return replace(self, delay_ticks=self.delay_ticks + ticks)

    def until(self, substreams: Int64Array) -> Int64Array:
        """Return int64[n]: the watermark of each of these substreams."""
        return self._delayed(self.emission.watermarks(substreams))

    def since(self, substreams: Int64Array) -> Int64Array:
        """Return int64[n]: their watermarks at the previous release."""
        return self._delayed(self.emission.watermarks_before(substreams))

    def passed(self, times: Int64Array, substreams: Int64Array, *, new: bool) -> BoolArray:
        """Return bool[n]: which rows are complete.

        Unless they are ``new``, every row that was complete when its substream last advanced must have been removed.
        """
        if new:
            return times < self.until(substreams)
        complete: BoolArray = times < self._delayed(np.array([self.emission.floor]))
        moved = np.flatnonzero(self.emission.moved(substreams))
        complete[moved] = times[moved] < self.until(substreams[moved])
        return complete

    def _delayed(self, watermarks: Int64Array) -> Int64Array:
        if not self.delay_ticks:
            return watermarks
        lowest = NO_TIME + self.delay_ticks
        delayed = np.maximum(watermarks, lowest) - self.delay_ticks
        return np.where(watermarks == END_OF_TIME, watermarks, delayed)


Watermark: TypeAlias = int | SubstreamWatermarks
"""Ticks for all rows, or by substream."""


def until(watermark: Watermark, substreams: Int64Array | None) -> int | Int64Array:
    """Return the watermark of each row, given its substream; a scalar if all rows share one."""
    if isinstance(watermark, int):
        return watermark
    assert substreams is not None
    return watermark.until(substreams)


def passed(watermark: Watermark, times: Int64Array, substreams: Int64Array | None, *, new: bool) -> BoolArray:
    """Return bool[n]: which rows are complete; see `SubstreamWatermarks.passed`."""
    if isinstance(watermark, int):
        return times < watermark
    assert substreams is not None
    return watermark.passed(times, substreams, new=new)


def since(watermark: SubstreamWatermarks, substreams: Int64Array | None) -> Int64Array:
    """Return the watermark of each row at the previous release, given its substream."""
    assert substreams is not None
    return watermark.since(substreams)


def each(ticks: int | Int64Array, count: int) -> Int64Array:
    """Return a time for each of ``count`` rows."""
    return np.full(count, ticks, dtype=np.int64) if isinstance(ticks, int) else ticks


def less(watermark: Watermark, ticks: int) -> Watermark:
    """Return a watermark that lags by a number of ticks; the end of time stays the end of time."""
    if not isinstance(watermark, int):
        return watermark.less(ticks)
    return watermark if watermark == END_OF_TIME else max(watermark - ticks, NO_TIME)


SMALL_ROWS = 16_384
"""Neighbouring parts with fewer rows than this together are merged."""


class TimedRows(Protocol):
    """Rows with a time and, where each substream has its own watermark, a substream."""

    @property
    def times(self) -> Int64Array: ...

    @property
    def substreams(self) -> Int64Array | None: ...

    def __len__(self) -> int: ...

    def take(self, rows: Int64Array, /) -> Self: ...

    @classmethod
    def concat(cls, tables: Sequence[Self], /) -> Self: ...


T = TypeVar("T", bound=TimedRows)


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
        taken = self.choose(chosen)
        if taken is not None:
            self.discard(chosen)
        return taken

    def choose(self, chosen: BoolArray) -> T | None:
        """Return the chosen rows (bool[n] over the table) that still wait; None for none. They stay."""
        if self.removed is not None:
            chosen = chosen & ~self.removed
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return None
        return self.table if len(rows) == len(self.table) else self.table.take(rows)

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

    def choose(self, chosen: Callable[[Part[T]], BoolArray]) -> T | None:
        """Return the chosen rows of each part, which stay; None for none."""
        found = [table for part in self.parts if (table := part.choose(chosen(part))) is not None]
        return type(found[0]).concat(found) if found else None

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


@dataclass(frozen=True, slots=True)
class EmissionRange:
    """Which results to emit: those with from_ticks ≤ time < until_ticks that have not been emitted before.

    Attributes:
        from_ticks, until_ticks: times, in ticks.
        emitted_before, emitted_until_ticks: results with an emission arrival before the one and a time before the
            other have been emitted; in ticks.
    """

    from_ticks: int = NO_TIME
    until_ticks: int = END_OF_TIME
    emitted_before: int = NO_TIME
    emitted_until_ticks: int = END_OF_TIME

    def take_emitted(self, complete: list[Frame]) -> Frame | None:
        """Remove the results to emit from the complete ones, and drop those emitted before or too early.

        Args:
            complete: results with their emission arrivals as their order; changed in place.

        Returns:
            The results in the order of emission; None if there are none.
        """
        if not complete:
            return None
        frame = Frame.concat(complete)
        (arrivals,) = frame.order
        outside = frame.times < self.from_ticks
        outside |= (arrivals < self.emitted_before) & (frame.times < self.emitted_until_ticks)
        later = ~outside & (frame.times >= self.until_ticks)
        complete[:] = [frame.take(np.flatnonzero(later))] if later.any() else []
        places = np.flatnonzero(~outside & ~later)
        if not len(places):
            return None
        frame = frame.take(places)
        return frame.take(sorted_rows([frame.order[0], frame.times]))


def with_emission_arrivals(frame: Frame, emission: Emission, delay_ticks: int) -> Frame:
    """Return newly complete results with their emission arrivals as their order.

    Args:
        frame: results; each is complete once its substream's watermark has passed its time + ``delay_ticks``. Rows
            without a substream wait for the watermark of one that has no events.
        emission: the job's substreams.
        delay_ticks: how far the results lag behind the watermark.
    """
    times = plus(frame.times, delay_ticks)
    frame = frame.with_ties(*frame.tie_breakers())
    if frame.substreams is None:
        return frame.with_order((emission.floor_arrivals(times),))
    return frame.with_order((emission.emission_arrivals(frame.substreams, times),))
