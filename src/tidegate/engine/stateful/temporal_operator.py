"""LAG, LAST, ISFIRST, anomaly detection and aggregates OVER (… LIMIT DURATION …): the rows of a source with the values
of its calls.

Calls with the same PARTITION BY and WHEN look back at the same rows, and share one memory of them. A memory holds the
keys and arguments of the rows that passed WHEN, for as long as one of its calls may look back at them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from tidegate.engine.aggregates.aggregation import Aggregation, is_aggregate
from tidegate.engine.aggregates.states.state import Column, Evaluated
from tidegate.engine.expressions.evaluation import evaluate, temporal_alias
from tidegate.engine.expressions.frames import Frame, NamedColumns
from tidegate.engine.expressions.relations import Failures
from tidegate.engine.functions.operators import is_true
from tidegate.engine.stateful import analytics
from tidegate.engine.stateful.analytics.earlier_rows import (
    AnalyticCall,
    AnalyticFunction,
    Past,
    running_ranges,
    still_counted,
)
from tidegate.engine.substreams.watermarks import Waiting, Watermark, until
from tidegate.engine.values.conversions import to_numbers
from tidegate.engine.values.grouping import group, unified
from tidegate.engine.values.sequences import Sequences
from tidegate.engine.values.vectors import BoolArray, Int64Array, Vector
from tidegate.engine.windows.held_rows import kept, with_keys_of
from tidegate.extensions import classes_of
from tidegate.sql.plan import nodes as plan

ANALYTICS: dict[str, AnalyticFunction] = {
    function.name: function
    for function in (
        each() for each in classes_of(analytics, "tidegate.analytics") if issubclass(each, AnalyticFunction)
    )
}
"""By lower-case name."""


class _Running:
    """An aggregate."""

    def __init__(self, call: plan.TemporalCall) -> None:
        self._limit = call.limit_ticks
        self._aggregation = Aggregation(
            [plan.AggregateCall(call.function, call.args, order_by=call.order_by, parameters=call.parameters)]
        )
        self.held = self._aggregation.columns()
        self.asked: list[Column] = []

    def values(self, past: Past, new: Callable[[Column], Vector]) -> Vector:
        found = running_ranges(past.times, past.sequences, past.passing, self._limit, past.from_row)
        vectors = {column: past.column(column).take(found.members) for column in self.held}
        rows = Evaluated(vectors, (found.members,))
        (values,) = self._aggregation.over_ranges(rows, found.lows, found.highs)
        place = np.empty_like(found.rows)
        place[found.rows - past.from_row] = np.arange(len(found.rows))
        return values.take(place)

    def still(self, past: Past, reached: int | Int64Array) -> BoolArray:
        return still_counted(past.times, past.passing, self._limit, reached)


def _evaluator(call: plan.TemporalCall) -> AnalyticCall:
    call = _of_passing_rows(call)
    if is_aggregate(call.function):
        return _Running(call)
    if call.function in ANALYTICS:
        return ANALYTICS[call.function].evaluator(call)
    raise LookupError(f"no function of the rows before is called {call.function}")


def _of_passing_rows(call: plan.TemporalCall) -> plan.TemporalCall:
    """Return a call that computes its arguments of rows that pass WHEN alone: others are not lost if these fail."""
    when = call.when
    if when is None:
        return call

    def guarded(value: plan.Expr) -> plan.Expr:
        if isinstance(value, (plan.Row, plan.Literal)):
            return value
        return plan.Call("case", (when, value, plan.Literal(None)))

    return replace(
        call,
        args=tuple(map(guarded, call.args)),
        order_by=tuple(replace(order, expr=guarded(order.expr)) for order in call.order_by),
    )


class _Memory:
    """The calls with the same PARTITION BY and WHEN, by their numbers."""

    def __init__(self, partition_by: tuple[plan.Expr, ...], when: plan.Expr | None) -> None:
        self.partition_by: list[Column] = [(key, False) for key in partition_by]
        self.when: Column | None = None if when is None else (when, False)
        self.calls: dict[int, AnalyticCall] = {}

    def held(self) -> list[Column]:
        """Return the columns that are held."""
        return list(dict.fromkeys(column for call in self.calls.values() for column in call.held))

    def columns(self) -> list[Column]:
        """Return all columns that are needed of new rows."""
        asked = [column for call in self.calls.values() for column in (*call.held, *call.asked)]
        return [*self.partition_by, *([] if self.when is None else [self.when]), *asked]


LOOK_AGAIN_FROM = 65_536
"""With fewer held rows than this, it is not worth searching for rows to drop."""


@dataclass(slots=True)
class _Held:
    """The rows that a memory holds; those of the same key are in the order of time.

    Keys without new rows are left alone until more than ``most`` rows are held. A key is within one substream.
    """

    rows: Waiting[Frame] = field(default_factory=Waiting)
    most: int = LOOK_AGAIN_FROM

    def take_related(self, new: Frame) -> Frame | None:
        """Remove and return the held rows that new rows may look back at."""
        if len(self.rows) >= self.most:
            self.most = 0
            return self.rows.take_chosen(lambda part: np.ones(len(part.table), dtype=np.bool_))
        if new.substreams is None:
            return self.rows.take_chosen(with_keys_of(self.rows, lambda table: table.keys, [new]))
        touched = np.zeros(1 + max(map(_largest, (new, *(part.table for part in self.rows.parts)))), dtype=np.bool_)
        touched[new.substreams] = True
        return self.rows.take_chosen(lambda part: touched[part.table.substreams])

    def put_back(self, rows: Frame | None) -> None:
        """Hold rows again, and new ones."""
        if rows is not None:
            self.rows.append(rows)
        self.most = self.most or max(LOOK_AGAIN_FROM, 2 * len(self.rows))


def _largest(rows: Frame) -> int:
    return -1 if rows.substreams is None else int(rows.substreams.max(initial=-1))


@dataclass(slots=True)
class TemporalState:
    """Rows that wait for the watermark, and the rows that each memory holds."""

    waiting: Waiting[Frame]
    held: list[_Held] = field(default_factory=list)


class TemporalOperator:
    """A source with functions of earlier rows.

    Attributes:
        keyed: whether rows of the same substream have the same values of PARTITION BY.
    """

    def __init__(self, relation: plan.Temporal) -> None:
        self.relation = relation
        self.sources = (relation.source,)
        self.delay_ticks = 0
        self.keyed = False
        self._alias = temporal_alias(relation.alias)
        memories: dict[tuple[tuple[plan.Expr, ...], plan.Expr | None], _Memory] = {}
        for number, call in enumerate(relation.calls):
            shared = (call.partition_by, call.when)
            memory = memories.setdefault(shared, _Memory(*shared))
            memory.calls[number] = _evaluator(call)
        self._memories = list(memories.values())
        self._columns = list(dict.fromkeys(column for memory in self._memories for column in memory.columns()))

    def new_state(self) -> TemporalState:
        """Return an empty state."""
        return TemporalState(Waiting(), [_Held() for _ in self._memories])

    def reduce(self, side: int, frame: Frame, failures: Failures) -> Frame | None:
        """Return the rows with all columns that calls need; a row for which one of them fails is lost."""
        values = tuple(
            to_numbers(evaluate(expr, frame)) if numeric else evaluate(expr, frame) for expr, numeric in self._columns
        )
        fine = failures.without(frame, values)
        frame = replace(frame, aggregates=values, rows=None)
        if fine is not None:
            frame = frame.take(np.flatnonzero(fine))
        return frame if len(frame) else None

    def column(self, rows: Frame, expr: plan.Expr) -> Vector:
        """Return the column of reduced rows that holds a key of PARTITION BY."""
        return rows.aggregates[self._columns.index((expr, False))]

    def absorb(self, state: TemporalState, side: int, payload: Frame) -> None:
        """Add rows to the state."""
        state.waiting.append(payload)

    def release_rows(self, state: TemporalState, watermark: Watermark, failures: Failures) -> Frame | None:
        """Remove and return the rows before the watermark, in order, with the values of the calls.

        Rows with an arrival keep it.
        """
        new = state.waiting.take_before(watermark)
        if new is None:
            return None
        new = new.in_order()
        columns = dict(zip(self._columns, new.aggregates, strict=True))
        values: dict[int, Vector] = {}
        for number, memory in enumerate(self._memories):
            self._recall(memory, state.held[number], new, columns, watermark, values)
        called = NamedColumns(tuple(map(str, range(len(values)))), tuple(values[n] for n in range(len(values))))
        return new.with_sources({**new.sources, self._alias: called})

    def _recall(
        self,
        memory: _Memory,
        held: _Held,
        released: Frame,
        columns: dict[Column, Vector],
        watermark: Watermark,
        values: dict[int, Vector],
    ) -> None:
        """Put the values of a memory's calls into ``values``, and hold the rows that later ones may look back at."""
        names = memory.held()
        new = Frame(
            released.times,
            keys=tuple(columns[key] for key in memory.partition_by),
            aggregates=tuple(columns[name] for name in names),
            substreams=released.substreams,
        )
        old = held.take_related(new)
        rows = new if old is None else Frame.concat([old, new])
        passing = np.ones(len(rows), dtype=np.bool_)
        if memory.when is not None:
            passing[len(rows) - len(new) :] = is_true(columns[memory.when])
        by_substream = rows.substreams if self.keyed else None
        keys = [unified(key) for key in rows.keys] if by_substream is None else []
        groups = group(len(rows), keys, () if by_substream is None else (by_substream,))
        vectors = dict(zip(names, rows.aggregates, strict=True))
        past = Past(
            rows.times,
            Sequences.of(groups.codes, groups.count),
            passing,
            len(rows) - len(new),
            vectors.__getitem__,
        )
        still = np.zeros(len(rows), dtype=np.bool_)
        reached = until(watermark, rows.substreams)
        for number, call in memory.calls.items():
            values[number] = call.values(past, columns.__getitem__)
            still |= call.still(past, reached)
        held.put_back(kept(rows, still))
