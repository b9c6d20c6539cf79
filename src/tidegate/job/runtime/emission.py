"""How far timelines have come, and what a step therefore emits: the same decision in every shard, wherever it runs.

The driver asks how far timelines have come that a step does not read, and the tasks how far those have that it does, so
that the watermark can travel with the rows and no shard has to wait for the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidegate.connectors.model.events import PartitionEnd
from tidegate.engine import EmissionRange, KeyedSide, Program, ResultRows
from tidegate.ordering import END_OF_TIME, NO_TIME, Carry, Policy, SubstreamCarry, arrival_floor, watermark

AnyCarry = Carry | SubstreamCarry
END_OF_LOG = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a timeline has come.

    Attributes:
        watermark: ticks; END_OF_TIME if no event can follow.
        arrival: ticks; every event still to be read has at least this arrival.
    """

    watermark: int
    arrival: int


NOWHERE = Reached(NO_TIME, NO_TIME)
OPEN_END = PartitionEnd(0, END_OF_LOG, None)
"""An end that no range of events reaches."""


def reached(
    carry: AnyCarry, position: int, end: PartitionEnd, input_name: str, program: Program, policy: Policy
) -> tuple[AnyCarry, Reached]:
    """Return how far a timeline has come, and its carry with what the end of its log adds.

    Args:
        carry: the carry after the events before ``position``.
        position: the next sequence number to read; at the end of the log its arrival lower bound counts.
    """
    if position >= end.end:
        if end.complete:
            return carry, Reached(END_OF_TIME, END_OF_TIME)
        if end.arrival_lower_bound is not None and not policy.merged:
            carry = carry.advance(end.arrival_lower_bound)
    if isinstance(carry, SubstreamCarry):
        # A substream not seen yet may begin anywhere within the late tolerance.
        return carry, Reached(arrival_floor(carry.arrival, policy), carry.arrival)
    own = policy if program.has_event_time(input_name) else Policy.arrival_time()
    return carry, Reached(watermark(carry, own), carry.arrival)


Timeline = tuple[str, str]


@dataclass(frozen=True, slots=True)
class StepOrder:
    """What the driver knows before a step, and every shard needs.

    Attributes:
        released: ticks; every earlier result has been emitted.
        ahead: by output, up to which time (ticks) results have been emitted, where that is beyond ``released``.
        until: ticks; only results before this time are emitted.
        until_arrival: ticks; where each substream has its own watermark, events from this arrival on complete nothing.
        emission: which results to emit where each substream has its own watermark.
        idle: how far timelines have come that the step does not read.
        read: the timelines that it reads.
        timelines: all of them, as the keyed side knows them.
        settled_at: ticks; once results before this time are complete, the events read before the step have no more.
        preview: whether to return as well what would be emitted after the step if no further event came, where that
            saves asking again.
    """

    released: int
    ahead: Mapping[str, int]
    until: int = END_OF_TIME
    emission: EmissionRange = field(default_factory=EmissionRange)
    idle: Mapping[Timeline, Reached] = field(default_factory=dict)
    read: frozenset[Timeline] = frozenset()
    timelines: tuple[Timeline, ...] = ()
    settled_at: int = END_OF_TIME
    preview: bool = False
    until_arrival: int = END_OF_TIME

    def after(self, slowest: int, program: Program) -> StepOrder:
        """Return the order with what has been emitted once results before ``slowest`` (ticks) are complete."""
        ahead = self.ahead if program.by_substream else {**self.ahead, **self.ahead_at(slowest, program)}
        return replace(self, released=max(self.released, slowest), ahead=ahead)

    def without_events(self) -> StepOrder:
        """Return the order of a step that reads nothing and completes nothing."""
        return replace(self, read=frozenset(), idle=dict.fromkeys((*self.idle, *self.read), NOWHERE))

    def complete_with(self, read: Mapping[Timeline, Reached], program: Program) -> Completeness:
        """Return what is complete once the tasks have reported the timelines that they have read.

        Raises:
            ValueError: a timeline is missing; its rows would be missing as well.
        """
        if set(read) != self.read:
            missing = ", ".join(f"{name}/{partition}" for name, partition in sorted(self.read - set(read)))
            raise ValueError(f"the tasks of a step have not reported all timelines; missing: {missing}")
        every = [*self.idle.values(), *read.values()]
        slowest = min((one.watermark for one in every), default=END_OF_TIME)
        arrival = min((one.arrival for one in every), default=END_OF_TIME)
        return Completeness(min(program.complete_before(slowest), self.until), min(arrival, self.until_arrival))

    def ahead_at(self, slowest: int, program: Program) -> dict[str, int]:
        """Return up to which time outputs with a shorter delay than others get ahead of ``slowest`` in this step."""
        return {
            name: reached
            for name, reached in program.outputs_ahead(slowest, self.until).items()
            if reached > max(self.released, self.ahead.get(name, NO_TIME))
        }


@dataclass(frozen=True, slots=True)
class Completeness:
    """What is complete: results before ``slowest`` (ticks), and the events that arrived before ``arrival`` (ticks)."""

    slowest: int
    arrival: int

    @classmethod
    def least(cls, parts: Iterable[Completeness]) -> Completeness:
        """Return what is complete in all parts; they agree."""
        (one,) = set(parts)
        return one


def emitted_rows(keyed: KeyedSide, order: StepOrder, complete: Completeness) -> list[ResultRows]:
    """Emit what is complete; outputs with a shorter delay than others get ahead of the slowest."""
    if keyed.program.by_substream:
        return keyed.emit_by_substream(complete.arrival, order.emission)
    if complete.slowest <= order.released and not order.ahead_at(complete.slowest, keyed.program):
        return []
    return keyed.emit(order.released, complete.slowest, order.ahead, order.until)
