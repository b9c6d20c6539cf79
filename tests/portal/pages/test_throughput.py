"""Charts are read from the log: exact, and the same when they are read again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.log import EventBatch
from tidegate.portal.pages.throughput import RANGES, ThroughputCharts
from tidegate.server.context.metrics import BUCKET_S, BUCKETS, Deliveries

NOW_S = 1_700_000_000.0


class Partition:
    """Known by its identity, as a real one is."""

    def __init__(self, log: Log, partition_id: str) -> None:
        self.log = log
        self.partition_id = partition_id


class Log:
    """Events of 100 bytes at given seconds before now."""

    def __init__(self, *ago_s: float) -> None:
        self.times_ms = sorted(int((NOW_S - ago) * 1000) for ago in ago_s)
        self.next_sequence_number = len(self.times_ms)
        self.last_offset = 100 * len(self.times_ms)
        self.last_enqueued_time_ms = self.times_ms[-1] if self.times_ms else 0
        self.searches = 0

    def sequence_at_time(self, time_ms: int, *, inclusive: bool) -> int:
        self.searches += 1
        return next((n for n, at in enumerate(self.times_ms) if at >= time_ms), self.next_sequence_number)

    def read_batches(self, sequence_number: int, *, max_bytes: int, max_events: int) -> Any:
        if sequence_number >= self.next_sequence_number:
            return []
        return [EventBatch(sequence_number, self.times_ms[sequence_number], [100 * sequence_number], [b""])]

    def arrival_lower_bound(self) -> Any:
        return SimpleNamespace(lower_bound_ms=int(NOW_S * 1000))


def hub(*logs: Log) -> Any:
    return SimpleNamespace(name="eh1", partitions=[Partition(log, str(number)) for number, log in enumerate(logs)])


def test_a_chart_counts_every_event_where_it_arrived() -> None:
    throughput = ThroughputCharts(Deliveries(lambda: NOW_S), lambda: NOW_S)
    log = Log(12, 12, 11, 62, 400)
    chart = throughput.chart(hub(log, Log()), "5m")
    counts = dict(zip(chart["times"], chart["incomingEventsPerSecond"], strict=True))
    assert counts[int(NOW_S) - 15] == 0.6
    assert counts[int(NOW_S) - 65] == 0.2
    assert sum(counts.values()) == pytest.approx(0.8)
    assert "partitions" not in chart
    of_partitions = throughput.chart(hub(log, Log()), "5m", by_partition=True)["partitions"]
    assert of_partitions == {"0": chart["incomingEventsPerSecond"], "1": [0.0] * len(chart["times"])}
    sizes = dict(zip(chart["times"], chart["incomingBytesPerSecond"], strict=True))
    assert sizes[int(NOW_S) - 15] == 60


def test_the_past_is_searched_only_once() -> None:
    throughput, log = ThroughputCharts(Deliveries(), lambda: NOW_S), Log(3, 100, 250)
    one = hub(log)
    throughput.chart(one, "5m")
    searches = log.searches
    throughput.chart(one, "5m")
    assert log.searches == searches > 0


def test_an_idle_hub_costs_no_search() -> None:
    log = Log(100_000)
    throughput = ThroughputCharts(Deliveries(), lambda: NOW_S)
    assert throughput.rate(hub(log).partitions[0]) == 0
    throughput.chart(hub(log), "24h")
    assert log.searches == 0


def test_the_rate_is_that_of_the_last_minute() -> None:
    assert ThroughputCharts(Deliveries(), lambda: NOW_S).rate(hub(Log(1, 2, 59, 61)).partitions[0]) == 0.05


@pytest.mark.parametrize("name", RANGES)
def test_every_range_is_made_of_whole_buckets(name: str) -> None:
    length_s, bucket_s = RANGES[name]
    assert length_s % bucket_s == 0
    assert bucket_s % BUCKET_S == 0
    chart = ThroughputCharts(Deliveries(lambda: NOW_S), lambda: NOW_S).chart(hub(Log(5)), name)
    assert len(chart["times"]) == len(chart["outgoingEventsPerSecond"]) == length_s // bucket_s + 1


def test_deliveries_are_counted_for_an_hour_and_then_forgotten() -> None:
    now = [NOW_S]
    deliveries = Deliveries(lambda: now[0])
    deliveries.count("eh1", 10)
    now[0] += 7
    deliveries.count("eh1", 5)
    first = int(NOW_S) // BUCKET_S * BUCKET_S
    assert deliveries.series("eh1", first, 5, 3) == [10, 5, 0]
    assert deliveries.series("eh1", first, 10, 1) == [15]
    assert deliveries.series("other", first, 5, 1) == [0]
    now[0] += BUCKETS * BUCKET_S
    assert deliveries.series("eh1", first, 5, 1) == [None]
    deliveries.count("eh1", 1)
    last = int(now[0]) // BUCKET_S * BUCKET_S
    assert deliveries.series("eh1", last - 10, 5, 3) == [0, 0, 1]
