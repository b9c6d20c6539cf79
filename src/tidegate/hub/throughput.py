"""Throughput units: limits on what a namespace accepts and delivers per second.

A unit allows 1 MB or 1,000 events per second of ingress, whichever comes first, and 2 MB or 4,096 events of egress
(https://learn.microsoft.com/azure/event-hubs/event-hubs-scalability#throughput-units). All hubs of a namespace share
its units. A partition accepts at most one unit's worth.

Each of the four limits is a token bucket that holds a second's worth. A request is admitted if all its buckets are
above zero, and takes what it needs even if that leaves a debt: so a batch larger than a bucket is admitted too, and
later requests wait for it. Any interval of t seconds admits at most (t + 1) seconds' worth and one publication.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

_logger = logging.getLogger(__name__)

INGRESS_BYTES = 1 << 20
INGRESS_EVENTS = 1000
EGRESS_BYTES = 2 << 20
EGRESS_EVENTS = 4096
INFLATE_PAUSE_S = 1.0
"""Pause between two steps of auto-inflate, to see whether the first was enough."""


@dataclass(slots=True)
class Bucket:
    """A token bucket with a capacity of one second's tokens."""

    per_second: float
    tokens: float
    filled_at_s: float

    def fill(self, now_s: float) -> None:
        """Add the tokens for the time since the last call."""
        elapsed_s = max(0.0, now_s - self.filled_at_s)
        self.tokens = min(self.per_second, self.tokens + elapsed_s * self.per_second)
        self.filled_at_s = now_s

    def widen(self, per_second: float) -> None:
        """Raise the rate, and add the first second's additional tokens at once."""
        self.per_second += per_second
        self.tokens += per_second

    def wait_s(self) -> float:
        """Return the time until the bucket is above zero."""
        return 0.0 if self.tokens > 0 else -self.tokens / self.per_second + 1e-3


class PartitionIngress:
    """The ingress limit of one partition: one unit's worth, however many units the namespace has."""

    def __init__(self) -> None:
        self.buckets: list[Bucket] | None = None  # created by the first publication under throughput units


class Throughput:
    """The units of one namespace; None: no limit. Safe to call from any thread.

    `on_inflate` is called after each step of auto-inflate, in the thread that caused it.
    """

    units: int | None
    auto_inflate_to: int | None

    def __init__(
        self,
        units: int | None,
        auto_inflate_to: int | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        on_inflate: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock_s = clock_s
        self._on_inflate = on_inflate
        self._lock = threading.Lock()
        self._inflated_at_s = -math.inf
        self.inflations = 0
        self.set(units, auto_inflate_to)

    def set(self, units: int | None, auto_inflate_to: int | None = None) -> None:
        """Set the number of units, and grant their first second's worth at once."""
        with self._lock:
            now_s = self._clock_s()
            self.units, self.auto_inflate_to = units, auto_inflate_to
            self._ingress, self._egress = (
                [Bucket(rate * (units or 0), rate * (units or 0), now_s) for rate in rates]
                for rates in ((INGRESS_BYTES, INGRESS_EVENTS), (EGRESS_BYTES, EGRESS_EVENTS))
            )

    def ingress_wait_s(self, size: int, count: int, partition: PartitionIngress | None = None) -> float:
        """Admit a publication of that many bytes and events, into a partition that has no `partition_wait_s`.

        Return 0 if it is admitted, else how many seconds its publisher should wait, in which case nothing is used up.
        """
        wait_s = self._pass(True, size, count)
        if wait_s == 0 and partition is not None and partition.buckets is not None:
            with self._lock:
                self._take(partition.buckets, size, count)
        return wait_s

    def partition_wait_s(self, partition: PartitionIngress) -> float:
        """Return how many seconds publishers to a partition should wait because its unit is used up."""
        with self._lock:
            if self.units is None or self.units == 1:  # then the namespace's own limit is reached first
                return 0.0
            now_s = self._clock_s()
            if partition.buckets is None:
                partition.buckets = [Bucket(rate, rate, now_s) for rate in (INGRESS_BYTES, INGRESS_EVENTS)]
            for bucket in partition.buckets:
                bucket.fill(now_s)
            return max(bucket.wait_s() for bucket in partition.buckets)

    def egress_wait_s(self, size: int = 0, count: int = 0) -> float:
        """Return 0 if events may be delivered, else how many seconds to wait."""
        return self._pass(False, size, count)

    def spend_egress(self, size: int, count: int) -> None:
        """Charge for events that were delivered after egress_wait_s() returned 0."""
        with self._lock:
            self._take(self._egress, size, count)

    def _pass(self, ingress: bool, size: int, count: int) -> float:
        with self._lock:
            if self.units is None:
                return 0.0
            buckets = self._ingress if ingress else self._egress
            now_s = self._clock_s()
            for bucket in buckets:
                bucket.fill(now_s)
            wait_s = max(bucket.wait_s() for bucket in buckets)
            inflated = wait_s > 0 and self._inflate(self.units, now_s)
            if inflated:
                wait_s = max(bucket.wait_s() for bucket in buckets)
            if wait_s == 0:
                self._take(buckets, size, count)
        if inflated:
            self._on_inflate()
        return wait_s

    @staticmethod
    def _take(buckets: list[Bucket], size: int, count: int) -> None:
        buckets[0].tokens -= size
        buckets[1].tokens -= count

    def _inflate(self, units: int, now_s: float) -> bool:
        maximum = self.auto_inflate_to or 0
        if units >= maximum or now_s - self._inflated_at_s < INFLATE_PAUSE_S:
            return False
        self._inflated_at_s = now_s
        self.units = units + 1
        self.inflations += 1
        rates = (INGRESS_BYTES, INGRESS_EVENTS, EGRESS_BYTES, EGRESS_EVENTS)
        for bucket, rate in zip(self._ingress + self._egress, rates, strict=True):
            bucket.widen(rate)
        _logger.warning("auto-inflate: from %d to %d throughput units of %d", units, units + 1, maximum)
        return True
