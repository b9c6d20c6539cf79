"""What blocks the watermark: every timeline's watermark, and what would advance the slowest one.

A result is emitted once the slowest watermark has passed it, so a single partition without events can delay all the
others. A watermark is max(largest time - out-of-order tolerance, latest arrival - late tolerance). It advances with an
event that is later than the watermark by more than the out-of-order tolerance, or once the hub's clock is past the
watermark by more than the late tolerance. Without a late tolerance (-1) only an event advances it.

With TIMESTAMP BY … OVER a partition's watermark applies to substreams that have had no event. Any other substream is
ahead of it because of its own events; the report lists the slowest of those.
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
class SubstreamProgress:
    """A substream, by the text of its key.

    Attributes:
        watermark: ticks; its own, from its own events.
        after_event, at_clock: what advances it, as in `TimelineProgress`.
    """

    key: str
    watermark: int
    after_event: int | None
    at_clock: int | None

    def as_json(self) -> dict[str, Any]:
        """Return the object that `-o json` prints and a status file holds."""
        return {
            "key": self.key,
            "watermark": _time(self.watermark),
            "releasedByEventAfter": _time(self.after_event),
            "releasedByClockAfter": _time(self.at_clock),
        }


@dataclass(frozen=True, slots=True)
class TimelineProgress:
    """One timeline. Times are in ticks; NO_TIME means none yet.

    Attributes:
        watermark: END_OF_TIME if no event can follow.
        arrival: the latest arrival known, from an event or from the hub's clock.
        latest_time: the largest time of its events; over all substreams, if it has some.
        backlog: how many events of the log have not been read.
        since: when the watermark last advanced, Unix time in ticks; None if that was not observed.
        after_event: an event later than this advances the watermark; None if no event does.
        at_clock: the hub's clock past this advances it; None if only an event does.
        substreams: the slowest ones.
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
    substreams: tuple[SubstreamProgress, ...] = ()

    @property
    def unblocked_by(self) -> str:
        """What would advance the watermark, as a phrase."""
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
        clock = "any reading of the hub's clock" if self.at_clock == NO_TIME else _clock(self.at_clock)
        return f"{event}, or {clock}"

    def as_json(self) -> dict[str, Any]:
        """Return the object that `-o json` prints and a status file holds."""
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
            "release": self.unblocked_by,
        }


@dataclass(frozen=True, slots=True)
class WatermarkReport:
    """All timelines, the slowest first.

    Attributes:
        watermark: ticks; the slowest timeline's. Results before it can be emitted.
        by_substream: results of a substream are emitted at its own watermark; ``watermark`` is then that of a
            substream without events.
    """

    watermark: int
    timelines: tuple[TimelineProgress, ...]
    by_substream: bool = False

    @property
    def blockers(self) -> tuple[TimelineProgress, ...]:
        """The timelines with the smallest watermark; none once all logs have ended."""
        return tuple(one for one in self.timelines if one.watermark == self.watermark != END_OF_TIME)

    def as_json(self) -> dict[str, Any]:
        """Return the object that `-o json` prints."""
        return {
            "watermark": "end" if self.watermark == END_OF_TIME else _time(self.watermark),
            "bySubstream": self.by_substream,
            "heldBackBy": [{"input": one.input, "partition": one.partition} for one in self.blockers],
            "timelines": [one.as_json() for one in self.timelines],
        }


def watermark_report(
    states: Mapping[Timeline, TimelineState],
    program: Program,
    policy: Policy,
    since: Mapping[Timeline, int] | None = None,
) -> WatermarkReport:
    """Report on the timelines after a step.

    Args:
        states: where each timeline is.
        program: the query.
        policy: the job's ordering policy.
        since: when each watermark last advanced, Unix time in ticks.
    """
    timelines = [
        _progress(timeline, state, policy_of(program, policy, timeline[0]), (since or {}).get(timeline))
        for timeline, state in states.items()
    ]
    timelines.sort(key=lambda one: (one.watermark, one.input, one.partition))
    slowest = merge([one.watermark for one in timelines] or [END_OF_TIME])
    return WatermarkReport(slowest, tuple(timelines), program.by_substream)


def _progress(timeline: Timeline, state: TimelineState, policy: Policy, since: int | None) -> TimelineProgress:
    carry, reached = state.carry, state.watermark
    substreams: tuple[SubstreamProgress, ...] = ()
    after: int | None
    if isinstance(carry, SubstreamCarry):
        substreams = _slowest_substreams(carry, policy)
        latest = int(carry.max_times.max()) if len(carry.max_times) else NO_TIME
        # A new substream may begin anywhere within the late tolerance: an event's arrival advances that bound.
        # Without a late tolerance only its own events advance a known substream.
        after = NO_TIME
    else:
        latest = carry.max_time
        after = NO_TIME if reached == NO_TIME else _plus(reached, policy.out_of_order_ticks)
    if reached == END_OF_TIME or policy.out_of_order_ticks is None:
        after = None
    at_clock = None if policy.late_ticks is None or reached == END_OF_TIME else _plus(reached, policy.late_ticks)
    return TimelineProgress(
        *timeline, reached, carry.arrival, latest, state.backlog, since, after, at_clock, substreams
    )


def _slowest_substreams(carry: SubstreamCarry, policy: Policy) -> tuple[SubstreamProgress, ...]:
    reached = substream_watermarks(carry, policy)
    known = np.flatnonzero(carry.max_times != NO_TIME)
    if len(known) > MOST_SUBSTREAMS:
        # Sort only the candidates, not a million substreams.
        bound = np.partition(reached[known], MOST_SUBSTREAMS - 1)[MOST_SUBSTREAMS - 1]
        known = known[reached[known] <= bound]
    slowest = known[np.argsort(reached[known], kind="stable")[:MOST_SUBSTREAMS]]
    keys = carry.keys.keys().take(slowest).to_list()
    return tuple(
        SubstreamProgress(
            text_of_key(key),
            at,
            None if policy.out_of_order_ticks is None else _plus(at, policy.out_of_order_ticks),
            None if policy.late_ticks is None else _plus(at, policy.late_ticks),
        )
        for key, at in zip(keys, reached[slowest].tolist(), strict=True)
    )


def policy_of(program: Program, policy: Policy, input_name: str) -> Policy:
    """Return the policy of one input: without TIMESTAMP BY no tolerance applies."""
    return policy if program.has_event_time(input_name) else Policy.arrival_time()


def text_of_key(key: bytes) -> str:
    """Return an OVER key as text for people."""
    return ", ".join(str(value) for _, value in values_of(key))


def _plus(ticks: int, tolerance: int | None) -> int:
    return NO_TIME if ticks == NO_TIME else min(ticks + (tolerance or 0), END_OF_TIME)


def _clock(ticks: int) -> str:
    return f"the hub's clock past {short_time(ticks)}"


def _time(ticks: int | None) -> str | None:
    return None if ticks is None or ticks in (NO_TIME, END_OF_TIME) else format_time(ticks)
