"""Stateless relations: filters, projections, unions, applications, evaluated over frames.

Rows that have the same System.Timestamp are in the order in which their events arrived, wherever order matters: rows
are in the order of (System.Timestamp, arrival, partition, sequence number). The query reference says so of LAG
("if there are multiple events with the same timestamp, their order of arrival is used"), and it holds everywhere: LAG,
LAST, ISFIRST, aggregates OVER, Collect, the final tie of TopOne and CollectTop, MATCH_RECOGNIZE, sessions and results.
https://learn.microsoft.com/stream-analytics-query/lag-azure-stream-analytics

The order is made once, from the log (`arrival_order`), and rows carry it as int64 columns as long as each follows from
one event. Rows that agree in all of it (a UNION of an input with itself, two inputs) are in the order in which the
query mentions their inputs, rows of one event in their order there. Rows that follow from several events have no
arrival: results of a window are ordered by key, those of a join by their left and then by their right row, and those of
a UNION that has such rows by its branches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tidegate.engine.expressions.evaluation import TABLES, evaluate, temporal_alias
from tidegate.engine.expressions.frames import Columns, Frame, NamedColumns, merge_by_time
from tidegate.engine.expressions.registered import first_raised
from tidegate.engine.functions.declarations import nested_only
from tidegate.engine.functions.operators import is_true
from tidegate.engine.values.budget import APPLIED_BYTES, MOST_ROWS_OF_ONE, beyond_limit
from tidegate.engine.values.vectors import BoolArray, Int64Array, Kind, Reason, Vector
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.walking import folded, relations_in, sources_of


@dataclass(frozen=True, slots=True)
class RuntimeErrors:
    """Rows lost for one reason.

    Attributes:
        reason: why.
        rows: int64[k], which decoded rows; only in a task, else empty.
        times: int64[k], their System.Timestamp in ticks.
        detail: what a registered function raised, the first time that one did.
    """

    reason: Reason
    rows: Int64Array
    times: Int64Array
    detail: str = ""

    def since(self, ticks: int) -> RuntimeErrors:
        """Return only the rows with a time from ``ticks`` on."""
        later = self.times >= ticks
        return RuntimeErrors(self.reason, self.rows if later.all() else self.rows[:0], self.times[later], self.detail)

    @property
    def message(self) -> str:
        """Return the reason as a sentence."""
        return f"{self.reason.message}; the first: {self.detail}" if self.detail else self.reason.message


@dataclass(slots=True)
class Failures:
    """The runtime errors of one evaluation."""

    errors: list[RuntimeErrors] = field(default_factory=list)

    def without(self, frame: Frame, vectors: Sequence[Vector]) -> BoolArray | None:
        """Return which rows have no failure in any of the vectors, None if none has, and count the others."""
        failing = [vector for vector in vectors if Kind.ERROR in vector.present()]
        if not failing:
            return None
        reasons = np.zeros(len(frame), dtype=np.int64)
        for vector in reversed(failing):
            failed = vector.kinds == Kind.ERROR
            reasons[failed] = vector.int_values()[failed]
        for reason in np.unique(reasons[reasons > 0]).tolist():
            places = np.flatnonzero(reasons == reason)
            rows = np.empty(0, dtype=np.int64) if frame.rows is None else frame.rows[places]
            detail = first_raised() if reason == Reason.FUNCTION_FAILED else ""
            self.errors.append(RuntimeErrors(Reason(reason), rows, frame.times[places], detail))
        fine: BoolArray = reasons == 0
        return fine


STATELESS = (plan.Input, plan.StepReference, plan.Filter, plan.Project, plan.Union, plan.Apply, plan.Join)


class ReferenceJoins(Protocol):
    """Joins with reference data (`reference.ReferenceTables`)."""

    def join(self, relation: plan.Join, left: Frame, failures: Failures) -> Frame | None:
        """Return the rows of a join over its left rows; None for none."""


class Evaluation:
    """One pass over one set of frames. A relation that several others read is computed once."""

    def __init__(self, frames: Mapping[int, Frame | None], failures: Failures, reference: ReferenceJoins) -> None:
        """``frames``: by id, the relations that are given. Those that are not given, and have no source, have no
        rows."""
        self._frames = dict(frames)
        self._failures = failures
        self._reference = reference

    def give(self, relation: plan.Relation, frame: Frame | None) -> None:
        """Set the rows of a relation."""
        self._frames[id(relation)] = frame

    def frame(self, relation: plan.Relation) -> Frame | None:
        """Return the rows of a relation; None for none."""
        if id(relation) not in self._frames:
            frame = self._compute(relation)
            self._frames[id(relation)] = frame if frame is not None and len(frame) else None
        return self._frames[id(relation)]

    def _compute(self, relation: plan.Relation) -> Frame | None:
        if isinstance(relation, plan.Union):
            frames = branches_of(relation, [self.frame(source) for source in relation.sources])
            return merge_by_time(frames) if len(frames) > 1 else (frames[0] if frames else None)
        match relation:
            case plan.Join(reference=True, left=left):
                return self._rows(left, lambda frame: self._reference.join(relation, frame, self._failures))
            case plan.StepReference(relation=source, alias=alias):
                return self._rows(source, lambda frame: frame.with_sources({alias.lower(): frame.selected()}))
            case plan.Filter(source=source, predicate=predicate):
                return self._rows(source, lambda frame: self._filter(predicate, frame))
            case plan.Project(source=source, items=items):
                return self._rows(source, lambda frame: self._project(items, frame))
            case plan.Apply(source=source):
                return self._rows(source, lambda frame: self._apply(relation, frame))
            case _:
                return None

    def _rows(self, source: plan.Relation, compute: Callable[[Frame], Frame | None]) -> Frame | None:
        """Return what follows from the rows of a source; None if it has none."""
        frame = self.frame(source)
        return None if frame is None else compute(frame)

    def _filter(self, predicate: plan.Expr, frame: Frame) -> Frame:
        condition = evaluate(predicate, frame)
        self._failures.without(frame, [condition])
        keep = is_true(condition)
        return frame if keep.all() else frame.take(np.flatnonzero(keep))

    def _project(self, items: tuple[plan.Item | plan.Star, ...], frame: Frame) -> Frame:
        names: list[str | None] = []
        vectors: list[Vector] = []
        for item in items:
            if isinstance(item, plan.Item):
                names.append(item.name)
                vectors.append(evaluate(item.expr, frame))
            else:
                more_names, more_vectors = _star(item, frame)
                names += more_names
                vectors += more_vectors
        columns = NamedColumns(tuple(names), tuple(vectors)).without_hidden()
        result = frame.with_sources({"": columns})
        fine = self._failures.without(frame, columns.vectors)
        return result if fine is None else result.take(np.flatnonzero(fine))

    def _apply(self, apply: plan.Apply, frame: Frame) -> Frame:
        """A row for each element, beside the columns of the row it is of."""
        function = TABLES[apply.function]
        argument = nested_only(function.kind)(evaluate(apply.argument, frame))
        values = argument.to_list()
        argument = beyond_limit(argument, _multiplied_too_often(values, frame) & (argument.kinds == function.kind))
        fine = self._failures.without(frame, [argument])
        rows: list[int] = []
        firsts: list[object] = []
        seconds: list[object] = []
        for row, value in enumerate(values):
            if fine is not None and not fine[row]:
                continue
            elements = [] if value is None else list(function.elements(value))
            if not elements and apply.outer:
                elements = [(None, None)]
            rows += [row] * len(elements)
            firsts += [first for first, _ in elements]
            seconds += [second for _, second in elements]
        names = tuple(name for name, _ in function.columns)
        columns = NamedColumns(names, (Vector.of(firsts), Vector.of(seconds)))
        result = frame.take(np.array(rows, dtype=np.int64))
        places = np.arange(len(rows))
        order = (*result.order, places) if result.order else ()
        ties = (*result.ties, Vector.bigints(places)) if result.ties else ()
        sources: dict[str, Columns] = {**result.sources, apply.alias.lower(): columns}
        return Frame(
            result.times,
            sources,
            side_times=result.side_times,
            order=order,
            ties=ties,
            rows=result.rows,
            substreams=result.substreams,
        )


def _multiplied_too_often(values: Sequence[object], frame: Frame) -> BoolArray:
    """Return the rows whose event would become too many rows, or whose texts would be repeated too often."""
    sizes = (len(value) if isinstance(value, (list, dict)) else 0 for value in values)
    counts = np.fromiter(sizes, dtype=np.int64, count=len(values))
    too_many: BoolArray = np.zeros(len(values), dtype=np.bool_)
    repeats_much = int(counts.max(initial=0)) * frame.text_bytes() > APPLIED_BYTES
    if int(counts.sum()) <= MOST_ROWS_OF_ONE and not repeats_much:
        return too_many
    # In a task, the rows of an event are counted together; elsewhere a row counts for itself.
    numbers = frame.order[2] if frame.rows is not None and frame.order else np.arange(len(frame))
    owners = np.unique(numbers, return_inverse=True)[1]
    too_many |= np.bincount(owners, weights=counts)[owners] > MOST_ROWS_OF_ONE
    if repeats_much:
        too_many |= np.bincount(owners, weights=counts * frame.text_sizes())[owners] > APPLIED_BYTES
    return too_many


def _star(star: plan.Star, frame: Frame) -> tuple[tuple[str | None, ...], tuple[Vector, ...]]:
    if star.path:
        record = frame.sources[(star.source or "").lower()].at(star.path)
        return (None,), (_only_records(record),)
    names: list[str | None] = []
    vectors: list[Vector] = []
    for alias, columns in frame.sources.items():
        if alias.startswith(" ") or (star.source is not None and alias != star.source.lower()):
            continue
        more_names, more_vectors = columns.spread()
        names += more_names
        vectors += more_vectors
    return tuple(names), tuple(vectors)


def _only_records(vector: Vector) -> Vector:
    """Return the vector with NULL in place of values without fields."""
    keep = np.isin(vector.kinds, (Kind.RECORD, Kind.ERROR))
    return vector if keep.all() else vector.with_kinds(np.where(keep, vector.kinds, np.uint8(Kind.NULL)))


def branches_of(union: plan.Union, frames: Sequence[Frame | None]) -> list[Frame]:
    """Return the frames of a UNION's branches that have rows, each with as many columns of order as any may have.

    A row of an array, or beside a row of reference data, is ordered by one column more than its event.
    """
    depths = list(map(_multiplied, union.sources))
    return [
        frame.with_order((*frame.order, *[np.zeros_like(frame.times)] * (max(depths) - depth)) if frame.order else ())
        for frame, depth in zip(frames, depths, strict=True)
        if frame is not None
    ]


def _multiplied(relation: plan.Relation) -> int:
    """Return how many columns of order the rows of a relation have beside those of their event."""

    def multiplied(one: plan.Relation, below: list[int]) -> int:
        own = isinstance(one, plan.Apply) or (isinstance(one, plan.Join) and one.reference)
        return own + max(below, default=0)

    return folded(relation, multiplied, streams_of)


def is_local(relation: plan.Relation) -> bool:
    """Return whether each row follows from a single event, so that a task can compute it alone."""
    return all(
        isinstance(one, STATELESS) and not (isinstance(one, plan.Join) and not one.reference)
        for one in relations_in(relation, sources=streams_of)
    )


def streams_of(relation: plan.Relation) -> tuple[plan.Relation, ...]:
    """Return the relations below whose rows have a time, which those of reference data do not."""
    if isinstance(relation, plan.Join) and relation.reference:
        return (relation.left,)
    return sources_of(relation)


Names = tuple[str | None, ...]
"""Column names; None means all fields of a record, which the plan does not know."""


def columns_of(relation: plan.Relation, known: dict[int, Names] | None = None) -> dict[str, Names]:
    """The columns of each source of a FROM, by the alias under which frames have it; `known`: of steps, by id."""
    known = {} if known is None else known
    match relation:
        case plan.Input(alias=alias):
            return {alias.lower(): (None,)}
        case plan.StepReference(alias=alias):
            return {alias.lower(): selected_names(relation.relation, known)}
        case plan.Temporal(alias=alias, calls=calls):
            values = tuple(map(str, range(len(calls))))
            return {**columns_of(relation.source, known), temporal_alias(alias): values}
        case plan.Match(alias=alias, measures=measures):
            return {alias.lower(): tuple(item.name for item in measures)}
        case plan.Apply(alias=alias, function=function):
            names = tuple(name for name, _ in TABLES[function].columns)
            return {**columns_of(relation.source, known), alias.lower(): names}
        case plan.Join():
            return {**columns_of(relation.left, known), **columns_of(relation.right, known)}
        case plan.Filter():
            return columns_of(relation.source, known)
        case _:
            return {}


def selected_names(relation: plan.Relation, known: dict[int, Names] | None = None) -> Names:
    """The columns of a SELECT. A step that is read many times is looked at once."""
    known = {} if known is None else known
    if id(relation) not in known:
        known[id(relation)] = _selected_names(relation, known)
    return known[id(relation)]


def _selected_names(relation: plan.Relation, known: dict[int, Names]) -> Names:
    if isinstance(relation, plan.Union):
        every = [selected_names(source, known) for source in relation.sources]
        alike = len({tuple(name and name.lower() for name in names) for names in every}) == 1
        return every[0] if alike and None not in every[0] else (None,)
    if not isinstance(relation, plan.Project):
        return (None,)
    names: list[str | None] = []
    for item in relation.items:
        names += [item.name] if isinstance(item, plan.Item) else _starred(item, relation.source, known)
    first = {name and name.lower(): name for name in reversed(names)}  # a second unknown record adds no name either
    return tuple(first[key] for key in dict.fromkeys(name and name.lower() for name in names))


def _starred(star: plan.Star, source: plan.Relation, known: dict[int, Names]) -> list[str | None]:
    if star.path:
        return [None]
    return [
        name
        for alias, names in columns_of(source, known).items()
        if not alias.startswith(" ") and (star.source is None or alias == star.source.lower())
        for name in names
    ]


def arrival_order(
    arrivals: Int64Array, mention: int, partition: str, sequence_numbers: Int64Array, indices: Int64Array
) -> tuple[Int64Array, ...]:
    """Return the columns that order n rows of one partition among all rows with the same System.Timestamp.

    Args:
        arrivals: int64[n], ticks.
        mention: the number of the place where the query mentions the input.
        partition: a decimal number.
        sequence_numbers: int64[n].
        indices: int64[n], the place of each row in its event.
    """
    mentions, partitions = (np.full(len(arrivals), number, dtype=np.int64) for number in (mention, int(partition)))
    return (arrivals, partitions, sequence_numbers, mentions, indices)


def has_arrivals(relation: plan.Relation) -> bool:
    """Return whether each row of a relation follows from one event, so that it has the order of its arrival."""
    return not any(
        isinstance(one, plan.Aggregate | plan.Match) or (isinstance(one, plan.Join) and not one.reference)
        for one in relations_in(relation, sources=streams_of)
    )
