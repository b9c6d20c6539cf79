"""MIN and MAX.
https://learn.microsoft.com/stream-analytics-query/min-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/max-azure-stream-analytics
"""

from __future__ import annotations

from typing import ClassVar

from tidegate.engine.aggregates.states.extremes import Extreme, Extremes
from tidegate.engine.aggregates.states.specification import AggregateFunction
from tidegate.engine.values.vectors import Vector
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.aggregates import Distinct
from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import read_signature


class _FromExtremes(AggregateFunction):
    """The least or the greatest value, as it is.

    "If the column was explicitly cast to NVARCHAR(MAX) … the maximal string value will be returned", else text is
    converted before it is compared (MAX page, "Arguments"). The compiler does that, which knows what was cast.
    """

    signature = read_signature("value ordered")
    distinct = Distinct.WITHOUT_EFFECT
    with_limit = True
    largest: ClassVar[bool]

    def result_type(self, argument: Type) -> Type:
        return argument if argument in (Type.BIGINT, Type.FLOAT, Type.DATETIME, Type.NVARCHAR) else Type.ANY

    def summary(self, call: plan.AggregateCall) -> Extreme:
        return Extreme(call.args[0], self.largest)

    def finish(self, state: Extremes, call: plan.AggregateCall) -> Vector:
        return state.values

    def kept(self, call: plan.AggregateCall) -> tuple[str, bool]:
        return f"the {'greatest' if self.largest else 'least'} value", True


class Minimum(_FromExtremes):
    """The least value."""

    spelling = "MIN"
    description = "The least value. Text that was cast is compared as text, other text as the number or time it is."
    example = ("MIN(v)", "2")
    largest = False


class Maximum(_FromExtremes):
    """The greatest value."""

    spelling = "MAX"
    description = "The greatest value. Text that was cast is compared as text, other text as the number or time it is."
    example = ("MAX(v)", "9")
    largest = True
