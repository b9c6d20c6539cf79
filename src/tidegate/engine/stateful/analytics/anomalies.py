"""Anomaly detection: a value against the earlier values of its key.

The service names its methods, adaptive kernel density estimation and exchangeability martingales, but publishes neither
their kernels nor their constants. Those used here are Tidegate's own; scores have the documented meaning, but are not
the service's digit for digit.

Look-back. Both functions see the values of (t − limit, t] that pass WHEN and are numbers, the last historySize of them
(of spikes beside the value itself): L is the limit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tidegate.engine.aggregates.states.state import Column
from tidegate.engine.functions.operators import as_floats
from tidegate.engine.stateful.analytics.running import running_ranges, still_counted
from tidegate.engine.stateful.analytics.specification import AnalyticFunction, Evaluator, Past
from tidegate.engine.values.vectors import BoolArray, FloatArray, Int64Array, Kind, Vector
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.explain import expression

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

    def evaluator(self, call: plan.TemporalCall) -> Evaluator:
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
