"""What of the language can be run, by the names of `saql.features`."""

from __future__ import annotations

from tidegate.engine.aggregates.aggregation import AGGREGATE_FUNCTIONS
from tidegate.engine.expressions.evaluation import SCALAR_FUNCTIONS
from tidegate.saql.plan import aggregates, features
from tidegate.saql.plan.names import spelling

_WINDOWS = ("TumblingWindow", "HoppingWindow", "SlidingWindow", "SessionWindow", "System.Timestamp()", "Windows()")
_ANALYTIC = (*aggregates.ANALYTIC, *aggregates.AGGREGATE_OVER)

SUPPORTED: frozenset[str] = features.ALL & frozenset(
    [f"clause:{name}" for name in features.CLAUSES]
    + [f"window:{name}" for name in _WINDOWS]
    + ["function:udf", "aggregate:uda", "analytic:uda"]
    + [f"function:{spelling(name)}" for name in SCALAR_FUNCTIONS]
    + [f"aggregate:{spelling(name)}" for name in AGGREGATE_FUNCTIONS]
    + [f"analytic:{spelling(name)}" for name in _ANALYTIC]
)
"""The features that `saql.compile_query` may let through."""
