"""Throughput units: limits on what a namespace accepts and delivers per second.

A unit allows 1 MB or 1,000 events per second of ingress, whichever comes first, and 2 MB or 4,096 events of egress
(https://learn.microsoft.com/azure/event-hubs/event-hubs-scalability#throughput-units). All hubs of a namespace share
its units. A partition accepts at most one unit's worth.

Each of the four limits is a token bucket that holds a second's worth. A request is admitted if all its buckets are
above zero, and takes what it needs even if that leaves a debt: so a batch larger than a bucket is admitted too, and
later requests wait for it. Any interval of t seconds admits at most (t + 1) seconds' worth and one publication.

Gateways of one namespace share its units out. Each says once a second what it used and whether it had to make clients
wait, and each computes the same shares from what all have said (`share_out`): max-min fair, so that a gateway which
needs little leaves the rest to the others, with a small part reserved for those that have been idle. A partition's own
limit is not shared out.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

_logger = logging.getLogger(__name__)

INGRESS_BYTES = 1 << 20
INGRESS_EVENTS = 1000
EGRESS_BYTES = 2 << 20
EGRESS_EVENTS = 4096
INFLATE_PAUSE_S = 1.0
"""Pause between two steps of auto-inflate, to see whether the first was enough."""
RESERVED = 0.1
"""The part of the units that is shared out evenly, so that a gateway which has been idle can begin."""
HEADROOM = 1.25
"""How much more than it used a gateway gets that made nobody wait."""
AT_LIMIT = 0.9
"""The part of the units that gateways must use together before auto-inflate adds one."""


class Demand(NamedTuple):
    """What one gateway used of the units in one direction.

    Attributes:
        units: How many units' worth per second.
        is_limited: Whether it had to make clients wait.
    """

    units: float = 0.0
    is_limited: bool = False


def share_out(units: float, demands: Mapping[str, Demand]) -> dict[str, float]:
    """Return how many units each gateway may give out: max-min fair by what they used, and all of them together."""
    reserved = units * RESERVED / max(1, len(demands))
    wanted = {
        gateway: math.inf if demand.is_limited else max(0.0, demand.units * HEADROOM - reserved)
        for gateway, demand in demands.items()
    }
    shares = dict.fromkeys(demands, reserved)
    left, waiting = units - reserved * len(demands), sorted(wanted, key=lambda gateway: (wanted[gateway], gateway))
    for index, gateway in enumerate(waiting):
        given = min(wanted[gateway], left / (len(waiting) - index))
        shares[gateway] += given
        left -= given
    return {gateway: share + left / len(shares) for gateway, share in shares.items()}


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

    def limit(self, per_second: float, now_s: float) -> None:
        """Change the rate from now on. Tokens beyond a second's worth are lost, a debt is kept."""
        self.fill(now_s)
        self.per_second = per_second
        self.tokens = min(self.tokens, per_second)

    def widen(self, per_second: float) -> None:
        """Raise the rate, and add the first second's additional tokens at once."""
        self.per_second += per_second
        self.tokens += per_second

    def wait_s(self) -> float:
        """Return the time until the bucket is above zero."""
        return 0.0 if self.tokens > 0 else -self.tokens / self.per_second + 1e-3


class _Direction:
    """The two limits of a direction, and what was used of them since `demand` was called last."""

    def __init__(self, rates: tuple[int, int], units: float, now_s: float) -> None:
        self.rates = rates
        self.buckets = [Bucket(rate * units, rate * units, now_s) for rate in rates]
        self._used = [0, 0]
        self._since_s = now_s
        self.is_limited = False

    def take(self, size: int, count: int) -> None:
        self._used[0] += size
        self._used[1] += count
        self.buckets[0].tokens -= size
        self.buckets[1].tokens -= count

    def wait_s(self, now_s: float) -> float:
        for bucket in self.buckets:
            bucket.fill(now_s)
        return max(bucket.wait_s() for bucket in self.buckets)

    def demand(self, now_s: float) -> Demand:
        elapsed_s = max(1e-3, now_s - self._since_s)
        units = max(used / rate for used, rate in zip(self._used, self.rates, strict=True)) / elapsed_s
        found = Demand(units, self.is_limited)
        self._used, self._since_s, self.is_limited = [0, 0], now_s, False
        return found

    def limit(self, units: float, now_s: float) -> None:
        for bucket, rate in zip(self.buckets, self.rates, strict=True):
            bucket.limit(rate * units, now_s)

    def widen(self, units: float) -> None:
        for bucket, rate in zip(self.buckets, self.rates, strict=True):
            bucket.widen(rate * units)


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
        self._shares = (1.0, 1.0)
        self._is_at_limit = True
        self.inflations = 0
        self.set(units, auto_inflate_to)

    def set(self, units: int | None, auto_inflate_to: int | None = None) -> None:
        """Set the number of units, and grant their first second's worth at once."""
        with self._lock:
            now_s = self._clock_s()
            self.units, self.auto_inflate_to = units, auto_inflate_to
            ingress, egress = (share * (units or 0) for share in self._shares)
            self._ingress = _Direction((INGRESS_BYTES, INGRESS_EVENTS), ingress, now_s)
            self._egress = _Direction((EGRESS_BYTES, EGRESS_EVENTS), egress, now_s)

    @property
    def shares(self) -> tuple[float, float]:
        """The parts of ingress and egress that this process gives out."""
        return self._shares

    def demand(self) -> tuple[Demand, Demand]:
        """Return what was used of ingress and egress since the last call."""
        with self._lock:
            now_s = self._clock_s()
            return self._ingress.demand(now_s), self._egress.demand(now_s)

    def share(self, own: str, demands: Mapping[str, tuple[Demand, Demand]]) -> None:
        """Give out only this gateway's share from now on. `demands` has what all gateways said, with this one."""
        with self._lock:
            if self.units is None or own not in demands:
                return
            now_s = self._clock_s()
            shares = []
            for index, direction in enumerate((self._ingress, self._egress)):
                one_way = {gateway: both[index] for gateway, both in demands.items()}
                shared = share_out(self.units, one_way)[own]
                direction.limit(shared, now_s)
                shares.append(shared / self.units)
            self._shares = shares[0], shares[1]
            used = (sum(both[index].units for both in demands.values()) for index in range(2))
            self._is_at_limit = len(demands) == 1 or max(used) >= AT_LIMIT * self.units

    def ingress_wait_s(self, size: int, count: int, partition: PartitionIngress | None = None) -> float:
        """Admit a publication of that many bytes and events, into a partition that has no `partition_wait_s`.

        Return 0 if it is admitted, else how many seconds its publisher should wait, in which case nothing is used up.
        """
        wait_s = self._pass(True, size, count)
        if wait_s == 0 and partition is not None and partition.buckets is not None:
            with self._lock:
                for bucket, used in zip(partition.buckets, (size, count), strict=True):
                    bucket.tokens -= used
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
            self._egress.take(size, count)

    def _pass(self, ingress: bool, size: int, count: int) -> float:
        with self._lock:
            if self.units is None:
                return 0.0
            direction = self._ingress if ingress else self._egress
            now_s = self._clock_s()
            wait_s = direction.wait_s(now_s)
            if wait_s > 0:
                direction.is_limited = True
            inflated = wait_s > 0 and self._inflate(self.units, now_s)
            if inflated:
                wait_s = direction.wait_s(now_s)
            if wait_s == 0:
                direction.take(size, count)
        if inflated:
            self._on_inflate()
        return wait_s

    def _inflate(self, units: int, now_s: float) -> bool:
        maximum = self.auto_inflate_to or 0
        if units >= maximum or not self._is_at_limit or now_s - self._inflated_at_s < INFLATE_PAUSE_S:
            return False
        self._inflated_at_s = now_s
        self.units = units + 1
        self.inflations += 1
        for direction, share in zip((self._ingress, self._egress), self._shares, strict=True):
            direction.widen(share)
        _logger.warning("auto-inflate: from %d to %d throughput units of %d", units, units + 1, maximum)
        return True
