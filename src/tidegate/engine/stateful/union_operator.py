"""UNION of relations some of which are computed by operators, so that each may be complete up to another time."""

from __future__ import annotations

from tidegate.engine.expressions.arrival_order import has_arrivals
from tidegate.engine.expressions.failures import Failures
from tidegate.engine.expressions.frames import Frame, merge_by_time
from tidegate.engine.expressions.relations import branches_of
from tidegate.engine.substreams.waiting import Waiting
from tidegate.engine.substreams.watermarks import Watermark
from tidegate.engine.values.vectors import Vector
from tidegate.sql.plan import nodes as plan


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
