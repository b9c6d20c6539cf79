"""Anomaly detection: a value against the earlier values of its key.

The service names its methods, adaptive kernel density estimation and exchangeability martingales, but publishes neither
their kernels nor their constants. Those used here are Tidegate's own; scores have the documented meaning, but are not
the service's digit for digit.

Look-back. Both functions see the values of (t − limit, t] that pass WHEN and are numbers, the last historySize of them
(of spikes beside the value itself): L is the limit.

AnomalyDetection_ChangePoint: whether the distribution of a value has changed.
https://learn.microsoft.com/stream-analytics-query/anomalydetection-changepoint-azure-stream-analytics

Theory. If the values of a window x₁ … xₘ come from one distribution, in any order, then the distance of
each newer value from the median of the older half is equally likely to have any rank among theirs. So

    pⱼ = (1 + the number of older values that are at least as far from the median) / (1 + their number)

are conformal p-values, and M = Π ½ pⱼ^(−½), over the newer values from any one on, is a martingale: its expected value
is 1, and it is c or more with a probability of at most 1 / c (Vovk, Nouretdinov and Gammerman, "Testing exchangeability
on-line", 2003; with a fixed older part: Volkhonskiy et al., "Inductive conformal martingales for change-point
detection", 2017). The score is the largest M up to the newest value over all values it may begin with, and at least 1;
from 1 / (1 − confidence / 100) on it is an anomaly.

AnomalyDetection_SpikeAndDip: how much a value differs from earlier ones.
https://learn.microsoft.com/stream-analytics-query/anomalydetection-spikeanddip-azure-stream-analytics

Theory. The density of the history x₁ … xₙ of a value is estimated by a kernel on each xᵢ, which is
wider where there are fewer values nearby (Breiman, Meisel and Purcell, "Variable kernel estimates of multivariate
densities", 1977):

    hᵢ = h √(dᵢ / g)    h = 0.9 min(s, iqr / 1.34) n^(−1/5) (1 + 8 / n)

The first part of h is Silverman's ("Density Estimation", 1986, 3.31). The last is Tidegate's: a few values say little
about how far away the next one may be, and with this factor about as many values of a normal distribution are anomalies
as the confidence allows, however short the history (without it, one in five after four values at 95).

dᵢ is the distance from xᵢ to the k-th nearest of the others, k = ⌈√n⌉ (at most n − 1), g the geometric mean of the dᵢ,
s the standard deviation and iqr the interquartile range, ignored if it is 0. A distance of 0 is replaced by the
smallest positive one. The kernel is the logistic distribution with standard deviation hᵢ. The probability of a value of
x or more is the mean of the kernels' probabilities; the score is this for spikes, that of x or less for dips, and twice
the smaller of the two, at most 1, for both. If all values of the history are the same, that value has the probability 1
and anything beyond it 0. With fewer than four earlier values the score is 1. A value is an anomaly if its score is
below 1 − confidence / 100.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tidegate.engine.aggregates.states.state import Column
from tidegate.engine.functions.operators import as_floats
from tidegate.engine.stateful.analytics.earlier_rows import (
    AnalyticCall,
    AnalyticFunction,
    Past,
    running_ranges,
    still_counted,
)
from tidegate.engine.values.vectors import BoolArray, FloatArray, Int64Array, Kind, Vector
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.explain import expression
from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import ArgumentRole, read_signature

MAX_HISTORY = 100_000
"""The longest history of anomaly detection, because each event is compared with all of it."""

Score = Callable[[FloatArray, float, plan.TemporalCall], tuple[bool, float]]
"""Returns whether the last of some values is an anomaly, and its score (`AnomalyDetection.scored`)."""


class AnomalyDetection(AnalyticFunction):
    """A function that scores a value by the values before it."""

    def faults(self, parameters: Sequence[int | float | str]) -> Iterator[tuple[int, str]]:
        if parameters and not (isinstance(parameters[0], int | float) and 1 <= parameters[0] <= 100):
            yield 1, "the confidence is a percentage from 1 to 100"
        if len(parameters) > 1 and not (type(parameters[1]) is int and 0 < parameters[1] <= MAX_HISTORY):
            yield 2, f"the history is a number of events from 1 to {MAX_HISTORY}"

    @abstractmethod
    def scored(self, values: FloatArray, chance: float, call: plan.TemporalCall) -> tuple[bool, float]:
        """Return whether the last of some values is an anomaly, and its score.

        Args:
            chance: how often a value that is none may be taken for one: 1 − confidence / 100.
        """

    def evaluator(self, call: plan.TemporalCall) -> AnalyticCall:
        return _Anomaly(call, self.scored)

    def kept(self, call: plan.TemporalCall, when: str) -> str:
        return f"{expression(call.args[0])} of the rows{when}, for {call.function}"


class _Anomaly:
    """A call of anomaly detection.

    The result is NULL for a row whose value is not a number or which does not pass WHEN.
    """

    def __init__(self, call: plan.TemporalCall, scored: Score) -> None:
        self._value: Column = (call.args[0], True)
        self._limit = call.limit_ticks
        self._chance = 1.0 - float(call.parameters[0]) / 100.0
        self._history = int(call.parameters[1])
        self._call, self._scored = call, scored
        self.held = [self._value]
        self.asked: list[Column] = []

    def values(self, past: Past, new: Callable[[Column], Vector]) -> Vector:
        passing = self._numbers(past)
        found = running_ranges(past.times, past.sequences, passing, self._limit, past.from_row)
        numbers = as_floats(past.column(self._value))[found.members]
        results: list[Any] = [None] * len(found.rows)
        asked = np.flatnonzero(passing[found.rows])
        for row, low, high in zip(
            found.rows[asked].tolist(), found.lows[asked].tolist(), found.highs[asked].tolist(), strict=True
        ):
            values = numbers[max(low, high - 1 - self._history) : high]
            anomaly, score = self._scored(values, self._chance, self._call)
            results[row - past.from_row] = {"IsAnomaly": int(anomaly), "Score": score}
        return Vector.of(results)

    def _numbers(self, past: Past) -> BoolArray:
        numbers: BoolArray = past.passing & (past.column(self._value).kinds != Kind.NULL)
        return numbers

    def still(self, past: Past, reached: int | Int64Array) -> BoolArray:
        return still_counted(past.times, self._numbers(past), self._limit, reached)


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
    roles = (ArgumentRole.CONSTANT, ArgumentRole.CONSTANT)

    def scored(self, values: FloatArray, chance: float, call: plan.TemporalCall) -> tuple[bool, float]:
        score = change_point(values[-int(call.parameters[1]) :])
        return score * chance >= 1.0, score


_LEAST_HISTORY = 4


def spike_and_dip(history: FloatArray, value: float, mode: str) -> float:
    """Return the score of a value: a probability.

    Args:
        mode: spikes, dips or spikesanddips.
    """
    if len(history) < _LEAST_HISTORY:
        return 1.0
    above = _tail(np.sort(history), value)
    below = _tail(np.sort(-history), -value)
    if mode == "spikes":
        return above
    return below if mode == "dips" else min(1.0, 2.0 * min(above, below))


def _tail(ordered: FloatArray, value: float) -> float:
    """Return the estimated probability of a value or more; ``ordered``: the history, ascending."""
    # The result does not depend on the scale, and squares of numbers up to 1 do not overflow.
    largest = max(abs(value), float(np.abs(ordered).max())) or 1.0
    ordered, value = ordered / largest, value / largest
    widths = _widths(ordered)
    if widths is None:
        return float(value <= ordered[0])
    # The logistic distribution with standard deviation 1 has the scale √3 / π.
    with np.errstate(over="ignore"):
        distance = (value - ordered) / widths * (math.pi / math.sqrt(3.0))
        return float(np.mean(1.0 / (1.0 + np.exp(distance))))


def _widths(ordered: FloatArray) -> FloatArray | None:
    """Return the width of the kernel on each value; None if all values are the same."""
    count = len(ordered)
    if ordered[0] == ordered[-1]:
        return None
    spread = float(np.std(ordered))
    low, high = np.quantile(ordered, [0.25, 0.75])
    quartiles = float(high - low) / 1.34
    width = 0.9 * (min(spread, quartiles) if quartiles > 0 else spread) * count**-0.2 * (1 + 8 / count)
    distances = _to_nearest(ordered, min(math.ceil(math.sqrt(count)), count - 1))
    positive = distances[distances > 0]
    if not len(positive) or not width:
        return np.full(count, width or 1.0)
    distances = np.maximum(distances, positive.min())
    lonely = np.sqrt(distances / math.exp(float(np.mean(np.log(distances)))))
    widths: FloatArray = np.maximum(width * lonely, np.finfo(np.float64).tiny)
    return widths


def _to_nearest(ordered: FloatArray, number: int) -> FloatArray:
    """Return the distance from each value to the ``number``-th nearest of the others.

    The nearest values are a stretch around it, as long as its farther end. The more of them lie before the value, the
    farther away is the stretch's beginning and the nearer its end, so that the best is where the two cross: it is found
    by bisection, for all values at once.
    """
    count = len(ordered)
    places = np.arange(count)
    fewest, most = np.maximum(places + number - (count - 1), 0), np.minimum(places, number)

    def ends(before: Int64Array) -> tuple[FloatArray, FloatArray]:
        return ordered - ordered[places - before], ordered[places - before + number] - ordered

    low, high = fewest, most
    while (low < high).any():
        middle = (low + high) // 2
        beginning, end = ends(middle)
        crossed = (beginning >= end) | (low == high)
        low, high = np.where(crossed, low, middle + 1), np.where(crossed, middle, high)
    nearest: FloatArray = np.minimum(np.maximum(*ends(low)), np.maximum(*ends(np.maximum(low - 1, fewest))))
    return nearest


class SpikeAndDip(AnomalyDetection):
    """How probable a value is after those before it."""

    spelling = "AnomalyDetection_SpikeAndDip"
    signature = read_signature("value number, confidence fraction, history integer, mode text", Type.RECORD)
    description = "Whether the value is a spike or a dip: `IsAnomaly` and `Score`."
    example = (
        "AnomalyDetection_SpikeAndDip(v, 95, 20, 'spikes') OVER (LIMIT DURATION(minute, 1))",
        '{"IsAnomaly":0,"Score":1.0}',
    )
    roles = (ArgumentRole.CONSTANT, ArgumentRole.CONSTANT, ArgumentRole.CONSTANT)

    def faults(self, parameters: Sequence[int | float | str]) -> Iterator[tuple[int, str]]:
        yield from super().faults(parameters)
        if len(parameters) == 3 and str(parameters[2]).lower() not in ("spikes", "dips", "spikesanddips"):
            yield 3, "the mode is 'spikes', 'dips' or 'spikesanddips'"

    def scored(self, values: FloatArray, chance: float, call: plan.TemporalCall) -> tuple[bool, float]:
        score = spike_and_dip(values[:-1], float(values[-1]), str(call.parameters[2]).lower())
        return score < chance, score
