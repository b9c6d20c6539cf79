"""What a step emits: the same decision wherever the keyed side runs, and in all of its shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidegate.engine import EmissionRange, KeyedSide, Program, ResultRows
from tidegate.job.runtime.arrival_clock import Reached
from tidegate.ordering import END_OF_TIME, NO_TIME

Timeline = tuple[str, str]


@dataclass(frozen=True, slots=True)
class StepOrder:
    """What the driver knows before a step, and every shard needs.

    Attributes:
        released: ticks; every earlier result has been emitted.
        ahead: by output, up to which time (ticks) results have been emitted, where that is beyond ``released``.
        until: ticks; only results before this time are emitted.
        emission: which results to emit where each substream has its own watermark.
        idle: how far timelines have come that the step does not read.
        read: the timelines that it reads.
        timelines: all of them, as the keyed side knows them.
        settled_at: ticks; once results before this time are complete, the events read before the step have no more.
    """

    released: int
    ahead: Mapping[str, int]
    until: int = END_OF_TIME
    emission: EmissionRange = field(default_factory=EmissionRange)
    idle: Mapping[Timeline, Reached] = field(default_factory=dict)
    read: frozenset[Timeline] = frozenset()
    timelines: tuple[Timeline, ...] = ()
    settled_at: int = END_OF_TIME

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
        return Completeness(min(program.complete_before(slowest), self.until), arrival)

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
