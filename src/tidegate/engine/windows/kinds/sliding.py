"""Sliding windows: (t − size, t], at each instant t at which their content changes.
https://learn.microsoft.com/stream-analytics-query/sliding-window-azure-stream-analytics

Theory. A row with time t enters at t and leaves at exactly t + size, because the window's start is open. So the
content of a key's window changes only at the times of its rows and at those times + size. There is one result for each
such instant, unless the window is empty. In the key's sequence a window is a range of places: its rows are those after
T − size, up to and including T.

Look-back. The window at T ≥ S holds rows after S − size, and an exit at T ≥ S is that of a row with time T − size ≥
S − size. So L = size, and a row is no longer needed once it has left: when t + size < W.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tidegate.engine.aggregates.states.state import least, ranks_of
from tidegate.engine.expressions.frames import Frame
from tidegate.engine.expressions.relations import Failures
from tidegate.engine.substreams.watermarks import Waiting, Watermark, each, since, until
from tidegate.engine.values.grouping import group, sort_keys, sorted_rows, unified
from tidegate.engine.values.sequences import Sequences
from tidegate.engine.values.vectors import BoolArray, Int64Array, Vector
from tidegate.engine.windows.held_rows import GroupRows, in_order, kept, with_keys_of
from tidegate.engine.windows.kind import RowWindow
from tidegate.ordering import NO_TIME, format_duration, short_time
from tidegate.ordering.ticks import FIRST_TICKS, LAST_TICKS
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.explain import duration
from tidegate.sql.plan.nodes import Length


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """w windows, none of which is empty.

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
    """Return the windows with from_ticks ≤ end < to_ticks. There is no instant after the end of the calendar.

    Args:
        times: int64[n], ascending inside each sequence.
        sequences: the rows by group.
        from_ticks, to_ticks: one for all groups, or int64[n], that of each row's group.
    """
    at = times[sequences.rows]
    begin = each(from_ticks, len(times))[sequences.rows]
    end = each(to_ticks, len(times))[sequences.rows]
    ascending, ranked = sequences.by_time(times)
    last_of_instant = sequences.last()
    last_of_instant[:-1] |= at[:-1] != at[1:]

    # Bounds are searched for among the rows of all keys in the order of time, where neighbours are close in memory,
    # and then in the sequence.
    entries = np.flatnonzero(last_of_instant & (at >= begin) & (at < end))
    out_at_entry = np.searchsorted(ascending, times - size_ticks, side="right")[sequences.rows]
    entry_lows = ranked.find(sequences.keys[entries], out_at_entry[entries])

    begin = np.maximum(begin, NO_TIME + size_ticks) - size_ticks
    exits = last_of_instant & (at >= begin) & (at < np.minimum(end, LAST_TICKS + 1) - size_ticks)
    leaving = np.flatnonzero(exits)
    in_at_exit = np.searchsorted(ascending, times + size_ticks, side="right")[sequences.rows]
    exit_highs = ranked.find(sequences.keys[leaving], in_at_exit[leaving])
    exit_lows = leaving + 1
    # Where a row enters at the same instant, there is already the window of the entry.
    alone = (exit_highs > exit_lows) & (at[exit_highs - 1] != at[leaving] + size_ticks)
    leaving, exit_lows, exit_highs = leaving[alone], exit_lows[alone], exit_highs[alone]

    return SlidingWindows(
        np.concatenate([at[entries], at[leaving] + size_ticks]),
        np.concatenate([entry_lows, exit_lows]),
        np.concatenate([entries + 1, exit_highs]),
    )


@dataclass(slots=True)
class SlidingState:
    """Rows that wait for the watermark, and rows that later windows may contain.

    Attributes:
        released: the watermark of the previous release, if there is one for all rows.
    """

    waiting: Waiting[Frame] = field(default_factory=Waiting)
    held: Waiting[Frame] = field(default_factory=Waiting)
    released: int = NO_TIME


class SlidingOperator:
    """An aggregate over a sliding window."""

    def __init__(self, relation: plan.Aggregate, window: Sliding, window_id: str | None) -> None:
        self.relation = relation
        self.sources = (relation.source,)
        self.delay_ticks = 0
        self._size = window.size_ticks
        self._rows = GroupRows(relation, window_id)

    def new_state(self) -> SlidingState:
        """Return an empty state."""
        return SlidingState()

    def reduce(self, side: int, frame: Frame, failures: Failures) -> Frame | None:
        """Return the keys and arguments of each row."""
        return self._rows.reduce(frame, failures)

    def absorb(self, state: SlidingState, side: int, payload: Frame) -> None:
        """Add rows."""
        state.waiting.append(payload)

    def release_rows(self, state: SlidingState, watermark: Watermark, failures: Failures) -> Frame | None:
        """Return the results of all instants before the watermark, by time and then by key."""
        new = state.waiting.take_before(watermark)
        if new is not None:
            new = new.in_order().without_order()
        begin = state.released
        if isinstance(watermark, int):
            state.released = watermark
        # A window changes where a row enters or leaves, so rows of all other keys can stay where they are.
        left = state.held.take_chosen(lambda part: self._has_left(part.table, watermark))
        changed = [rows for rows in (left, new) if rows is not None]
        if not changed:
            return None
        held = in_order(left, state.held.choose(with_keys_of(state.held, self._rows.keys, changed)), new)
        assert held is not None
        if new is not None and (stays := kept(new, ~self._has_left(new, watermark))) is not None:
            state.held.append(stays)
        reached = until(watermark, held.substreams)
        begins = begin if isinstance(watermark, int) else since(watermark, held.substreams)
        groups = group(len(held), [unified(key) for key in self._rows.keys(held)])
        sequences = Sequences.of(groups.codes, groups.count)
        windows = sliding_windows(held.times, sequences, self._size, begins, reached)
        rows = self._rows.evaluated(held).take(sequences.rows)
        values = self._rows.aggregation.over_ranges(rows, windows.lows, windows.highs)
        one_of_each = sequences.rows[windows.lows]
        keys = [key.take(_spelling(key, sequences, windows, one_of_each)) for key in self._rows.keys(held)]
        substreams = None if held.substreams is None else held.substreams[one_of_each]
        return self._rows.results(windows.ends, keys, values, substreams=substreams)

    def _has_left(self, rows: Frame, watermark: Watermark) -> BoolArray:
        """Return bool[n]: which rows no window from the watermark on contains."""
        has_left: BoolArray = rows.times < np.maximum(until(watermark, rows.substreams), FIRST_TICKS) - self._size
        return has_left


def _spelling(key: Vector, sequences: Sequences, windows: SlidingWindows, one_of_each: Int64Array) -> Int64Array:
    """Return the row of each window whose spelling of a key comes first."""
    if unified(key) is key:
        return one_of_each
    ranks = ranks_of(sorted_rows([sort_keys(key.take(sequences.rows))]))
    rows: Int64Array = sequences.rows[least(ranks, windows.lows, windows.highs)]
    return rows


@dataclass(frozen=True, slots=True)
class Sliding(RowWindow):
    """Evaluated at each instant at which (t - ``size_ticks``, t] changes."""

    names = ("SlidingWindow", "Sliding")
    lengths = (Length("Duration"),)
    example = "SlidingWindow(second, 10)"
    description = "What is in (t − size, t], at each instant at which that changes."
    word = "sliding"

    size_ticks: int

    @property
    def lookback_ticks(self) -> int:
        return self.size_ticks

    @property
    def windows_of_an_event(self) -> int:
        # The window that ends when it enters and the one that ends when it leaves; all others are due to other events.
        return 2

    @property
    def kept_ticks(self) -> int:
        return self.size_ticks

    def operator(self, relation: plan.Aggregate, window_id: str | None) -> SlidingOperator:
        return SlidingOperator(relation, self, window_id)

    def describe_windows(self, time: int) -> str:
        return (
            f"the sliding windows of {format_duration(self.size_ticks)} that end from {short_time(time)} until before "
            f"{short_time(time + self.size_ticks)}"
        )

    def describe(self) -> str:
        return f"sliding({duration(self.size_ticks)})"
