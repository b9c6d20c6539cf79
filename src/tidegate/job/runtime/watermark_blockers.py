"""What holds results back: the timelines by their watermarks, and what would move the slowest of them on.

A result leaves when the slowest watermark has passed it, so one partition without events may hold up all the others.
A watermark is max(latest time - out-of-order tolerance, latest arrival - late tolerance). It moves with an event that
is later than the watermark by more than the out-of-order tolerance, or when the hub's clock is past the watermark by
more than the late tolerance; without a late tolerance (-1) nothing but an event moves it.

With TIMESTAMP BY … OVER the watermark of a partition is what substreams that have had no event wait for; each of the
others is past it by its own events, and what is shown of them are the slowest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.engine import Program, values_of
from tidegate.job.runtime.step import Timeline, TimelineState
from tidegate.ordering import (
    END_OF_TIME,
    NO_TIME,
    Policy,
    SubstreamCarry,
    format_time,
    merge,
    short_time,
    substream_watermarks,
)

MOST_SUBSTREAMS = 5


@dataclass(frozen=True, slots=True)
class Substream:
    """A substream by the text of its key, with the watermark it has by itself; ``after_event`` and ``at_clock`` as of a
    `Holder`: what moves it."""

    key: str
    watermark: int
    after_event: int | None
    at_clock: int | None

    def as_json(self) -> dict[str, Any]:
        """As `-o json` prints it, and as a status file holds it."""
        return {
            "key": self.key,
            "watermark": _time(self.watermark),
            "releasedByEventAfter": _time(self.after_event),
            "releasedByClockAfter": _time(self.at_clock),
        }


@dataclass(frozen=True, slots=True)
class Holder:
    """One timeline; times in ticks, NO_TIME for none yet.

    Attributes:
        watermark: END_OF_TIME where nothing will follow.
        arrival: the latest arrival known, of an event or by the hub's word.
        latest_time: the largest time of its events; of a substream's where it has some.
        backlog: events in the log that have not been read.
        since: Unix time in ticks since when the watermark has stood there; None where nobody watched it.
        after_event: an event later than this moves the watermark; None where events do not.
        at_clock: the hub's clock past this moves it; None where only an event does.
        substreams: the slowest.
    """

    input: str
    partition: str
    watermark: int
    arrival: int
    latest_time: int
    backlog: int
    since: int | None
    after_event: int | None
    at_clock: int | None
    substreams: tuple[Substream, ...] = ()

    @property
    def release(self) -> str:
        """What would move its watermark on, for people."""
        if self.watermark == END_OF_TIME:
            return "nothing follows in its log, so it holds nothing back"
        if self.backlog:
            return f"reading the {self.backlog:,} events that wait on it"
        where = f"partition {self.partition} of {self.input}"
        if self.after_event is None:
            return f"nothing before the end of the log of {where}"
        event = (
            f"an event on {where}"
            if self.after_event == NO_TIME
            else f"an event on {where} later than {short_time(self.after_event)}"
        )
        if self.at_clock is None:
            return f"{event}; nothing else, as the late arrival tolerance waits indefinitely"
        clock = "any word of the hub's clock" if self.at_clock == NO_TIME else _clock(self.at_clock)
        return f"{event}, or {clock}"

    def as_json(self) -> dict[str, Any]:
        """As `-o json` prints it, and as a status file holds it."""
        return {
            "input": self.input,
            "partition": self.partition,
            "watermark": "end" if self.watermark == END_OF_TIME else _time(self.watermark),
            "latestArrival": _time(self.arrival),
            "latestTime": _time(self.latest_time),
            "backlog": self.backlog,
            "since": _time(self.since),
            "releasedByEventAfter": _time(self.after_event),
            "releasedByClockAfter": _time(self.at_clock),
            "substreams": [one.as_json() for one in self.substreams],
            "release": self.release,
        }


@dataclass(frozen=True, slots=True)
class Holding:
    """All timelines, the slowest first.

    Attributes:
        watermark: ticks; the slowest timeline's, what may leave.
        by_substream: results of a substream leave on its own watermark; the other is of one that has no events.
    """

    watermark: int
    holders: tuple[Holder, ...]
    by_substream: bool = False

    @property
    def slowest(self) -> tuple[Holder, ...]:
        """Those that hold the others back: with the smallest watermark, if it is not the end of the log."""
        return tuple(one for one in self.holders if one.watermark == self.watermark != END_OF_TIME)

    def as_json(self) -> dict[str, Any]:
        """As `-o json` prints it."""
        return {
            "watermark": "end" if self.watermark == END_OF_TIME else _time(self.watermark),
            "bySubstream": self.by_substream,
            "heldBackBy": [{"input": one.input, "partition": one.partition} for one in self.slowest],
            "timelines": [one.as_json() for one in self.holders],
        }


def holding(
    states: Mapping[Timeline, TimelineState],
    program: Program,
    policy: Policy,
    since: Mapping[Timeline, int] | None = None,
) -> Holding:
    """Who holds back after a step. ``since``: when each watermark last moved, Unix time in ticks."""
    holders = [
        _holder(timeline, state, policy_of(program, policy, timeline[0]), (since or {}).get(timeline))
        for timeline, state in states.items()
    ]
    holders.sort(key=lambda one: (one.watermark, one.input, one.partition))
    slowest = merge([one.watermark for one in holders] or [END_OF_TIME])
    return Holding(slowest, tuple(holders), program.by_substream)


def _holder(timeline: Timeline, state: TimelineState, policy: Policy, since: int | None) -> Holder:
    carry, reached = state.carry, state.watermark
    substreams: tuple[Substream, ...] = ()
    after: int | None
    if isinstance(carry, SubstreamCarry):
        substreams = _substreams(carry, policy)
        latest = int(carry.max_times.max()) if len(carry.max_times) else NO_TIME
        # A substream not seen yet may begin anywhere the late tolerance allows: an event moves that by its arrival.
        # Without a late tolerance each of those that were seen has but its own events.
        after = NO_TIME
    else:
        latest = carry.max_time
        after = NO_TIME if reached == NO_TIME else _plus(reached, policy.out_of_order_ticks)
    if reached == END_OF_TIME or policy.out_of_order_ticks is None:
        after = None
    at_clock = None if policy.late_ticks is None or reached == END_OF_TIME else _plus(reached, policy.late_ticks)
    return Holder(*timeline, reached, carry.arrival, latest, state.backlog, since, after, at_clock, substreams)


def _substreams(carry: SubstreamCarry, policy: Policy) -> tuple[Substream, ...]:
    """The slowest substreams that are remembered."""
    reached = substream_watermarks(carry, policy)
    known = np.flatnonzero(carry.max_times != NO_TIME)
    if len(known) > MOST_SUBSTREAMS:
        # Of a million only those that may be among the slowest are sorted.
        bound = np.partition(reached[known], MOST_SUBSTREAMS - 1)[MOST_SUBSTREAMS - 1]
        known = known[reached[known] <= bound]
    slowest = known[np.argsort(reached[known], kind="stable")[:MOST_SUBSTREAMS]]
    keys = carry.keys.keys().take(slowest).to_list()
    return tuple(
        Substream(
            text_of_key(key),
            at,
            None if policy.out_of_order_ticks is None else _plus(at, policy.out_of_order_ticks),
            None if policy.late_ticks is None else _plus(at, policy.late_ticks),
        )
        for key, at in zip(keys, reached[slowest].tolist(), strict=True)
    )


def policy_of(program: Program, policy: Policy, input_name: str) -> Policy:
    """The policy of one input: without TIMESTAMP BY no tolerance applies."""
    return policy if program.has_event_time(input_name) else Policy.arrival_time()


def text_of_key(key: bytes) -> str:
    """The text of an OVER key."""
    return ", ".join(str(value) for _, value in values_of(key))


def _plus(ticks: int, tolerance: int | None) -> int:
    return NO_TIME if ticks == NO_TIME else min(ticks + (tolerance or 0), END_OF_TIME)


def _clock(ticks: int) -> str:
    return f"the hub's clock past {short_time(ticks)}"


def _time(ticks: int | None) -> str | None:
    return None if ticks is None or ticks in (NO_TIME, END_OF_TIME) else format_time(ticks)
