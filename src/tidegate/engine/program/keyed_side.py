"""The keyed side: turns the partial results of tasks into finished rows, and holds the state between steps.

A release computes the operators from the inputs up. Each releases all of its rows before the watermark, complete and
in time order, so whatever reads them has all it needs for the times before the watermark.

If the query keeps its substreams apart, each substream has its own watermark (`SubstreamWatermarks`), and results are
emitted by their emission arrivals (`substreams.emission`). Operators that follow from a join of streams are the
exception: they run at the *floor*, the watermark of a substream without events, and their rows belong to no substream.

A `KeyedSide` depends on its program and on its own state alone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tidegate.engine.decoding.rows import ResultRows
from tidegate.engine.expressions import registered
from tidegate.engine.expressions.frames import Frame
from tidegate.engine.expressions.relations import Evaluation, Failures, RuntimeErrors
from tidegate.engine.program.partial import OperatorRows, Partial, SubstreamTable, renumbered, substreams_in
from tidegate.engine.program.program import Program
from tidegate.engine.substreams.watermarks import (
    EmissionRange,
    SubstreamWatermarks,
    Waiting,
    Watermark,
    less,
    with_emission_arrivals,
)
from tidegate.engine.values.grouping import sorted_rows
from tidegate.engine.values.vectors import Int64Array, Vector
from tidegate.engine.windows.panes_operator import PanesOperator
from tidegate.ordering import END_OF_TIME, NO_TIME
from tidegate.sql.plan import nodes as plan


@dataclass(slots=True)
class KeyedState:
    """The state between steps; picklable.

    Attributes:
        operators: the state of each operator.
        outputs: by output, rows that the watermark of the outputs has not passed yet.
        errors: runtime errors since they were last taken.
        calls: of registered functions since they were last taken.
        rows: how many rows operators took and released since they were last taken.
        substreams: those known so far, if results are emitted by substream.
        complete: by output, complete results that await emission, with their emission arrivals as their order.
        below_joins: by operator and side, results of single substreams that wait for the floor.
    """

    operators: list[Any]
    outputs: list[Waiting[Frame]]
    errors: list[RuntimeErrors] = field(default_factory=list)
    substreams: SubstreamTable | None = None
    complete: list[list[Frame]] = field(default_factory=list)
    below_joins: dict[tuple[int, int], Waiting[Frame]] = field(default_factory=dict)
    calls: registered.FunctionCalls = field(default_factory=registered.FunctionCalls)
    rows: OperatorRows = field(default_factory=OperatorRows)


@dataclass(frozen=True, slots=True)
class KeyedPart:
    """The part of a program that runs on one level of shards (`tidegate.engine.sharding`).

    Attributes:
        operators, outputs: their numbers.
        received: sides of these operators whose rows come from a lower level.
        sent: sides of operators on higher levels whose rows are computed here.
    """

    operators: frozenset[int]
    outputs: frozenset[int]
    received: frozenset[tuple[int, int]] = frozenset()
    sent: tuple[tuple[int, int], ...] = ()


class KeyedSide:
    """A program, or a part of it, with its state."""

    def __init__(self, program: Program, late_ticks: int | None = None, part: KeyedPart | None = None) -> None:
        """Begin with an empty state.

        Args:
            late_ticks: how long results of a substream without events have to wait.
            part: what runs here; None for everything.
        """
        self.program = program
        self._part = part or _whole(program)
        self._received: Mapping[tuple[int, int], Frame] = {}
        self.to_send: dict[tuple[int, int], Frame] = {}
        components, outputs = program.components, program.query.outputs
        self.state = KeyedState(
            [operator.new_state() for operator in program.operators],
            [Waiting() for _ in outputs],
            substreams=None if components is None else SubstreamTable(components, late_ticks),
            complete=[[] for _ in outputs],
        )

    def use(self, program: Program) -> None:
        """Continue with another program of the same query, whose reference data differ."""
        self.program = program

    def know_timelines(self, timelines: Sequence[tuple[str, str]]) -> None:
        """Announce the inputs and partitions that may feed substreams."""
        if self.state.substreams is not None:
            self.state.substreams.know_timelines(timelines)

    def take_errors(self) -> list[RuntimeErrors]:
        """Return and forget the runtime errors since the last call; they have times but no places."""
        errors, self.state.errors = self.state.errors, []
        return errors

    def take_calls(self) -> registered.FunctionCalls:
        """Return and forget the calls of registered functions since the last call."""
        calls, self.state.calls = self.state.calls, registered.FunctionCalls()
        return calls

    def take_rows(self) -> OperatorRows:
        """Return and forget how many rows operators took and released since the last call."""
        rows, self.state.rows = self.state.rows, OperatorRows()
        return rows

    def absorb(self, partials: Sequence[Partial]) -> None:
        """Add the partial results of tasks: those of one partition in its order, otherwise in any order."""
        state = self.state
        with registered.available(self.program.functions, state.calls):
            for partial in partials:
                numbers = None
                if state.substreams is not None and partial.substreams is not None:
                    numbers = state.substreams.add_batch(partial.substreams)
                for (index, side), payload in partial.payloads.items():
                    own = payload if numbers is None else self._renumbered(index, payload, numbers)
                    self.program.operators[index].absorb(state.operators[index], side, own)

    def _renumbered(self, operator: int, payload: Any, numbers: Int64Array) -> Any:
        return renumbered(payload, None if self.program.joined[operator] else numbers)

    def receive(self, frames: Mapping[tuple[int, int], Frame]) -> None:
        """Set what the next emission reads of lower levels: by operator and side, all new rows of these shards."""
        self._received = frames

    def emit(
        self,
        from_ticks: int,
        watermark_ticks: int,
        ahead: Mapping[str, int] | None = None,
        until_ticks: int = END_OF_TIME,
    ) -> list[ResultRows]:
        """Remove and return all results with from_ticks ≤ time < watermark_ticks; older ones are dropped.

        Within an output rows are in time order, then in the order of the rows they follow from, or by key.

        Args:
            from_ticks: results before this time have been emitted.
            watermark_ticks: the results of all outputs before it are complete (`Program.complete_before`).
            ahead: by output, up to which time its results have been emitted, if that is beyond ``from_ticks``.
            until_ticks: how far outputs with a shorter delay may get ahead of ``watermark_ticks``.

        Returns:
            An entry for each output that has rows.
        """
        failures = Failures()
        evaluation = Evaluation({}, failures, self.program.tables)
        results = []
        with registered.available(self.program.functions, self.state.calls):
            self._advance(evaluation, failures, from_ticks, self.program.watermark_for(watermark_ticks))
            reached = self.program.outputs_ahead(watermark_ticks, until_ticks)
            for index, output in self._outputs():
                waiting = self.state.outputs[index]
                frame = evaluation.frame(output.relation)
                if frame is not None:
                    waiting.append(frame)
                frame = waiting.take_before(reached.get(output.name, watermark_ticks))
                if frame is not None:
                    wanted = frame.times >= max(from_ticks, (ahead or {}).get(output.name, NO_TIME))
                    frame = frame if wanted.all() else frame.take(np.flatnonzero(wanted))
                if frame is not None and len(frame):
                    results.append(self._result_rows(output.name, frame, (Vector.bigints(frame.times),)))
        self._note(failures, from_ticks)
        return results

    def emit_by_substream(self, arrival: int, emission: EmissionRange) -> list[ResultRows]:
        """Remove and return all results in a range that no event from ``arrival`` (ticks) on can change.

        All timelines must have reached ``arrival``, and their events before it must have been absorbed. Within an
        output rows are in the order of their emission arrivals, then by time, then in the order they have otherwise.

        Returns:
            An entry for each output that has rows.
        """
        state, program = self.state, self.program
        table = state.substreams
        assert table is not None
        table.emission.advance(arrival)
        watermarks = SubstreamWatermarks(table.emission)
        failures = Failures()
        evaluation = Evaluation({}, failures, program.tables)
        results = []
        with registered.available(program.functions, state.calls):
            self._advance(evaluation, failures, emission.from_ticks, watermarks)
            for index, output in self._outputs():
                waiting, complete, delay = state.outputs[index], state.complete[index], program.delays[index]
                frame = evaluation.frame(output.relation)
                if frame is not None:
                    waiting.append(frame)
                reached = table.emission.floor if program.joined_outputs[index] else watermarks
                newly_complete = waiting.take_before(less(reached, delay))
                if newly_complete is not None:
                    complete.append(with_emission_arrivals(newly_complete, table.emission, delay))
                frame = emission.take_emitted(complete)
                if frame is not None:
                    arrivals_and_times = tuple(map(Vector.bigints, (*frame.order, frame.times)))
                    results.append(self._result_rows(output.name, frame.without_order(), arrivals_and_times))
        self._note(failures, emission.from_ticks)
        held = (state.operators, state.outputs, state.complete, [*state.below_joins.values()])
        table.forget_if_it_pays(lambda: substreams_in(held))
        return results

    def preview(self, from_ticks: int, ahead: Mapping[str, int] | None = None) -> list[ResultRows]:
        """Return what would be emitted from ``from_ticks`` on if the inputs ended here, in time order.

        The state is unchanged.
        """
        held = copy.copy(self)
        held.state = copy.deepcopy(self.state)
        if held.state.substreams is None:
            return held.emit(from_ticks, END_OF_TIME, ahead)
        return [rows.by_time() for rows in held.emit_by_substream(END_OF_TIME, EmissionRange(from_ticks))]

    def _advance(self, evaluation: Evaluation, failures: Failures, from_ticks: int, watermark: Watermark) -> None:
        """Release what every operator has up to a watermark of the inputs."""
        program = self.program
        floor = watermark if isinstance(watermark, int) else watermark.emission.floor
        for index, (operator, held) in enumerate(zip(program.operators, self.state.operators, strict=True)):
            if index not in self._part.operators:
                continue
            joined = program.joined[index]
            for side, source in enumerate(operator.sources):
                frame = self._rows_of(index, side, source, evaluation)
                if (index, side) in program.sides_below_joins and not isinstance(watermark, int):
                    frame = self._below_join((index, side), frame, less(floor, program.delay(source)))
                self.state.rows.taken[index, side] += 0 if frame is None else len(frame)
                payload = None if frame is None else operator.reduce(side, frame, failures)
                if payload is not None:
                    operator.absorb(held, side, payload)
            if isinstance(operator, PanesOperator) and from_ticks != NO_TIME:
                operator.skip(held, from_ticks - program.lookback_ticks)
            delay = max(map(program.delay, operator.sources))
            reached = less(floor if joined else watermark, delay)
            released = operator.release_rows(held, reached, failures)
            self.state.rows.released[index] += 0 if released is None else len(released)
            evaluation.give(operator.relation, released)
        self.to_send = {}
        for index, side in self._part.sent:
            frame = evaluation.frame(program.operators[index].sources[side])
            if frame is not None:
                self.to_send[index, side] = frame

    def _rows_of(self, index: int, side: int, source: plan.Relation, evaluation: Evaluation) -> Frame | None:
        """Return the new rows of a side; None for none, or if tasks send them."""
        if (index, side) in self.program.sides_of_tasks:
            return None
        if (index, side) in self._part.received:
            return self._received.get((index, side))
        return evaluation.frame(source)

    def _outputs(self) -> Iterator[tuple[int, plan.Output]]:
        """Yield the outputs that are emitted here, with their numbers."""
        for index, output in enumerate(self.program.query.outputs):
            if index in self._part.outputs:
                yield index, output

    def _result_rows(self, output: str, frame: Frame, first_keys: tuple[Vector, ...]) -> ResultRows:
        columns = frame.selected()
        merge_keys = (*first_keys, *frame.tie_breakers()) if self.program.for_shards else ()
        return ResultRows(output, frame.times, columns.names, columns.vectors, merge_keys)

    def _below_join(self, place: tuple[int, int], frame: Frame | None, floor: Watermark) -> Frame | None:
        """Hold results of single substreams until the floor has passed them, and order them alike for every cut.

        Each substream releases its rows in order, but which of two substreams comes first depends on the cut. So rows
        without an arrival are ordered by key.
        """
        table, waiting = self.state.substreams, self.state.below_joins.setdefault(place, Waiting())
        assert table is not None
        if frame is not None:
            waiting.append(frame)
        ready = waiting.take_before(floor)
        if ready is None or ready.substreams is None:
            return ready
        if ready.order:
            return ready.of_substreams(None)
        return ready.take(sorted_rows([ready.times, table.key_ranks(ready.substreams)])).of_substreams(None)

    def _note(self, failures: Failures, from_ticks: int) -> None:
        self.state.errors += [error for one in failures.errors if len((error := one.since(from_ticks)).times)]


def _whole(program: Program) -> KeyedPart:
    return KeyedPart(frozenset(range(len(program.operators))), frozenset(range(len(program.query.outputs))))
