"""Exact sums against fractions, in any order and grouping."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.values.exact_sums import ExactSums, quotient

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
BIGINTS = st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(st.tuples(st.integers(0, 3), FLOATS | BIGINTS), max_size=40)


def sums_of(rows: list[tuple[int, float | int]], size: int = 4) -> ExactSums:
    sums = ExactSums(size)
    for kind, add, dtype in ((float, sums.add_floats, np.float64), (int, sums.add_bigints, np.int64)):
        chosen = [(code, value) for code, value in rows if type(value) is kind]
        codes = np.array([code for code, _ in chosen], dtype=np.int64)
        add(codes, np.array([value for _, value in chosen], dtype=dtype))
    return sums


def fractions(sums: ExactSums) -> list[Fraction]:
    totals, exponent = sums.scaled()
    return [Fraction(total) * Fraction(2) ** exponent for total in totals]


@given(ROWS)
def test_a_sum_is_exact(rows: list[tuple[int, float | int]]) -> None:
    expected = [sum((Fraction(value) for code, value in rows if code == group), Fraction(0)) for group in range(4)]
    assert fractions(sums_of(rows)) == expected


@given(st.lists(ROWS, min_size=1, max_size=4), st.lists(st.integers(0, 2), min_size=16, max_size=16))
def test_sums_merge_to_the_sum_of_all(parts: list[list[tuple[int, float | int]]], mapping: list[int]) -> None:
    joined = ExactSums.concat([sums_of(rows) for rows in parts])
    codes = np.array(mapping[: joined.size], dtype=np.int64)
    merged = joined.merge(codes, 3)
    expected = [Fraction(0)] * 3
    for part, rows in enumerate(parts):
        for code, value in rows:
            expected[mapping[4 * part + code]] += Fraction(value)
    assert fractions(merged) == expected
    places = np.array([2, 0, 0])
    assert fractions(merged.take(places)) == [expected[place] for place in places]
    taken_away = ExactSums.concat([merged, merged.negated()]).merge(np.array([0, 1, 2, 0, 1, 2]), 3)
    assert fractions(taken_away) == [0, 0, 0]


@given(st.lists(ROWS, min_size=1, max_size=6))
def test_sums_that_go_up_and_down_for_ever_do_not_grow(parts: list[list[tuple[int, float | int]]]) -> None:
    total = sums_of([(0, 1.5), (1, -1.5)])
    codes = np.tile(np.arange(4), 2)
    for rows in parts * 10:
        part = sums_of(rows)
        for one in (part, part.negated()):
            total = ExactSums.concat([total, one]).merge(codes, 4).trimmed()
    assert fractions(total) == [Fraction(3, 2), Fraction(-3, 2), 0, 0]
    assert len(total.limbs) <= 2 + max((len(sums_of(rows).limbs) for rows in parts), default=0)


def test_many_large_parts_carry() -> None:
    sums = ExactSums(1)
    value = float(2**40 - 1) * 2.0**20
    codes = np.zeros(2**16, dtype=np.int64)
    for _ in range(200):
        sums.add_floats(codes, np.full(2**16, value))
    for _ in range(30):
        sums = ExactSums.concat([sums, sums]).merge(np.zeros(2, dtype=np.int64), 1)
    assert fractions(sums) == [Fraction(value) * 2**16 * 200 * 2**30]


@given(st.integers(0, 1), BIGINTS, st.integers(-2000, 1000))
def test_integers_of_any_size_are_added(code: int, number: int, exponent: int) -> None:
    sums = ExactSums(2)
    sums.add_scaled(code, number, exponent)
    assert fractions(sums)[code] == Fraction(number) * Fraction(2) ** exponent
    assert fractions(sums)[1 - code] == 0


@given(st.lists(FLOATS, max_size=30))
def test_a_rounded_sum_is_the_nearest_float(values: list[float]) -> None:
    totals, exponent = sums_of([(0, value) for value in values], 1).scaled()
    try:
        expected: float | None = math.fsum(values)
    except OverflowError:  # of an intermediate sum, which does not exist here
        return
    numerator, denominator = (totals[0] << exponent, 1) if exponent >= 0 else (totals[0], 1 << -exponent)
    assert quotient(numerator, denominator) == expected


def test_what_is_beyond_float_is_none() -> None:
    assert quotient(2**1024, 1) is None
    assert quotient(-(2**1023), 1) == -(2.0**1023)
    assert quotient(1, 3) == 1 / 3


@given(
    st.lists(st.lists(FLOATS | st.floats(-1e3, 1e3).map(lambda value: round(value, 2)), max_size=5), min_size=1),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=2),
    st.integers(1, 2**30) | st.sampled_from([2**k for k in range(26)]),
)
def test_a_quotient_that_is_sure_is_the_nearest_float(
    groups: list[list[float]], bigints: list[int], divisor: int
) -> None:
    rows: list[tuple[int, float | int]] = [(code, value) for code, values in enumerate(groups) for value in values]
    rows += [(0, value) for value in bigints]
    sums = sums_of(rows, len(groups))
    for count in (1, divisor):
        quotients, sure = sums.quotients(np.full(len(groups), count))
        for exact, got, certain in zip(fractions(sums), quotients.tolist(), sure.tolist(), strict=True):
            if certain:
                assert got == nearest(exact / count)


def nearest(number: Fraction) -> float | None:
    return quotient(number.numerator, number.denominator)


def test_usual_quotients_are_sure() -> None:
    rng = np.random.default_rng(1)
    sums = ExactSums(1000)
    sums.add_floats(rng.integers(0, 1000, 20_000), np.round(rng.uniform(20, 130, 20_000), 2))
    # All but those in the middle between two floats.
    assert sums.quotients(rng.integers(1, 100, 1000))[1].mean() > 0.95


@pytest.mark.parametrize("count", [1, 2, 4, 2**25])
def test_a_division_by_a_power_of_two_is_always_sure(count: int) -> None:
    rng = np.random.default_rng(2)
    sums = ExactSums(1000)
    # The mean of two is in the middle between two floats for about every fourth pair.
    sums.add_floats(np.repeat(np.arange(1000), 2), np.round(rng.uniform(20, 130, 2000), 2))
    quotients, sure = sums.quotients(np.full(1000, count))
    assert sure.all()
    assert quotients.tolist() == [nearest(exact / count) for exact in fractions(sums)]
