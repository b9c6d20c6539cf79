"""A batch of events on its way through a task: decoded, stamped, evaluated, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidegate.engine import (
    BatchSubstreams,
    Decoded,
    Partial,
    Problem,
    Program,
    Rows,
    byte_sizes,
    decoder_of,
)
from tidegate.job.model.events import Events, Int64Array, LogRange
from tidegate.job.model.metrics import (
    INPUT_DESERIALIZATION_ERRORS,
    INPUT_EVENT_BYTES,
    INPUT_EVENTS,
    RUNTIME_ERRORS,
    SAMPLES_A_STEP,
    DataError,
)
from tidegate.ordering import (
    DATA_ERRORS,
    DROPPED,
    END_OF_TIME,
    INVALID_KEY,
    INVALID_TIMESTAMP,
    NO_TIME,
    Advances,
    Carry,
    Stamps,
    SubstreamCarry,
    counts,
)

AnyCarry = Carry | SubstreamCarry
BoolArray = npt.NDArray[np.bool_]

PROBLEMS = {problem: (problem.data_error_type, problem.message) for problem in Problem}
_MESSAGES = {
    "InvalidInputTimeStamp": "the TIMESTAMP BY value is missing or not a time",
    "InvalidInputTimeStampKey": "an OVER key is NULL",
    "LateInputEvent": "the event's time is further before its arrival than the late arrival tolerance",
    "EarlyInputEvent": "the event's time is further after its arrival than the early arrival window",
    "OutOfOrderEvent": "the event's time is further behind the latest one than the out-of-order tolerance",
}
_EXAMPLE_BYTES = 400


@dataclass(frozen=True, slots=True)
class RangeTask:
    """One range to read, and where its timeline stands before it.

    ``count_from``: events below this sequence number have been counted by an earlier run and are only read again.
    ``reached``: the latest arrival of the partition before the range, in ticks; only where partitions are merged.
    """

    input: str
    partition: str
    log_range: LogRange
    carry: AnyCarry
    count_from: int
    reached: int = NO_TIME


@dataclass(frozen=True, slots=True)
class Task:
    """Ranges for one task: each of another timeline, or all of an input whose partitions are one.

    ``before``: ticks; of the latter, only events that arrived before this are taken.
    """

    ranges: list[RangeTask]
    batch_events: int
    trace: bool = False
    before: int = END_OF_TIME


@dataclass(frozen=True, slots=True)
class TraceRows:
    """The fate of n rows of one range, in log order; times in ticks, NO_TIME for none.

    ``event_times`` is NO_TIME where it could not be read. ``stamps`` is what the scan said.
    """

    input: str
    partition: str
    sequence_numbers: Int64Array
    event_times: Int64Array
    arrivals: Int64Array
    stamps: Stamps


@dataclass(slots=True)
class RangeResult:
    """What is left of a range. ``stop``, ``reached``: where partitions are merged, the sequence number that the next
    range begins with, and the latest arrival before it."""

    input: str
    partition: str
    carry: AnyCarry
    stop: int | None = None
    reached: int = NO_TIME
    partials: list[Partial] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    data_errors: list[DataError] = field(default_factory=list)
    data_error_counts: Counter[str] = field(default_factory=Counter)
    traces: list[TraceRows] = field(default_factory=list)


class Batch:
    """Some events of one partition, decoded; n rows."""

    def __init__(self, task_range: RangeTask, events: Events, program: Program) -> None:
        self.events = events
        self._range = task_range
        self._program = program
        name, partition = task_range.input, task_range.partition
        self.decoded = decoder_of(program.wanted(name), events.format).decode(events.bodies)
        self.arrivals = events.arrivals[self.decoded.events]
        self.times = program.event_times(name, self.decoded, partition, events)
        self.substreams = program.substream_codes(name, self.decoded, partition, events)
        self._numbers = np.empty(0, dtype=np.int64)
        self._generation = 0

    def __len__(self) -> int:
        return len(self.arrivals)

    @property
    def numbers(self) -> Int64Array:
        """int64[n]: the sequence number of the event that each row is of."""
        return self.events.sequence_numbers[self.decoded.events]

    def codes(self, carry: AnyCarry) -> Int64Array:
        """int64[n]: the substream of each row by its number on the timeline; −1 for a NULL key."""
        assert isinstance(carry, SubstreamCarry)
        assert self.substreams is not None
        self._numbers, self._generation = carry.keys.codes(self.substreams.keys), carry.keys.generation
        codes = self.substreams.codes
        return np.where(codes < 0, np.int64(-1), self._numbers[codes] if len(self._numbers) else np.int64(-1))

    def finish(
        self,
        result: RangeResult,
        stamps: Stamps,
        latest: Int64Array,
        *,
        timeline: str,
        stop: int = END_OF_TIME,
        trace: bool = False,
    ) -> None:
        """Take up what the scan said.

        Args:
            latest: int64[n], the latest arrival known after each row.
            timeline: the partition; "" where those of an input are one.
            stop: the events from this sequence number on are not taken yet.
        """
        numbers = self.events.sequence_numbers
        taken = self.numbers < stop
        selected = np.flatnonzero((stamps.fate != DROPPED) & taken)
        by_substream = self._program.by_substream and self.substreams is not None
        name, partition = result.input, result.partition
        codes = self.substreams.codes if self.substreams is not None else None
        partial = self._program.run_stateless(
            name,
            Rows(
                self.decoded,
                selected,
                stamps.system_timestamp[selected],
                partition,
                self.events,
                codes[selected] if by_substream and codes is not None else None,
            ),
        )
        if by_substream and codes is not None and len(self):
            assert self.substreams is not None
            advances = Advances.of(stamps, latest, codes)
            partial.substreams = BatchSubstreams(
                name, timeline, self.substreams.keys, self._numbers, self._generation, advances
            )
        result.partials.append(partial)
        counted = (numbers >= self._range.count_from) & (numbers < stop)
        _count(result, counted, self.events, self.decoded, stamps, partial)
        if trace:
            shown = self.arrivals if self.times is None else np.where(self.times[1], self.times[0], NO_TIME)
            rows = np.flatnonzero(taken)
            every = len(rows) == len(self)
            result.traces.append(
                TraceRows(
                    name,
                    partition,
                    self.numbers[rows],
                    shown[rows],
                    self.arrivals[rows],
                    stamps if every else selected_stamps(stamps, rows),
                )
            )


def _count(
    result: RangeResult,
    counted_events: BoolArray,
    events: Events,
    decoded: Decoded,
    stamps: Stamps,
    partial: Partial,
) -> None:
    """Count what has not been counted before, and keep samples of what went wrong."""
    if not counted_events.any():
        return
    result.counts[INPUT_EVENTS] += int(np.count_nonzero(counted_events))
    result.counts[INPUT_EVENT_BYTES] += int(byte_sizes(events.bodies)[counted_events].sum())
    counted_rows = counted_events[decoded.events]
    result.counts.update(counts(stamps if counted_rows.all() else selected_stamps(stamps, counted_rows)))
    for reason, kind in DATA_ERRORS.items():
        rows = np.flatnonzero((stamps.reasons & reason != 0) & counted_rows)
        if reason in (INVALID_TIMESTAMP, INVALID_KEY):
            result.counts[INPUT_DESERIALIZATION_ERRORS] += len(rows)
        _sample(result, kind, _MESSAGES[kind], events, decoded.events[rows])
    rejected = counted_events[decoded.rejected_events]
    result.counts[INPUT_DESERIALIZATION_ERRORS] += int(np.count_nonzero(rejected))
    for problem, (kind, message) in PROBLEMS.items():
        of_kind = decoded.rejected_events[rejected & (decoded.rejected_problems == problem)]
        _sample(result, kind, message, events, of_kind)
    for error in partial.errors:
        where = decoded.events[error.rows]
        where = where[counted_events[where]]
        result.counts[RUNTIME_ERRORS] += len(where)
        _sample(result, "RuntimeError", error.message, events, where)


def selected_stamps(stamps: Stamps, rows: BoolArray | Int64Array) -> Stamps:
    """The stamps of some rows."""
    return Stamps(
        stamps.system_timestamp[rows],
        stamps.fate[rows],
        stamps.reasons[rows],
        stamps.watermark_event[rows],
        stamps.watermark[rows],
    )


def _sample(result: RangeResult, kind: str, message: str, events: Events, places: Int64Array) -> None:
    """Count data errors of a kind, and keep the first few with their place in the log."""
    if not len(places):
        return
    taken = SAMPLES_A_STEP - result.data_error_counts[kind]
    result.data_error_counts[kind] += len(places)
    for place in places[: max(taken, 0)].tolist():
        result.data_errors.append(
            DataError(
                kind=kind,
                input=result.input,
                partition=result.partition,
                sequence_number=int(events.sequence_numbers[place]),
                arrival=int(events.arrivals[place]),
                message=message,
                example=events.bodies[place][:_EXAMPLE_BYTES].decode("utf-8", errors="replace"),
            )
        )
