"""The aggregates of one GROUP BY together: what is kept for them, and what they give.

Aggregates that need the same thing share it: SUM(x) and AVG(x) are one exact sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.engine.aggregates import states as aggregates
from tidegate.engine.aggregates.states import Bags, Counts, Extremes, Moments, State, Sums
from tidegate.engine.aggregates.user_aggregates import Accumulators, finish_rows
from tidegate.engine.expressions.evaluation import evaluate
from tidegate.engine.expressions.frames import Frame
from tidegate.engine.expressions.registered import AGGREGATE_PREFIX, accumulator
from tidegate.engine.functions.logic import AS_ORDERED
from tidegate.engine.values.conversions import to_numbers
from tidegate.engine.values.grouping import sort_keys, sorted_rows
from tidegate.engine.values.vectors import Int64Array, Vector
from tidegate.saql.plan import nodes as plan

AGGREGATE_FUNCTIONS = frozenset(
    {
        *("count", "sum", "avg", "min", "max", "stdev", "stdevp", "var", "varp"),
        *("collect", "collecttop", "topone", "percentile_cont", "percentile_disc"),
    }
)


@dataclass(frozen=True, slots=True)
class Kept:
    """One thing kept of a group.

    Attributes:
        kind: counts, sums, moments, smallest, largest, distinct, ranked, merging (a registered aggregate).
        value: of what; None counts rows. ``numeric``: it is converted to a number.
        order_by, limit: how rows are ranked, and how many are kept.
        name: of a registered aggregate that merges.
        adds: of distinct values alone: what adds up over them (counts, sums or moments), which is kept instead where
            values come and go.
    """

    kind: str
    value: plan.Expr | None
    numeric: bool = False
    order_by: tuple[plan.Order, ...] = ()
    limit: int | None = None
    name: str = ""
    adds: str = ""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What a fold needs of its rows: a vector for each expression, and the columns that order the rows."""

    vectors: dict[tuple[plan.Expr, bool], Vector]
    ordering: tuple[Int64Array, ...]


class Aggregation:
    """The aggregates of one GROUP BY."""

    def __init__(self, calls: Sequence[plan.AggregateCall]) -> None:
        self.kept: list[Kept] = []
        self._finish: list[tuple[int, Callable[[Any], Vector]]] = []
        for call in calls:
            kept, finish = _what_is_kept(call)
            if kept not in self.kept:
                self.kept.append(kept)
            self._finish.append((self.kept.index(kept), finish))

    def columns(self) -> list[tuple[plan.Expr, bool]]:
        """What is needed of each row: expressions, and whether their values are turned into numbers."""
        wanted: dict[tuple[plan.Expr, bool], None] = {}
        for kept in self.kept:
            if kept.value is not None:
                wanted[kept.value, kept.numeric] = None
            wanted.update(dict.fromkeys((order.expr, False) for order in kept.order_by))
        return list(wanted)

    def evaluate(self, frame: Frame) -> Evaluated:
        """The arguments, for each row of a frame; some may be failures."""
        vectors = {
            (expr, numeric): to_numbers(evaluate(expr, frame)) if numeric else evaluate(expr, frame)
            for expr, numeric in self.columns()
        }
        return Evaluated(vectors, frame.ordering())

    def fold(self, codes: Int64Array, size: int, rows: Evaluated) -> tuple[State, ...]:
        """What is kept of rows, which are in the groups ``codes`` of ``size``."""
        return tuple(fold_kept(kept, codes, size, rows) for kept in self.kept)

    def finish(self, states: Sequence[State]) -> tuple[Vector, ...]:
        """The value of each aggregate for each group."""
        return tuple(finish(states[index]) for index, finish in self._finish)


def take_rows(rows: Evaluated, places: Int64Array) -> Evaluated:
    """Some of the rows."""
    return Evaluated(
        {key: vector.take(places) for key, vector in rows.vectors.items()},
        tuple(column[places] for column in rows.ordering),
    )


def fold_kept(kept: Kept, codes: Int64Array, size: int, rows: Evaluated) -> State:
    """What is kept of rows for one thing."""
    value = None if kept.value is None else rows.vectors[kept.value, kept.numeric]
    if kept.kind == "counts":
        return Counts.fold(codes, size, value)
    assert value is not None
    match kept.kind:
        case "sums":
            return Sums.fold(codes, size, value)
        case "moments":
            return Moments.fold(codes, size, value)
        case "distinct":
            return Bags.distinct(codes, size, value)
        case "ranked":
            columns = [rows.vectors[order.expr, False] for order in kept.order_by]
            descending = [order.descending for order in kept.order_by]
            return Bags.ranked(codes, size, value, columns, descending, rows.ordering, kept.limit)
        case "merging":
            times = rows.vectors[kept.order_by[0].expr, False]
            # Rows of the same time come in the order of arrival.
            order = sorted_rows([sort_keys(times), *rows.ordering])
            return Accumulators.fold(codes[order], size, value.take(order), times.take(order), kept.name)
        case _:
            return Extremes.fold(codes, size, value, largest=kept.kind == "largest")


def _what_a_registered_one_keeps(name: str, value: plan.Expr) -> tuple[Kept, Callable[[Any], Vector]]:
    by_time = (plan.Order(plan.SystemTimestamp()),)
    if accumulator(name).merges:
        return Kept("merging", value, order_by=by_time, name=name), Accumulators.finish
    return Kept("ranked", value, order_by=by_time), lambda bags: finish_rows(bags, name)


def _ranking(call: plan.AggregateCall) -> tuple[plan.Order, ...]:
    """By what rows are ranked: "only ordering by bigint, float and datetime" (TopOne page), so text as one of these."""
    return tuple(plan.Order(plan.Call(AS_ORDERED, (order.expr,)), order.descending) for order in call.order_by)


def _what_is_kept(call: plan.AggregateCall) -> tuple[Kept, Callable[[Any], Vector]]:
    value = call.args[0] if call.args else None
    match call.function:
        case "count" if not call.distinct or value is None:
            return Kept("counts", value), Counts.finish
        case "min" | "max":
            # Text that is a time or a number is compared as one, and comes out as one (MAX page, "General remarks").
            ordered = None if value is None else plan.Call(AS_ORDERED, (value,))
            return Kept("largest" if call.function == "max" else "smallest", ordered), Extremes.finish
        case "collect":
            return Kept("ranked", value), aggregates.finish_collected
        case "collecttop":
            limit = int(call.parameters[0])
            return Kept("ranked", value, order_by=_ranking(call), limit=limit), aggregates.finish_ranked
        case "topone":
            return Kept("ranked", value, order_by=_ranking(call), limit=1), aggregates.finish_first
        case "percentile_cont" | "percentile_disc":
            order = call.order_by[0]
            continuous, fraction = call.function == "percentile_cont", float(call.parameters[0])
            return Kept("distinct", order.expr, True), lambda bags: aggregates.finish_percentile(
                bags, fraction, continuous=continuous, descending=order.descending
            )
    if call.function.startswith(AGGREGATE_PREFIX):
        return _what_a_registered_one_keeps(call.function, call.args[0])
    if call.function == "count":
        return Kept("distinct", value, adds="counts"), aggregates.finish_count_of_distinct
    if call.function in ("sum", "avg"):
        finish = Sums.finish_sum if call.function == "sum" else Sums.finish_average
        if call.distinct:
            return Kept("distinct", value, True, adds="sums"), lambda state: finish(aggregates.sums_of_distinct(state))
        return Kept("sums", value, True), finish
    root, population = call.function.startswith("stdev"), call.function.endswith("p")
    if call.distinct:
        return Kept("distinct", value, True, adds="moments"), lambda state: aggregates.moments_of_distinct(
            state
        ).finish(population=population, root=root)
    return Kept("moments", value, True), lambda moments: moments.finish(population=population, root=root)
