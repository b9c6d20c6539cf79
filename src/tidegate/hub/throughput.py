"""Throughput units: what a namespace takes in and gives out a second.

A unit is 1 MB or 1,000 events a second in, whichever comes first, and 2 MB or 4,096 events a second out
(https://learn.microsoft.com/azure/event-hubs/event-hubs-scalability#throughput-units); all hubs of a namespace share
its units. A partition takes in at most one unit's worth.

Each of the four is a token bucket that holds a second's worth. Whoever finds all its buckets above zero may go ahead
and takes what it needs, if need be into debt: so a batch larger than a bucket passes too, and what follows waits for
it. Over any stretch of t seconds no more than (t + 1) seconds' worth and one publication get through.
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
"""Between two steps of auto-inflate, for the former to show whether it is enough."""


@dataclass(slots=True)
class Bucket:
    """Tokens that flow in at a rate and are kept for a second."""

    per_second: float
    tokens: float
    filled_at_s: float

    def fill(self, now_s: float) -> None:
        """Let in what has come since the last time."""
        elapsed_s = max(0.0, now_s - self.filled_at_s)
        self.tokens = min(self.per_second, self.tokens + elapsed_s * self.per_second)
        self.filled_at_s = now_s

    def widen(self, per_second: float) -> None:
        """Another unit: a larger rate, and its first second's worth at once."""
        self.per_second += per_second
        self.tokens += per_second

    def wait_s(self) -> float:
        """Until it is above zero."""
        return 0.0 if self.tokens > 0 else -self.tokens / self.per_second + 1e-3


class PartitionIngress:
    """What one partition takes in: a single unit's worth, however many units the namespace has."""

    def __init__(self) -> None:
        self.buckets: list[Bucket] | None = None  # from the first publication under throughput units


class Throughput:
    """The units of one namespace; None: no limit. Safe to call from any thread.

    `on_inflate` is called after each step of auto-inflate, by whoever needed it.
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
        """Have so many units from now on, with their first second's worth at once."""
        with self._lock:
            now_s = self._clock_s()
            self.units, self.auto_inflate_to = units, auto_inflate_to
            self._ingress, self._egress = (
                [Bucket(rate * (units or 0), rate * (units or 0), now_s) for rate in rates]
                for rates in ((INGRESS_BYTES, INGRESS_EVENTS), (EGRESS_BYTES, EGRESS_EVENTS))
            )

    def ingress_wait_s(self, size: int, count: int, partition: PartitionIngress | None = None) -> float:
        """Admit a publication of that many bytes and events, into a partition that has no `partition_wait_s`.

        Return 0 if it is admitted, else how many seconds its publisher should wait; nothing is used up then.
        """
        wait_s = self._pass(True, size, count)
        if wait_s == 0 and partition is not None and partition.buckets is not None:
            with self._lock:
                self._take(partition.buckets, size, count)
        return wait_s

    def partition_wait_s(self, partition: PartitionIngress) -> float:
        """Return how many seconds publishers to a partition should wait because it has taken in its unit."""
        with self._lock:
            if self.units is None or self.units == 1:  # then the namespace itself takes in no more
                return 0.0
            now_s = self._clock_s()
            if partition.buckets is None:
                partition.buckets = [Bucket(rate, rate, now_s) for rate in (INGRESS_BYTES, INGRESS_EVENTS)]
            for bucket in partition.buckets:
                bucket.fill(now_s)
            return max(bucket.wait_s() for bucket in partition.buckets)

    def egress_wait_s(self, size: int = 0, count: int = 0) -> float:
        """The same for events that are to be delivered."""
        return self._pass(False, size, count)

    def spend_egress(self, size: int, count: int) -> None:
        """Events were delivered, after egress_wait_s() had let them go."""
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
