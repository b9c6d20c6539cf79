"""Registered aggregates as states that merge.

An aggregate that merges is one object for each group. Of any other the rows are kept, in their order, and the object is
made when the group is complete: that is dearer, and right whatever the aggregate does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tidegate.engine.aggregates.states import Bags
from tidegate.engine.expressions.registered import Accumulator, accumulator
from tidegate.engine.values.vectors import Int64Array, Vector, object_array


@dataclass(slots=True)
class Accumulators:
    """An object of the aggregate ``name`` for each of g groups; none is changed once it is here."""

    objects: npt.NDArray[np.object_]
    name: str

    @classmethod
    def fold(cls, codes: Int64Array, size: int, values: Vector, times: Vector, name: str) -> Accumulators:
        """Take up rows, which are in order."""
        objects = [accumulator(name) for _ in range(size)]
        for code, value, time in zip(codes.tolist(), values.to_list(), times.to_list(), strict=True):
            objects[code].accumulate(value, time)
        return cls(object_array(objects), name)

    def take(self, indices: Int64Array) -> Accumulators:
        return Accumulators(self.objects[indices], self.name)

    def merge(self, codes: Int64Array, size: int) -> Accumulators:
        merged: list[Accumulator | None] = [None] * size
        alone = np.bincount(codes, minlength=size) == 1
        for code, one in zip(codes.tolist(), self.objects.tolist(), strict=True):
            if alone[code]:
                merged[code] = one
                continue
            total = merged[code]
            if total is None:
                total = merged[code] = accumulator(self.name)
            total.merge(one)
        return Accumulators(object_array(merged), self.name)

    @classmethod
    def concat(cls, states: Sequence[Accumulators]) -> Accumulators:
        return cls(np.concatenate([state.objects for state in states]), states[0].name)

    def finish(self) -> Vector:
        """The result of each."""
        return Vector.of([one.result() for one in self.objects.tolist()])


def finish_rows(bags: Bags, name: str) -> Vector:
    """The results over rows that were kept; their times are beside them."""
    results = []
    values, times = bags.values.to_list(), bags.columns[0].to_list()
    for start, end in pairwise(bags.starts.tolist()):
        one = accumulator(name)
        for value, time in zip(values[start:end], times[start:end], strict=True):
            one.accumulate(value, time)
        results.append(one.result())
    return Vector.of(results)
