"""Tumbling, hopping and snapshot windows: aggregates by pane.

A pane is a stretch of time that is aggregated as a whole (`windows.Panes`). Rows become a table with a line for each
pane and key; tables join into one by merging the lines of the same pane and key, in any order, to the same result. So
a task sends a line where it had a thousand rows, and what is held does not grow with the rows, nor with the length of
a tumbling window.

Tables wait in a row of chunks, each at least twice as large as the next, so that a line is merged a logarithmic
number of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.engine.aggregates import State
from tidegate.engine.aggregation import Aggregation, Evaluated, take_rows
from tidegate.engine.expressions import evaluate
from tidegate.engine.failures import Failures
from tidegate.engine.frames import Frame
from tidegate.engine.grouping import group, sort_keys, sorted_rows
from tidegate.engine.values import Int64Array, Vector
from tidegate.engine.windows import Panes, within_calendar
from tidegate.saql import plan


@dataclass(slots=True)
class PaneTable:
    """g lines, each of another pane and key once merged: the pane's end, the keys, what is kept."""

    ends: Int64Array
    keys: tuple[Vector, ...]
    states: tuple[State, ...]

    def __len__(self) -> int:
        return len(self.ends)

    def take(self, lines: Int64Array) -> PaneTable:
        """Some of the lines."""
        return PaneTable(
            self.ends[lines],
            tuple(key.take(lines) for key in self.keys),
            tuple(state.take(lines) for state in self.states),
        )

    @classmethod
    def concat(cls, tables: Sequence[PaneTable]) -> PaneTable:
        """The lines of several tables, not merged."""
        if len(tables) == 1:
            return tables[0]
        first = tables[0]
        return cls(
            np.concatenate([table.ends for table in tables]),
            tuple(Vector.concat([table.keys[index] for table in tables]) for index in range(len(first.keys))),
            tuple(
                type(state).concat([table.states[index] for table in tables])
                for index, state in enumerate(first.states)
            ),
        )

    def merged(self) -> PaneTable:
        """Lines of the same pane and key made one."""
        groups = group(len(self), self.keys, (self.ends,))
        if groups.count == len(self):
            return self
        return PaneTable(
            self.ends[groups.firsts],
            tuple(key.take(groups.firsts) for key in self.keys),
            tuple(state.merge(groups.codes, groups.count) for state in self.states),
        )

    def with_ends(self, end: int) -> PaneTable:
        """The same lines, all of one pane."""
        return PaneTable(np.full(len(self), end, dtype=np.int64), self.keys, self.states)


@dataclass(slots=True)
class Chunks:
    """Tables that wait for the watermark."""

    tables: list[PaneTable] = field(default_factory=list)

    def add(self, table: PaneTable) -> None:
        """Take up a table."""
        self.tables.append(table)
        while len(self.tables) > 1 and len(self.tables[-2]) < 2 * len(self.tables[-1]):
            last, before = self.tables.pop(), self.tables.pop()
            self.tables.append(PaneTable.concat([before, last]).merged())

    def take_before(self, ticks: int) -> PaneTable | None:
        """Give out all lines of panes that end before a time, merged."""
        out: list[PaneTable] = []
        kept: list[PaneTable] = []
        for table in self.tables:
            ready = table.ends < ticks
            if ready.all():
                out.append(table)
            elif ready.any():
                out.append(table.take(np.flatnonzero(ready)))
                kept.append(table.take(np.flatnonzero(~ready)))
            else:
                kept.append(table)
        self.tables = kept
        return PaneTable.concat(out).merged() if out else None


@dataclass(slots=True)
class Ring:
    """Panes of a hopping window that are complete but still part of windows to come."""

    panes: list[tuple[int, PaneTable]] = field(default_factory=list)


@dataclass(slots=True)
class PanesState:
    """What is held for one GROUP BY: by window of Windows(), the open panes and those of hopping windows."""

    chunks: list[Chunks]
    rings: list[Ring]
    released: int | None = None


class PanesOperator:
    """An aggregate over windows that come in panes."""

    def __init__(self, relation: plan.Aggregate) -> None:
        self.relation = relation
        self.sources = (relation.source,)
        window = relation.window
        named = window.windows if isinstance(window, plan.Windows) else (plan.NamedWindow(None, window),)
        self._ids = [one.id for one in named]
        self._panes = [_panes(one.window) for one in named]
        self._aggregation = Aggregation(relation.aggregates)

    def new_state(self) -> PanesState:
        """Nothing yet."""
        return PanesState([Chunks() for _ in self._panes], [Ring() for _ in self._panes])

    def reduce(self, side: int, frame: Frame, failures: Failures) -> list[PaneTable] | None:
        """A table for each window."""
        keys = [evaluate(key, frame) for key in self.relation.keys if not isinstance(key, plan.WindowId)]
        rows = self._aggregation.evaluate(frame)
        fine = failures.without(frame, [*keys, *rows.vectors.values()])
        times = frame.times
        if fine is not None:
            places = np.flatnonzero(fine)
            times, keys, rows = times[places], [key.take(places) for key in keys], take_rows(rows, places)
        if not len(times):
            return None
        return [self._fold(panes, times, keys, rows) for panes in self._panes]

    def _fold(self, panes: Panes, times: Int64Array, keys: Sequence[Vector], rows: Evaluated) -> PaneTable:
        ends = panes.ends(times)
        numbers = ends if not panes.pane_ticks else (ends - ends.min()) // panes.pane_ticks
        groups = group(len(times), keys, (numbers,))
        return PaneTable(
            ends[groups.firsts],
            tuple(key.take(groups.firsts) for key in keys),
            self._aggregation.fold(groups.codes, groups.count, rows),
        )

    def absorb(self, state: PanesState, side: int, payload: list[PaneTable]) -> None:
        """Take up the tables of a task."""
        for chunks, table in zip(state.chunks, payload, strict=True):
            chunks.add(table)

    def release(self, state: PanesState, watermark_ticks: int) -> Frame | None:
        """The results of all windows that end before the watermark, by time and then by key."""
        frames = []
        for number, panes in enumerate(self._panes):
            table = state.chunks[number].take_before(watermark_ticks)
            if panes.panes_a_window > 1:
                table = _hop(panes, state.rings[number], table, state.released, watermark_ticks)
            if table is not None and len(table):
                frames.append(self._finish(number, table))
        state.released = watermark_ticks
        if not frames:
            return None
        return frames[0] if len(frames) == 1 else merge_by_time(frames)

    def _finish(self, number: int, table: PaneTable) -> Frame:
        order = sorted_rows([table.ends, *(sort_keys(key) for key in table.keys)])
        table = table.take(order)
        ids = Vector.constant(self._ids[number], len(table))
        keys = iter(table.keys)
        return Frame(
            within_calendar(table.ends),
            keys=tuple(ids if isinstance(key, plan.WindowId) else next(keys) for key in self.relation.keys),
            aggregates=self._aggregation.finish(table.states),
            window_ids=ids,
        )


def _panes(window: plan.SimpleWindow) -> Panes:
    panes = Panes.of(window)
    assert panes is not None
    return panes


def _hop(panes: Panes, ring: Ring, table: PaneTable | None, released: int | None, watermark: int) -> PaneTable | None:
    """The windows of a hopping window that end before the watermark; keeps the panes that later ones need."""
    if table is not None:
        for end in np.unique(table.ends).tolist():
            ring.panes.append((end, table.take(np.flatnonzero(table.ends == end))))
    if not ring.panes:
        return None
    first, last = ring.panes[0][0], ring.panes[-1][0]
    low = first if released is None else max(first, released)
    results = []
    for end in panes.window_ends(low, min(watermark, last + panes.size_ticks)):
        inside = [one for pane, one in ring.panes if end - panes.size_ticks < pane <= end]
        if inside:
            results.append(PaneTable.concat([one.with_ends(end) for one in inside]).merged())
    ring.panes = [(end, one) for end, one in ring.panes if end > watermark - panes.size_ticks]
    return PaneTable.concat(results) if results else None


def merge_by_time(frames: Sequence[Frame]) -> Frame:
    """The rows of several frames by time; of the same time, those of the first frame first."""
    joined = Frame.concat(frames)
    return joined.take(sorted_rows([joined.times]))
