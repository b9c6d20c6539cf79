"""The states of a job: the table is complete, and every state can be reached and left."""

from __future__ import annotations

import pytest

from tidegate.service.states import ACTIVE, TRANSITIONS, JobEvent, JobState, NoTransition, after


def test_every_state_is_reached_and_left() -> None:
    assert set(TRANSITIONS.values()) == set(JobState) - {JobState.CREATED}
    assert {of for of, _ in TRANSITIONS} == set(JobState)


def test_what_a_process_does_is_expected_in_every_state_that_may_have_one() -> None:
    by_process = {JobEvent.READY, JobEvent.TROUBLE, JobEvent.DIED, JobEvent.GAVE_UP, JobEvent.COMPLETE}
    missing = [(state, event) for state in ACTIVE for event in by_process if (state, event) not in TRANSITIONS]
    assert not missing


def test_a_job_that_does_not_run_can_only_be_started() -> None:
    for state in set(JobState) - ACTIVE:
        assert [event for of, event in TRANSITIONS if of is state] == [JobEvent.START]


def test_an_event_that_cannot_happen_is_an_error() -> None:
    with pytest.raises(NoTransition, match="a job that is Running has no transition for START"):
        after(JobState.RUNNING, JobEvent.START)
