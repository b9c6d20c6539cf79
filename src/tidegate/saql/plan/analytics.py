"""What the compiler asks of a function of the rows before: its name, its arguments and its result."""

from __future__ import annotations

from tidegate.saql.plan.nodes import Type
from tidegate.saql.plan.signatures import Signature, signature

# They always have LIMIT DURATION (ISFIRST has its duration as an argument).
ANALYTIC: dict[str, Signature] = {
    "lag": signature("any integer any", optional=2),
    "last": signature("any any", optional=1),
    "isfirst": signature("unit integer", Type.BIGINT),
    "anomalydetection_spikeanddip": signature("number fraction integer text", Type.RECORD),
    "anomalydetection_changepoint": signature("number fraction integer", Type.RECORD),
}

SPELLING_OF_ANALYTIC = {name.lower(): name for name in ("AnomalyDetection_SpikeAndDip", "AnomalyDetection_ChangePoint")}
"""How messages write those that are not written in capitals."""
