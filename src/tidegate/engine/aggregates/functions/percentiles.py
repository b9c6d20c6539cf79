"""PERCENTILE_CONT and PERCENTILE_DISC.
https://learn.microsoft.com/stream-analytics-query/percentile-cont-azure-stream-analytics
https://learn.microsoft.com/stream-analytics-query/percentile-disc-azure-stream-analytics
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from tidegate.engine.aggregates.states.multisets import DistinctValues, Multisets
from tidegate.engine.aggregates.states.specification import AggregateFunction
from tidegate.engine.values.vectors import Int64Array, Vector
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.explain import expression
from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import read_signature


class _Percentile(AggregateFunction):
    """The value below which a fraction of the values lies."""

    ranked = True
    ranks_by = 1
    ranks_numbers = True
    continuous: ClassVar[bool]

    def summary(self, call: plan.AggregateCall) -> DistinctValues:
        return DistinctValues((call.order_by[0].expr, True))

    def finish(self, state: Multisets, call: plan.AggregateCall) -> Vector:
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


def percentiles(sets: Multisets, fraction: float, *, continuous: bool, descending: bool) -> Vector:
    """Return the percentile of each multiset of numbers, one of them or, ``continuous``, between the two nearest."""
    results: list[Any] = []
    bounds = sets.starts.tolist()
    for values, (start, end) in zip(sets.lists(), pairwise(bounds), strict=True):
        if not values:
            results.append(None)
            continue
        ranks = np.cumsum(sets.counts[start:end])
        total = int(ranks[-1])

        def at(place: int, values: list[Any] = values, ranks: Int64Array = ranks, total: int = total) -> Any:
            ascending = total - 1 - place if descending else place
            return values[int(np.searchsorted(ranks, ascending, side="right"))]

        if continuous:
            place = fraction * (total - 1)
            low = math.floor(place)
            below, above = float(at(low)), float(at(min(low + 1, total - 1)))
            results.append(below + (above - below) * (place - low))
        else:
            results.append(at(max(math.ceil(fraction * total) - 1, 0)))
    return Vector.of(results)
