"""Aggregates that a job registers, instead of the service's JavaScript ones.
https://learn.microsoft.com/azure/stream-analytics/stream-analytics-javascript-user-defined-aggregates

An aggregate with `merge` is one object for each group. For any other the rows are kept, in order, and the object is
made when the group is complete, which costs more, and is right whatever the aggregate does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.engine.aggregates.states.ordered import Multisets, RankedRows
from tidegate.engine.aggregates.states.state import AggregateFunction, Column, Evaluated, State, StateMemory, Summary
from tidegate.engine.expressions.registered import Accumulator, accumulator, calls, results_of, taking_rows
from tidegate.engine.values.grouping import sort_keys, sorted_rows
from tidegate.engine.values.vectors import Int64Array, Vector, object_array
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.explain import expression
from tidegate.sql.plan.signatures import read_signature


@dataclass(slots=True)
class Accumulators(State):
    """An object of the aggregate ``name`` for each of g groups; the objects are not changed any more."""

    objects: npt.NDArray[np.object_]
    name: str

    @classmethod
    def fold(cls, codes: Int64Array, size: int, values: Vector, times: Vector, name: str) -> Accumulators:
        """Accumulate rows, which are in order."""
        objects = [accumulator(name) for _ in range(size)]
        passed = 0
        for code, value, time in zip(codes.tolist(), values.to_list(), times.to_list(), strict=True):
            passed += objects[code].accumulate(value, time)
        _count(passed)
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


@dataclass(frozen=True, slots=True)
class MergingObjects(Summary):
    """An object of a registered aggregate with `merge`."""

    value: plan.Expr
    name: str

    def columns(self) -> tuple[Column, ...]:
        return ((self.value, False), (plan.SystemTimestamp(), False))

    def fold(self, codes: Int64Array, size: int, rows: Evaluated) -> Accumulators:
        values, times = rows.vectors[self.value, False], rows.vectors[plan.SystemTimestamp(), False]
        # Rows of the same time are in the order of arrival.
        order = sorted_rows([sort_keys(times), *rows.ordering])
        return Accumulators.fold(codes[order], size, values.take(order), times.take(order), self.name)


class Registered(AggregateFunction):
    """An aggregate that the job registers: `uda.<name>`."""

    spelling = "uda"
    signature = read_signature("value any")
    description = "An aggregate of your own (see below)."
    with_limit = True

    def summary(self, call: plan.AggregateCall) -> Summary:
        (value,) = call.args
        if taking_rows(call.function) is None and accumulator(call.function).merges:
            return MergingObjects(value, call.function)
        return RankedRows(value, (plan.Order(plan.SystemTimestamp()),))

    def finish(self, state: Accumulators | Multisets, call: plan.AggregateCall) -> Vector:
        if isinstance(state, Accumulators):
            return Vector.of([one.result() for one in state.objects.tolist()])
        return _finish_rows(state, call.function)

    def kept(self, call: plan.AggregateCall) -> tuple[str, bool]:
        return f"{expression(call.args[0])} for {call.function}", False

    def memory(self, call: plan.AggregateCall, functions: Mapping[str, Callable[..., Any]]) -> StateMemory:
        """Return what the state of one group takes; one that is not among ``functions`` is taken to keep rows."""
        function = functions.get(call.function)
        if hasattr(getattr(function, "target", function), "merge"):
            return StateMemory(f"the state of {call.function}", bounded=True, rebuilt=True)
        return StateMemory(*self.kept(call), rebuilt=True)


def _finish_rows(rows: Multisets, name: str) -> Vector:
    """Return the results over rows that were kept with their times."""
    by_rows = taking_rows(name)
    if by_rows is not None:
        starts = rows.starts.tolist()
        calls().events += len(rows.values)
        computed = by_rows.compute_groups(rows.values.to_list(), rows.columns[0].to_list(), starts)
        return results_of(name, computed, len(rows.values) + len(computed))
    results, passed = [], 0
    values, times = rows.values.to_list(), rows.columns[0].to_list()
    for start, end in pairwise(rows.starts.tolist()):
        one = accumulator(name)
        for value, time in zip(values[start:end], times[start:end], strict=True):
            passed += one.accumulate(value, time)
        results.append(one.result())
    _count(passed)
    return Vector.of(results)


def _count(rows: int) -> None:
    """Count the rows passed to objects of an aggregate, one at a time."""
    counted = calls()
    counted.requests += rows
    counted.events += rows
