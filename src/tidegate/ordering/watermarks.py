"""Watermarks: what a timeline promises, and what several timelines together promise.

A timeline with watermark W promises that none of its later events is stamped before W. Results that draw on several
timelines (partitions, the inputs of a union or a join) come only once every one of them has promised, so theirs is
the smallest (article "Understand time handling"; query reference "Time skew policies").
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.ordering.policy import Policy
from tidegate.ordering.ticks import NO_TIME
from tidegate.ordering.timeline import Carry


def watermark(carry: Carry, policy: Policy) -> int:
    """The watermark, in ticks, of a timeline that has come as far as ``carry``; NO_TIME while it promises nothing.

    It is the larger of (largest time seen - out-of-order tolerance) and (latest arrival - late tolerance). With
    ``Policy.arrival_time()`` it is the latest arrival.
    """
    return max(less(carry.max_time, policy.out_of_order_ticks), arrival_floor(carry.arrival, policy))


def arrival_floor(arrival: int, policy: Policy) -> int:
    """latest arrival - late tolerance: the watermark of a timeline, or of a substream, that has had no event."""
    return less(arrival, policy.late_ticks)


def merge(watermarks: Iterable[int]) -> int:
    """The watermark of what draws on all of these: the smallest. Raises ValueError if there is none to draw on."""
    every = list(watermarks)
    if not every:
        raise ValueError("a watermark needs at least one timeline")
    return min(every)


def less(time: int, tolerance: int | None) -> int:
    """``time - tolerance`` for one time, not below NO_TIME; NO_TIME where there is no tolerance (None)."""
    return NO_TIME if tolerance is None else max(NO_TIME, time - tolerance)
