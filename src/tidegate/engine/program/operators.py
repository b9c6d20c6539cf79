"""Operators: what computes a relation whose rows follow from more than one event.

A relation is *local* if each of its rows follows from one event: filters, projections, unions and applications over
inputs. A task computes local relations from the events it holds. Every other relation has an operator with state:
windows, functions of earlier rows, joins, patterns. Its `reduce` makes rows small (an aggregate's: one line for each
pane and key) and runs in the task if its source is local; its `absorb` and `release` run on the keyed side.

`CATALOG` is the language that these operators can evaluate, as `sql.compile_query` expects it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from tidegate.engine.aggregates.aggregation import AGGREGATES
from tidegate.engine.expressions.evaluation import SCALARS, TABLES
from tidegate.engine.expressions.frames import Frame, merge_by_time
from tidegate.engine.expressions.relations import Failures, branches_of, has_arrivals, is_local, streams_of
from tidegate.engine.stateful.join_operator import JoinOperator
from tidegate.engine.stateful.match_operator import MatchOperator
from tidegate.engine.stateful.temporal_operator import ANALYTICS, TemporalOperator
from tidegate.engine.substreams.watermarks import Waiting, Watermark
from tidegate.engine.values.budget import APPLIED_BYTES, beyond_limit, repeated_bytes
from tidegate.engine.values.vectors import BoolArray, Vector
from tidegate.engine.windows import kinds
from tidegate.engine.windows.kind import WindowKind
from tidegate.engine.windows.kinds.panes import Snapshot
from tidegate.engine.windows.panes_operator import group_operator
from tidegate.extensions import classes_of
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.catalog import Catalog
from tidegate.sql.plan.walking import relations_in


class UnionOperator:
    """All rows of several relations, by time.

    Rows of the same time are in the order of their arrival. If the rows of some relation have none, the rows of the
    first relation come first.
    """

    def __init__(self, relation: plan.Union) -> None:
        self.relation = relation
        self.sources = relation.sources
        self.delay_ticks = 0
        self._by_arrival = has_arrivals(relation)

    def new_state(self) -> list[Waiting[Frame]]:
        """Return an empty state."""
        return [Waiting() for _ in self.sources]

    def reduce(self, side: int, frame: Frame, failures: Failures) -> Frame:
        """Return the rows themselves."""
        return frame.without_rows()

    def absorb(self, state: list[Waiting[Frame]], side: int, payload: Frame) -> None:
        """Add rows of one relation to the state."""
        state[side].append(payload)

    def release_rows(self, state: list[Waiting[Frame]], watermark: Watermark, failures: Failures) -> Frame | None:
        """Remove and return the rows before the watermark, up to which all relations are complete."""
        ready = [self._numbered(side, waiting.take_before(watermark)) for side, waiting in enumerate(state)]
        frames = branches_of(self.relation, ready)
        if not frames:
            return None
        if self._by_arrival:
            return Frame.concat(frames).in_order()
        return merge_by_time([frame.in_order().without_order() for frame in frames])

    def _numbered(self, side: int, frame: Frame | None) -> Frame | None:
        """Return the rows with ties that begin with the number of their relation."""
        if frame is None or self._by_arrival:
            return frame
        return frame.with_ties(Vector.constant(side, len(frame)), *frame.tie_breakers())


class Operator(Protocol):
    """Computes the rows of a relation that is not local."""

    @property
    def relation(self) -> plan.Relation: ...

    @property
    def sources(self) -> tuple[plan.Relation, ...]: ...

    @property
    def delay_ticks(self) -> int:
        """How far its results lag behind the watermark of its sources."""

    def new_state(self) -> Any:
        """Return an empty state."""

    def reduce(self, side: int, frame: Frame, failures: Failures) -> Any | None:
        """Reduce rows of ``sources[side]`` to what is kept of them; None if that is nothing."""

    def absorb(self, state: Any, side: int, payload: Any) -> None:
        """Add reduced rows to the state, in any order."""

    def release_rows(self, state: Any, watermark: Watermark, failures: Failures, /) -> Frame | None:
        """Remove and return all rows with a time before the watermark - `delay_ticks`, in time order."""


class RowsOperator:
    """Holds the rows of a local relation until the watermark has passed them."""

    def __init__(self, relation: plan.Relation) -> None:
        self.relation = relation
        self.sources = (relation,)
        self.delay_ticks = 0
        self._multiplies = any(isinstance(one, plan.Apply) for one in relations_in(relation, sources=streams_of))

    def new_state(self) -> Waiting[Frame]:
        """Return an empty state."""
        return Waiting()

    def reduce(self, side: int, frame: Frame, failures: Failures) -> Frame:
        """Return the rows themselves, but those of an event that repeat more than it may."""
        repeating = _repeat_too_much(frame) if self._multiplies else None
        if repeating is not None:
            fine = failures.without(frame, [beyond_limit(Vector.bigints(np.zeros_like(frame.times)), repeating)])
            frame = frame if fine is None else frame.take(np.flatnonzero(fine))
        return frame.without_rows()

    def absorb(self, state: Waiting[Frame], side: int, payload: Frame) -> None:
        """Add rows to the state."""
        state.append(payload)

    def release_rows(self, state: Waiting[Frame], watermark: Watermark, failures: Failures) -> Frame | None:
        """Remove and return the rows before the watermark, in order."""
        frame = state.take_before(watermark)
        return None if frame is None else frame.in_order()


def _repeat_too_much(frame: Frame) -> BoolArray | None:
    """Return the rows of events whose rows repeat their records and arrays beyond a limit; None if there are none.

    They share them here, but are to be written one by one.
    """
    sizes = np.zeros(len(frame), dtype=np.int64)
    for columns in frame.sources.values():
        for vector in columns.vectors_held():
            sizes += repeated_bytes(vector)
    if int(sizes.sum()) <= APPLIED_BYTES:
        return None
    owners = np.unique(frame.order[2], return_inverse=True)[1]
    beyond: BoolArray = np.bincount(owners, weights=sizes)[owners] > APPLIED_BYTES
    return beyond


def operator_of(relation: plan.Relation) -> Operator:
    """Return a new operator for a relation that has one (`operator_relations`)."""
    match relation:
        case plan.Aggregate():
            return group_operator(relation)
        case plan.Temporal():
            return TemporalOperator(relation)
        case plan.Join(reference=False):
            return JoinOperator(relation)
        case plan.Union() if not is_local(relation):
            return UnionOperator(relation)
        case plan.Match():
            return MatchOperator(relation)
        case _:
            return RowsOperator(relation)


def operator_relations(query: plan.Query) -> list[plan.Relation]:
    """Return the relations of a query that have operators, from the inputs up; an operator's number is its place."""
    outputs = {id(output.relation) for output in query.outputs}
    return [one for one in lower_first(query) if _keeps_state(one) or (is_local(one) and id(one) in outputs)]


def _keeps_state(relation: plan.Relation) -> bool:
    match relation:
        case plan.Aggregate() | plan.Temporal() | plan.Match() | plan.Join(reference=False):
            return True
        case plan.Union():
            return not is_local(relation)
        case _:
            return False


def lower_first(query: plan.Query) -> Iterator[plan.Relation]:
    """Yield each relation of a query that comes with time once, after those that it reads."""
    placed: set[int] = set()

    def place(relation: plan.Relation) -> Iterator[plan.Relation]:
        if id(relation) in placed:
            return
        placed.add(id(relation))
        for source in streams_of(relation):
            yield from place(source)
        yield relation

    for output in query.outputs:
        yield from place(output.relation)


_KINDS = [kind for kind in classes_of(kinds, "tidegate.windows") if issubclass(kind, WindowKind)]

CATALOG = Catalog(
    SCALARS,
    TABLES,
    AGGREGATES,
    ANALYTICS,
    {name.lower(): kind for kind in _KINDS if kind is not Snapshot for name in kind.names},
    Snapshot,
)
"""Everything that the engine can evaluate."""
