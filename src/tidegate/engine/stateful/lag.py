"""LAG, LAST and ISFIRST: rows that look back at one row of their key.
https://learn.microsoft.com/stream-analytics-query/lag-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/last-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/isfirst-azure-stream-analytics

Theory. Number the rows of a key's sequence that pass WHEN. If p of them precede a row, LAG(…, k) is the one with number
p − k, and LAST, for which a row precedes itself, the one with number p − 1. There is such a row if the sequence has
that number and the row is within (t − limit, t]. Rows of the same time precede each other in the order of arrival.
ISFIRST says whether the row passes and the passing row before it is in another of the intervals (start, end] that end
at the multiples of the duration, counted from 0001-01-01.

Look-back. Only rows in (t − limit, t], or in the same interval, matter to a row at t: L is the limit. Of the rows
before W a later row can see only the last k that pass (one, for LAST and ISFIRST), and of these only rows after W −
limit, or whose interval ends at W or later.
"""

from __future__ import annotations

import numpy as np

from tidegate.engine.values.sequences import Sequences
from tidegate.engine.values.vectors import BoolArray, Int64Array
from tidegate.engine.windows.boundaries import ceil_to


def lag(times: Int64Array, sequences: Sequences, passing: BoolArray, offset: int, limit_ticks: int) -> Int64Array:
    """Return int64[n]: the row that each row looks back at, −1 for none.

    Args:
        times: int64[n], ascending.
        sequences: the rows by PARTITION BY; every row is in one.
        passing: bool[n], which rows pass WHEN.
        offset: 1 or more for LAG, 0 for LAST.
    """
    passes = passing[sequences.rows]
    places = np.flatnonzero(passes)
    before = np.cumsum(passes) - (passes if offset else 0)
    at_start: Int64Array = (np.cumsum(passes) - passes)[sequences.starts()]
    number = before - max(offset, 1)
    there = np.flatnonzero(number >= at_start)
    rows, seen = sequences.rows[there], sequences.rows[places[number[there]]]
    recent = times[seen] > times[rows] - limit_ticks
    result = np.full(len(times), -1, dtype=np.int64)
    result[rows[recent]] = seen[recent]
    return result


def still_seen(
    times: Int64Array, sequences: Sequences, passing: BoolArray, offset: int, limit_ticks: int, until: int | Int64Array
) -> BoolArray:
    """Return bool[n]: which rows LAG or LAST of a row at ``until`` or later may look back at."""
    return _among_last(sequences, passing, max(offset, 1)) & (times > until - limit_ticks)


def is_first(times: Int64Array, sequences: Sequences, passing: BoolArray, length_ticks: int) -> BoolArray:
    """Return bool[n]: which rows are the first of their key in their interval that pass."""
    ends = ceil_to(times, length_ticks)
    before = lag(times, sequences, passing, 1, length_ticks)
    first: BoolArray = passing & ((before < 0) | (ends[before] != ends))
    return first


def still_first(
    times: Int64Array, sequences: Sequences, passing: BoolArray, length_ticks: int, until: int | Int64Array
) -> BoolArray:
    """Return bool[n]: which rows may prevent a row at ``until`` or later from being the first."""
    return _among_last(sequences, passing, 1) & (ceil_to(times, length_ticks) >= until)


def _among_last(sequences: Sequences, passing: BoolArray, count: int) -> BoolArray:
    """Return which rows are among the last ``count`` of their key that pass."""
    passes = passing[sequences.rows]
    until_here = np.cumsum(passes)
    finals = np.flatnonzero(sequences.last())
    total = np.repeat(until_here[finals], np.diff(finals, prepend=-1))
    result = np.zeros(len(passing), dtype=np.bool_)
    result[sequences.rows] = passes & (total - until_here < count)
    return result
