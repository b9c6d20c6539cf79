"""Why one event became what it became: the rule that touched it, in sentences a person can read.

The verdict is the scan's own, of a scan over this one event, so that an explanation cannot say anything else than what
happened; only the words are made here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.ordering.policy import Policy
from tidegate.ordering.ticks import format_duration, short_time
from tidegate.ordering.timeline import (
    DROPPED,
    EARLY,
    INVALID_KEY,
    INVALID_TIMESTAMP,
    LATE,
    OUT_OF_ORDER,
    Carry,
    arrival_floor,
    less,
    scan,
    watermark,
)


@dataclass(frozen=True)
class Explanation:
    """One event's way through the policy. Times are ticks; None where there is none.

    ``watermark_before`` and ``watermark_after``: of the event's timeline, just before and just after it (NO_TIME while
    it promised nothing). ``sentences``: in the order in which the rules were applied.
    """

    event_time: int | None
    arrival: int
    system_timestamp: int | None
    fate: int
    reasons: int
    watermark_before: int
    watermark_after: int
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.sentences)


def explain(
    event_time: int | None, arrival: int, carry: Carry, policy: Policy, *, null_key: bool = False
) -> Explanation:
    """Explain the event that follows on a timeline that has come as far as ``carry``.

    ``event_time`` None: it could not be read. ``null_key``: a key of OVER is NULL. With substreams, ``carry`` is the
    substream's own, ``SubstreamCarry.timeline(code)``.
    """
    before = watermark(carry, policy)
    if event_time is None or null_key:
        after = watermark(carry.advance(arrival), policy)
        reasons = INVALID_TIMESTAMP * (event_time is None) | INVALID_KEY * null_key
        sentences = _unreadable(event_time, arrival, null_key)
        return Explanation(event_time, arrival, None, DROPPED, reasons, before, after, sentences)
    stamps, _ = scan(np.array([event_time]), np.array([arrival]), carry, policy)
    fate, reasons, after = int(stamps.fate[0]), int(stamps.reasons[0]), int(stamps.watermark[0])
    stamp = None if fate == DROPPED else int(stamps.system_timestamp[0])
    said = [_offset(event_time, arrival)]
    if reasons & EARLY and policy.early_ticks is not None:
        said.append(
            f"That is beyond the early arrival window of {format_duration(policy.early_ticks)}: an Early Input Event, "
            "always dropped; it moves no watermark by its own time."
        )
    if reasons & LATE and policy.late_ticks is not None:
        said.append(
            f"That is beyond the late arrival tolerance of {format_duration(policy.late_ticks)}: a Late Input Event, "
            + (
                f"moved to {short_time(arrival - policy.late_ticks)}, its arrival less the tolerance."
                if policy.adjusts
                else "dropped."
            )
        )
    if reasons & OUT_OF_ORDER:
        said.append(_out_of_order(arrival, carry, policy))
    if not reasons:
        said.append(f"No rule touches it: System.Timestamp is its own time, {short_time(event_time)}.")
    elif stamp is not None:
        said.append(
            f"System.Timestamp is {short_time(stamp)}, {format_duration(stamp - event_time)} after its own time; its "
            "content is not changed."
        )
    said.append(
        f"The watermark stays at {short_time(after)}."
        if after == before
        else f"The watermark goes from {short_time(before)} to {short_time(after)}."
    )
    return Explanation(event_time, arrival, stamp, fate, reasons, before, after, tuple(said))


def _unreadable(event_time: int | None, arrival: int, null_key: bool) -> tuple[str, ...]:
    sentences = [f"It arrived at {short_time(arrival)}."]
    if event_time is None:
        sentences.append("Its TIMESTAMP BY value is missing or is no time (InvalidInputTimeStamp).")
    if null_key:
        sentences.append("A key of OVER is NULL (InvalidInputTimeStampKey).")
    sentences.append("It has no place in time and is dropped; the log keeps it.")
    return tuple(sentences)


def _offset(event_time: int, arrival: int) -> str:
    times = f"(event time {short_time(event_time)}, arrival {short_time(arrival)})"
    if event_time == arrival:
        return f"The event arrived at its own time {times}."
    if event_time > arrival:
        return f"The event's time is {format_duration(event_time - arrival)} ahead of its arrival {times}."
    return f"The event arrived {format_duration(arrival - event_time)} after its own time {times}."


def _out_of_order(arrival: int, carry: Carry, policy: Policy) -> str:
    by_events = less(carry.max_time, policy.out_of_order_ticks)
    by_arrival = arrival_floor(max(arrival, carry.arrival), policy)
    if by_events >= by_arrival and policy.out_of_order_ticks is not None:
        watermark_is = (
            f"{short_time(by_events)}, the largest time seen ({short_time(carry.max_time)}) less the out-of-order "
            f"tolerance of {format_duration(policy.out_of_order_ticks)}"
        )
    else:
        watermark_is = (
            f"{short_time(by_arrival)}, by the arrival clock, which had already been taken to be at "
            f"{short_time(carry.arrival)}"
        )
    fate = "moved up to the watermark" if policy.adjusts else "dropped"
    return f"The watermark stood at {watermark_is}: an Out-of-Order Event, {fate}."
