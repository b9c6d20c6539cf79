"""Charts of jobs: counters as rates, gauges as values, and later turns only what has come since."""

from __future__ import annotations

from typing import Any, cast

from tidegate.portal.jobs.history import input_rates, partition_series, query_changes, series
from tidegate.service import Jobs, QueryPeriod, Resolution, Sample

NOW_S = 1_700_000_000.0


class Service:
    """A job whose counter grows by 10 a second."""

    def __init__(self, times: list[float], counts: list[float] | None = None) -> None:
        counts = counts or [10 * (at - times[0]) for at in times]
        pairs = zip(times, counts, strict=True)
        self.samples: list[Sample] = [(at, {"Input Events": count, "Watermark Delay": None}) for at, count in pairs]
        self.asked: list[Resolution] = []

    def history(
        self, name: str, resolution: Resolution, after_s: float, only: Any = None, thinning: Any = None
    ) -> list[Sample]:
        self.asked.append(resolution)
        return [sample for sample in self.samples if sample[0] > after_s]

    partition_history = history


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
        QueryPeriod("", "", since, None, None, None) for since in ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    ]
    changed_s = 1_767_312_000.0
    assert query_changes(versions, 0.0) == [changed_s]
    assert query_changes(versions, changed_s) == []


def test_each_partition_has_its_delay_and_the_rate_at_which_it_is_read() -> None:
    service = Service([])
    service.samples = [
        (NOW_S - 20, {"Watermark Delay i/10": 1.5, "Events Read i/10": 0, "Events Read i/9": 5}),
        (NOW_S - 10, {"Watermark Delay i/10": None, "Events Read i/10": 30, "Events Read i/9": 5}),
        (NOW_S, {"Watermark Delay i/10": 2.5, "Events Read i/10": 40}),
    ]
    found = partition_series(cast(Jobs, service), "a", "5m", 0.0, NOW_S)
    assert (service.asked, found["resolution"]) == ([Resolution.TEN_SECONDS], 10)
    assert found["times"] == [NOW_S - 20, NOW_S - 10, NOW_S]
    assert found["delays"] == {"i/9": [None, None, None], "i/10": [1.5, None, 2.5]}
    assert list(found["rates"].items()) == [("i/9", [None, 0.0, None]), ("i/10", [None, 3.0, 1.0])]
    later = partition_series(cast(Jobs, service), "a", "5m", NOW_S - 10, NOW_S)
    assert (later["times"], later["rates"]["i/10"]) == ([NOW_S], [1.0])
    assert partition_series(cast(Jobs, service), "a", "24h", 0.0, NOW_S)["resolution"] == 60


def test_a_sparkline_has_the_rates_of_the_last_minutes() -> None:
    service = Service([NOW_S - 1000, NOW_S - 2, NOW_S - 1, NOW_S], [0, 10, 20, 40])
    assert input_rates(cast(Jobs, service), "a", NOW_S) == [None, 10.0, 20.0]
