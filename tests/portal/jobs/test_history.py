"""Charts of jobs: samples kept for an hour and a day, counters as rates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tidegate.portal.jobs.history import COARSE, FINE, MetricsHistory
from tidegate.service import JobState

NOW_S = 1_700_000_000.0


class Service:
    """One job, whose counter grows by 10 a second."""

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock
        self.state = JobState.RUNNING
        self.names = ["a"]

    def list(self) -> Any:
        return [SimpleNamespace(job_id=name, name=name, state=self.state) for name in self.names]

    def metrics(self, name: str) -> dict[str, float | None]:
        return {"Input Events": (self.clock[0] - NOW_S) * 10, "Watermark Delay": None}


def history() -> tuple[MetricsHistory, Service, list[float]]:
    clock = [NOW_S]
    service = Service(clock)
    return MetricsHistory(service, lambda: clock[0]), service, clock


def test_a_counter_is_shown_as_its_rate() -> None:
    kept, _, clock = history()
    for _ in range(4):
        kept.sample()
        clock[0] += 5
    series = kept.series("a", "1h")
    assert len(series["times"]) == 4
    assert series["rates"]["Input Events"] == [None, 10.0, 10.0, 10.0]
    assert series["metrics"]["Watermark Delay"] == [None] * 4


def test_a_counter_that_began_again_has_no_rate_there() -> None:
    kept, service, clock = history()
    kept.sample()
    clock[0] += 5
    kept.sample()
    service.metrics = lambda name: {"Input Events": 0}
    clock[0] += 5
    kept.sample()
    assert kept.series("a", "1h")["rates"]["Input Events"] == [None, 10.0, None]


def test_only_an_hour_is_kept_in_detail_and_a_day_in_minutes() -> None:
    kept, _, clock = history()
    for _ in range(FINE + 500):
        kept.sample()
        clock[0] += 5
    assert len(kept.series("a", "1h")["times"]) <= FINE
    day = kept.series("a", "24h")["times"]
    assert len(day) <= COARSE
    assert day[1] - day[0] >= 60


def test_jobs_that_do_not_run_are_not_sampled_and_deleted_ones_forgotten() -> None:
    kept, service, clock = history()
    kept.sample()
    service.state = JobState.STOPPED
    clock[0] += 5
    kept.sample()
    assert len(kept.series("a", "1h")["times"]) == 1
    service.names = []
    kept.sample()
    assert kept.series("a", "1h")["times"] == []
