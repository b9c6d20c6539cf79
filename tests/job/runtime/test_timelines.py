"""How large steps are, and into how many tasks one is cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.job.runtime.timelines import StepPace, tasks_of


@pytest.mark.parametrize(
    ("events", "most", "tasks"),
    [
        (0, 400, 8),
        (10, 1, 1),
        (100_000, 4, 4),
        (100_000, 400, 8),
        (1_000_000, 400, 22),
        (10_000_000, 400, 70),
        (10_000_000, 16, 16),
    ],
)
def test_a_large_cluster_is_not_given_more_tasks_than_are_worth_scheduling(events: int, most: int, tasks: int) -> None:
    assert tasks_of(events, most) == tasks


def paced(
    seconds_of: Callable[[int], float], parallelism: int = 2, steps: int = 30, *, calls_functions: bool = False
) -> list[int]:
    """The sizes of the steps of an endless backlog."""
    pace, sizes = StepPace(calls_functions=calls_functions), []
    for _ in range(steps):
        sizes.append(pace.most_events)
        pace.note(sizes[-1], seconds_of(sizes[-1]), lambda: parallelism)
    return sizes


@settings(max_examples=50)
@given(st.floats(1e3, 2.4e5), st.floats(0, 0.5), st.sampled_from((1, 2, 16, 400)))
def test_steps_come_to_take_two_seconds_whatever_an_event_costs(
    events_per_core_s: float, fixed_s: float, cores: int
) -> None:
    def seconds_of(events: int) -> float:
        return fixed_s + events / events_per_core_s / cores

    settled = paced(seconds_of, cores)[-1]
    assert seconds_of(settled) == pytest.approx(2, abs=0.1)


def test_a_step_has_no_more_events_than_cores_have_memory_for_and_never_none() -> None:
    assert max(paced(lambda events: 0.0)) == 1_000_000
    assert max(paced(lambda events: 0.0, parallelism=400)) == 200_000_000
    assert min(paced(lambda events: 3600.0)) == 1_000


def test_a_large_cluster_begins_with_a_step_that_its_driver_has_room_for() -> None:
    assert paced(lambda events: 1.0, parallelism=400)[0] == 1_000_000


def test_results_of_a_slow_function_do_not_wait_for_a_million_calls() -> None:
    sizes = paced(lambda events: events / 5_000, steps=2, calls_functions=True)
    assert sizes == [50_000, 10_000]


def test_one_slow_step_is_made_up_for_soon() -> None:
    seconds = iter([0.5, 0.5, 60.0, 0.5, 0.5, 0.5])
    assert paced(lambda events: next(seconds), steps=6) == [1_000_000] * 3 + [62_500, 250_000, 1_000_000]


def test_a_step_that_read_all_there_was_does_not_change_the_size_of_others() -> None:
    pace = StepPace()
    pace.note(300_000, 60, lambda: 2)
    assert pace.most_events == 1_000_000


def test_what_the_user_says_holds_for_every_step() -> None:
    pace = StepPace(400)
    pace.note(400, 60, lambda: 2)
    assert pace.most_events == 400
