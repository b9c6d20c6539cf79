"""The supervision of one job: what follows what its process does, in times that the test chooses."""

from __future__ import annotations

import pytest

from tidegate.service.states import JobState, NoTransition
from tidegate.service.supervision import (
    BACK_OFF,
    FORGIVEN_AFTER_S,
    MOST_DEATHS,
    STOP_WITHIN_S,
    Exit,
    ExitKind,
    ProcessAction,
    Supervision,
)

DEATH = Exit(ExitKind.CRASHED, "its process was ended by SIGKILL")
ASKED = Exit(ExitKind.ASKED, "")


def started() -> Supervision:
    supervision = Supervision(JobState.CREATED)
    assert supervision.start() == (ProcessAction.LAUNCH,)
    return supervision


def running(now_s: float = 0) -> Supervision:
    supervision = started()
    supervision.ready(now_s)
    assert supervision.state is JobState.RUNNING
    return supervision


def seen(supervision: Supervision) -> tuple[JobState, str | None]:
    return supervision.state, supervision.reason


def test_a_job_that_runs_cannot_be_started_again() -> None:
    with pytest.raises(NoTransition):
        running().start()


def test_a_process_that_dies_is_started_again_with_back_off_until_the_job_has_failed() -> None:
    supervision, now_s, pauses = started(), 0.0, []
    for _ in range(MOST_DEATHS - 1):
        assert supervision.ended(DEATH, now_s) == ()
        assert supervision.state is JobState.DEGRADED
        assert supervision.due_at_s is not None
        pauses.append(supervision.due_at_s - now_s)
        assert supervision.tick(supervision.due_at_s - 0.01) == ()
        now_s = supervision.due_at_s
        assert supervision.tick(now_s) == (ProcessAction.LAUNCH,)
    assert pauses[:7] == [1, 2, 4, 8, 16, 32, BACK_OFF.longest_s]
    supervision.ended(DEATH, now_s)
    assert supervision.state is JobState.FAILED
    assert not supervision.wanted
    assert supervision.reason == f"its process was ended by SIGKILL (given up after {MOST_DEATHS} attempts)"


def test_the_reason_of_a_death_says_when_the_job_starts_again() -> None:
    supervision = running()
    supervision.ended(DEATH, 5)
    assert supervision.reason == "its process was ended by SIGKILL; starting again after 1 s (attempt 2 of 10)"
    supervision.tick(6)
    supervision.ready(7)
    assert supervision.reason is None
    assert supervision.restarts == 1


def test_a_process_that_ran_for_a_while_is_forgiven_its_earlier_deaths() -> None:
    supervision = running()
    for _ in range(4):
        supervision.ended(DEATH, 0)
        supervision.tick(1000)
    supervision.ready(1000)
    supervision.ended(DEATH, 1000 + FORGIVEN_AFTER_S)
    assert supervision.due_at_s == 1000 + FORGIVEN_AFTER_S + 1


def test_a_job_that_cannot_continue_has_failed_at_once_and_can_be_started_again() -> None:
    supervision = running()
    supervision.ended(Exit(ExitKind.FATAL, "the journal is damaged"), 3)
    assert (supervision.state, supervision.reason) == (JobState.FAILED, "the journal is damaged")
    assert supervision.due_at_s is None
    assert supervision.start() == (ProcessAction.LAUNCH,)


def test_a_job_whose_inputs_have_ended_is_stopped() -> None:
    supervision = running()
    supervision.ended(Exit(ExitKind.COMPLETE, "its inputs have ended"), 3)
    assert (supervision.state, supervision.wanted) == (JobState.STOPPED, False)


def test_a_process_that_waits_makes_its_job_degraded_until_it_goes_on() -> None:
    supervision = running()
    supervision.trouble("input 'tolls' unreachable since 12:00")
    assert seen(supervision) == (JobState.DEGRADED, "input 'tolls' unreachable since 12:00")
    supervision.ready(1)
    assert seen(supervision) == (JobState.RUNNING, None)


def test_a_stop_asks_first_and_kills_later() -> None:
    supervision = running()
    assert supervision.stop(10) == (ProcessAction.ASK_TO_STOP,)
    assert supervision.state is JobState.STOPPING
    assert supervision.tick(10 + STOP_WITHIN_S - 0.1) == ()
    assert supervision.tick(10 + STOP_WITHIN_S) == (ProcessAction.KILL,)
    assert supervision.tick(10 + STOP_WITHIN_S + 1) == ()
    supervision.ended(DEATH, 31)
    assert (supervision.state, supervision.reason) == (JobState.STOPPED, DEATH.message)


def test_a_job_that_waits_to_be_started_again_is_stopped_at_once() -> None:
    supervision = running()
    supervision.ended(DEATH, 0)
    assert supervision.stop(0.5) == ()
    assert supervision.state is JobState.STOPPED
    assert supervision.tick(100) == ()


def test_a_change_stops_the_process_and_starts_another() -> None:
    supervision = running()
    assert supervision.restart(5, "the query has changed") == (ProcessAction.ASK_TO_STOP,)
    assert (supervision.state, supervision.wanted) == (JobState.STOPPING, True)
    assert supervision.ended(ASKED, 6) == (ProcessAction.LAUNCH,)
    assert (supervision.state, supervision.reason) == (JobState.STARTING, "the query has changed")


def test_a_change_does_not_wait_for_the_back_off() -> None:
    supervision = running()
    supervision.ended(DEATH, 0)
    assert supervision.restart(0.1, "the query has changed") == (ProcessAction.LAUNCH,)
    assert supervision.state is JobState.STARTING
    assert supervision.due_at_s is None


def test_a_stop_during_a_change_wins() -> None:
    supervision = running()
    supervision.restart(5, "the query has changed")
    supervision.stop(5.1)
    assert supervision.ended(ASKED, 6) == ()
    assert supervision.state is JobState.STOPPED


def test_a_change_of_a_stopped_job_starts_nothing() -> None:
    supervision = Supervision(JobState.STOPPED)
    assert supervision.restart(0, "the query has changed") == ()
    assert supervision.state is JobState.STOPPED


@pytest.mark.parametrize("late", ["ready", "trouble"])
def test_what_a_process_says_while_it_is_stopped_changes_nothing(late: str) -> None:
    supervision = running()
    supervision.stop(0, "somebody asked")
    supervision.ready(1) if late == "ready" else supervision.trouble("a disk is full")
    assert (supervision.state, supervision.reason) == (JobState.STOPPING, "somebody asked")


def test_a_job_that_waits_for_what_is_unavailable_never_fails() -> None:
    supervision, now_s, pauses = started(), 0.0, []
    full = Exit(ExitKind.UNAVAILABLE, "a partition has at most 5 readers")
    for _ in range(3 * MOST_DEATHS):
        assert supervision.ended(full, now_s) == ()
        assert supervision.state is JobState.DEGRADED
        assert "at most 5 readers; starting again after" in str(supervision.reason)
        assert supervision.due_at_s is not None
        pauses.append(supervision.due_at_s - now_s)
        now_s = supervision.due_at_s
        assert supervision.tick(now_s) == (ProcessAction.LAUNCH,)
    assert pauses[:3] == [1, 2, 4]
    assert pauses[-1] == BACK_OFF.longest_s
    supervision.ready(now_s)
    assert seen(supervision) == (JobState.RUNNING, None)
    supervision.ended(full, now_s)
    assert supervision.due_at_s == now_s + 1  # what it waits for now is another matter
