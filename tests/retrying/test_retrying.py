"""Trying again: pauses that double, and an end of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidegate.retrying import BackOff, call_again


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def called(clock: Clock, outcomes: Iterator[Exception | str], within_s: float = 60.0) -> str:
    def attempt() -> str:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return call_again(
        attempt,
        lambda error: isinstance(error, ConnectionError),
        within_s,
        sleep=clock.sleep,
        monotonic_s=lambda: clock.now_s,
    )


def test_pauses_double_up_to_the_longest() -> None:
    pauses = [BackOff(0.5, 3.0).after(failures) for failures in (1, 2, 3, 4, 5, 10_000)]
    assert pauses == [0.5, 1.0, 2.0, 3.0, 3.0, 3.0]


def test_what_passes_is_tried_again_after_growing_pauses(clock: Clock) -> None:
    assert called(clock, iter([ConnectionError(), ConnectionError(), ConnectionError(), "done"])) == "done"
    assert clock.pauses == [0.1, 0.2, 0.4]


def test_what_does_not_pass_is_raised_at_once(clock: Clock) -> None:
    with pytest.raises(ValueError, match="wrong"):
        called(clock, iter([ConnectionError(), ValueError("wrong"), "done"]))
    assert clock.pauses == [0.1]


def test_what_lasts_too_long_is_raised(clock: Clock) -> None:
    with pytest.raises(ConnectionError):
        called(clock, iter([ConnectionError()] * 100), within_s=1.0)
    assert clock.pauses == [0.1, 0.2, 0.4]
