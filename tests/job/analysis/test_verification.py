"""Verification finds what is the same the same, what depends on the cut different, and says where first."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.job.logs import logs, policies, prepared
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.job.analysis.replay_source import ReplaySource
from tidegate.job.analysis.verification import verify
from tidegate.job.runtime.placement import DriverPlacement
from tidegate.job.runtime.task import RangeResult, Task
from tidegate.ordering import END_OF_TIME, Carry, Policy, format_time, parse_time

START = parse_time("2026-01-01T00:00:00Z")
SECOND = 10_000_000
COUNT = """SELECT System.Timestamp() AS ts, k, COUNT(*) AS n INTO out FROM i TIMESTAMP BY t
GROUP BY k, TumblingWindow(second, 5)"""
OVER = "SELECT System.Timestamp() AS ts, k INTO out FROM i TIMESTAMP BY t OVER k"


def subject_of(sql: str = COUNT, events: int = 300) -> ReplaySource:
    """Two partitions; every third event is far out of order, so that what is carried from cut to cut matters."""
    lines = []
    for n in range(events):
        time = START + n * SECOND - (20 * SECOND if n % 3 == 0 else 0)
        body = json.dumps({"t": format_time(time), "k": "ab"[n % 2]}).encode()
        lines.append(RecordedEvent(str(n % 2), START + n * SECOND, body))
    policy = Policy.seconds(late=60, out_of_order=2)
    return ReplaySource("here", prepared(sql), policy, {"i": RecordedLog(lines)})


@given(log=logs(), policy=policies, sql=st.sampled_from([COUNT, OVER]), seed=st.integers(0, 1000))
def test_a_job_is_the_same_however_it_is_computed(log: RecordedLog, policy: Policy, sql: str, seed: int) -> None:
    source = ReplaySource("random", prepared(sql), policy, {"i": log})
    found = verify(source, seed=seed, starts=2, cuts=2)
    assert found.difference is None
    assert len(found.attempts) == 4


@pytest.mark.slow
def test_a_run_that_forgets_where_it_stood_is_found_out() -> None:
    source = subject_of()

    class Forgetful(DriverPlacement):
        def results(self, tasks: Sequence[Task]) -> list[RangeResult]:
            results = super().results(tasks)
            for result in results:
                result.carry = Carry(arrival=result.carry.arrival)
            return results

    told: list[tuple[int, bool]] = []
    found = verify(source, Forgetful, on_attempt=lambda number, attempt, same: told.append((number, same)))
    assert found.difference is not None
    assert found.difference.expected != found.difference.got
    assert found.attempts[-1] == found.difference.attempt
    assert told[-1] == (len(found.attempts), False)


def test_a_row_that_is_missing_at_the_end_is_a_difference() -> None:
    source = subject_of("SELECT t INTO out FROM i TIMESTAMP BY t")
    calls = 0

    class Tired(DriverPlacement):
        def results(self, tasks: Sequence[Task]) -> list[RangeResult]:
            nonlocal calls
            calls += 1
            results = super().results(tasks)
            if calls > 1 and results:
                results[-1].partials.clear()
            return results

    found = verify(source, Tired, starts=0, cuts=1)
    assert found.difference is not None
    assert found.difference.line >= 1


@pytest.mark.slow
def test_the_same_seed_makes_the_same_attempts_and_another_seed_others() -> None:
    source = subject_of()
    one, again, other = (verify(source, seed=seed) for seed in (5, 5, 6))
    assert one.attempts == again.attempts != other.attempts


@pytest.mark.slow
def test_a_stretch_has_only_its_own_results() -> None:
    source = subject_of()
    whole = verify(source, starts=0, cuts=0)
    part = verify(source, start=START + 100 * SECOND, until=START + 200 * SECOND)
    assert whole.watermark == END_OF_TIME
    assert part.watermark == START + 200 * SECOND
    assert 0 < part.rows < whole.rows
    assert all(attempt.start >= START + 100 * SECOND for attempt in part.attempts)


def test_an_empty_log_is_the_same_as_itself() -> None:
    source = ReplaySource("empty", prepared(COUNT), Policy.seconds(), {"i": RecordedLog([])})
    assert verify(source).difference is None
