"""Watermarks of one timeline, and of several together.

None of a timeline's later events is stamped before its watermark. Results that depend on several timelines (partitions,
the inputs of a union or a join) are complete only up to the smallest of their watermarks (article "Understand time
handling"; query reference "Time skew policies").
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.ordering.policy import Policy
from tidegate.ordering.ticks import NO_TIME
from tidegate.ordering.timeline import Carry


def watermark(carry: Carry, policy: Policy) -> int:
    """Return the watermark, in ticks, of a timeline after ``carry``; NO_TIME while it has none.

    It is the larger of (largest time seen - out-of-order tolerance) and (latest arrival - late tolerance). With
    ``Policy.arrival_time()`` it is the latest arrival.
    """
    return max(less(carry.max_time, policy.out_of_order_ticks), arrival_floor(carry.arrival, policy))


def arrival_floor(arrival: int, policy: Policy) -> int:
    """Return latest arrival - late tolerance: the watermark of a timeline or substream without events."""
    return less(arrival, policy.late_ticks)


def merge(watermarks: Iterable[int]) -> int:
    """Return the watermark of several timelines together: the smallest. Raises ValueError for none."""
    every = list(watermarks)
    if not every:
        raise ValueError("a watermark needs at least one timeline")
    return min(every)


def less(time: int, tolerance: int | None) -> int:
    """Return ``time - tolerance``, not below NO_TIME; NO_TIME without a tolerance (None)."""
    return NO_TIME if tolerance is None else max(NO_TIME, time - tolerance)
