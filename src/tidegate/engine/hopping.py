"""Hopping windows: each the sum of the panes inside it.

Theory. Panes are aggregated as in a tumbling window. Arrange the lines of all panes key by key, in the order of time;
then a window of a key is a range of lines, and its aggregates are those of a range (`horizon.range_aggregates`),
which costs the same for a long range as for a short one. A window that ends at W holds the panes with W − size < end
≤ W. It is not empty if a pane is inside, so each line gives the windows that it is the last one of: those from its
own end on, before the next line's, and before its end + size.

What is kept is a line for each key and pane of the last size.
"""

from __future__ import annotations

import numpy as np

from tidegate.engine.grouping import group, ranges, sorted_rows
from tidegate.engine.horizon.range_aggregates import merge_ranges
from tidegate.engine.pane_tables import PaneTable
from tidegate.engine.windows import Panes, ceil_to
from tidegate.ordering import END_OF_TIME, NO_TIME


def hop(panes: Panes, table: PaneTable, low: int, high: int) -> PaneTable | None:
    """The windows with low ≤ end < high over complete panes, a line for each window and key; None for none."""
    size, hop_ticks = panes.size_ticks, panes.pane_ticks * panes.panes_a_hop
    keys = group(len(table), table.keys)
    table_order = sorted_rows([keys.codes, table.ends])
    codes, ends = keys.codes[table_order], table.ends[table_order]

    first = ceil_to(ends, hop_ticks, panes.offset_ticks)
    beyond = ends + size
    same_key = codes[1:] == codes[:-1]
    beyond[:-1] = np.where(same_key, np.minimum(beyond[:-1], first[1:]), beyond[:-1])
    if low != NO_TIME:
        first = np.maximum(first, _next_hop(low, hop_ticks, panes.offset_ticks))
    if high != END_OF_TIME:
        beyond = np.minimum(beyond, _next_hop(high, hop_ticks, panes.offset_ticks))
    counts = np.maximum(-((first - beyond) // hop_ticks), 0)
    lines = np.repeat(np.arange(len(ends)), counts)
    if not len(lines):
        return None
    window_ends = first[lines] + ranges(np.zeros_like(counts), counts) * hop_ticks

    # Panes are counted from the first one, so that key and pane make one ascending number.
    origin = int(ends.min())
    numbers = (ends - origin) // panes.pane_ticks
    stride = int(numbers.max()) + 1
    oldest = (window_ends - size - origin) // panes.pane_ticks + 1
    lows = np.searchsorted(codes * stride + numbers, codes[lines] * stride + np.maximum(oldest, 0))
    of_window = table_order[lines]
    return PaneTable(
        window_ends,
        tuple(key.take(of_window) for key in table.keys),
        tuple(merge_ranges(state.take(table_order), lows, lines + 1) for state in table.states),
    )


def still_needed(panes: Panes, table: PaneTable, watermark_ticks: int) -> PaneTable | None:
    """The complete panes that windows which end at the watermark or later hold."""
    if watermark_ticks == END_OF_TIME:
        return None
    needed = np.flatnonzero(table.ends > watermark_ticks - panes.size_ticks)
    return table.take(needed) if len(needed) else None


def _next_hop(ticks: int, hop: int, offset: int) -> int:
    """The first end of a window that is not before a time."""
    return int(ceil_to(np.array([ticks], dtype=np.int64), hop, offset)[0])
