"""MIN and MAX, percentiles, and Collect, CollectTop and TopOne: aggregates of ordered values.
https://learn.microsoft.com/stream-analytics-query/min-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/max-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/percentile-cont-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/percentile-disc-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/collect-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/collecttop-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/topone-azure-stream-analytics
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tidegate.engine.aggregates.states.ordered import (
    DistinctValues,
    Extreme,
    Extremes,
    Multisets,
    OverlappingSets,
    RankedRows,
)
from tidegate.engine.aggregates.states.state import AggregateFunction
from tidegate.engine.values.vectors import FloatArray, Int64Array, Kind, Vector
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.explain import expression
from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import Distinct, read_signature


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


class _Percentile(AggregateFunction):
    """The value below which a fraction of the values lies."""

    ranked = True
    ranks_by = 1
    ranks_numbers = True
    continuous: ClassVar[bool]

    def summary(self, call: plan.AggregateCall) -> DistinctValues:
        return DistinctValues((call.order_by[0].expr, True))

    def finish(self, state: Multisets | OverlappingSets, call: plan.AggregateCall) -> Vector:
        fraction, descending = float(call.parameters[0]), call.order_by[0].descending
        return percentiles(state, fraction, continuous=self.continuous, descending=descending)

    def kept(self, call: plan.AggregateCall) -> tuple[str, bool]:
        return f"the different values of {expression(call.order_by[0].expr)}", False


class PercentileContinuous(_Percentile):
    """The percentile between the two nearest values."""

    spelling = "PERCENTILE_CONT"
    signature = read_signature("fraction fraction", Type.FLOAT)
    description = "The percentile by ORDER BY, between the two nearest values."
    example = ("PERCENTILE_CONT(0.25) OVER (ORDER BY v)", "3.0")
    continuous = True


class PercentileDiscrete(_Percentile):
    """The percentile as one of the values."""

    spelling = "PERCENTILE_DISC"
    signature = read_signature("fraction fraction")
    description = "The percentile by ORDER BY, as one of the values."
    example = ("PERCENTILE_DISC(0.25) OVER (ORDER BY v)", "2")
    continuous = False


def percentiles(sets: Multisets | OverlappingSets, fraction: float, *, continuous: bool, descending: bool) -> Vector:
    """Return the percentile of each multiset of numbers, one of them or, ``continuous``, between the two nearest."""
    counts = sets.occurrences()
    there = np.flatnonzero(counts)
    some = counts[there]

    def at(places: Int64Array) -> Vector:
        return sets.nth(there, some - 1 - places if descending else places)

    if continuous:
        exact = fraction * (some - 1)
        low = np.floor(exact).astype(np.int64)
        below, above = _floats(at(low)), _floats(at(np.minimum(low + 1, some - 1)))
        with np.errstate(over="ignore", invalid="ignore"):
            found = Vector.of((below + (above - below) * (exact - low)).tolist())
    else:
        found = at(np.maximum(np.ceil(fraction * some).astype(np.int64) - 1, 0))
    places = np.full(len(counts), len(found))
    places[there] = np.arange(len(found))
    return Vector.concat([found, Vector.nulls(1)]).take(places)


def _floats(numbers: Vector) -> FloatArray:
    found: FloatArray = np.where(
        numbers.kinds == Kind.BIGINT, numbers.int_values().astype(np.float64), numbers.float_values()
    )
    return found


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
