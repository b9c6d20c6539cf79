"""Aggregates OVER (… LIMIT DURATION … WHEN …): over the rows of a row's key, up to the row itself.
https://learn.microsoft.com/stream-analytics-query/over-azure-stream-analytics

Theory. The aggregate of a row at t covers the rows of its sequence that pass WHEN, have a time in (t − limit, t] and do
not follow the row; rows of the same time follow each other in the order of arrival, and the row itself is included if
it passes. Among the passing rows of the sequence that is a range.

Look-back. L is the limit. Of the rows before W, only those that pass and are after W − limit are needed again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.engine.values.sequences import Sequences
from tidegate.engine.values.vectors import BoolArray, Int64Array


@dataclass(frozen=True, slots=True)
class RunningRanges:
    """The rows that the aggregates of q rows cover.

    Attributes:
        members: int64[m], the rows that pass, by key and then by time.
        rows: int64[q], the rows to compute aggregates for.
        lows, highs: int64[q], the range [low, high) of ``members`` for each; it may be empty.
    """

    members: Int64Array
    rows: Int64Array
    lows: Int64Array
    highs: Int64Array


def running_ranges(
    times: Int64Array, sequences: Sequences, passing: BoolArray, limit_ticks: int, from_row: int
) -> RunningRanges:
    """Return the ranges of rows ``from_row`` and later, in the order of ``sequences``.

    Args:
        times: int64[n], ascending inside each sequence.
        sequences: the rows by PARTITION BY; every row is in one.
        passing: bool[n], which rows pass WHEN.
    """
    passes = passing[sequences.rows]
    before = np.concatenate([[0], np.cumsum(passes)])
    asked = np.flatnonzero(sequences.rows >= from_row)
    rows = sequences.rows[asked]
    ascending, ranked = sequences.by_time(times)
    forgotten = np.searchsorted(ascending, times[from_row:] - limit_ticks, side="right")
    oldest = ranked.find(sequences.keys[asked], forgotten[rows - from_row])
    return RunningRanges(sequences.rows[passes], rows, before[oldest], before[asked + 1])


def still_counted(times: Int64Array, passing: BoolArray, limit_ticks: int, until: int | Int64Array) -> BoolArray:
    """Return bool[n]: which rows the aggregate of a row at ``until`` or later may cover."""
    return passing & (times > until - limit_ticks)
