"""Operators: what computes a relation whose rows follow from more than one event.

A relation is *local* if each of its rows follows from one event: filters, projections, unions and applications over
inputs. A task computes local relations from the events it holds. Every other relation has an operator with state:
windows, functions of earlier rows, joins, patterns. Its `reduce` makes rows small (an aggregate's: one line for each
pane and key) and runs in the task if its source is local; its `absorb` and `release` run on the keyed side.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from tidegate.engine.expressions.failures import Failures
from tidegate.engine.expressions.frames import Frame
from tidegate.engine.expressions.relations import is_local, streams_of
from tidegate.engine.stateful.join_operator import JoinOperator
from tidegate.engine.stateful.match_operator import MatchOperator
from tidegate.engine.stateful.temporal_operator import TemporalOperator
from tidegate.engine.stateful.union_operator import UnionOperator
from tidegate.engine.substreams.waiting import Waiting
from tidegate.engine.substreams.watermarks import Watermark
from tidegate.engine.windows.group_operator import group_operator
from tidegate.sql.plan import nodes as plan


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

    def new_state(self) -> Waiting[Frame]:
        """Return an empty state."""
        return Waiting()

    def reduce(self, side: int, frame: Frame, failures: Failures) -> Frame:
        """Return the rows themselves."""
        return frame.without_rows()

    def absorb(self, state: Waiting[Frame], side: int, payload: Frame) -> None:
        """Add rows to the state."""
        state.append(payload)

    def release_rows(self, state: Waiting[Frame], watermark: Watermark, failures: Failures) -> Frame | None:
        """Remove and return the rows before the watermark, in order."""
        frame = state.take_before(watermark)
        return None if frame is None else frame.in_order()


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
