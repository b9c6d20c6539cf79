"""Sliding windows: (t − size, t], looked at whenever what is in it changes.
https://learn.microsoft.com/stream-analytics-query/sliding-window-azure-stream-analytics

Theory. A row with time t enters at t and leaves at exactly t + size, because the window's start is open. So the
content of a key's window changes at the times of its rows and at those times + size, and nowhere else; there is one
result for each such instant, and none where the window is empty then. In the key's sequence a window is a range of
places: its rows are those after T − size, up to and including T.

Look-back. The window at T ≥ S holds rows after S − size, and an exit at T ≥ S is that of a row with time T − size ≥
S − size. So L = size, and a row is of no more use once its exit is past: when t + size < W.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.engine.substreams.watermarks import each
from tidegate.engine.values.sequences import Sequences
from tidegate.engine.values.vectors import Int64Array
from tidegate.ordering.ticks import LAST_TICKS, NO_TIME


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """w windows, none of them empty.

    Attributes:
        ends: int64[w], ticks.
        lows, highs: int64[w], the places [low, high) of the sequences that are inside.
    """

    ends: Int64Array
    lows: Int64Array
    highs: Int64Array


def sliding_windows(
    times: Int64Array,
    sequences: Sequences,
    size_ticks: int,
    from_ticks: int | Int64Array,
    to_ticks: int | Int64Array,
) -> SlidingWindows:
    """The windows with from_ticks ≤ end < to_ticks. There is no instant beyond the calendar.

    Args:
        times: int64[n], ascending inside each sequence.
        sequences: the rows by group.
        from_ticks, to_ticks: for all groups, or int64[n], those of each row's group.
    """
    at = times[sequences.rows]
    begin = each(from_ticks, len(times))[sequences.rows]
    end = each(to_ticks, len(times))[sequences.rows]
    ascending, ranked = sequences.by_time(times)
    last_of_instant = sequences.last()
    last_of_instant[:-1] |= at[:-1] != at[1:]

    # Bounds are sought among the rows of all keys, in the order of time, where neighbours are near; then in the
    # sequence.
    entries = np.flatnonzero(last_of_instant & (at >= begin) & (at < end))
    out_at_entry = np.searchsorted(ascending, times - size_ticks, side="right")[sequences.rows]
    entry_lows = ranked.find(sequences.keys[entries], out_at_entry[entries])

    begin = np.maximum(begin, NO_TIME + size_ticks) - size_ticks
    exits = last_of_instant & (at >= begin) & (at < np.minimum(end, LAST_TICKS + 1) - size_ticks)
    leaving = np.flatnonzero(exits)
    in_at_exit = np.searchsorted(ascending, times + size_ticks, side="right")[sequences.rows]
    exit_highs = ranked.find(sequences.keys[leaving], in_at_exit[leaving])
    exit_lows = leaving + 1
    # Where a row enters at the very instant, that is the entry's window.
    alone = (exit_highs > exit_lows) & (at[exit_highs - 1] != at[leaving] + size_ticks)
    leaving, exit_lows, exit_highs = leaving[alone], exit_lows[alone], exit_highs[alone]

    return SlidingWindows(
        np.concatenate([at[entries], at[leaving] + size_ticks]),
        np.concatenate([entry_lows, exit_lows]),
        np.concatenate([entries + 1, exit_highs]),
    )
