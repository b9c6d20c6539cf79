"""AnomalyDetection_SpikeAndDip: how much a value differs from earlier ones.
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
from collections.abc import Iterator, Sequence

import numpy as np

from tidegate.engine.stateful.analytics.anomalies import AnomalyDetection
from tidegate.engine.values.vectors import FloatArray, Int64Array
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.analytics import Role
from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import read_signature

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
    roles = (Role.CONSTANT, Role.CONSTANT, Role.CONSTANT)

    def faults(self, parameters: Sequence[int | float | str]) -> Iterator[tuple[int, str]]:
        yield from super().faults(parameters)
        if len(parameters) == 3 and str(parameters[2]).lower() not in ("spikes", "dips", "spikesanddips"):
            yield 3, "the mode is 'spikes', 'dips' or 'spikesanddips'"

    def scored(self, values: FloatArray, chance: float, call: plan.TemporalCall) -> tuple[bool, float]:
        score = spike_and_dip(values[:-1], float(values[-1]), str(call.parameters[2]).lower())
        return score < chance, score
