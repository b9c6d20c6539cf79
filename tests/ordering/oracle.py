"""The event-ordering rules one event at a time, written from their text and from nothing else.

Sources: the articles "Understand time handling in Azure Stream Analytics" and "Configuring event ordering policy
considerations", and the query reference pages "Time skew policies" and "TIMESTAMP BY". Slow on purpose: what the
vectorised scan says is held against this, to the tick.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.ordering import Policy


@dataclass
class Verdict:
    fate: str
    reasons: frozenset[str]
    system_timestamp: int | None
    watermark_event: int | None
    watermark: int | None


class Partition:
    """One input partition: a timeline for each substream key (a single one without OVER), and one arrival clock."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.latest_arrival: int | None = None
        self.max_times: dict[object, int] = {}

    def tick(self, arrival: int) -> None:
        self.latest_arrival = arrival if self.latest_arrival is None else max(self.latest_arrival, arrival)

    def watermark_event(self, key: object = ()) -> int | None:
        if key not in self.max_times or self.policy.out_of_order_ticks is None:
            return None
        return self.max_times[key] - self.policy.out_of_order_ticks

    def watermark(self, key: object = ()) -> int | None:
        promises = [self.watermark_event(key)]
        if self.latest_arrival is not None and self.policy.late_ticks is not None:
            promises.append(self.latest_arrival - self.policy.late_ticks)
        known = [promise for promise in promises if promise is not None]
        return max(known) if known else None

    def event(self, time: int | None, arrival: int, key: object = ()) -> Verdict:
        """``time`` None: it could not be read; ``key`` None: it is NULL."""
        self.tick(arrival)
        stamp, reasons = self._stamp(time, arrival, key)
        if stamp is None:
            fate = "dropped"
        else:
            fate = "ok" if stamp == time else "adjusted"
            self.max_times[key] = max(self.max_times.get(key, stamp), stamp)
        return Verdict(fate, frozenset(reasons), stamp, self.watermark_event(key), self.watermark(key))

    def _stamp(self, time: int | None, arrival: int, key: object) -> tuple[int | None, list[str]]:
        errors = []
        if time is None:
            errors.append("invalid_timestamp")
        if key is None:
            errors.append("invalid_key")
        if time is None or key is None:
            return None, errors
        policy = self.policy
        if policy.early_ticks is not None and time - arrival > policy.early_ticks:
            return None, ["early"]
        reasons = []
        if policy.late_ticks is not None and time < arrival - policy.late_ticks:
            reasons.append("late")
            if not policy.adjusts:
                return None, reasons
            time = arrival - policy.late_ticks
        watermark = self.watermark(key)
        if watermark is not None and time < watermark:
            reasons.append("out_of_order")
            if not policy.adjusts:
                return None, reasons
            time = watermark
        return time, reasons


@dataclass(frozen=True)
class Arrived:
    """One event of an input; ``time`` and ``key`` as `Partition.event` takes them."""

    partition: int
    number: int
    arrival: int
    time: int | None
    key: object


@dataclass(frozen=True)
class Stamped:
    event: Arrived
    system_timestamp: int
    emission_arrival: float


def stamped(events: Sequence[Arrived], policy: Policy, partitions: Sequence[int]) -> list[Stamped]:
    """What is kept of an input's events, with the arrival that a row at its time waits for; infinity for ever.

    It is emitted once events of its own key have brought the watermark past it on every partition, or once the clock is
    past it by the late tolerance. With ``policy.merged`` all partitions are one.
    """
    ordered = sorted(events, key=lambda event: (event.arrival, event.partition, event.number))
    one = {partition: 0 if policy.merged else partition for partition in partitions}
    timelines = {timeline: Partition(policy) for timeline in one.values()}
    kept = []
    advances: list[tuple[int, object, int, int]] = []
    for event in ordered:
        timeline = timelines[one[event.partition]]
        verdict = timeline.event(event.time, event.arrival, event.key)
        if verdict.system_timestamp is not None:
            kept.append((event, verdict.system_timestamp))
        reached = timeline.watermark_event(event.key)
        if reached is not None:
            advances.append((one[event.partition], event.key, event.arrival, reached))

    def emission_arrival(key: object, time: int) -> float:
        floor = float("inf") if policy.late_ticks is None else time + policy.late_ticks
        firsts = [
            min([at for of, whose, at, mark in advances if of == timeline and whose == key and mark > time] or [floor])
            for timeline in timelines
        ]
        return min(max(firsts), floor)

    return [Stamped(event, time, emission_arrival(event.key, time)) for event, time in kept]
