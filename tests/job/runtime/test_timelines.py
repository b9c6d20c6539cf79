"""Into how many tasks a step is cut."""

from __future__ import annotations

import pytest

from tidegate.job.runtime.timelines import tasks_of


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
