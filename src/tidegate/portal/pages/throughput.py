"""A hub's throughput, now and in the past: incoming from the log itself, outgoing from what the server counted.

The log knows the arrival of every event that it holds, so a chart reaches back as far as retention, across restarts,
and nothing is recorded for it. What lies before a moment in the past never changes, so each search is made only once.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegate.hub.event_hub import EventHub
from tidegate.hub.partition import Partition
from tidegate.log import LogDamaged
from tidegate.server.context.metrics import Deliveries

RANGES = {"5m": (300, 5), "1h": (3600, 60), "6h": (21_600, 300), "24h": (86_400, 900), "7d": (604_800, 7200)}
"""The length of each chart and of its buckets, in seconds."""
DEFAULT_RANGE = "5m"
RATE_S = 60
MOST_PARTITIONS = 256
_MAX_KNOWN = 50_000


@dataclass(frozen=True, slots=True)
class _CountBefore:
    """How many events, and bytes of the log, came before a moment."""

    sequence_number: int
    offset: int


class ThroughputCharts:
    """Charts of hubs. Called in worker threads; two that look for the same place do so twice, with the same result."""

    def __init__(self, deliveries: Deliveries, now_s: Callable[[], float] = time.time) -> None:
        self._deliveries = deliveries
        self._now_s = now_s
        self._known: OrderedDict[tuple[Partition, int], _CountBefore] = OrderedDict()

    def chart(self, hub: EventHub, range_name: str, *, by_partition: bool = False) -> dict[str, Any]:
        """Return a chart's data: `times` (Unix seconds), and events and bytes a second, of all partitions together.

        With `by_partition`, `partitions` has the incoming events a second of each of the first MOST_PARTITIONS. The
        last bucket is the present one, as far as it has come. Raises LogError.
        """
        length_s, bucket_s = RANGES[range_name]
        now_s = int(self._now_s())
        end_s = now_s // bucket_s * bucket_s
        first_s = end_s - length_s
        times = list(range(first_s, end_s + 1, bucket_s))
        places = [[*self._places(one, times), _end_of(one)] for one in hub.partitions]
        count = len(times)
        incoming = [sum(p[n + 1].sequence_number - p[n].sequence_number for p in places) for n in range(count)]
        sizes = [sum(max(0, p[n + 1].offset - p[n].offset) for p in places) for n in range(count)]
        outgoing = self._deliveries.series(hub.name, first_s, bucket_s, count)
        widths = [*[bucket_s] * (count - 1), max(1, now_s - end_s)]
        found: dict[str, Any] = {}
        if by_partition:
            shown = zip(hub.partitions[:MOST_PARTITIONS], places, strict=False)
            found["partitions"] = {
                one.partition_id: [
                    round((p[n + 1].sequence_number - p[n].sequence_number) / widths[n], 3) for n in range(count)
                ]
                for one, p in shown
            }
        return found | {
            "range": range_name,
            "bucketSeconds": bucket_s,
            "times": times,
            "incomingEventsPerSecond": [round(n / s, 3) for n, s in zip(incoming, widths, strict=True)],
            "incomingBytesPerSecond": [round(n / s, 1) for n, s in zip(sizes, widths, strict=True)],
            "outgoingEventsPerSecond": [
                None if n is None else round(n / s, 3) for n, s in zip(outgoing, widths, strict=True)
            ],
        }

    def rate(self, partition: Partition) -> float:
        """Return the events a second that came during the last minute. Raises LogError."""
        now_ms = int(self._now_s() * 1000)
        if partition.log.last_enqueued_time_ms < now_ms - RATE_S * 1000:
            return 0.0
        # To whole seconds, so that pages that ask often search seldom.
        since = self._place(partition, now_ms // 1000 - RATE_S)
        return round((partition.log.next_sequence_number - since.sequence_number) / RATE_S, 3)

    def _places(self, partition: Partition, times: list[int]) -> list[_CountBefore]:
        log = partition.log
        last_s = log.last_enqueued_time_ms / 1000
        end = _end_of(partition)
        # Most moments come after the last event of a hub that is at rest.
        return [end if moment > last_s else self._place(partition, moment) for moment in times]

    def _place(self, partition: Partition, moment_s: int) -> _CountBefore:
        key = partition, moment_s
        known = self._known.get(key)
        if known is not None:
            return known
        log = partition.log
        number = log.sequence_at_time(moment_s * 1000, inclusive=True)
        found = _CountBefore(number, _offset_of(partition, number))
        # An event with this arrival may still come until the clock is past it.
        if log.arrival_lower_bound().lower_bound_ms > moment_s * 1000:
            self._known[key] = found
            if len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
        return found


def _end_of(partition: Partition) -> _CountBefore:
    return _CountBefore(partition.log.next_sequence_number, partition.log.last_offset)


def _offset_of(partition: Partition, sequence_number: int) -> int:
    """Return the offset of an event, of the last one for the event that comes next. Raises LogError."""
    log = partition.log
    try:
        batches = log.read_batches(sequence_number, max_bytes=1, max_events=1)
    except LogDamaged:
        return log.last_offset
    return batches[0].offsets[0] if batches else log.last_offset
