"""The aggregate and analytic functions of the language: names, arguments, and what they return."""

from __future__ import annotations

from tidegate.saql.plan.nodes import Type
from tidegate.saql.plan.signatures import Signature, signature

_INT, _FLOAT = Type.BIGINT, Type.FLOAT

AGGREGATE: dict[str, Signature] = {
    "avg": signature("number", _FLOAT),
    "collect": signature("any", Type.ARRAY, optional=1),
    "collecttop": signature("count", Type.ARRAY),
    "count": signature("any", _INT, optional=1),
    "max": signature("ordered"),
    "min": signature("ordered"),
    "percentile_cont": signature("fraction", _FLOAT),
    "percentile_disc": signature("fraction", _FLOAT),
    "stdev": signature("number", _FLOAT),
    "stdevp": signature("number", _FLOAT),
    "sum": signature("number"),
    "topone": Signature((), 0, 0, Type.RECORD),
    "var": signature("number", _FLOAT),
    "varp": signature("number", _FLOAT),
}

# Aggregates that rank need ORDER BY inside their OVER.
RANKING = frozenset(["collecttop", "topone", "percentile_cont", "percentile_disc"])

# With OVER (… LIMIT DURATION …): the aggregates that the OVER, COUNT, Collect and TopOne pages allow there.
AGGREGATE_OVER = frozenset(["sum", "avg", "min", "max", "count", "collect", "collecttop", "topone"])

# Functions of the rows before, which always have LIMIT DURATION (ISFIRST has its duration as an argument).
ANALYTIC: dict[str, Signature] = {
    "lag": signature("any integer any", optional=2),
    "last": signature("any any", optional=1),
    "isfirst": signature("unit integer", _INT),
    "anomalydetection_spikeanddip": signature("number fraction integer text", Type.RECORD),
    "anomalydetection_changepoint": signature("number fraction integer", Type.RECORD),
}
