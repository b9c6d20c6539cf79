"""Stateless relations: filters, projections, unions, applications, evaluated over frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from tidegate.engine.expressions.evaluation import evaluate
from tidegate.engine.expressions.failures import Failures
from tidegate.engine.expressions.frames import Columns, Frame, NamedColumns, merge_by_time
from tidegate.engine.functions.catalog import TABLES
from tidegate.engine.functions.declarations import nested_only
from tidegate.engine.functions.operators import is_true
from tidegate.engine.values.budget import APPLIED_BYTES, MOST_ROWS_OF_ONE, beyond_limit
from tidegate.engine.values.vectors import BoolArray, Kind, Vector
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.walking import folded, relations_in, sources_of

STATELESS = (plan.Input, plan.Step, plan.Filter, plan.Project, plan.Union, plan.Apply, plan.Join)


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
        sources = streams_of(relation)
        frame = self.frame(sources[0]) if len(sources) == 1 else None
        if frame is None:
            return None
        match relation:
            case plan.Join():
                return self._reference.join(relation, frame, self._failures)
            case plan.Step(alias=alias):
                return frame.with_sources({alias.lower(): frame.selected()})
            case plan.Filter(predicate=predicate):
                condition = evaluate(predicate, frame)
                self._failures.without(frame, [condition])
                keep = is_true(condition)
                return frame if keep.all() else frame.take(np.flatnonzero(keep))
            case plan.Project(items=items):
                return self._project(items, frame)
            case plan.Apply():
                return self._apply(relation, frame)
            case _:
                return None

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
    # In a task, the rows of an event are counted together; elsewhere a row stands for itself.
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
