"""Waits double up to the longest, less a random part."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.checkpoints.consumer import Retry


@given(st.integers(1, 50), st.floats(0, 10), st.floats(0, 100))
def test_waits_are_as_many_and_as_long_as_said(attempts: int, first_s: float, more_s: float) -> None:
    retry = Retry(attempts, first_s, first_s + more_s)
    waits = list(retry.delays())
    assert len(waits) == attempts - 1
    for number, wait_s in enumerate(waits):
        longest = min(first_s * 2**number, first_s + more_s)
        assert longest / 2 <= wait_s <= longest


def test_endless_waits_stay_at_the_longest() -> None:
    waits = list(islice(Retry(attempts=1).endless_delays(), 5000))
    assert all(15 <= wait_s <= 30 for wait_s in waits[100:])
    assert len(set(waits[100:])) > 1000, "consumers that fail together do not come back together"


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"first_delay_s": -1}, {"first_delay_s": 2, "longest_delay_s": 1}])
def test_what_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        Retry(**wrong)
