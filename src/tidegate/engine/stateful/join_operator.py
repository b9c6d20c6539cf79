"""JOIN of streams: rows of two sources that are close in time and equal in their keys.

A row is held as long as rows of the other side may still match it. A pair is found when the later of its rows is
complete, so that each is found once: new left rows meet all right ones, and new right rows the left ones held. Rows are
numbered as they arrive; results of the same time are emitted in the order of the left rows, then of the right ones.

What a side of a join holds: its rows in the parts they arrived in, each with the times that it is about.

Theory. To a join a row is an interval of right times: those that a left row reaches, or the one time of a right row.
Two rows can only be a pair if their intervals overlap, and a row is needed until the watermark has passed its interval.
A part knows the extremes of its intervals. So a step neither copies nor reads a part that is out of reach and not about
to be dropped, and its memory depends on the rows that it brings and on those near them, not on all that are held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from tidegate.engine.expressions.evaluation import evaluate
from tidegate.engine.expressions.frames import Columns, Frame, MissingColumns
from tidegate.engine.expressions.relations import Failures, columns_of
from tidegate.engine.functions.operators import Comparison, compare, is_true
from tidegate.engine.stateful.joins import (
    Bound,
    JoinKeys,
    Reach,
    keys_of_side,
    meet,
    unmatched_delay,
    unmatched_times,
)
from tidegate.engine.substreams.watermarks import Part, Waiting, Watermark, less, until
from tidegate.engine.values.vectors import BoolArray, Int64Array, Vector
from tidegate.ordering import END_OF_TIME, NO_TIME
from tidegate.ordering.ticks import FIRST_TICKS
from tidegate.sql.plan import nodes as plan

_MOST_ROWS = 2**18
"""Neighbours from several parts are gathered until there are this many."""

Reaching: TypeAlias = Callable[[Frame], Reach]
"""Returns the intervals of the rows of a side."""


@dataclass(frozen=True, slots=True)
class HeldRows:
    """n rows of one side, in order, and the extremes of their intervals; those of a part of the rows may be wider.

    The order of the rows is their number; their keys are in place of aggregates.

    Attributes:
        first: no interval begins earlier.
        soonest: no interval ends earlier.
        last: no interval ends later.
        matched: bool[n], which rows have found a match; None where it makes no difference.
    """

    frame: Frame
    first: int
    soonest: int
    last: int
    matched: BoolArray | None = None

    @classmethod
    def of(cls, frame: Frame, reach: Reach, *, marked: bool) -> HeldRows:
        """Return rows with these intervals, without matches so far if those are to be ``marked``."""
        return cls(
            frame,
            int(reach.first.min(initial=END_OF_TIME)),
            int(reach.last.min(initial=END_OF_TIME)),
            int(reach.last.max(initial=NO_TIME)),
            np.zeros(len(frame), dtype=np.bool_) if marked else None,
        )

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def times(self) -> Int64Array:
        return self.frame.times

    @property
    def substreams(self) -> Int64Array | None:
        return self.frame.substreams

    def take(self, rows: Int64Array) -> HeldRows:
        """Return these rows, in this order."""
        matched = None if self.matched is None else self.matched[rows]
        return replace(self, frame=self.frame.take(rows), matched=matched)

    @classmethod
    def concat(cls, tables: Sequence[HeldRows]) -> HeldRows:
        """Concatenate rows of the same side."""
        if len(tables) == 1:
            return tables[0]
        marks = [table.matched for table in tables if table.matched is not None]
        return cls(
            Frame.concat([table.frame for table in tables]),
            min(table.first for table in tables),
            min(table.soonest for table in tables),
            max(table.last for table in tables),
            np.concatenate(marks) if marks else None,
        )


@dataclass(slots=True)
class Side:
    """The rows of one source: those waiting for the watermark, those held, and how many there have been.

    If the rows are ``tied``, they keep what orders them among the rows of other shards.
    """

    waiting: Waiting[Frame] = field(default_factory=Waiting)
    held: Waiting[HeldRows] = field(default_factory=Waiting)
    count: int = 0
    tied: bool = False

    def take_new(self, watermark: Watermark) -> Frame | None:
        """Remove and return the waiting rows before the watermark, in order and numbered; None for none."""
        new = self.waiting.take_before(watermark)
        if new is None:
            return None
        new = new.in_shards_order() if self.tied else new.in_order()
        new = new.with_order((self.count + np.arange(len(new)),))
        self.count += len(new)
        return new


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Rows of some parts of a side, which may be near the rows of the other.

    Attributes:
        parts: each with the rows of it that are meant, or None for all.
        starts: int64[parts], where the rows of each part start among all.
        keys: of all rows.
        reach: of all rows.
    """

    parts: Sequence[tuple[Part[HeldRows], Int64Array | None]]
    starts: Int64Array
    keys: tuple[Vector, ...]
    reach: Reach

    @classmethod
    def of_part(cls, part: Part[HeldRows], reach: Reach) -> Neighbours:
        """Return all rows of one part, of which none has been removed."""
        return cls([(part, None)], np.zeros(1, dtype=np.int64), part.table.frame.aggregates, reach)

    def __len__(self) -> int:
        return len(self.reach.first)

    def take(self, rows: Int64Array) -> Frame:
        """Return some of the rows, in the order given."""
        if len(self.parts) == 1:
            return self._take_of(0, rows)
        of = self._parts_of(rows)
        order = np.argsort(of, kind="stable")
        taken = Frame.concat([self._take_of(*one) for one in self._by_part(rows[order], of[order])])
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return taken.take(places)

    def mark(self, rows: Int64Array) -> None:
        """Note that these rows have a match, where that makes a difference."""
        if self.parts[0][0].table.matched is None:
            return
        rows = np.unique(rows)
        for index, which in self._by_part(rows, self._parts_of(rows)):
            part, chosen = self.parts[index]
            before = part.table.matched
            assert before is not None
            # What was read from a disk is read-only.
            matched = before.copy()
            matched[which if chosen is None else chosen[which]] = True
            part.table = replace(part.table, matched=matched)

    def _take_of(self, index: int, rows: Int64Array) -> Frame:
        """Return rows of one part by their places among those that are meant."""
        part, chosen = self.parts[index]
        return part.table.frame.take(rows if chosen is None else chosen[rows])

    def _parts_of(self, rows: Int64Array) -> Int64Array:
        """Return which part each row is of."""
        return np.searchsorted(self.starts, rows, side="right") - 1

    def _by_part(self, rows: Int64Array, of: Int64Array) -> Iterator[tuple[int, Int64Array]]:
        """Return the parts that ``rows`` are of, which are ordered by part, and the places of its rows in each."""
        for index in np.unique(of).tolist():
            begin, end = np.searchsorted(of, [index, index + 1])
            yield index, rows[begin:end] - self.starts[index]


def neighbours(parts: Sequence[Part[HeldRows]], reaching: Reaching, others: HeldRows) -> Iterator[Neighbours]:
    """Return the rows of a side whose intervals overlap those of the others, a bounded number at a time."""
    found: list[tuple[Part[HeldRows], Int64Array | None, Reach]] = []
    count = 0
    for part in parts:
        if part.table.first > others.last or part.table.last < others.first:
            continue
        reach = reaching(part.table.frame)
        near = (reach.first <= others.last) & (reach.last >= others.first)
        if part.removed is not None:
            near &= ~part.removed
        rows = np.flatnonzero(near)
        if not len(rows):
            continue
        if len(rows) == len(near):
            found.append((part, None, reach))
        else:
            found.append((part, rows, reach.take(rows)))
        count += len(rows)
        if count >= _MOST_ROWS:
            yield _gathered(found)
            found, count = [], 0
    if found:
        yield _gathered(found)


def _gathered(found: Sequence[tuple[Part[HeldRows], Int64Array | None, Reach]]) -> Neighbours:
    keys = [
        part.table.frame.aggregates if rows is None else tuple(key.take(rows) for key in part.table.frame.aggregates)
        for part, rows, _ in found
    ]
    lengths = [len(reach.first) for _, _, reach in found]
    return Neighbours(
        [(part, rows) for part, rows, _ in found],
        np.cumsum([0, *lengths[:-1]]),
        tuple(Vector.concat(one) for one in zip(*keys, strict=True)),
        Reach(
            np.concatenate([reach.first for _, _, reach in found]),
            np.concatenate([reach.last for _, _, reach in found]),
        ),
    )


_MOST_PAIRS = 2**16
LEFT, RIGHT = 0, 1


@dataclass(slots=True)
class JoinState:
    """Both sides, and results that wait."""

    sides: tuple[Side, Side]
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
        return JoinState((Side(tied=self.tied), Side(tied=self.tied)))

    def reduce(self, side: int, frame: Frame, failures: Failures) -> Frame | None:
        """Return the rows with their keys; a row whose key fails is lost."""
        keys = keys_of_side(self.relation, side, frame)
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
        left, right = state.sides
        new_left, new_right = self._take_new(left, LEFT, watermark), self._take_new(right, RIGHT, watermark)
        if new_left is not None:
            one = Neighbours.of_part(new_left, self._left_reach(new_left.table.frame))
            rights = right.held.parts if new_right is None else [*right.held.parts, new_right]
            for other in neighbours(rights, right_reach, new_left.table):
                self._meet(one, other, state, failures)
        if new_right is not None:
            other = Neighbours.of_part(new_right, right_reach(new_right.table.frame))
            for one in neighbours(left.held.parts, self._left_reach, new_right.table):
                self._meet(one, other, state, failures)
        for side, new in ((left, new_left), (right, new_right)):
            if new is not None:
                side.held.append(new.table)
        left.held.discard(lambda part: self._decided(part, watermark, state))
        right.held.discard(lambda part: self._out_of_reach(part, watermark))
        ready = state.results.take_before(less(watermark, self.delay_ticks))
        return None if ready is None else ready.in_order().without_order()

    def _take_new(self, side: Side, number: int, watermark: Watermark) -> Part[HeldRows] | None:
        """Return the rows of a side that are complete now."""
        new = side.take_new(watermark)
        if new is None:
            return None
        reach = self._left_reach(new) if number == LEFT else right_reach(new)
        return Part(HeldRows.of(new, reach, marked=self._outer and number == LEFT))

    def _decided(self, part: Part[HeldRows], watermark: Watermark, state: JoinState) -> BoolArray | None:
        """Return which left rows can find no further match, and add those that have found none to the results."""
        if isinstance(watermark, int) and part.table.soonest >= watermark:
            return None
        left = part.table.frame
        bounds = self._times(left)
        done = Reach.of(bounds).last < until(watermark, left.substreams)
        if part.table.matched is not None:
            gone = part.table.matched if part.removed is None else part.table.matched | part.removed
            unmatched = np.flatnonzero(done & ~gone)
            if len(unmatched):
                times = unmatched_times(left.times, bounds)[unmatched]
                state.results.append(self._alone(left.take(unmatched), times))
        return done

    def _out_of_reach(self, part: Part[HeldRows], watermark: Watermark) -> BoolArray | None:
        """Return which right rows no later left row may reach."""
        right = part.table.frame
        earliest = self._earliest(until(watermark, right.substreams))
        if len(earliest) and part.table.soonest >= earliest.max():
            return None
        return right.times < earliest

    def _left_reach(self, left: Frame) -> Reach:
        return Reach.of(self._times(left))

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

    def _meet(self, left: Neighbours, right: Neighbours, state: JoinState, failures: Failures) -> None:
        """Add the pairs of these rows to the results, and mark their left rows as matched."""
        keys = JoinKeys.of(left.keys, right.keys, len(left), len(right))
        found = meet(left.reach, keys.left, right.reach.first, keys.right)
        for begin, end in found.stretches(_MOST_PAIRS):
            left_rows, right_rows = found.pairs(begin, end)
            for index in keys.unsure:
                one, other = left.keys[index].take(left_rows), right.keys[index].take(right_rows)
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
                left.mark(left_rows)
                state.results.append(pairs)

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


def right_reach(right: Frame) -> Reach:
    """Return the intervals of right rows: their times."""
    return Reach(right.times, right.times)


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
        case plan.Input(alias=alias) | plan.StepReference(alias=alias) | plan.Match(alias=alias):
            return {alias.lower()}
        case plan.Apply(alias=alias):
            return aliases_of(relation.source) | {alias.lower()}
        case plan.Join():
            return aliases_of(relation.left) | aliases_of(relation.right)
        case plan.Filter() | plan.Temporal():
            return aliases_of(relation.source)
        case _:
            return set()
