"""When a job moves to Spark and back."""

from __future__ import annotations

import pytest

from tidegate.job import JobError
from tidegate.job.run.placement_policy import BeginHere, Budget, PlacementPolicy
from tidegate.job.runtime.step import Step


def step(backlog: int = 0, events: int = 0, state_bytes: int | None = None) -> Step:
    return Step([], 0, events, backlog, {}, state_bytes=state_bytes)


def test_a_run_begins_where_its_backlog_belongs() -> None:
    policy = PlacementPolicy(Budget(backlog_events=10))
    policy.begin(10)
    assert not policy.on_spark
    policy.begin(11)
    assert policy.on_spark


def test_a_job_that_falls_behind_or_grows_moves_to_spark() -> None:
    policy = PlacementPolicy(Budget(backlog_events=10, state_bytes=100))
    assert policy.should_move(step(backlog=10, state_bytes=100)) is None
    assert policy.should_move(step(backlog=11)) == "11 events are waiting"
    assert policy.should_move(step(state_bytes=2**21)) == "its state has 2 MB"


def test_a_job_returns_once_it_has_been_small_for_a_while() -> None:
    now = [0.0]
    policy = PlacementPolicy(
        Budget(backlog_events=10, state_bytes=100, small_s=60), on_spark=True, clock=lambda: now[0]
    )
    assert policy.should_move(step(events=5, state_bytes=50)) is None
    now[0] = 59
    assert policy.should_move(step(events=6, state_bytes=50)) is None
    now[0] = 100
    assert policy.should_move(step(events=5)) is None
    now[0] = 160
    assert policy.should_move(step(events=5)) == "it has caught up and is small"
    policy.move()
    assert not policy.on_spark


def test_a_run_begins_here_while_spark_starts_and_stays_there_once_it_is_up() -> None:
    up = [False]
    policy = BeginHere(lambda: up[0], Budget(backlog_events=10))
    assert policy.begin(10) == "Spark is starting"
    assert policy.should_move(step()) is None
    up[0] = True
    assert policy.should_move(step(backlog=1_000)) == "Spark is up"
    policy.move()
    assert policy.on_spark
    assert policy.should_move(step()) is None


def test_a_backlog_waits_for_spark() -> None:
    policy = BeginHere(lambda: False, Budget(backlog_events=10))
    policy.begin(11)
    assert policy.on_spark


def test_spark_is_started_after_the_first_step_and_ends_the_run_if_it_cannot_start() -> None:
    asked: list[str] = []

    def is_up() -> bool:
        asked.append("start")
        raise JobError("there is no Java")

    policy = BeginHere(is_up)
    policy.begin(0)
    assert not asked
    with pytest.raises(JobError, match="there is no Java"):
        policy.should_move(step())
