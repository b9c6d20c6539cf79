"""How many events of each hub readers were sent during the last hour."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence

BUCKET_S = 5
BUCKETS = 720


class _Ring:
    """Counts of the last BUCKETS buckets of time."""

    def __init__(self, bucket: int) -> None:
        self._counts = array("Q", bytes(8 * BUCKETS))
        self._last = bucket

    def add(self, bucket: int, count: int) -> None:
        for passed in range(max(self._last + 1, bucket - BUCKETS + 1), bucket + 1):
            self._counts[passed % BUCKETS] = 0
        self._last = max(self._last, bucket)
        if bucket > self._last - BUCKETS:
            self._counts[bucket % BUCKETS] += count

    def get(self, bucket: int) -> int:
        return self._counts[bucket % BUCKETS] if self._last - BUCKETS < bucket <= self._last else 0


class Deliveries:
    """Counts by hub, in buckets of BUCKET_S seconds. Used on the event loop only; a hub takes 6 KB once it is read."""

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._rings: dict[str, _Ring] = {}

    def count(self, hub: str, events: int) -> None:
        """Count events that were sent to a reader of a hub."""
        bucket = int(self._now_s()) // BUCKET_S
        ring = self._rings.get(hub)
        if ring is None:
            ring = self._rings[hub] = _Ring(bucket)
        ring.add(bucket, events)

    def series(self, hub: str, from_s: int, bucket_s: int, buckets: int) -> Sequence[int | None]:
        """Return the counts of consecutive stretches of time; None for those that are no longer known.

        Args:
            hub: The hub's name as it was given when it was created.
            from_s: Where the first begins, in seconds since 1970: a multiple of BUCKET_S.
            bucket_s: How long each is: a multiple of BUCKET_S.
            buckets: How many there are.
        """
        ring = self._rings.get(hub)
        oldest = int(self._now_s()) // BUCKET_S - BUCKETS + 1
        width = bucket_s // BUCKET_S
        found: list[int | None] = []
        for number in range(buckets):
            first = from_s // BUCKET_S + number * width
            if first < oldest:
                found.append(None)
            else:
                found.append(0 if ring is None else sum(ring.get(one) for one in range(first, first + width)))
        return found
