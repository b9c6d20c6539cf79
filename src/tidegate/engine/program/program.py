"""A query made ready to run: what it reads, what a task computes from a batch, and what the driver makes of that.

A relation is *local* if each of its rows follows from one event: filters, projections, unions, applications over
inputs. Local relations are computed in the task that has the events. Every other relation is made by an *operator*,
which has a memory: windows, functions of the rows before, joins. An operator's `reduce` makes rows small (an
aggregate's: a line for each pane and key) and runs in the task wherever its source is local; its `absorb` and
`release` run on the driver, over what all tasks sent.

A release computes the operators from the inputs up. Each lets out all its rows with a time before the watermark,
complete and in time order; so whatever stands on it has all it needs for the times before the watermark, too. Where a
query keeps its substreams apart, each of those has a watermark of its own (`substream_watermarks`), and results leave
by their departures (`tidegate.ordering.departures`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tidegate.engine.decoding import metadata
from tidegate.engine.decoding.decoded import Decoded, Wanted
from tidegate.engine.decoding.rows import EventColumns, ResultRows, Rows
from tidegate.engine.expressions import registered
from tidegate.engine.expressions.checks import check
from tidegate.engine.expressions.evaluation import evaluate
from tidegate.engine.expressions.failures import Failures, RuntimeErrors
from tidegate.engine.expressions.frames import FieldColumns, Frame, Path
from tidegate.engine.expressions.needs import Need, needs_of
from tidegate.engine.expressions.relations import Evaluation, is_local, streams_of
from tidegate.engine.functions.records import metadata_path
from tidegate.engine.program.readings import readings_of
from tidegate.engine.program.substream_table import BatchSubstreams, SubstreamTable, renumbered, substreams_in
from tidegate.engine.stateful.group_operators import SessionOperator, SlidingOperator, WindowsOperator, group_operator
from tidegate.engine.stateful.join_keys import comparable
from tidegate.engine.stateful.join_operator import JoinOperator
from tidegate.engine.stateful.match_operator import MatchOperator
from tidegate.engine.stateful.panes import PanesOperator
from tidegate.engine.stateful.reference import ReferenceTables, Snapshot
from tidegate.engine.stateful.temporal_operator import TemporalOperator
from tidegate.engine.stateful.union_operator import UnionOperator
from tidegate.engine.substreams.emission import EmissionRange, with_emission_arrivals
from tidegate.engine.substreams.keys import keys_of
from tidegate.engine.substreams.separation import components, joins_streams, keyed_by_substreams
from tidegate.engine.substreams.waiting import Waiting
from tidegate.engine.substreams.watermarks import SubstreamWatermarks, Watermark, less
from tidegate.engine.values.conversions import to_datetimes
from tidegate.engine.values.grouping import group
from tidegate.engine.values.vectors import BoolArray, Int64Array, Kind, Vector
from tidegate.ordering import END_OF_TIME, NO_TIME, Carry, Keys, SubstreamCarry
from tidegate.saql.plan import nodes as plan


@dataclass(frozen=True, slots=True)
class SubstreamCodes:
    """The OVER keys of n rows: ``codes`` int64[n] index ``keys``, the batch's distinct keys; −1 is a NULL key."""

    codes: Int64Array
    keys: Keys


@dataclass(slots=True)
class Partial:
    """What one task makes of one batch; compact and picklable.

    Attributes:
        payloads: by operator and side (which of its sources), what it reduced the rows to.
        errors: the rows that were lost, with their places in the decoded batch.
        substreams: those of the batch, where results leave by them; rows are numbered by its keys.
    """

    payloads: dict[tuple[int, int], Any] = field(default_factory=dict)
    errors: list[RuntimeErrors] = field(default_factory=list)
    substreams: BatchSubstreams | None = None

    def __getstate__(self) -> tuple[dict[tuple[int, int], Any], BatchSubstreams | None]:
        return self.payloads, self.substreams

    def __setstate__(self, state: tuple[dict[tuple[int, int], Any], BatchSubstreams | None]) -> None:
        self.payloads, self.substreams = state
        self.errors = []


@dataclass(slots=True)
class State:
    """What the driver holds between steps; picklable.

    Attributes:
        operators: the state of each operator.
        outputs: by output, rows that are complete but not to leave yet.
        errors: runtime errors of the driver since they were last taken.
        substreams: those known so far, where results leave by them.
        departing: by output, complete results with their departures as their order.
    """

    operators: list[Any]
    outputs: list[Waiting[Frame]]
    errors: list[RuntimeErrors] = field(default_factory=list)
    substreams: SubstreamTable | None = None
    departing: list[list[Frame]] = field(default_factory=list)

    def take_errors(self) -> list[RuntimeErrors]:
        """The runtime errors since this was last asked; they have times but no places."""
        errors, self.errors = self.errors, []
        return errors


class Operator(Protocol):
    """What makes the rows of a relation that is not local."""

    @property
    def relation(self) -> plan.Relation: ...

    @property
    def sources(self) -> tuple[plan.Relation, ...]: ...

    @property
    def delay_ticks(self) -> int:
        """How far behind the watermark of its sources its rows are complete."""

    def new_state(self) -> Any:
        """Nothing yet."""

    def reduce(self, side: int, frame: Frame, failures: Failures) -> Any | None:
        """What is kept of rows of ``sources[side]``; None of nothing."""

    def absorb(self, state: Any, side: int, payload: Any) -> None:
        """Take up what was reduced, in any order."""

    def release(self, state: Any, watermark: int, failures: Failures, /) -> Frame | None:
        """All rows with a time before the watermark less `delay_ticks`, in time order; they are gone from the state."""


class RowsOperator:
    """Rows that wait for the watermark, and nothing else."""

    def __init__(self, relation: plan.Relation) -> None:
        self.relation = relation
        self.sources = (relation,)
        self.delay_ticks = 0

    def new_state(self) -> Waiting[Frame]:
        """Nothing yet."""
        return Waiting()

    def reduce(self, side: int, frame: Frame, failures: Failures) -> Frame:
        """The rows themselves."""
        return frame.without_rows()

    def absorb(self, state: Waiting[Frame], side: int, payload: Frame) -> None:
        """Take up rows."""
        state.append(payload)

    def release(self, state: Waiting[Frame], watermark: Watermark, failures: Failures) -> Frame | None:
        """Rows by time, then by source, partition, sequence number and place in the event."""
        frame = state.take_before(watermark)
        return None if frame is None else frame.in_order().without_order()


class Program:
    """A query, prepared once and sent to the tasks; picklable, and changed by nothing.

    Attributes:
        input_names, output_names: as the query first spells them; reference data is not an input here. See `source_of`.
        lookback_ticks: a result at T depends on no event stamped before T − lookback_ticks.
    """

    def __init__(
        self, query: plan.Query, reference: Mapping[str, Sequence[Snapshot]], functions: registered.Functions
    ) -> None:
        self._functions = {name.lower(): function for name, function in functions.items()}
        check(query, self._functions, {name.lower() for name in reference})
        self.query = query
        self.lookback_ticks = query.lookback_ticks
        self.output_names = tuple(output.name for output in query.outputs)
        self._readings = readings_of(query)
        self.input_names = tuple(one.name for one in self._readings.values() if not one.mention.reference)
        self._needs = needs_of(query)
        self._reference = {name.lower(): snapshots for name, snapshots in reference.items()}
        tables = [mention for mention in query.inputs if mention.reference]
        self._tables = ReferenceTables(self._reference, tables, self.wanted)
        self._leaves: list[plan.Input] = []
        self._operators: list[Operator] = []
        placed: set[int] = set()
        with registered.available(self._functions):
            for output in query.outputs:
                self._place(output.relation, placed)
                if is_local(output.relation):
                    self._add_rows(output.relation)
        self._delays = [self._delay(output.relation) for output in query.outputs]
        self._delay_ticks = max(self._delays, default=0)
        apart = all(isinstance(one, _BY_SUBSTREAM) for one in self._operators)
        once = len({one.mention.name.lower() for one in self._readings.values()}) == len(self._readings)
        self._components = components(query) if apart and once else None
        self._joins_substreams = self._components is not None and joins_streams(query)
        # What a join finds equal is one substream, but need not be one group.
        keyed = keyed_by_substreams(query) if self._components is not None and not self._joins_substreams else ()
        for operator in self._operators:
            if isinstance(operator, PanesOperator | TemporalOperator):
                operator.keyed = id(operator.relation) in keyed

    @classmethod
    def prepare(
        cls,
        query: plan.Query,
        reference: Mapping[str, Sequence[Snapshot]] | None = None,
        functions: registered.Functions | None = None,
    ) -> Program:
        """Make a query ready, with the snapshots of its reference data and with registered functions, by name.

        Raises UnsupportedQuery for a plan this engine cannot run.
        """
        return cls(query, reference or {}, functions or {})

    def with_reference(self, reference: Mapping[str, Sequence[Snapshot]]) -> Program:
        """The same query with other snapshots; a state of the one is a state of the other."""
        return Program(self.query, reference, self._functions)

    def has_reference_of(self, other: Program) -> bool:
        """Whether the snapshots of reference data are those of another program."""
        return self._reference == other._reference

    def __reduce__(self) -> tuple[Any, ...]:
        return (Program, (self.query, self._reference, self._functions))

    # Making it ready --------------------------------------------------------------------------------------------------

    def _place(self, relation: plan.Relation, placed: set[int]) -> None:
        """Add the operators that a relation stands on, from the inputs up."""
        if id(relation) in placed:
            return
        placed.add(id(relation))
        for source in streams_of(relation):
            self._place(source, placed)
        if isinstance(relation, plan.Input):
            self._leaves.append(relation)
        operator = _operator(relation)
        if operator is not None:
            self._operators.append(operator)

    def _add_rows(self, relation: plan.Relation) -> None:
        if not any(operator.relation is relation for operator in self._operators):
            self._operators.append(RowsOperator(relation))

    # Inputs -----------------------------------------------------------------------------------------------------------

    def _mention(self, input_name: str) -> plan.Input:
        return self._readings[input_name.lower()].mention

    def source_of(self, input_name: str) -> str:
        """The job's input that is read: an input read with two TIMESTAMP BY is two inputs here."""
        return self._mention(input_name).name

    def has_substreams(self, input_name: str) -> bool:
        """Whether the input is read with OVER."""
        return bool(self._mention(input_name).over)

    @property
    def by_substream(self) -> bool:
        """Whether results leave on their own substream's watermark: OVER is used, and the query keeps them apart."""
        return self._components is not None

    def has_event_time(self, input_name: str) -> bool:
        """Whether the input is read with TIMESTAMP BY; without, the arrival is the time and no tolerance applies."""
        return self._mention(input_name).timestamp_by is not None

    def new_carry(self, input_name: str) -> Carry | SubstreamCarry:
        """What the scan of one of the input's partitions begins with."""
        return SubstreamCarry() if self.has_substreams(input_name) else Carry()

    def wanted(self, input_name: str) -> Wanted:
        """What of a body the query needs: `Decoder(program.wanted(name)).decode(bodies)`."""
        need = self._needs.get(self.source_of(input_name).lower(), Need())
        declared = self._mention(input_name).declared
        level = self.query.compatibility_level
        return Wanted(
            tuple(need.paths.values()),
            need.record,
            None if declared is None else tuple((column.name, column.type) for column in declared),
            bits=level not in ("1.0", "1.1"),
            lower_case=level == "1.0",
            datetimes=level == "1.0",
        )

    def event_times(
        self, input_name: str, decoded: Decoded, partition: str, events: EventColumns
    ) -> tuple[Int64Array, BoolArray] | None:
        """TIMESTAMP BY of the decoded rows: ticks and whether they are valid; None where the arrival is the time."""
        expr = self._mention(input_name).timestamp_by
        if expr is None:
            return None
        with registered.available(self._functions):
            times = to_datetimes(evaluate(expr, _event_frame(decoded)))
        return times.int_values(), times.kinds == Kind.DATETIME

    def substream_codes(
        self, input_name: str, decoded: Decoded, partition: str, events: EventColumns
    ) -> SubstreamCodes | None:
        """The OVER keys of the decoded rows; None where there is no OVER."""
        over = self._mention(input_name).over
        if not over:
            return None
        frame = self._frame(input_name, decoded, None, partition, events)
        with registered.available(self._functions):
            keys = [evaluate(expr, frame) for expr in over]
        groups = group(len(decoded), keys)
        distinct = [key.take(groups.firsts) for key in keys]
        usable = np.ones(groups.count, dtype=np.bool_)
        for key in distinct:
            usable &= (key.kinds != Kind.NULL) & (key.kinds != Kind.ERROR)
        numbers = np.where(usable, np.cumsum(usable) - 1, -1)
        named = [key.where(usable) for key in distinct]
        if self._joins_substreams:
            # Rows that a join finds equal are on one timeline, as it cannot wait for a key that nobody has seen.
            named = [comparable(key) for key in named]
        return SubstreamCodes(numbers[groups.codes], keys_of(named))

    def _frame(
        self,
        input_name: str,
        decoded: Decoded,
        selected: Int64Array | None,
        partition: str,
        events: EventColumns,
        times: Int64Array | None = None,
        substreams: Int64Array | None = None,
    ) -> Frame:
        """The events of an input as a frame, without an alias."""
        source = self.source_of(input_name)
        need = self._needs.get(self.source_of(input_name).lower(), Need())
        every = selected is None or len(selected) == len(decoded)
        which = decoded.events if selected is None or every else decoded.events[selected]
        indices = decoded.indices if selected is None or every else decoded.indices[selected]
        fields: dict[Path, Vector] = {
            path: vector if every or selected is None else vector.take(selected)
            for path, vector in decoded.fields.items()
        }
        for path in need.paths:
            if path[0] in metadata.IMPLICIT_COLUMNS and len(path) == 1:
                fields[path] = _or_else(fields[path], metadata.implicit_column(path[0], partition, events, which))
        for name in need.metadata:
            fields[metadata_path(name)] = metadata.property_vector(name, source, partition, events, which, indices)
        records = decoded.records
        if records is not None and selected is not None and not every:
            records = records.take(selected)
        rows = np.arange(len(decoded)) if selected is None else selected
        return Frame(
            events.arrivals[which] if times is None else times,
            {"": FieldColumns(fields, records)},
            order=(
                np.full(len(rows), int(partition), dtype=np.int64),
                events.sequence_numbers[which],
                indices,
            ),
            rows=rows,
            substreams=substreams,
        )

    # In the task ------------------------------------------------------------------------------------------------------

    def run_stateless(self, input_name: str, rows: Rows) -> Partial:
        """In the task: filter, project, and aggregate into panes what follows from these rows alone."""
        partial = Partial()
        if len(rows.selected):
            with registered.available(self._functions):
                for side, _, payload in self._reduced(input_name, rows, Failures(partial.errors)):
                    if payload is not None:
                        partial.payloads[side] = payload
        return partial

    def reach(self, input_name: str, rows: Rows) -> tuple[dict[int, Int64Array], list[RuntimeErrors]]:
        """As `run_stateless`, but which of the decoded rows each operator takes up, and which were lost on the way."""
        failures, before = Failures(), 0
        taken: dict[int, Int64Array] = {}
        with registered.available(self._functions):
            for (index, _), frame, _ in self._reduced(input_name, rows, failures) if len(rows.selected) else ():
                if frame is not None and frame.rows is not None:
                    lost = [error.rows for error in failures.errors[before:]]
                    kept = np.setdiff1d(frame.rows, np.concatenate([frame.rows[:0], *lost]))
                    taken[index] = np.union1d(taken.get(index, kept), kept)
                before = len(failures.errors)
        return taken, failures.errors

    def _reduced(
        self, input_name: str, rows: Rows, failures: Failures
    ) -> Iterator[tuple[tuple[int, int], Frame | None, Any]]:
        """For each operator and side, the rows that come to it, and what it reduces them to."""
        of_rows = (rows.selected, rows.partition, rows.events, rows.system_timestamps, rows.substreams)
        base = self._frame(input_name, rows.decoded, *of_rows)
        evaluation = Evaluation(self._given(input_name, base), failures, self._tables)
        for index, side, operator in self._sides(local=True):
            frame = evaluation.frame(operator.sources[side])
            yield (index, side), frame, None if frame is None else operator.reduce(side, frame, failures)

    def _given(self, input_name: str, base: Frame) -> Mapping[int, Frame | None]:
        """The frame of every mention of an input, under its alias and with the mention's place in the order."""
        columns = base.sources[""]
        given: dict[int, Frame | None] = {}
        reading = self._readings[input_name.lower()]
        for number, leaf in enumerate(self._leaves):
            if reading.has(leaf):
                order = (np.full(len(base), number, dtype=np.int64), *base.order)
                given[id(leaf)] = base.with_sources({leaf.alias.lower(): columns}).with_order(order)
        return given

    def _sides(self, *, local: bool) -> Iterator[tuple[int, int, Operator]]:
        for index, operator in enumerate(self._operators):
            for side, source in enumerate(operator.sources):
                if is_local(source) == local:
                    yield index, side, operator

    def relation_of(self, operator: int) -> plan.Relation:
        """What the operator that a payload of a Partial is for makes."""
        return self._operators[operator].relation

    # On the driver ----------------------------------------------------------------------------------------------------

    def new_state(self, late_ticks: int | None = None) -> State:
        """On the driver: nothing yet. ``late_ticks``: what results of a substream that has no events wait for."""
        return State(
            [operator.new_state() for operator in self._operators],
            [Waiting() for _ in self.query.outputs],
            substreams=None if self._components is None else SubstreamTable(self._components, late_ticks),
            departing=[[] for _ in self.query.outputs],
        )

    def absorb(self, state: State, partials: Sequence[Partial]) -> None:
        """Take up what tasks computed: of one partition in its order, otherwise in any."""
        with registered.available(self._functions):
            for partial in partials:
                numbers = None
                if state.substreams is not None and partial.substreams is not None:
                    numbers = state.substreams.add(partial.substreams)
                for (index, side), payload in partial.payloads.items():
                    own = payload if numbers is None else renumbered(payload, numbers)
                    self._operators[index].absorb(state.operators[index], side, own)

    def complete_before(self, watermark_ticks: int) -> int:
        """Up to where the results of all outputs are complete when the inputs are complete up to a watermark."""
        if watermark_ticks in (NO_TIME, END_OF_TIME):
            return watermark_ticks
        return max(watermark_ticks - self._delay_ticks, NO_TIME)

    def ahead(self, watermark_ticks: int, until_ticks: int = END_OF_TIME) -> dict[str, int]:
        """Up to where those outputs are complete that wait less long than another, when all are so far."""
        if watermark_ticks in (NO_TIME, END_OF_TIME):
            return {}
        return {
            output.name: min(watermark_ticks + self._delay_ticks - delay, until_ticks)
            for output, delay in zip(self.query.outputs, self._delays, strict=True)
            if delay < self._delay_ticks
        }

    def release(
        self,
        state: State,
        from_ticks: int,
        watermark_ticks: int,
        left: Mapping[str, int] | None = None,
        until_ticks: int = END_OF_TIME,
    ) -> list[ResultRows]:
        """Everything with from_ticks <= time < watermark_ticks, complete, an entry for each output that has rows.

        The inputs must be complete so far that `complete_before` of their watermark is not before ``watermark_ticks``.
        Outputs that are `ahead` let out what they have before ``until_ticks``; ``left`` says up to where they did so
        before. Within an output rows are in time order, rows of the same time by source, partition and sequence number,
        or by key. What is returned, and whatever is older, is gone from the state.
        """
        failures = Failures()
        evaluation = Evaluation({}, failures, self._tables)
        of_inputs = watermark_ticks if watermark_ticks == END_OF_TIME else watermark_ticks + self._delay_ticks
        results = []
        with registered.available(self._functions):
            self._advance(state, evaluation, failures, from_ticks, of_inputs)
            ahead = self.ahead(watermark_ticks, until_ticks)
            for output, waiting in zip(self.query.outputs, state.outputs, strict=True):
                frame = evaluation.frame(output.relation)
                if frame is not None:
                    waiting.append(frame)
                frame = waiting.take_before(ahead.get(output.name, watermark_ticks))
                if frame is not None:
                    wanted = frame.times >= max(from_ticks, (left or {}).get(output.name, NO_TIME))
                    frame = frame if wanted.all() else frame.take(np.flatnonzero(wanted))
                if frame is not None and len(frame):
                    columns = frame.selected()
                    results.append(ResultRows(output.name, frame.times, columns.names, columns.vectors))
        state.errors += [error for one in failures.errors if len((error := one.since(from_ticks)).times)]
        return results

    def preview(self, state: State, from_ticks: int, left: Mapping[str, int] | None = None) -> list[ResultRows]:
        """What would leave from ``from_ticks`` on if the inputs ended here, in time order; the state stays as it is."""
        held = copy.deepcopy(state)
        if held.substreams is None:
            return self.release(held, from_ticks, END_OF_TIME, left)
        return [rows.by_time() for rows in self.release_substreams(held, END_OF_TIME, EmissionRange(from_ticks))]

    def release_substreams(self, state: State, arrival: int, leaving: EmissionRange) -> list[ResultRows]:
        """Everything that waits for no event from ``arrival`` on, an entry for each output that has rows.

        All timelines must have reached ``arrival``, and what they hold before it must have been absorbed. Within an
        output rows leave by departure, then by time, then as they would have otherwise.
        """
        table = state.substreams
        assert table is not None
        table.emission.advance(arrival)
        watermarks = SubstreamWatermarks(table.emission)
        failures = Failures()
        evaluation = Evaluation({}, failures, self._tables)
        results = []
        with registered.available(self._functions):
            self._advance(state, evaluation, failures, leaving.from_ticks, watermarks)
            for index, output in enumerate(self.query.outputs):
                waiting, departing, delay = state.outputs[index], state.departing[index], self._delays[index]
                frame = evaluation.frame(output.relation)
                if frame is not None:
                    waiting.append(frame)
                complete = waiting.take_before(watermarks.less(delay))
                if complete is not None:
                    departing.append(with_emission_arrivals(complete, table.emission, delay))
                frame = leaving.take_emitted(departing, table.key_ranks if self._joins_substreams else None)
                if frame is not None:
                    columns = frame.selected()
                    results.append(ResultRows(output.name, frame.times, columns.names, columns.vectors))
        state.errors += [error for one in failures.errors if len((error := one.since(leaving.from_ticks)).times)]
        table.forget_if_it_pays(lambda: substreams_in((state.operators, state.outputs, state.departing)))
        return results

    def _advance(
        self, state: State, evaluation: Evaluation, failures: Failures, from_ticks: int, watermark: Watermark
    ) -> None:
        """Let every operator give out what it can when the inputs are complete up to a watermark."""
        for index, operator in enumerate(self._operators):
            held = state.operators[index]
            for side, source in enumerate(operator.sources):
                frame = None if is_local(source) else evaluation.frame(source)
                payload = None if frame is None else operator.reduce(side, frame, failures)
                if payload is not None:
                    operator.absorb(held, side, payload)
            if isinstance(operator, PanesOperator) and from_ticks != NO_TIME:
                operator.skip(held, from_ticks - self.lookback_ticks)
            delay = max(map(self._delay, operator.sources))
            reached = less(watermark, delay)
            if isinstance(operator, _BY_SUBSTREAM):
                frame = operator.release(held, reached, failures)
            else:
                assert isinstance(reached, int)
                frame = operator.release(held, reached, failures)
            evaluation.give(operator.relation, frame)

    def _delay(self, relation: plan.Relation) -> int:
        """How far behind the watermark of the inputs the rows of a relation are complete."""
        if is_local(relation):
            return 0
        own = [operator.delay_ticks for operator in self._operators if operator.relation is relation]
        return sum(own) + max(map(self._delay, streams_of(relation)), default=0)


_BY_SUBSTREAM = (
    RowsOperator,
    PanesOperator,
    SlidingOperator,
    SessionOperator,
    WindowsOperator,
    TemporalOperator,
    JoinOperator,
    UnionOperator,
)
"""Operators that can complete the rows of each substream up to a watermark of its own."""


def _operator(relation: plan.Relation) -> Operator | None:
    """The operator of a relation; None if it needs no memory."""
    match relation:
        case plan.Aggregate():
            return group_operator(relation)
        case plan.Temporal():
            return TemporalOperator(relation)
        case plan.Join(reference=False):
            return JoinOperator(relation)
        case plan.Union() if not is_local(relation):
            return UnionOperator(relation)
        case plan.Match():
            return MatchOperator(relation)
        case _:
            return None


def _event_frame(decoded: Decoded) -> Frame:
    """The fields of events alone, for expressions of the input itself, where a column has no source."""
    return Frame(np.zeros(len(decoded), dtype=np.int64), {"": FieldColumns(decoded.fields, decoded.records)})


def _or_else(vector: Vector, other: Vector) -> Vector:
    return Vector.choose((vector.kinds == Kind.NULL).astype(np.int64), [vector, other])
