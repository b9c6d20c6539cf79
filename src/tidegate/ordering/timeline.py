"""The scan: one timeline's events in broker order are given their System.Timestamp.

Theory. On one timeline (an input's partition, or a substream of it) the documented rules are, for an event with time t
and arrival a, in this order (article "Understand time handling"; query reference "Time skew policies"):

  0  t cannot be read                       the event is lost
  1  t - a > early                          Early Input Event, always dropped, moves no time
  2  t < a - late                           Late Input Event: t := a - late, or dropped
  3  t < W                                  Out-of-Order Event: t := W, or dropped
  4  M := max(M, t); System.Timestamp := t  M is the largest time seen so far

with the watermark W = max(M - out_of_order, A - late), A being the latest arrival the timeline knows of (every event
that was read moves it, dropped ones too; so does a tick). All comparisons are strict.

That a loop over events can be one running maximum:
  * After rules 1 and 2, with A including the event itself, let x = max(t, A - late) when adjusting. Rule 3 can then
    only move t to M - out_of_order, which is not above M, so it never changes M: M is the running maximum of x.
  * When dropping, rules 2 and 3 together lose every event below A - late, and what rule 3 loses besides is below
    M - out_of_order and would not have raised M. So M is the running maximum of the t at or above A - late.
  * Lost events enter the maximum as NO_TIME, which raises nothing.
  * If arrivals do not decrease, A - late cannot touch an event in rule 3 that rule 2 has let pass, so the stamps are
    the ones of W = M - out_of_order alone. Only after an arrival that goes back (a tick that estimated too much, a
    broker whose clock was set back) does A - late decide, and then it keeps the event from being stamped before a
    watermark that has already been used.

Differences with a tolerance saturate at the ends of int64: a bound that would lie below every possible time becomes
NO_TIME, and t < NO_TIME is never true, so the saturated comparison says the same as the exact one.

Watermarks of one timeline, and of several together.

None of a timeline's later events is stamped before its watermark. Results that depend on several timelines (partitions,
the inputs of a union or a join) are complete only up to the smallest of their watermarks (article "Understand time
handling"; query reference "Time skew policies").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tidegate.ordering.policy import Policy
from tidegate.ordering.ticks import END_OF_TIME, NO_TIME, Times

Flags = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

OK, ADJUSTED, DROPPED = 0, 1, 2
"""Fates of an event."""

EARLY, LATE, OUT_OF_ORDER, INVALID_TIMESTAMP, INVALID_KEY = 1, 2, 4, 8, 16
"""Reasons, as bits: an event may be late and out of order at once, and counts as both."""

# The dozen columns of a block fit into the processor's cache; a carry leads from each block to the next.
BLOCK_EVENTS = 16_384


@dataclass(frozen=True)
class Carry:
    """What a scan passes to the next one on the same timeline: all of the past that can still matter.

    Attributes:
        max_time: the largest System.Timestamp so far, in ticks; NO_TIME for none.
        arrival: the latest arrival known, in ticks; NO_TIME for none.
    """

    max_time: int = NO_TIME
    arrival: int = NO_TIME

    def advance(self, arrival: int) -> Carry:
        """Return the carry after a tick: the broker's clock has reached ``arrival`` (ticks) without an event."""
        return self if arrival <= self.arrival else replace(self, arrival=arrival)


@dataclass(frozen=True, eq=False)
class Stamps:
    """The verdict of a scan on each of n events, in the order they were given.

    ``system_timestamp`` int64[n], ticks; NO_TIME where dropped.
    ``fate`` uint8[n]: OK, ADJUSTED, DROPPED. ``reasons`` uint8[n]: the bits EARLY … INVALID_KEY.
    ``watermark_event`` int64[n]: largest time seen - out-of-order tolerance, after the event; NO_TIME while none.
    ``watermark`` int64[n]: the same, or arrival - late tolerance where that is larger; no later event is stamped before
    it.
    """

    system_timestamp: Times
    fate: Flags
    reasons: Flags
    watermark_event: Times
    watermark: Times

    def __len__(self) -> int:
        return len(self.fate)

    @classmethod
    def empty(cls, count: int) -> Stamps:
        """Return uninitialised stamps of ``count`` events."""
        return cls(
            np.empty(count, np.int64),
            np.empty(count, np.uint8),
            np.empty(count, np.uint8),
            np.empty(count, np.int64),
            np.empty(count, np.int64),
        )

    @classmethod
    def concat(cls, parts: Sequence[Stamps]) -> Stamps:
        """Concatenate the stamps of several scans."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.system_timestamp for part in parts]),
            np.concatenate([part.fate for part in parts]),
            np.concatenate([part.reasons for part in parts]),
            np.concatenate([part.watermark_event for part in parts]),
            np.concatenate([part.watermark for part in parts]),
        )

    def part(self, start: int, stop: int) -> Stamps:
        """Return the stamps ``start`` to ``stop``, as views of the same arrays."""
        return Stamps(
            self.system_timestamp[start:stop],
            self.fate[start:stop],
            self.reasons[start:stop],
            self.watermark_event[start:stop],
            self.watermark[start:stop],
        )


def scan(
    event_time: Times,
    arrival: Times,
    carry: Carry,
    policy: Policy,
    valid: Mask | None = None,
    latest: Times | None = None,
) -> tuple[Stamps, Carry]:
    """Stamp n events of one timeline, given in broker order.

    ``event_time`` and ``arrival``: int64[n], ticks. ``valid``: bool[n], False where the event time could not be read
    (its value is then ignored, the event is DROPPED with INVALID_TIMESTAMP and moves nothing but the arrival).
    ``carry``: what the scan of the events before returned; ``Carry()`` at the beginning. ``latest``: int64[n], the
    latest arrival known after each event, where other events have arrived between them; None: `running_arrival`.

    Any cut of the events into consecutive scans gives the same stamps. Raises ValueError if lengths differ.
    """
    event_time, arrival, valid = columns(event_time, arrival, valid)
    stamps = Stamps.empty(len(event_time))
    for start in range(0, len(event_time), BLOCK_EVENTS):
        stop = min(start + BLOCK_EVENTS, len(event_time))
        carry = _scan_block(
            event_time[start:stop],
            arrival[start:stop],
            carry,
            policy,
            None if valid is None else valid[start:stop],
            stamps.part(start, stop),
            None if latest is None else latest[start:stop],
        )
    return stamps, carry


def scan_arrival(arrival: Times, carry: Carry, latest: Times | None = None) -> tuple[Stamps, Carry]:
    """Stamp n events of a job without TIMESTAMP BY: System.Timestamp is the arrival, whatever the tolerances."""
    return scan(arrival, arrival, carry, Policy.arrival_time(), latest=latest)


def counts(stamps: Stamps) -> dict[str, int]:
    """Count the events each rule touched, under the service's metric names; dropped and adjusted count alike."""
    return {
        name: int(np.count_nonzero(stamps.reasons & reason))
        for name, reason in (
            ("Early Input Events", EARLY),
            ("Late Input Events", LATE),
            ("Out-of-Order Events", OUT_OF_ORDER),
        )
    }


DATA_ERRORS = {
    INVALID_TIMESTAMP: "InvalidInputTimeStamp",
    INVALID_KEY: "InvalidInputTimeStampKey",
    LATE: "LateInputEvent",
    EARLY: "EarlyInputEvent",
    OUT_OF_ORDER: "OutOfOrderEvent",
}
"""Reason -> the name of the data error in the service's log."""


def columns(event_time: Times, arrival: Times, valid: Mask | None) -> tuple[Times, Times, Mask | None]:
    """Return the arguments of a scan as contiguous arrays. Raises ValueError if their lengths differ."""
    event_time = np.ascontiguousarray(event_time, dtype=np.int64)
    arrival = np.ascontiguousarray(arrival, dtype=np.int64)
    valid = None if valid is None else np.ascontiguousarray(valid, dtype=np.bool_)
    if len(event_time) != len(arrival) or (valid is not None and len(valid) != len(arrival)):
        raise ValueError("event_time, arrival and valid must be columns of the same events")
    return event_time, arrival, valid


def minus(times: Times, tolerance: int | None) -> Times:
    """Return ``times - tolerance``, not below NO_TIME; NO_TIME throughout without a tolerance (None)."""
    if tolerance is None:
        return np.broadcast_to(np.int64(NO_TIME), times.shape)
    if tolerance == 0:
        return times
    lowest = NO_TIME + tolerance
    if int(times.min()) >= lowest:
        return times - tolerance
    return np.where(times >= lowest, times, lowest) - tolerance


def plus(times: Times, tolerance: int) -> Times:
    """Return ``times + tolerance``, not above END_OF_TIME."""
    highest = END_OF_TIME - tolerance
    return (times if int(times.max()) <= highest else np.minimum(times, highest)) + tolerance


def running_arrival(arrival: Times, known: int) -> Times:
    """Return the latest arrival known after each event, ``known`` before the first."""
    latest = np.maximum.accumulate(arrival)
    if int(arrival[0]) < known:
        np.maximum(latest, known, out=latest)
    return latest


def arrival_rules(
    event_time: Times, arrival: Times, latest: Times, policy: Policy, lost: Mask | None, reasons: Flags
) -> tuple[Times, Mask | None]:
    """Apply rules 0 to 2, which look at one event at a time.

    ``lost``: events already lost by rule 0. Sets the bits EARLY and LATE in ``reasons`` and returns the times that
    enter the running maximum (x of the theory; NO_TIME for an event that moves nothing) and all events lost so far.
    """
    if policy.early_ticks is not None:
        early = event_time > plus(arrival, policy.early_ticks)
        if early.any():
            if lost is not None:
                early &= ~lost
            reasons |= early.view(np.uint8)
            lost = early if lost is None else lost | early
    late = event_time < minus(arrival, policy.late_ticks)
    if late.any():
        if lost is not None:
            late &= ~lost
        reasons |= late.view(np.uint8) << 1
    floor = minus(latest, policy.late_ticks)
    moving: Times
    if policy.adjusts:
        moving = np.maximum(event_time, floor)
        if lost is not None:
            moving[lost] = NO_TIME
    else:
        gone = event_time < floor
        if lost is not None:
            gone |= lost
        moving = np.where(gone, NO_TIME, event_time)
    return moving, lost


def order_rule(
    event_time: Times,
    arrival: Times,
    before: Times,
    floor: Times,
    policy: Policy,
    lost: Mask | None,
    stamps: Stamps,
) -> None:
    """Apply rule 3: fill ``system_timestamp``, ``fate`` and the bit OUT_OF_ORDER of ``stamps``.

    ``before``: largest time seen - out-of-order tolerance, before each event; ``floor``: A - late.
    """
    watermark = np.maximum(before, floor)
    reasons = stamps.reasons
    late = (reasons & LATE) != 0
    if policy.adjusts:
        # The late rule has moved the event to its own arrival - late before this rule looks at it.
        np.maximum(event_time, minus(arrival, policy.late_ticks), out=stamps.system_timestamp)
        behind = stamps.system_timestamp < watermark
        np.maximum(event_time, watermark, out=stamps.system_timestamp)
    else:
        behind = event_time < watermark
        behind &= ~late
        stamps.system_timestamp[:] = event_time
    if lost is not None:
        behind &= ~lost
    reasons |= behind.view(np.uint8) << 2
    late |= behind
    if policy.adjusts:
        stamps.fate[:] = late.view(np.uint8)
        gone = lost
    else:
        stamps.fate[:] = OK
        gone = late if lost is None else late | lost
    if gone is not None:
        stamps.fate[gone] = DROPPED
        stamps.system_timestamp[gone] = NO_TIME


def _scan_block(
    event_time: Times,
    arrival: Times,
    carry: Carry,
    policy: Policy,
    valid: Mask | None,
    stamps: Stamps,
    latest: Times | None,
) -> Carry:
    lost = None
    stamps.reasons[:] = 0
    if valid is not None and not valid.all():
        lost = ~valid
        stamps.reasons[lost] = INVALID_TIMESTAMP
    latest = running_arrival(arrival, carry.arrival) if latest is None else latest
    moving, lost = arrival_rules(event_time, arrival, latest, policy, lost, stamps.reasons)
    if int(moving[0]) < carry.max_time:
        moving[0] = carry.max_time
    max_time = np.maximum.accumulate(moving, out=moving)
    floor = minus(latest, policy.late_ticks)
    stamps.watermark_event[:] = minus(max_time, policy.out_of_order_ticks)
    np.maximum(stamps.watermark_event, floor, out=stamps.watermark)
    before = np.empty_like(max_time)
    before[0] = (
        NO_TIME if policy.out_of_order_ticks is None else max(NO_TIME, carry.max_time - policy.out_of_order_ticks)
    )
    before[1:] = stamps.watermark_event[:-1]
    order_rule(event_time, arrival, before, floor, policy, lost, stamps)
    return Carry(int(max_time[-1]), int(latest[-1]))


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
