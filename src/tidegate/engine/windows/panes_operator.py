"""Windows that come in panes, such as tumbling, hopping and snapshot windows: aggregates by pane.

A pane is a stretch of time that is aggregated as a whole (`kind.PaneWindow`). A task sends one line for each pane and
key instead of its rows, so the state grows neither with the rows nor with the length of a tumbling window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.engine.aggregates.aggregation import Aggregation
from tidegate.engine.aggregates.states.state import Evaluated
from tidegate.engine.expressions.evaluation import evaluate
from tidegate.engine.expressions.frames import Frame, merge_by_time
from tidegate.engine.expressions.relations import Failures
from tidegate.engine.substreams.watermarks import Watermark
from tidegate.engine.values.grouping import sort_keys, sorted_rows
from tidegate.engine.values.vectors import Int64Array, Vector
from tidegate.engine.windows.kind import GroupOperator, PaneWindow, RowWindow, within_calendar
from tidegate.engine.windows.pane_tables import Chunks, PaneTable, lines_of
from tidegate.ordering import NO_TIME
from tidegate.sql.plan import nodes as plan


@dataclass(slots=True)
class PanesState:
    """The state of one GROUP BY, by window of Windows().

    Attributes:
        chunks: the open panes.
        assembling: the state of windows that are assembled from several panes.
        from_ticks: results before this time are not needed.
    """

    chunks: list[Chunks]
    assembling: list[Any]
    from_ticks: int = NO_TIME


class PanesOperator:
    """An aggregate over windows that come in panes.

    Attributes:
        keyed: whether rows of the same substream have the same keys.
    """

    def __init__(self, relation: plan.Aggregate, windows: Sequence[tuple[PaneWindow, str | None]]) -> None:
        self.relation = relation
        self.sources = (relation.source,)
        self.delay_ticks = 0
        self.keyed = False
        self._windows = [window for window, _ in windows]
        self._ids = [window_id for _, window_id in windows]
        self._aggregation = Aggregation(relation.aggregates)
        self._assemblers = [window.assembler(self._aggregation.summaries) for window in self._windows]

    def new_state(self) -> PanesState:
        """Return an empty state."""
        assembling = [None if one is None else one.new_state() for one in self._assemblers]
        return PanesState([Chunks() for _ in self._windows], assembling)

    def reduce(self, side: int, frame: Frame, failures: Failures) -> list[PaneTable] | None:
        """Return a table for each window; None if there are no rows."""
        keys = [evaluate(key, frame) for key in self.relation.keys if not isinstance(key, plan.WindowId)]
        rows = self._aggregation.evaluate(frame)
        fine = failures.without(frame, [*keys, *rows.vectors.values()])
        times, substreams = frame.times, frame.substreams
        if fine is not None:
            places = np.flatnonzero(fine)
            substreams = None if substreams is None else substreams[places]
            times, keys, rows = times[places], [key.take(places) for key in keys], rows.take(places)
        if not len(times):
            return None
        return [self._fold(window, times, keys, rows, substreams) for window in self._windows]

    def _fold(
        self,
        window: PaneWindow,
        times: Int64Array,
        keys: Sequence[Vector],
        rows: Evaluated,
        substreams: Int64Array | None,
    ) -> PaneTable:
        ends, pane_ticks = window.pane_ends(times), window.pane_ticks
        numbers = (ends - ends.min()) // pane_ticks if pane_ticks else ends
        keyed = self.keyed and substreams is not None
        groups = lines_of(len(times), keys, (numbers,) if substreams is None else (numbers, substreams), keyed=keyed)
        return PaneTable(
            ends[groups.firsts],
            tuple(key.take(groups.firsts) for key in keys),
            self._aggregation.fold(groups.codes, groups.count, rows),
            None if substreams is None else substreams[groups.firsts],
            keyed,
        )

    def absorb(self, state: PanesState, side: int, payload: Sequence[PaneTable | None]) -> None:
        """Add the tables of a task; None for a window without rows."""
        for chunks, table in zip(state.chunks, payload, strict=True):
            if table is not None:
                chunks.add(table)

    def skip(self, state: PanesState, needed_ticks: int) -> None:
        """Skip windows that would need input before ``needed_ticks``.

        Just after a start, a window of days has as many incomplete predecessors as hops, for each key.
        """
        state.from_ticks = max(state.from_ticks, needed_ticks + max(window.lookback_ticks for window in self._windows))

    def release_rows(self, state: PanesState, watermark: Watermark, failures: Failures) -> Frame | None:
        """Return the results of all windows that end before the watermark, by time and then by key."""
        frames = []
        for number, assembler in enumerate(self._assemblers):
            table = state.chunks[number].take_before(watermark)
            if assembler is not None:
                table = assembler.release_panes(state.assembling[number], table, state.from_ticks, watermark)
            elif table is not None:
                table = table.with_one_spelling()
            if table is not None and len(table):
                frames.append(self._finish(number, table))
        return merge_by_time(frames) if frames else None

    def _finish(self, number: int, table: PaneTable) -> Frame:
        order = sorted_rows([table.ends, *(sort_keys(key) for key in table.keys)])
        table = table.take(order)
        ids = Vector.constant(self._ids[number], len(table))
        keys = iter(table.keys)
        numbered = (Vector.constant(number, len(table)),) if len(self._windows) > 1 else ()
        return Frame(
            within_calendar(table.ends),
            keys=tuple(ids if isinstance(key, plan.WindowId) else next(keys) for key in self.relation.keys),
            aggregates=self._aggregation.finish(table.states),
            window_ids=ids,
            ties=(*numbered, *table.keys),
            substreams=table.substreams,
        )


def group_operator(relation: plan.Aggregate) -> GroupOperator:
    """Return the operator of an aggregate: one for all windows that come in panes, and one for each other window."""
    in_panes: list[tuple[PaneWindow, str | None]] = []
    parts: list[GroupOperator] = []
    for named in relation.windows:
        match named.window:
            case PaneWindow() as window:
                in_panes.append((window, named.id))
            case RowWindow() as window:
                parts.append(window.operator(relation, named.id))
            case window:
                raise TypeError(f"no operator evaluates {type(window).__name__}")
    if in_panes:
        parts.insert(0, PanesOperator(relation, in_panes))
    return parts[0] if len(parts) == 1 else WindowsOperator(relation, parts)


class WindowsOperator:
    """An aggregate over several windows: the union of the results of its parts."""

    def __init__(self, relation: plan.Aggregate, parts: Sequence[GroupOperator]) -> None:
        self.relation = relation
        self.sources = (relation.source,)
        self.delay_ticks = 0
        self.parts = parts

    def new_state(self) -> list[Any]:
        """Return the empty state of each part."""
        return [part.new_state() for part in self.parts]

    def reduce(self, side: int, frame: Frame, failures: Failures) -> list[Any]:
        """Return what each part reduces the rows to; a row that fails is counted once."""
        payloads: list[Any] = []
        for part in self.parts:
            payloads.append(part.reduce(side, frame, failures if not payloads else Failures()))
        return payloads

    def absorb(self, state: list[Any], side: int, payload: list[Any]) -> None:
        """Add to the state of each part what it has reduced."""
        for part, held, own in zip(self.parts, state, payload, strict=True):
            if own is not None:
                part.absorb(held, side, own)

    def release_rows(self, state: list[Any], watermark: Watermark, failures: Failures) -> Frame | None:
        """Return the results of all parts by time; those of the same time in the order of the parts."""
        released = [part.release_rows(held, watermark, failures) for part, held in zip(self.parts, state, strict=True)]
        frames = [
            frame.with_ties(Vector.constant(number, len(frame)), *frame.ties)
            for number, frame in enumerate(released)
            if frame is not None
        ]
        return merge_by_time(frames) if frames else None
