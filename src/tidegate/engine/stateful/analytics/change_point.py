"""AnomalyDetection_ChangePoint: whether the distribution of a value has changed.
https://learn.microsoft.com/stream-analytics-query/anomalydetection-changepoint-azure-stream-analytics

Theory. If the values of a window x₁ … xₘ come from one distribution, in any order, then the distance of
each newer value from the median of the older half is equally likely to have any rank among theirs. So

    pⱼ = (1 + the number of older values that are at least as far from the median) / (1 + their number)

are conformal p-values, and M = Π ½ pⱼ^(−½), over the newer values from any one on, is a martingale: its expected value
is 1, and it is c or more with a probability of at most 1 / c (Vovk, Nouretdinov and Gammerman, "Testing exchangeability
on-line", 2003; with a fixed older part: Volkhonskiy et al., "Inductive conformal martingales for change-point
detection", 2017). The score is the largest M up to the newest value over all values it may begin with, and at least 1;
from 1 / (1 − confidence / 100) on it is an anomaly.
"""

from __future__ import annotations

import math

import numpy as np

from tidegate.engine.stateful.analytics.anomalies import AnomalyDetection
from tidegate.engine.values.vectors import FloatArray
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.analytics import Role
from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import read_signature

_LARGEST_LOGARITHM = 690.0


def change_point(window: FloatArray) -> float:
    """Return the score of the newest value of a window: a martingale, at least 1."""
    older = len(window) // 2
    if older < 2:
        return 1.0
    window = window / (float(np.abs(window).max()) or 1.0)
    strange = np.abs(window - float(np.median(window[:older])))
    known = np.sort(strange[:older])
    as_strange = older - np.searchsorted(known, strange[older:], side="left")
    chances = (1.0 + as_strange) / (1.0 + older)
    growth = np.cumsum((math.log(0.5) - 0.5 * np.log(chances))[::-1])
    return math.exp(min(max(0.0, float(growth.max())), _LARGEST_LOGARITHM))


class ChangePoint(AnomalyDetection):
    """How sure it is that the distribution of a value has changed."""

    spelling = "AnomalyDetection_ChangePoint"
    signature = read_signature("value number, confidence fraction, history integer", Type.RECORD)
    description = "Whether the distribution of the value has changed: `IsAnomaly` and `Score`."
    example = (
        "AnomalyDetection_ChangePoint(v, 80, 20) OVER (LIMIT DURATION(minute, 1))",
        '{"IsAnomaly":0,"Score":1.0}',
    )
    roles = (Role.CONSTANT, Role.CONSTANT)

    def scored(self, values: FloatArray, chance: float, call: plan.TemporalCall) -> tuple[bool, float]:
        score = change_point(values[-int(call.parameters[1]) :])
        return score * chance >= 1.0, score
