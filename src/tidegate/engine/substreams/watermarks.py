"""Up to where rows are complete: one watermark for all, or one for each substream.

A release of a query that keeps its substreams apart (`separate`) completes the rows of each substream up to that
substream's own watermark. Rows and panes then carry the number of their substream, and what compares a time with the
watermark compares it with that of the row. No operator relates rows of different substreams, so nothing else changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tidegate.engine.values.vectors import BoolArray, Int64Array
from tidegate.ordering import END_OF_TIME, NO_TIME, Departures


@dataclass(frozen=True, slots=True)
class SubstreamWatermarks:
    """The watermark of each substream by its number, less a delay."""

    departures: Departures
    delay_ticks: int = 0

    def less(self, ticks: int) -> SubstreamWatermarks:
        """That much further back."""
        return replace(self, delay_ticks=self.delay_ticks + ticks)

    def until(self, substreams: Int64Array) -> Int64Array:
        """int64[n]: up to where the rows of these substreams are complete."""
        return self._delayed(self.departures.watermarks(substreams))

    def since(self, substreams: Int64Array) -> Int64Array:
        """int64[n]: up to where they were at the release before."""
        return self._delayed(self.departures.watermarks_before(substreams))

    def passed(self, times: Int64Array, substreams: Int64Array, *, new: bool) -> BoolArray:
        """bool[n]: which of these rows are complete.

        Unless they are ``new``, all rows that were complete at the last move of their substream must have gone.
        """
        if new:
            return times < self.until(substreams)
        complete: BoolArray = times < self._delayed(np.array([self.departures.floor]))
        moved = np.flatnonzero(self.departures.moved(substreams))
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
    """Up to where rows of these substreams are complete."""
    if isinstance(watermark, int):
        return watermark
    assert substreams is not None
    return watermark.until(substreams)


def passed(watermark: Watermark, times: Int64Array, substreams: Int64Array | None, *, new: bool) -> BoolArray:
    """bool[n]: which rows are complete; see `SubstreamWatermarks.passed`."""
    if isinstance(watermark, int):
        return times < watermark
    assert substreams is not None
    return watermark.passed(times, substreams, new=new)


def since(watermark: SubstreamWatermarks, substreams: Int64Array | None) -> Int64Array:
    """Up to where rows of these substreams were complete at the release before."""
    assert substreams is not None
    return watermark.since(substreams)


def each(ticks: int | Int64Array, count: int) -> Int64Array:
    """A time for each of ``count`` rows."""
    return np.full(count, ticks, dtype=np.int64) if isinstance(ticks, int) else ticks


def less(watermark: Watermark, ticks: int) -> Watermark:
    """A watermark so much further back; at the end of time it stays there."""
    if not isinstance(watermark, int):
        return watermark.less(ticks)
    return watermark if watermark == END_OF_TIME else watermark - ticks
