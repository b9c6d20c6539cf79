"""A step over shards, as functions of what each place is sent: tasks, then one level of shards after the other.

    task ─┬─ shard 0 ─┬─ shard 0      a task reads its ranges and divides its partial results (`map_task`);
          │           │               a shard absorbs what it is sent, emits what is complete, and sends rows whose
    task ─┴─ shard 1 ─┴─ shard 1      next operator has other keys to the shards of the next level (`run_shard`).

The watermark travels with the rows: each place sends to every shard how far the timelines have come that it has read.
A shard's state is its `KeyedSide`. There is no I/O here; `tidegate.spark.step` runs the places on executors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.engine import (
    EmissionRange,
    FunctionCalls,
    KeyedSide,
    OperatorRows,
    Partial,
    Program,
    ResultRows,
    RuntimeErrors,
)
from tidegate.engine.expressions import registered
from tidegate.engine.expressions.frames import Frame
from tidegate.engine.sharding.payloads import Divider, Sharding, Side, divided, merged, together
from tidegate.job.runtime.emission import Completeness, Reached, StepOrder, Timeline, emitted_rows
from tidegate.job.runtime.task import RangeResult
from tidegate.job.runtime.writers import WriterRows
from tidegate.ordering import END_OF_TIME, Policy


@dataclass(slots=True)
class ShardInput:
    """What a place sends to a shard.

    Attributes:
        sender: its number among the places of its level, by which deliveries are put in order.
        reached: how far the timelines have come that it knows of.
        partials: by level, partial results of tasks; those of higher levels are passed on.
        frames: rows for sides of operators, by side.
        void: the step has failed below, so nothing may come of it.
        share: results for a writer.
    """

    sender: int
    reached: dict[Timeline, Reached]
    partials: dict[int, list[Partial]] = field(default_factory=dict)
    frames: dict[Side, list[Frame]] = field(default_factory=dict)
    void: bool = False
    share: WriterRows | None = None


@dataclass(slots=True)
class ShardReport:
    """What a shard found in a step."""

    level: int
    shard: int
    complete: Completeness
    rows: list[ResultRows]
    errors: list[RuntimeErrors]
    calls: FunctionCalls
    operator_rows: OperatorRows


def deliveries_of_task(
    sender: int, results: Sequence[RangeResult], program: Program, sharding: Sharding
) -> tuple[list[RangeResult], list[ShardInput]]:
    """Divide the results of a task; return them without partial results, and a delivery for each shard."""
    divider = Divider(program, sharding)
    reached = {(result.input, result.partition): result.settled for result in results}
    deliveries = [ShardInput(sender, reached) for _ in range(sharding.shards)]
    for result in sorted(results, key=lambda one: (one.input, one.partition)):
        for partial in result.partials:
            for (level, shard), part in divider.divide(partial).items():
                deliveries[shard].partials.setdefault(level, []).append(part)
    return [replace(result, partials=[]) for result in results], deliveries


def new_shard(program: Program, policy: Policy, sharding: Sharding, level: int) -> KeyedSide:
    """Return the keyed side of a shard, with an empty state."""
    return KeyedSide(program, policy.late_ticks, sharding.part(program, level))


def run_shard(
    keyed: KeyedSide,
    place: tuple[int, int],
    sharding: Sharding,
    order: StepOrder,
    deliveries: Sequence[ShardInput],
) -> tuple[ShardReport, list[ShardInput]]:
    """Run a shard's part of a step.

    Args:
        place: its level and its number.
        deliveries: from all places of the level below.

    Returns:
        What it found, and a delivery for each shard of the next level, if there is one.
    """
    level, shard = place
    inbox = sorted(deliveries, key=lambda one: one.sender)
    reached = {timeline: at for one in inbox for timeline, at in one.reached.items()}
    keyed.know_timelines(order.timelines)
    with registered.available(keyed.program.functions, keyed.state.calls):
        partials = together(partial for one in inbox for partial in one.partials.get(level, []))
    keyed.absorb(partials)
    complete = order.complete_with(reached, keyed.program)
    part = sharding.part(keyed.program, level)
    keyed.receive(_received(inbox, part.received))
    rows = emitted_rows(keyed, order, complete)
    report = ShardReport(level, shard, complete, rows, keyed.take_errors(), keyed.take_calls(), keyed.take_rows())
    if level + 1 == sharding.levels:
        return report, []
    return report, _passed_on(keyed, place, sharding, reached, inbox)


def preview_shard(
    keyed: KeyedSide,
    place: tuple[int, int],
    sharding: Sharding,
    order: StepOrder,
    deliveries: Sequence[ShardInput],
) -> tuple[list[ResultRows], list[ShardInput]]:
    """Emit all that a shard has, as if the inputs ended here; its state is of no use afterwards.

    Args:
        place: its level and its number.
        deliveries: what the shards of the level below have for it in this preview.

    Returns:
        Its rows in the order of their merge keys, and a delivery for each shard of the next level, if there is one.
    """
    level, _ = place
    inbox = sorted(deliveries, key=lambda one: one.sender)
    keyed.receive(_received(inbox, sharding.part(keyed.program, level).received))
    if keyed.program.by_substream:
        rows = keyed.emit_by_substream(END_OF_TIME, EmissionRange(order.released))
    else:
        rows = keyed.emit(order.released, END_OF_TIME, order.ahead)
    if level + 1 == sharding.levels:
        return rows, []
    return rows, _passed_on(keyed, place, sharding, {}, inbox)


def _received(inbox: Sequence[ShardInput], sides: frozenset[Side]) -> Mapping[Side, Frame]:
    frames: dict[Side, list[Frame]] = {}
    for one in inbox:
        for side, pieces in one.frames.items():
            if side in sides:
                frames.setdefault(side, []).extend(pieces)
    return {side: merged(pieces) for side, pieces in frames.items()}


def _passed_on(
    keyed: KeyedSide,
    place: tuple[int, int],
    sharding: Sharding,
    reached: dict[Timeline, Reached],
    inbox: Sequence[ShardInput],
) -> list[ShardInput]:
    """Return what goes to the next level: new rows by their keys. What is for higher levels stays in its shard."""
    level, shard = place
    deliveries = [ShardInput(shard, reached) for _ in range(sharding.shards)]
    mine = deliveries[shard]
    part = sharding.part(keyed.program, level)
    for one in inbox:
        for higher, partials in one.partials.items():
            if higher > level:
                mine.partials.setdefault(higher, []).extend(partials)
        for side, frames in one.frames.items():
            if side not in part.received:
                mine.frames.setdefault(side, []).extend(frames)
    for side, rows in keyed.to_send.items():
        codes = sharding.codes_of_rows(keyed.program, side, rows)
        for other, piece in enumerate(divided(rows.without_rows(), codes, sharding.shards)):
            if piece is not None:
                deliveries[other].frames.setdefault(side, []).append(piece)
    keyed.to_send = {}
    return deliveries
