"""Waiting: for as long as is set, with a word now and then, and nothing lost on either way out."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tidegate.connectors.model.errors import JobError, OutputError, UnavailableError
from tidegate.connectors.model.retry_policy import RetryPolicy
from tidegate.connectors.outputs import OutputUnavailableError


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def monotonic_s(self) -> float:
        return self.now_s


def retry_policy(longest_s: float, said: list[str]) -> RetryPolicy:
    clock = Clock()
    return RetryPolicy(longest_s, said.append, sleep=clock.sleep, monotonic_s=clock.monotonic_s)


def attempts(times: int, error: JobError) -> tuple[list[int], Callable[[], str]]:
    made: list[int] = []

    def attempt() -> str:
        made.append(1)
        if len(made) <= times:
            raise error
        return "done"

    return made, attempt


def test_what_is_away_for_a_while_is_waited_for() -> None:
    said: list[str] = []
    made, attempt = attempts(12, OutputUnavailableError("the disk is full"))
    assert retry_policy(600, said).call("output 'x'", attempt) == "done"
    assert len(made) == 13
    assert re.fullmatch(
        r"output 'x' cannot be written since 20[0-9T:-]{17}Z: the disk is full; waiting, 10 min at most",
        said[0],
    )
    assert said[-1] == "output 'x' is back after 36.3 s"
    assert len(said) == 3


def test_what_is_away_for_too_long_ends_the_job() -> None:
    made, attempt = attempts(1_000, OutputUnavailableError("no answer"))
    with pytest.raises(
        OutputError, match=r"'x' has been unavailable for .*: no answer; nothing is lost.*output_retry_s"
    ):
        retry_policy(20, []).call("output 'x'", attempt)
    assert 5 < len(made) < 15


def test_a_journal_that_cannot_be_written_is_waited_for_too() -> None:
    attempt = attempts(1, UnavailableError("full"))[1]
    assert retry_policy(1, []).call("the journal", attempt) == "done"
    with pytest.raises(JobError, match="the journal has been unavailable"):
        retry_policy(0, []).call("the journal", attempts(1, UnavailableError("full"))[1])


def test_another_failure_is_not_waited_for() -> None:
    said: list[str] = []
    made, attempt = attempts(1, OutputError("no such table"))
    with pytest.raises(OutputError, match="no such table"):
        retry_policy(600, said).call("output 'x'", attempt)
    assert len(made) == 1
    assert not said
