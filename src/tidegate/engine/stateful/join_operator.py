"""JOIN of streams: rows of two sources that are close in time and equal in their keys.

A row is held as long as rows of the other side may still match it. A pair is found when the later of its rows arrives,
so that each is found once. Rows are numbered as they arrive; results of the same time are emitted in the order of the
left rows, then of the right ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tidegate.engine.expressions.evaluation import evaluate
from tidegate.engine.expressions.failures import Failures
from tidegate.engine.expressions.frames import Columns, Frame, MissingColumns
from tidegate.engine.expressions.source_columns import columns_of
from tidegate.engine.functions.operators import Comparison, compare, is_true
from tidegate.engine.stateful.join_keys import JoinKeys
from tidegate.engine.stateful.joins import Bound, Reach, meet, unmatched_delay, unmatched_times
from tidegate.engine.substreams.waiting import Waiting
from tidegate.engine.substreams.watermarks import Watermark, less, until
from tidegate.engine.values.vectors import BoolArray, Int64Array, Vector
from tidegate.engine.windows.held_rows import kept
from tidegate.ordering import END_OF_TIME, NO_TIME
from tidegate.ordering.ticks import FIRST_TICKS
from tidegate.saql.plan import nodes as plan

_MOST_PAIRS = 2**20
LEFT, RIGHT = 0, 1


@dataclass(slots=True)
class Side:
    """The rows of one source: those waiting for the watermark, those held, and how many there have been.

    The order of held rows is their number; their keys are in place of aggregates. If the rows are ``tied``, they keep
    what orders them among the rows of other shards.
    """

    waiting: Waiting[Frame] = field(default_factory=Waiting)
    held: Frame | None = None
    count: int = 0
    tied: bool = False

    def advance(self, watermark: Watermark) -> tuple[Frame | None, int]:
        """Return all rows before the watermark that are still held, in order, and how many of them are not new."""
        held = 0 if self.held is None else len(self.held)
        new = self.waiting.take_before(watermark)
        if new is not None:
            new = in_shards_order(new) if self.tied else new.in_order()
            new = new.with_order((self.count + np.arange(len(new)),))
            self.count += len(new)
            self.held = new if self.held is None else Frame.concat([self.held, new])
        return self.held, held


@dataclass(slots=True)
class JoinState:
    """Both sides, which held left rows have a match, and results that wait."""

    sides: tuple[Side, Side]
    matched: BoolArray
    results: Waiting[Frame] = field(default_factory=Waiting)


class JoinOperator:
    """A join of two streams."""

    def __init__(self, relation: plan.Join) -> None:
        self.relation = relation
        self.sources = (relation.left, relation.right)
        self._outer = relation.kind is plan.JoinKind.LEFT
        self._bounds = [(one.left.lower(), Bound(one.unit_ticks, one.low, one.high)) for one in relation.bounds]
        self._oldest = [min(oldest_ticks(relation.left, one.left), END_OF_TIME) for one in relation.bounds]
        self._missing = columns_of(relation.right)
        self.delay_ticks = unmatched_delay([bound for _, bound in self._bounds]) if self._outer else 0
        self.tied = False

    def new_state(self) -> JoinState:
        """Return an empty state."""
        return JoinState((Side(tied=self.tied), Side(tied=self.tied)), np.empty(0, dtype=np.bool_))

    def reduce(self, side: int, frame: Frame, failures: Failures) -> Frame | None:
        """Return the rows with their keys; a row whose key fails is lost."""
        keys = tuple(evaluate(pair[side], frame) for pair in self.relation.keys)
        fine = failures.without(frame, keys)
        frame = replace(frame, keys=(), aggregates=keys, window_ids=None, rows=None)
        if fine is not None:
            frame = frame.take(np.flatnonzero(fine))
        return frame if len(frame) else None

    def absorb(self, state: JoinState, side: int, payload: Frame) -> None:
        """Add rows of a side to the state."""
        state.sides[side].waiting.append(payload)

    def release_rows(self, state: JoinState, watermark: Watermark, failures: Failures) -> Frame | None:
        """Return all results with a time before the watermark less `delay_ticks`."""
        left, old_left = state.sides[LEFT].advance(watermark)
        right, old_right = state.sides[RIGHT].advance(watermark)
        if left is not None:
            matched = np.concatenate([state.matched, np.zeros(len(left) - old_left, dtype=np.bool_)])
            bounds = self._times(left)
            reach = Reach.of(bounds)
            if right is not None:
                first = np.where(np.arange(len(left)) < old_left, old_right, 0)
                for results in self._meet(left, right, reach, first, matched, failures):
                    state.results.append(results)
            done = reach.last < until(watermark, left.substreams)
            unmatched = np.flatnonzero(done & ~matched)
            if self._outer and len(unmatched):
                times = unmatched_times(left.times, bounds)[unmatched]
                state.results.append(self._alone(left.take(unmatched), times))
            state.sides[LEFT].held, state.matched = kept(left, ~done), matched[~done]
        if right is not None:
            state.sides[RIGHT].held = kept(right, right.times >= self._earliest(until(watermark, right.substreams)))
        ready = state.results.take_before(less(watermark, self.delay_ticks))
        return None if ready is None else ready.in_order().without_order()

    def _times(self, left: Frame) -> list[tuple[Bound, Int64Array]]:
        """Return each bound with the left times that it applies to."""
        return [(bound, left.side_times.get(alias, left.times)) for alias, bound in self._bounds]

    def _earliest(self, reached: int | Int64Array) -> Int64Array:
        """Return the earliest right time that a later left row may reach, given all rows before ``reached``."""
        each_reached = np.atleast_1d(reached)
        earliest: Int64Array = np.full(len(each_reached), NO_TIME)
        for (_, bound), oldest in zip(self._bounds, self._oldest, strict=True):
            first, _ = bound.edges(np.maximum(each_reached, FIRST_TICKS + oldest) - oldest)
            np.maximum(earliest, first, out=earliest)
        return np.where(each_reached == END_OF_TIME, each_reached, earliest)

    def _meet(
        self,
        left: Frame,
        right: Frame,
        reach: Reach,
        from_right: Int64Array,
        matched: BoolArray,
        failures: Failures,
    ) -> list[Frame]:
        """Return the pairs that are new, and mark their left rows as matched."""
        keys = JoinKeys.of(left.aggregates, right.aggregates, len(left), len(right))
        found = meet(reach, keys.left, right.times, keys.right, from_right)
        results = []
        for begin, end in found.stretches(_MOST_PAIRS):
            left_rows, right_rows = found.pairs(begin, end)
            for index in keys.unsure:
                one, other = left.aggregates[index].take(left_rows), right.aggregates[index].take(right_rows)
                same = is_true(compare(Comparison.EQUAL, one, other))
                left_rows, right_rows = left_rows[same], right_rows[same]
            if not len(left_rows):
                continue
            pairs = paired(left.take(left_rows), right.take(right_rows))
            if self.relation.residual is not None:
                condition = evaluate(self.relation.residual, pairs)
                failures.without(pairs, [condition])
                true = np.flatnonzero(is_true(condition))
                left_rows, pairs = left_rows[true], pairs.take(true)
            if len(pairs):
                matched[left_rows] = True
                results.append(pairs)
        return results

    def _alone(self, left: Frame, times: Int64Array) -> Frame:
        """Return left rows without a match, beside columns of NULLs."""
        count = len(left)
        nothing: dict[str, Columns] = {alias: MissingColumns(names, count) for alias, names in self._missing.items()}
        never = np.full(count, NO_TIME)
        return Frame(
            times,
            {**left.sources, **nothing},
            side_times={**side_times(left), **dict.fromkeys(nothing, never)},
            order=(*left.order, np.full(count, -1)),
            ties=left.ties,
            substreams=left.substreams,
        )


def in_shards_order(frame: Frame) -> Frame:
    """Return rows in order, with ties that tell how they are ordered among the rows of all shards."""
    ordered = frame.in_order()
    return ordered.with_ties(Vector.bigints(ordered.times), *ordered.tie_breakers())


def paired(left: Frame, right: Frame) -> Frame:
    """Return rows side by side, with the later of their two times."""
    return Frame(
        np.maximum(left.times, right.times),
        {**left.sources, **right.sources},
        side_times={**side_times(left), **side_times(right)},
        order=(*left.order, *right.order),
        ties=(*left.ties, *right.ties),
        substreams=left.substreams,
    )


def side_times(frame: Frame) -> Mapping[str, Int64Array]:
    """Return the time of each source of a frame."""
    return {alias: frame.side_times.get(alias, frame.times) for alias in frame.sources}


def oldest_ticks(relation: plan.Relation, alias: str) -> int:
    """Return how much earlier than a row of a FROM one of its sources can be."""
    match relation:
        case plan.Join(reference=True):
            return oldest_ticks(relation.left, alias)
        case plan.Join():
            spans = [_span(relation, bound) for bound in relation.bounds]
            if alias.lower() in aliases_of(relation.right):
                return min(before for before, _ in spans)
            return oldest_ticks(relation.left, alias) + min(after for _, after in spans)
        case plan.Filter() | plan.Temporal() | plan.Apply():
            return oldest_ticks(relation.source, alias)
        case _:
            return 0


def _span(join: plan.Join, bound: plan.TimeBound) -> tuple[int, int]:
    """Return how far the right row of a pair can be before the left one, and after it."""
    far = END_OF_TIME
    before = far if bound.low is None else max(0, (1 - bound.low) * bound.unit_ticks)
    after = far if bound.high is None else max(0, (bound.high + 1) * bound.unit_ticks)
    return before + oldest_ticks(join.left, bound.left), after


def aliases_of(relation: plan.Relation) -> set[str]:
    """Return the aliases of a FROM, in lower case."""
    match relation:
        case plan.Input(alias=alias) | plan.Step(alias=alias) | plan.Match(alias=alias):
            return {alias.lower()}
        case plan.Apply(alias=alias):
            return aliases_of(relation.source) | {alias.lower()}
        case plan.Join():
            return aliases_of(relation.left) | aliases_of(relation.right)
        case plan.Filter() | plan.Temporal():
            return aliases_of(relation.source)
        case _:
            return set()
