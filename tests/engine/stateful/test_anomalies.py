"""Anomaly detection against the formulas, value by value, and on what it is for."""

from __future__ import annotations

import math
import statistics
import time
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.streams import SECOND, START, Events, program, run, run_log
from tidegate.engine.stateful.analytics.anomalies import MAX_HISTORY, change_point, spike_and_dip
from tidegate.ordering import Policy

VALUES = st.integers(-5, 5).map(float) | st.floats(-1e6, 1e6).map(lambda value: round(value, 3))


def tail_by_the_formula(history: list[float], value: float) -> float:
    count = len(history)
    if len(set(history)) == 1:
        return float(value <= history[0])
    mean = sum(history) / count
    spread = math.sqrt(sum((one - mean) ** 2 for one in history) / count)
    low, _, high = statistics.quantiles(history, n=4, method="inclusive")
    quartiles = (high - low) / 1.34
    width = 0.9 * (min(spread, quartiles) if quartiles > 0 else spread) * count**-0.2 * (1 + 8 / count)
    k = min(math.ceil(math.sqrt(count)), count - 1)
    nearest = []
    for place, one in enumerate(history):
        others = sorted(abs(one - other) for number, other in enumerate(history) if number != place)
        nearest.append(others[k - 1])
    least = min((distance for distance in nearest if distance > 0), default=None)
    if least is None:
        widths = [width] * count
    else:
        nearest = [max(distance, least) for distance in nearest]
        middle = math.exp(sum(map(math.log, nearest)) / count)
        widths = [width * math.sqrt(distance / middle) for distance in nearest]
    total = 0.0
    for one, own in zip(history, widths, strict=True):
        distance = (value - one) / own * math.pi / math.sqrt(3)
        total += 0.0 if distance > 700 else 1 / (1 + math.exp(distance))
    return total / count


@given(st.lists(VALUES, min_size=4, max_size=12), VALUES)
def test_spikes_and_dips_follow_the_formula(history: list[float], value: float) -> None:
    array = np.array(history)
    above = tail_by_the_formula(history, value)
    below = tail_by_the_formula([-one for one in history], -value)
    assert spike_and_dip(array, value, "spikes") == pytest.approx(above, rel=1e-6, abs=1e-9)
    assert spike_and_dip(array, value, "dips") == pytest.approx(below, rel=1e-6, abs=1e-9)
    both = min(1.0, 2 * min(above, below))
    assert spike_and_dip(array, value, "spikesanddips") == pytest.approx(both, rel=1e-6, abs=1e-9)


@given(st.lists(VALUES, min_size=1, max_size=14))
def test_change_points_follow_the_formula(window: list[float]) -> None:
    older, newer = window[: len(window) // 2], window[len(window) // 2 :]
    expected = 1.0
    if len(older) > 1:
        median = statistics.median(older)
        chances = [
            (1 + sum(abs(one - median) >= abs(value - median) for one in older)) / (1 + len(older)) for value in newer
        ]
        for begin in range(len(newer)):
            expected = max(expected, math.prod(0.5 * chance**-0.5 for chance in chances[begin:]))
    assert change_point(np.array(window)) == pytest.approx(expected, rel=1e-9)


@given(st.lists(st.sampled_from([0.0, 1e308, -1e308, 5e-324, 1.0]), max_size=6), st.sampled_from([1e308, -1e308, 0.0]))
def test_extreme_values_have_scores_too(history: list[float], value: float) -> None:
    for mode in ("spikes", "dips", "spikesanddips"):
        assert 0 <= spike_and_dip(np.array(history), value, mode) <= 1
    assert change_point(np.array([*history, value])) >= 1


def scored(call: str, values: list[Any]) -> list[dict[str, Any]]:
    of = program(f"SELECT {call} OVER (LIMIT DURATION(second, 120)) AS s INTO out FROM a")
    return [row["s"] for row in run(of, [{"v": value} for value in values])]


def test_a_spike_is_found_and_a_dip_is_not_where_only_spikes_are_asked_for() -> None:
    random = Random(7)
    values = [20 + random.gauss(0, 1) for _ in range(100)]
    values[60], values[80] = 35.0, 5.0
    found = {
        mode: [
            n
            for n, s in enumerate(scored(f"AnomalyDetection_SpikeAndDip(v, 99, 60, '{mode}')", values))
            if s["IsAnomaly"]
        ]
        for mode in ("spikes", "dips", "spikesanddips")
    }
    assert 60 in found["spikes"]
    assert 80 not in found["spikes"]
    assert 80 in found["dips"]
    assert 60 not in found["dips"]
    assert {60, 80} <= set(found["spikesanddips"])
    assert len(found["spikesanddips"]) < 10


@pytest.mark.parametrize(("count", "confidence"), [(4, 95), (6, 95), (10, 95), (30, 95), (10, 99), (60, 99)])
def test_of_values_that_are_alike_few_are_anomalies(count: int, confidence: int) -> None:
    """About as many as the confidence allows, however short the history."""
    random = np.random.default_rng(5)
    scores = [
        spike_and_dip(values[:-1], values[-1], "spikesanddips") for values in random.normal(size=(400, count + 1))
    ]
    allowed = 1 - confidence / 100
    assert sum(score < allowed for score in scores) / len(scores) < 2 * allowed


def test_of_a_short_history_nothing_is_said() -> None:
    scores = scored("AnomalyDetection_SpikeAndDip(v, 90, 10, 'spikesanddips')", [1, 1, 2, 50, 1, 500])
    assert [score["Score"] for score in scores[:4]] == [1.0] * 4
    assert scores[5]["IsAnomaly"] == 1


def test_a_lower_confidence_finds_more() -> None:
    random = Random(3)
    values = [random.gauss(0, 1) for _ in range(110)]
    counts = [
        sum(
            s["IsAnomaly"]
            for s in scored(f"AnomalyDetection_SpikeAndDip(v, {confidence}, 50, 'spikesanddips')", values)
        )
        for confidence in (50, 80, 95, 100)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 0


def test_a_change_of_level_is_found_while_it_is_new() -> None:
    random = Random(5)
    values = [random.gauss(10, 1) for _ in range(70)] + [random.gauss(18, 1) for _ in range(40)]
    found = [s["IsAnomaly"] for s in scored("AnomalyDetection_ChangePoint(v, 80, 60)", values)]
    assert sum(found[40:70]) <= 5
    assert sum(found[75:95]) >= 18


def test_what_is_no_number_or_does_not_pass_has_no_score_and_is_not_learned_from() -> None:
    sql = (
        "SELECT AnomalyDetection_SpikeAndDip(v, 90, 5, 'spikes') OVER (PARTITION BY k LIMIT DURATION(second, 9) "
        "WHEN v < 100) AS s INTO out FROM a"
    )
    values = [1, 2, 1000, None, 2, 3, 1]
    events = Events.of([{"k": "x", "v": value} for value in values], [START + n * SECOND for n in range(len(values))])
    rows = [row["s"] for _, row in run_log(program(sql), {("a", "0"): events}, Policy.none())["out"]]
    assert rows[0] == {"IsAnomaly": 0, "Score": 1.0}
    assert rows[2] is None
    assert rows[3] is None
    assert rows[6]["Score"] == pytest.approx(tail_by_the_formula([1.0, 2.0, 2.0, 3.0], 1.0))


def test_history_is_bounded_by_its_size_and_by_time() -> None:
    sql = "SELECT AnomalyDetection_SpikeAndDip(v, 90, 4, 'dips') OVER (LIMIT DURATION(second, 5)) AS s INTO out FROM a"
    times = (0, 1, 2, 3, 4, 5, 9)
    events = Events.of([{"v": v} for v in (9, 1, 2, 3, 4, 5, 6)], [START + n * SECOND for n in times])
    rows = [row["s"]["Score"] for _, row in run_log(program(sql), {("a", "0"): events}, Policy.none())["out"]]
    assert rows[5] == pytest.approx(tail_by_the_formula([-1.0, -2.0, -3.0, -4.0], -5.0))
    # Of nine seconds only what is later than four is seen: 5 alone.
    assert rows[6] == 1.0


def test_the_longest_history_takes_a_fraction_of_a_second() -> None:
    history = np.random.default_rng(1).normal(size=MAX_HISTORY)
    began = time.process_time()
    assert 0.1 < spike_and_dip(history, 1.0, "spikesanddips") < 1
    assert time.process_time() - began < 1
