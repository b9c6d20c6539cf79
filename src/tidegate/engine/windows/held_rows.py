"""The rows that an operator holds until no result can need them.

For a GROUP BY only the keys and the arguments of the aggregates are held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from tidegate.engine.aggregates.aggregation import Aggregation
from tidegate.engine.aggregates.states.state import Evaluated
from tidegate.engine.expressions.evaluation import evaluate
from tidegate.engine.expressions.frames import Frame
from tidegate.engine.expressions.relations import Failures
from tidegate.engine.substreams.watermarks import Part, TimedRows, Waiting
from tidegate.engine.values.grouping import group, sort_keys, sorted_rows, unified
from tidegate.engine.values.vectors import BoolArray, Int64Array, Vector
from tidegate.sql.plan import nodes as plan

T = TypeVar("T", bound=TimedRows)

_FEW = 4
"""Where more than one in this many rows has changed, it is not worth looking for the keys of the others."""


class GroupRows:
    """Reduces the rows of a GROUP BY to what is held, and makes results from it.

    Held rows are a frame: its keys are the keys of the relation and then ``partition_by``, its aggregates are the
    arguments of the aggregates.
    """

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
        """Return the arguments of held rows, which are in order."""
        return Evaluated(dict(zip(self.aggregation.columns(), held.aggregates, strict=True)), (np.arange(len(held)),))

    def keys(self, held: Frame) -> tuple[Vector, ...]:
        """Return the keys of the relation."""
        return held.keys[: len(self._keys)]

    def partitions(self, held: Frame) -> tuple[Vector, ...]:
        """Return the values of PARTITION BY."""
        return held.keys[len(self._keys) :]

    def results(
        self,
        ends: Int64Array,
        keys: Sequence[Vector],
        aggregates: Sequence[Vector],
        partitions: Sequence[Vector] = (),
        substreams: Int64Array | None = None,
    ) -> Frame | None:
        """Return results by time, then by key, then by partition."""
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
            ties=tuple(key.take(order) for key in (*keys, *partitions)),
            substreams=None if substreams is None else substreams[order],
        )


def most_change(held: Waiting[T], count: int) -> bool:
    """Return whether so many rows have changed that they are likely to have most of the keys."""
    return _FEW * count > sum(len(part.table) for part in held.parts)


def with_keys_of(
    held: Waiting[T], keys: Callable[[T], Sequence[Vector]], changed: Sequence[T]
) -> Callable[[Part[T]], BoolArray]:
    """Return what says of each part which rows have a key that occurs among changed rows, and perhaps others.

    Args:
        held: of the rows that have not changed, only the keys are read.
        keys: returns the key columns of a table.
        changed: the rows that have changed, of which there is at least one.
    """
    count = sum(map(len, changed))
    tables = [part.table for part in held.parts]
    lengths = list(map(len, tables))
    if not tables or most_change(held, count) or not keys(changed[0]):
        return lambda part: np.ones(len(part.table), dtype=np.bool_)
    columns = zip(*map(keys, (*changed, *tables)), strict=True)
    groups = group(count + sum(lengths), [unified(Vector.concat(column)) for column in columns])
    is_changed = np.zeros(groups.count, dtype=np.bool_)
    is_changed[groups.codes[:count]] = True
    chosen = np.split(is_changed[groups.codes[count:]], np.cumsum(lengths)[:-1])
    by_table = {id(table): rows for table, rows in zip(tables, chosen, strict=True)}
    return lambda part: by_table[id(part.table)]


def in_order(*frames: Frame | None) -> Frame | None:
    """Concatenate rows, of which those of a later frame are later; None for none."""
    there = [frame for frame in frames if frame is not None]
    return Frame.concat(there) if there else None


def kept(frame: Frame, still: BoolArray) -> Frame | None:
    """Return the rows that are still needed; None if there are none."""
    return frame if still.all() else frame.take(np.flatnonzero(still)) if still.any() else None
