"""Watermarks as operators see them: one for all rows, or one for each substream.

In a query that keeps its substreams apart (`separation`), the rows of each substream are complete up to the
substream's own watermark. Rows and panes then carry the number of their substream, and a time is compared with the
watermark of its own row. No operator relates rows of different substreams, so nothing else changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tidegate.engine.values.vectors import BoolArray, Int64Array
from tidegate.ordering import END_OF_TIME, NO_TIME, Emission


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
