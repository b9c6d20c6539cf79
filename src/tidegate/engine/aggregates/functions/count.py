"""COUNT.
https://learn.microsoft.com/stream-analytics-query/count-azure-stream-analytics
"""

from __future__ import annotations

from tidegate.engine.aggregates.states.counts import Counts, RowCount
from tidegate.engine.aggregates.states.specification import AggregateFunction
from tidegate.engine.values.vectors import Vector
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.aggregates import Distinct
from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import read_signature


class Count(AggregateFunction):
    """The number of rows, or of values that are not NULL."""

    spelling = "COUNT"
    signature = read_signature("[value any]", Type.BIGINT)
    description = "The number of events, or of values that are not NULL."
    example = ("COUNT(*)", "3")
    counts_rows = True
    distinct = Distinct.APPLIES
    with_limit = True

    def summary(self, call: plan.AggregateCall) -> RowCount:
        return RowCount(call.args[0] if call.args else None)

    def finish(self, state: Counts, call: plan.AggregateCall) -> Vector:
        return Vector.bigints(state.counts)

    def kept(self, call: plan.AggregateCall) -> tuple[str, bool]:
        return "a count", True
