"""GROUP BY over windows that do not come in panes: sliding windows and sessions, and Windows() with one of them.

Of a row nothing is held but the keys and the arguments of the aggregates, until no window can have it any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tidegate.engine.aggregates.aggregation import Aggregation, Evaluated, take_rows
from tidegate.engine.aggregates.range_aggregates import aggregate_ranges
from tidegate.engine.expressions.evaluation import evaluate
from tidegate.engine.expressions.failures import Failures
from tidegate.engine.expressions.frames import Frame, merge_by_time
from tidegate.engine.stateful.panes import PanesOperator
from tidegate.engine.stateful.session import sessions
from tidegate.engine.stateful.sliding import sliding_windows
from tidegate.engine.stateful.windows import Panes
from tidegate.engine.substreams.waiting import Waiting
from tidegate.engine.substreams.watermarks import Watermark, since, until
from tidegate.engine.values.grouping import group, sort_keys, sorted_rows
from tidegate.engine.values.sequences import Sequences
from tidegate.engine.values.vectors import BoolArray, Int64Array, Vector
from tidegate.ordering import NO_TIME
from tidegate.ordering.ticks import FIRST_TICKS
from tidegate.saql.plan import nodes as plan


def group_operator(relation: plan.Aggregate) -> PanesOperator | SlidingOperator | SessionOperator | WindowsOperator:
    """The operator of an aggregate."""
    window = relation.window
    named = window.windows if isinstance(window, plan.Windows) else (plan.NamedWindow(None, window),)
    in_panes = tuple(one for one in named if Panes.of(one.window) is not None)
    if len(in_panes) == len(named):
        return PanesOperator(relation)
    parts: list[PanesOperator | SlidingOperator | SessionOperator] = []
    if in_panes:
        parts.append(PanesOperator(replace(relation, window=plan.Windows(in_panes))))
    for one in named:
        if isinstance(one.window, plan.Sliding):
            parts.append(SlidingOperator(relation, one.window, one.id))
        elif isinstance(one.window, plan.Session):
            parts.append(SessionOperator(relation, one.window, one.id))
    if len(parts) == 1 and not isinstance(parts[0], PanesOperator):
        return parts[0]
    return WindowsOperator(relation, parts)


class _Rows:
    """The rows of a GROUP BY as they are held: a frame whose keys are those of the relation and then ``partition_by``,
    and whose aggregates are the arguments."""

    def __init__(self, relation: plan.Aggregate, window_id: str | None, partition_by: Sequence[plan.Expr] = ()) -> None:
        self.relation = relation
        self.aggregation = Aggregation(relation.aggregates)
        self._id = window_id
        self._keys = [key for key in relation.keys if not isinstance(key, plan.WindowId)]
        self._partition_by = list(partition_by)

    def reduce(self, frame: Frame, failures: Failures) -> Frame | None:
        keys = [evaluate(key, frame) for key in (*self._keys, *self._partition_by)]
        arguments = list(self.aggregation.evaluate(frame).vectors.values())
        fine = failures.without(frame, [*keys, *arguments])
        held = Frame(
            frame.times, keys=tuple(keys), aggregates=tuple(arguments), order=frame.order, substreams=frame.substreams
        )
        if fine is not None:
            held = held.take(np.flatnonzero(fine))
        return held if len(held) else None

    def evaluated(self, held: Frame) -> Evaluated:
        """The arguments of held rows, which are in order."""
        return Evaluated(dict(zip(self.aggregation.columns(), held.aggregates, strict=True)), (np.arange(len(held)),))

    def keys(self, held: Frame) -> tuple[Vector, ...]:
        """The keys of the relation."""
        return held.keys[: len(self._keys)]

    def partitions(self, held: Frame) -> tuple[Vector, ...]:
        """What the rows are partitioned by."""
        return held.keys[len(self._keys) :]

    def results(
        self,
        ends: Int64Array,
        keys: Sequence[Vector],
        aggregates: Sequence[Vector],
        partitions: Sequence[Vector] = (),
        substreams: Int64Array | None = None,
    ) -> Frame | None:
        """Results by time, then by key, then by partition."""
        if not len(ends):
            return None
        order = sorted_rows([ends, *(sort_keys(key) for key in (*keys, *partitions))])
        ids = Vector.constant(self._id, len(ends))
        sorted_keys = iter([key.take(order) for key in keys])
        return Frame(
            ends[order],
            keys=tuple(ids if isinstance(key, plan.WindowId) else next(sorted_keys) for key in self.relation.keys),
            aggregates=tuple(value.take(order) for value in aggregates),
            window_ids=ids,
            substreams=None if substreams is None else substreams[order],
        )


@dataclass(slots=True)
class SlidingState:
    """Rows that wait for the watermark, and those that windows to come may have.

    ``released``: the watermark of the release before, where there is one for all rows.
    """

    waiting: Waiting[Frame] = field(default_factory=Waiting)
    held: Frame | None = None
    released: int = NO_TIME


class SlidingOperator:
    """An aggregate over a sliding window."""

    def __init__(self, relation: plan.Aggregate, window: plan.Sliding, window_id: str | None) -> None:
        self.relation = relation
        self.sources = (relation.source,)
        self.delay_ticks = 0
        self._size = window.size_ticks
        self._rows = _Rows(relation, window_id)

    def new_state(self) -> SlidingState:
        """Nothing yet."""
        return SlidingState()

    def reduce(self, side: int, frame: Frame, failures: Failures) -> Frame | None:
        """The keys and arguments of each row."""
        return self._rows.reduce(frame, failures)

    def absorb(self, state: SlidingState, side: int, payload: Frame) -> None:
        """Take up rows."""
        state.waiting.append(payload)

    def release(self, state: SlidingState, watermark: Watermark, failures: Failures) -> Frame | None:
        """The results of all instants before the watermark, by time and then by key."""
        held = joined(state.held, state.waiting.take_before(watermark))
        begin = state.released
        if isinstance(watermark, int):
            state.released = watermark
        if held is None:
            return None
        reached = until(watermark, held.substreams)
        begins = begin if isinstance(watermark, int) else since(watermark, held.substreams)
        groups = group(len(held), self._rows.keys(held))
        sequences = Sequences.of(groups.codes, groups.count)
        windows = sliding_windows(held.times, sequences, self._size, begins, reached)
        rows = take_rows(self._rows.evaluated(held), sequences.rows)
        values = aggregate_ranges(self._rows.aggregation, rows, windows.lows, windows.highs)
        one_of_each = sequences.rows[windows.lows]
        keys = [key.take(one_of_each) for key in self._rows.keys(held)]
        substreams = None if held.substreams is None else held.substreams[one_of_each]
        state.held = kept(held, held.times >= np.maximum(reached, FIRST_TICKS) - self._size)
        return self._rows.results(windows.ends, keys, values, substreams=substreams)


@dataclass(slots=True)
class SessionState:
    """Rows that wait for the watermark, and those of sessions that are open.

    Attributes:
        opened: int64[n] for the held rows, when their session opened.
        counted: bool[n], whether a session to come has the row, rather than only following on it.
    """

    waiting: Waiting[Frame] = field(default_factory=Waiting)
    held: Frame | None = None
    opened: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    counted: BoolArray = field(default_factory=lambda: np.empty(0, dtype=np.bool_))


class SessionOperator:
    """An aggregate over a session window."""

    def __init__(self, relation: plan.Aggregate, window: plan.Session, window_id: str | None) -> None:
        self.relation = relation
        self.sources = (relation.source,)
        self.delay_ticks = 0
        self._window = window
        self._rows = _Rows(relation, window_id, window.partition_by)

    def new_state(self) -> SessionState:
        """Nothing yet."""
        return SessionState()

    def reduce(self, side: int, frame: Frame, failures: Failures) -> Frame | None:
        """The keys and arguments of each row."""
        return self._rows.reduce(frame, failures)

    def absorb(self, state: SessionState, side: int, payload: Frame) -> None:
        """Take up rows."""
        state.waiting.append(payload)

    def release(self, state: SessionState, watermark: Watermark, failures: Failures) -> Frame | None:
        """The results of all sessions that end before the watermark, by time, key and partition."""
        held = joined(state.held, state.waiting.take_before(watermark))
        if held is None:
            return None
        reached = until(watermark, held.substreams)
        new = len(held) - len(state.opened)
        opened = np.concatenate([state.opened, np.full(new, NO_TIME)])
        counted = np.concatenate([state.counted, np.ones(new, dtype=np.bool_)])
        partitions = self._rows.partitions(held)
        parts = group(len(held), partitions)
        sequences = Sequences.of(parts.codes, parts.count)
        found = sessions(held.times, sequences, self._window.timeout_ticks, self._window.max_ticks, opened, reached)
        over = found.ends < reached
        still = (counted & ~over) | found.open_last
        out = np.flatnonzero(counted & over)
        state.held = kept(held, still)
        state.opened, state.counted = found.opened[still], (counted & ~over)[still]
        return self._fold(held, out, found.ends[out], parts.codes[out])

    def _fold(self, held: Frame, out: Int64Array, ends: Int64Array, partition: Int64Array) -> Frame | None:
        """A result for each session and key."""
        keys = [key.take(out) for key in self._rows.keys(held)]
        groups = group(len(out), keys, (ends, partition))
        aggregation = self._rows.aggregation
        states = aggregation.fold(groups.codes, groups.count, take_rows(self._rows.evaluated(held), out))
        firsts = groups.firsts
        partitions = [key.take(out[firsts]) for key in self._rows.partitions(held)]
        substreams = None if held.substreams is None else held.substreams[out[firsts]]
        return self._rows.results(
            ends[firsts], [key.take(firsts) for key in keys], aggregation.finish(states), partitions, substreams
        )


class WindowsOperator:
    """An aggregate over several windows: the union of what each of its parts gives."""

    def __init__(
        self, relation: plan.Aggregate, parts: Sequence[PanesOperator | SlidingOperator | SessionOperator]
    ) -> None:
        self.relation = relation
        self.sources = (relation.source,)
        self.delay_ticks = 0
        self._parts = parts

    def new_state(self) -> list[Any]:
        """That of each part."""
        return [part.new_state() for part in self._parts]

    def reduce(self, side: int, frame: Frame, failures: Failures) -> list[Any]:
        """What each part reduces the rows to; a row that fails, fails once."""
        payloads: list[Any] = []
        for part in self._parts:
            payloads.append(part.reduce(side, frame, failures if not payloads else Failures()))
        return payloads

    def absorb(self, state: list[Any], side: int, payload: list[Any]) -> None:
        """Give each part its own."""
        for part, held, own in zip(self._parts, state, payload, strict=True):
            if own is not None:
                part.absorb(held, side, own)

    def release(self, state: list[Any], watermark: Watermark, failures: Failures) -> Frame | None:
        """The results of all parts by time; of the same time, in the order of the parts."""
        released = [part.release(held, watermark, failures) for part, held in zip(self._parts, state, strict=True)]
        frames = [frame for frame in released if frame is not None]
        return merge_by_time(frames) if frames else None


def joined(held: Frame | None, new: Frame | None) -> Frame | None:
    """Rows that are held, and new ones behind them, in order; None for none."""
    if new is not None:
        new = new.in_order().without_order()
    frames = [frame for frame in (held, new) if frame is not None]
    return Frame.concat(frames) if frames else None


def kept(frame: Frame, still: BoolArray) -> Frame | None:
    """The rows that are still needed; None for none."""
    return frame if still.all() else frame.take(np.flatnonzero(still)) if still.any() else None
