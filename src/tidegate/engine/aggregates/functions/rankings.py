"""Collect, CollectTop and TopOne: the values of a group's rows, in their order or by rank.
https://learn.microsoft.com/stream-analytics-query/collect-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/collecttop-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/topone-azure-stream-analytics
"""

from __future__ import annotations

from tidegate.engine.aggregates.states.multisets import Multisets, RankedRows
from tidegate.engine.aggregates.states.specification import AggregateFunction
from tidegate.engine.values.vectors import Vector
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.explain import expression
from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import read_signature


class Collect(AggregateFunction):
    """An array of the values, or of the rows, in the order of time."""

    spelling = "Collect"
    signature = read_signature("[value any]", Type.ARRAY)
    description = "An array of the values or, without an argument, of the events."
    example = ("Collect(n)", '["a","b","c"]')
    gathers_rows = True
    with_limit = True

    def summary(self, call: plan.AggregateCall) -> RankedRows:
        return RankedRows(call.args[0])

    def finish(self, state: Multisets, call: plan.AggregateCall) -> Vector:
        return Vector.of(state.lists())

    def kept(self, call: plan.AggregateCall) -> tuple[str, bool]:
        return f"all of {expression(call.args[0])}", False


class CollectTop(AggregateFunction):
    """An array of {rank, value} of the first rows."""

    spelling = "CollectTop"
    signature = read_signature("number count, [value any]", Type.ARRAY)
    description = "An array of {rank, value} of the first n events by ORDER BY, or of a value of each."
    example = ("CollectTop(2, n) OVER (ORDER BY v DESC)", '[{"rank":1,"value":"c"},{"rank":2,"value":"b"}]')
    gathers_rows = True
    ranked = True
    with_limit = True

    def summary(self, call: plan.AggregateCall) -> RankedRows:
        return RankedRows(call.args[0], call.order_by, int(call.parameters[0]))

    def finish(self, state: Multisets, call: plan.AggregateCall) -> Vector:
        return Vector.of(
            [[{"rank": rank, "value": value} for rank, value in enumerate(values, start=1)] for values in state.lists()]
        )

    def kept(self, call: plan.AggregateCall) -> tuple[str, bool]:
        return f"the first {call.parameters[0]} rows", True


class TopOne(AggregateFunction):
    """The first row."""

    spelling = "TopOne"
    signature = read_signature("[value any]")
    description = "The first event by ORDER BY, as a record, or a value of it."
    example = ("TopOne(n) OVER (ORDER BY v DESC)", '"c"')
    gathers_rows = True
    ranked = True
    with_limit = True

    def result_type(self, argument: Type) -> Type:
        return argument

    def summary(self, call: plan.AggregateCall) -> RankedRows:
        return RankedRows(call.args[0], call.order_by, 1)

    def finish(self, state: Multisets, call: plan.AggregateCall) -> Vector:
        return Vector.of([values[0] if values else None for values in state.lists()])

    def kept(self, call: plan.AggregateCall) -> tuple[str, bool]:
        return "the first row", True
