"""Charts of jobs: counters as rates, gauges as values, and later turns only what has come since."""

from __future__ import annotations

from typing import Any, cast

from tidegate.portal.jobs.history import query_changes, series
from tidegate.service import Jobs, QueryVersion, Resolution, Sample

NOW_S = 1_700_000_000.0


class Service:
    """A job whose counter grows by 10 a second."""

    def __init__(self, times: list[float], counts: list[float] | None = None) -> None:
        counts = counts or [10 * (at - times[0]) for at in times]
        pairs = zip(times, counts, strict=True)
        self.samples: list[Sample] = [(at, {"Input Events": count, "Watermark Delay": None}) for at, count in pairs]
        self.asked: list[Resolution] = []

    def history(self, name: str, resolution: Resolution, after_s: float) -> list[Sample]:
        self.asked.append(resolution)
        return [sample for sample in self.samples if sample[0] > after_s]


def shown(service: Service, range_name: str = "1h", after_s: float = 0.0) -> dict[str, Any]:
    return series(cast(Jobs, service), "a", range_name, after_s, NOW_S)


def test_a_counter_is_shown_as_its_rate_and_a_gauge_as_its_value() -> None:
    found = shown(Service([NOW_S - 3, NOW_S - 2, NOW_S - 1, NOW_S]))
    assert found["times"] == [NOW_S - 3, NOW_S - 2, NOW_S - 1, NOW_S]
    assert found["rates"] == {"Input Events": [None, 10.0, 10.0, 10.0]}
    assert found["metrics"] == {"Watermark Delay": [None] * 4}


def test_a_later_turn_has_the_rate_of_its_first_sample() -> None:
    service = Service([NOW_S - 3, NOW_S - 2, NOW_S - 1, NOW_S])
    found = shown(service, after_s=NOW_S - 2)
    assert (found["times"], found["rates"]["Input Events"]) == ([NOW_S - 1, NOW_S], [10.0, 10.0])
    assert shown(service, after_s=NOW_S)["times"] == []


def test_a_counter_that_began_again_or_was_not_watched_has_no_rate_there() -> None:
    assert shown(Service([NOW_S - 2, NOW_S - 1, NOW_S], [5, 7, 0]))["rates"]["Input Events"] == [None, 2.0, None]
    assert shown(Service([NOW_S - 60, NOW_S]))["rates"]["Input Events"] == [None, None]


def test_a_range_goes_as_far_back_as_its_name_says() -> None:
    service = Service([NOW_S - 90_000, NOW_S - 3000, NOW_S - 100, NOW_S])
    assert [len(shown(service, name)["times"]) for name in ("5m", "1h", "24h")] == [2, 3, 3]
    assert service.asked == [Resolution.SECOND, Resolution.SECOND, Resolution.MINUTE]


def test_a_chart_marks_where_the_process_began_again_and_where_the_query_changed() -> None:
    times = [NOW_S - 100, NOW_S - 99, NOW_S - 3, NOW_S - 2, NOW_S - 1]
    assert shown(Service(times, [5, 7, 8, 9, 0]))["restarts"] == [NOW_S - 3, NOW_S - 1]
    assert shown(Service(times, [5, 7, 8, 9, 0]), after_s=NOW_S - 2)["restarts"] == [NOW_S - 1]
    versions = [
        QueryVersion("", "", since, None, None, None) for since in ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    ]
    changed_s = 1_767_312_000.0
    assert query_changes(versions, 0.0) == [changed_s]
    assert query_changes(versions, changed_s) == []
