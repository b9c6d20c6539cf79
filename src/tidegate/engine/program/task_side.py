"""The task side: what a task computes from a batch of events, without any state.

A batch goes through the engine in two calls. `TaskSide.decode` turns bodies into columns and evaluates what the scan
needs of each row, its event time and its OVER keys. The scan (`tidegate.ordering`) then decides which rows pass, and
`TaskSide.run` filters, projects and pre-aggregates those into a `Partial`, which is sent to the keyed side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from tidegate.engine.decoding import metadata
from tidegate.engine.decoding.decoded import Decoded, Wanted, without_bits
from tidegate.engine.decoding.formats import BodyDecoder, Format, decoder_of
from tidegate.engine.decoding.rows import EventColumns
from tidegate.engine.expressions import registered
from tidegate.engine.expressions.evaluation import evaluate
from tidegate.engine.expressions.frames import FieldColumns, Frame, Path
from tidegate.engine.expressions.relations import Evaluation, Failures, RuntimeErrors, arrival_order
from tidegate.engine.functions.records import metadata_path
from tidegate.engine.program.partial import Partial
from tidegate.engine.program.program import Program
from tidegate.engine.substreams.keys import keys_of
from tidegate.engine.values.budget import batch_of
from tidegate.engine.values.conversions import to_datetimes
from tidegate.engine.values.grouping import group, texts_of_numbers, unified
from tidegate.engine.values.vectors import BoolArray, Int64Array, Kind, Vector
from tidegate.ordering import Keys
from tidegate.sql.plan import nodes as plan


@dataclass(frozen=True, slots=True)
class SubstreamCodes:
    """The OVER keys of n rows: ``codes`` int64[n] index ``keys``, the batch's distinct keys; −1 is a NULL key."""

    codes: Int64Array
    keys: Keys


class BatchEvents(EventColumns, Protocol):
    """The events of a batch: their bodies, and what the broker says of each."""

    @property
    def bodies(self) -> Sequence[bytes]: ...

    @property
    def format(self) -> Format: ...

    @property
    def set_aside(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """Some events of one partition, decoded into n rows, with what the scan needs of each row.

    Attributes:
        input: the input's name in the program.
        partition: a decimal number.
        events: the events.
        decoded: their fields as columns.
        arrivals: int64[n], ticks.
        times: int64[n] ticks and bool[n] whether they are valid; None where the arrival is the time.
        substreams: the OVER keys of the rows; None without OVER.
        calls: of registered functions, for the event time and the OVER keys.
    """

    input: str
    partition: str
    events: BatchEvents
    decoded: Decoded
    arrivals: Int64Array
    times: tuple[Int64Array, BoolArray] | None
    substreams: SubstreamCodes | None
    calls: registered.FunctionCalls = field(default_factory=registered.FunctionCalls)

    def __len__(self) -> int:
        return len(self.arrivals)

    def evaluated(self, rows: Stamped) -> AbstractContextManager[None]:
        """Return a context that bounds the evaluation of rows: those of one event fail, those of several are halved."""
        events = self.decoded.events[rows.selected[[0, -1]]]
        return batch_of(int(events[-1] - events[0]) + 1)

    @property
    def sequence_numbers(self) -> Int64Array:
        """int64[n]: the sequence number of each row's event."""
        return self.events.sequence_numbers[self.decoded.events]


@dataclass(frozen=True, slots=True)
class Stamped:
    """The rows of a batch that the scan has let pass, k of its n.

    Attributes:
        selected: int64[k], ascending: which rows.
        system_timestamps: int64[k], ticks.
        substreams: int64[k], which of the batch's keys each row has; only if results are emitted by substream.
    """

    selected: Int64Array
    system_timestamps: Int64Array
    substreams: Int64Array | None = None

    def part(self, first: int, stop: int) -> Stamped:
        """Return a stretch of the rows."""
        substreams = None if self.substreams is None else self.substreams[first:stop]
        return Stamped(self.selected[first:stop], self.system_timestamps[first:stop], substreams)


class TaskSide:
    """A program as tasks use it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._lacks_bits = program.query.compatibility_level in ("1.0", "1.1")

    def decode(self, input_name: str, partition: str, events: BatchEvents) -> DecodedBatch:
        """Decode the bodies of a batch, and evaluate TIMESTAMP BY and OVER."""
        mention = self.program.reading(input_name).mention
        batch = self._decode(input_name, partition, events, self.program.wanted(input_name))
        if not mention.over:
            return batch
        with registered.available(self.program.functions, batch.calls), batch_of(len(events.sequence_numbers)):
            return replace(batch, substreams=self._substreams(mention.over, batch))

    def decode_times(
        self, input_name: str, partition: str, events: BatchEvents, paths: tuple[Path, ...]
    ) -> DecodedBatch:
        """Decode some fields only, those of TIMESTAMP BY among them, and evaluate it; see `decode`.

        Rows are those of `decode` if every field that may make a row unreadable is among the fields.
        """
        return self._decode(input_name, partition, events, replace(self.program.wanted(input_name), paths=paths))

    def _decode(self, input_name: str, partition: str, events: BatchEvents, wanted: Wanted) -> DecodedBatch:
        decoded = _decoded(decoder_of(wanted, events.format), events)
        decoded = metadata.with_system_columns(decoded, wanted.paths, partition, events, lower_case=wanted.lower_case)
        by = self.program.reading(input_name).mention.timestamp_by
        calls = registered.FunctionCalls()
        with registered.available(self.program.functions, calls), batch_of(len(events.sequence_numbers)):
            times = None if by is None else _event_times(by, decoded)
        return DecodedBatch(input_name, partition, events, decoded, events.arrivals[decoded.events], times, None, calls)

    def _substreams(self, over: Sequence[plan.Expr], batch: DecodedBatch) -> SubstreamCodes:
        frame = self._frame(batch, None)
        keys = [unified(evaluate(expr, frame), everywhere=True) for expr in over]
        groups = group(len(batch), keys)
        distinct = [key.take(groups.firsts) for key in keys]
        usable = np.ones(groups.count, dtype=np.bool_)
        for key in distinct:
            usable &= (key.kinds != Kind.NULL) & (key.kinds != Kind.ERROR)
        numbers = np.where(usable, np.cumsum(usable) - 1, -1)
        return SubstreamCodes(numbers[groups.codes], keys_of([key.where(usable) for key in distinct]))

    def run(self, batch: DecodedBatch, rows: Stamped) -> Partial:
        """Filter, project, and pre-aggregate into panes whatever follows from these rows alone.

        Raises:
            BatchTooLarge: that takes too much memory at once; the rows of fewer events may not.
        """
        partial = Partial()
        if len(rows.selected):
            with registered.available(self.program.functions, partial.calls), batch.evaluated(rows):
                for side, frame, payload in self._reduced(batch, rows, Failures(partial.errors)):
                    partial.rows.taken[side] += 0 if frame is None else len(frame)
                    if payload is not None:
                        partial.payloads[side] = payload
                    if frame is not None and frame.rows is not None:
                        partial.split += [
                            frame.rows[texts_of_numbers(evaluate(key, frame))]
                            for key in self.program.key_columns[side[0]]
                        ]
        return partial

    def trace(self, batch: DecodedBatch, rows: Stamped) -> tuple[dict[int, Int64Array], list[RuntimeErrors]]:
        """Run as `run` does, and say where rows go.

        Returns:
            By operator, which decoded rows it takes; and which rows were lost on the way.
        """
        failures, before = Failures(), 0
        taken: dict[int, Int64Array] = {}
        with registered.available(self.program.functions):
            for (index, _), frame, _ in self._reduced(batch, rows, failures) if len(rows.selected) else ():
                if frame is not None and frame.rows is not None:
                    lost = [error.rows for error in failures.errors[before:]]
                    kept = np.setdiff1d(frame.rows, np.concatenate([frame.rows[:0], *lost]))
                    taken[index] = np.union1d(taken.get(index, kept), kept)
                before = len(failures.errors)
        return taken, failures.errors

    def _reduced(
        self, batch: DecodedBatch, rows: Stamped, failures: Failures
    ) -> Iterator[tuple[tuple[int, int], Frame | None, Any]]:
        """Yield, for each operator and side, the rows that reach it and what it reduces them to."""
        base = self._frame(batch, rows)
        evaluation = Evaluation(self._mentions(batch, rows, base), failures, self.program.tables)
        for index, side, operator in self.program.local_sides:
            frame = evaluation.frame(operator.sources[side])
            yield (index, side), frame, None if frame is None else operator.reduce(side, frame, failures)

    def _mentions(self, batch: DecodedBatch, stamped: Stamped, base: Frame) -> Mapping[int, Frame | None]:
        """Return a frame for every mention of an input, under its alias and in the order of arrival."""
        columns, selected = base.sources[""], stamped.selected
        arrivals, numbers = batch.arrivals[selected], batch.sequence_numbers[selected]
        indices = batch.decoded.indices[selected]
        given: dict[int, Frame | None] = {}
        for mention, leaf in self.program.mentions_of(batch.input):
            order = arrival_order(arrivals, mention, batch.partition, numbers, indices)
            given[id(leaf)] = base.with_sources({leaf.alias.lower(): columns}).with_order(order)
        return given

    def _frame(self, batch: DecodedBatch, stamped: Stamped | None) -> Frame:
        """Return the events of a batch, or those that were stamped, as a frame without an alias."""
        decoded, events, partition = batch.decoded, batch.events, batch.partition
        source, need = self.program.source_of(batch.input), self.program.need(batch.input)
        selected = None if stamped is None or len(stamped.selected) == len(decoded) else stamped.selected
        which = decoded.events if selected is None else decoded.events[selected]
        indices = decoded.indices if selected is None else decoded.indices[selected]
        fields: dict[Path, Vector] = {
            path: vector if selected is None else vector.take(selected)
            for path, vector in decoded.fields.items()
            if stamped is None or path not in need.of_input
        }
        for name in need.metadata:
            column = metadata.property_vector(name, source, partition, events, which, indices)
            fields[metadata_path(name)] = without_bits(column) if self._lacks_bits else column
        records = decoded.records
        if records is not None and selected is not None:
            records = records.take(selected)
        return Frame(
            events.arrivals[which] if stamped is None else stamped.system_timestamps,
            {"": FieldColumns(fields, records)},
            rows=np.arange(len(decoded)) if stamped is None else stamped.selected,
            substreams=None if stamped is None else stamped.substreams,
        )


def _decoded(decoder: BodyDecoder, events: BatchEvents) -> Decoded:
    """Decode bodies, except those that were set aside."""
    if not events.set_aside:
        return decoder.decode(events.bodies)
    aside = np.array(events.set_aside, dtype=np.int64)
    places = np.delete(np.arange(len(events.bodies)), aside)
    return decoder.decode([events.bodies[place] for place in places.tolist()]).beside(places, aside)


def _event_times(expr: plan.Expr, decoded: Decoded) -> tuple[Int64Array, BoolArray]:
    times = to_datetimes(evaluate(expr, _event_frame(decoded)))
    return times.int_values(), times.kinds == Kind.DATETIME


def _event_frame(decoded: Decoded) -> Frame:
    """Return the fields of events alone, for expressions of the input itself, where a column has no source."""
    return Frame(np.zeros(len(decoded), dtype=np.int64), {"": FieldColumns(decoded.fields, decoded.records)})
