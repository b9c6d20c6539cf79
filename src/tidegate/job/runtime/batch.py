"""A batch of events in a task: what its timeline knows before and after it, and what is counted of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidegate.connectors.model.events import Events, Int64Array, LogRange, PartitionEnd
from tidegate.connectors.model.metrics import (
    INPUT_DESERIALIZATION_ERRORS,
    INPUT_EVENT_BYTES,
    INPUT_EVENTS,
    INPUT_SOURCES_RECEIVED,
    RUNTIME_ERROR,
    RUNTIME_ERRORS,
    SAMPLES_A_STEP,
    SPLIT_GROUP,
    DataError,
    add,
    function_counts,
)
from tidegate.engine import (
    BatchSubstreams,
    BatchTooLarge,
    DecodedBatch,
    OperatorRows,
    Partial,
    Problem,
    RuntimeErrors,
    Stamped,
    TaskSide,
    byte_sizes,
)
from tidegate.job.runtime.emission import NOWHERE, OPEN_END, AnyCarry, Reached
from tidegate.ordering import (
    ADJUSTED,
    DATA_ERRORS,
    DROPPED,
    END_OF_TIME,
    INVALID_KEY,
    INVALID_TIMESTAMP,
    NO_TIME,
    OK,
    Advances,
    Stamps,
    SubstreamCarry,
    counts,
    running_arrival,
)

BoolArray = npt.NDArray[np.bool_]

PROBLEMS = {problem: (problem.data_error_type, problem.message) for problem in Problem}
_MESSAGES = {
    SPLIT_GROUP: "a key is text, and that of other events is the number which it reads as, such as '1' and 1: they are "
    "two groups; group by TRY_CAST(… AS bigint), or by CAST(… AS nvarchar(max))",
    "InvalidInputTimeStamp": "the TIMESTAMP BY value is missing or not a time",
    "InvalidInputTimeStampKey": "an OVER key is NULL, or cannot be computed",
    "LateInputEvent": "the event's time is further before its arrival than the late arrival tolerance",
    "EarlyInputEvent": "the event's time is further after its arrival than the early arrival window",
    "OutOfOrderEvent": "the event's time is further behind the latest one than the out-of-order tolerance",
}
_FATES = {DROPPED: "; it was dropped", ADJUSTED: "; its time was adjusted", OK: ""}
_EXAMPLE_BYTES = 400


@dataclass(frozen=True, slots=True)
class RangeTask:
    """One range of a partition to read.

    Attributes:
        carry: the carry of its timeline before the range.
        count_from: an earlier run has counted events below this sequence number; they are only read again.
        end: the end of the partition's log at the beginning of the step.
        reached: ticks; the latest arrival of the partition before the range. Set only if partitions are merged.
    """

    input: str
    partition: str
    log_range: LogRange
    carry: AnyCarry
    count_from: int
    end: PartitionEnd = OPEN_END
    reached: int = NO_TIME


@dataclass(frozen=True, slots=True)
class Task:
    """The ranges of one task: each of a different timeline, or all of an input whose partitions are merged.

    Attributes:
        batch_events: how many events are held as columns at a time.
        trace: whether to report the fate of every event.
        before: ticks; of a merged input, only events that arrived before this are read.
        most_samples: how many data errors of a reason are reported in full, and not only counted.
    """

    ranges: list[RangeTask]
    batch_events: int
    trace: bool = False
    before: int = END_OF_TIME
    most_samples: int = SAMPLES_A_STEP


@dataclass(frozen=True, slots=True)
class TraceRows:
    """The fate of n rows of one range, in log order. Times are in ticks; NO_TIME means none.

    Attributes:
        event_times: int64[n], NO_TIME where the time could not be read.
        stamps: the verdict of the scan.
    """

    input: str
    partition: str
    sequence_numbers: Int64Array
    event_times: Int64Array
    arrivals: Int64Array
    stamps: Stamps


@dataclass(slots=True)
class RangeResult:
    """The result of one range.

    Attributes:
        carry: the carry of its timeline after the range.
        stop, reached: if partitions are merged, the sequence number at which the next range begins and the latest
            arrival before it.
        settled: how far the timeline has come after the range.
        rows: how many rows reached the operators.
        most_samples: how many data errors of a reason it holds; all are counted, by kind and by kind and reason.
    """

    input: str
    partition: str
    carry: AnyCarry
    stop: int | None = None
    reached: int = NO_TIME
    settled: Reached = NOWHERE
    partials: list[Partial] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    rows: OperatorRows = field(default_factory=OperatorRows)
    data_errors: list[DataError] = field(default_factory=list)
    data_error_counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    traces: list[TraceRows] = field(default_factory=list)
    most_samples: int = SAMPLES_A_STEP


def batches(task_range: RangeTask, events: Events, engine: TaskSide) -> Iterator[Batch]:
    """Decode events, in parts if all of them would take too much memory at once."""
    waiting = [events]
    while waiting:
        part = waiting.pop()
        try:
            batch = Batch(task_range, part, engine)
        except BatchTooLarge as too_large:
            count = len(part.sequence_numbers)
            fits = min(too_large.fits or count // 2, count - 1)
            waiting += [part.part(fits, count), part.part(0, fits)]
            continue
        yield batch


class Batch:
    """Some events of one partition on their way through a task; n decoded rows."""

    def __init__(self, task_range: RangeTask, events: Events, engine: TaskSide) -> None:
        self.events = events
        self.rows: DecodedBatch = engine.decode(task_range.input, task_range.partition, events)
        self._range = task_range
        self._engine = engine
        self._codes_of_keys = np.empty(0, dtype=np.int64)
        self._generation = 0

    def __len__(self) -> int:
        return len(self.rows)

    def latest_arrivals(self, known: int) -> Int64Array:
        """Return int64[n]: the latest arrival known after each row, ``known`` before the first event.

        Events without a row count. Otherwise, stamps would depend on where batches are cut.
        """
        return running_arrival(self.events.arrivals, known)[self.rows.decoded.events]

    def substream_codes(self, carry: AnyCarry) -> Int64Array:
        """Return int64[n]: the substream of each row by its code on the timeline; −1 for a NULL key."""
        assert isinstance(carry, SubstreamCarry)
        substreams = self.rows.substreams
        assert substreams is not None
        self._codes_of_keys, self._generation = carry.keys.codes(substreams.keys), carry.keys.generation
        return np.append(self._codes_of_keys, np.int64(-1))[substreams.codes]

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
        """Evaluate the stamped rows, count them, and add everything to the range's result.

        Args:
            result: changed in place.
            stamps: the verdict of the scan on each row.
            latest: int64[n], the latest arrival known after each row.
            timeline: the partition; "" if those of an input are merged.
            stop: events from this sequence number on are left to a later range.
            trace: whether to report the fate of every row.
        """
        taken = self.rows.sequence_numbers < stop
        selected = np.flatnonzero((stamps.fate != DROPPED) & taken)
        substreams = self.rows.substreams if self._engine.program.by_substream else None
        codes = None if substreams is None else substreams.codes
        own = None if codes is None else codes[selected]
        partials = self._partials(Stamped(selected, stamps.system_timestamp[selected], own))
        if substreams is not None and len(self):
            advances = Advances.of(stamps, latest, substreams.codes)
            for partial in partials:
                partial.substreams = BatchSubstreams(
                    self.rows.input, timeline, substreams.keys, self._codes_of_keys, self._generation, advances
                )
                # All rows are absorbed before anything is emitted, so the first partial brings the advances of all.
                advances = advances.take(np.empty(0, dtype=np.int64))
        result.partials += partials
        add(result.counts, function_counts(self.rows.calls))
        counted = (self.events.sequence_numbers >= self._range.count_from) & (self.events.sequence_numbers < stop)
        for partial in partials:
            add(result.counts, function_counts(partial.calls))
            result.rows.add(partial.rows)
        errors = [error for partial in partials for error in partial.errors]
        _count(result, counted, self.rows, stamps, errors)
        _count_split(result, counted, self.rows, [rows for partial in partials for rows in partial.split])
        if trace:
            result.traces.append(self._trace(stamps, np.flatnonzero(taken)))

    def _partials(self, rows: Stamped) -> list[Partial]:
        """Evaluate rows, in halves if they would take too much memory at once."""
        try:
            return [self._engine.run(self.rows, rows)]
        except BatchTooLarge:
            events = self.rows.decoded.events[rows.selected]
            middle = int(np.searchsorted(events, events[len(events) // 2]))
            middle = middle or int(np.searchsorted(events, events[0], side="right"))
            return [*self._partials(rows.part(0, middle)), *self._partials(rows.part(middle, len(events)))]

    def _trace(self, stamps: Stamps, rows: Int64Array) -> TraceRows:
        batch = self.rows
        times = batch.arrivals if batch.times is None else np.where(batch.times[1], batch.times[0], NO_TIME)
        return TraceRows(
            batch.input,
            batch.partition,
            batch.sequence_numbers[rows],
            times[rows],
            batch.arrivals[rows],
            stamps if len(rows) == len(self) else selected_stamps(stamps, rows),
        )


def _count(
    result: RangeResult,
    counted_events: BoolArray,
    batch: DecodedBatch,
    stamps: Stamps,
    errors: Sequence[RuntimeErrors],
) -> None:
    """Count the events that no run has counted yet, and keep samples of those that could not be used."""
    if not counted_events.any():
        return
    events, decoded = batch.events, batch.decoded
    result.counts[INPUT_SOURCES_RECEIVED] += int(np.count_nonzero(counted_events & events.source_starts))
    result.counts[INPUT_EVENT_BYTES] += int(byte_sizes(events.bodies)[counted_events].sum())
    counted_rows = counted_events[decoded.events]
    unusable = stamps.reasons & (INVALID_TIMESTAMP | INVALID_KEY) != 0
    result.counts[INPUT_EVENTS] += int(np.count_nonzero(counted_rows & ~unusable))
    result.counts.update(counts(stamps if counted_rows.all() else selected_stamps(stamps, counted_rows)))
    for reason, kind in DATA_ERRORS.items():
        rows = np.flatnonzero((stamps.reasons & reason != 0) & counted_rows)
        if reason in (INVALID_TIMESTAMP, INVALID_KEY):
            result.counts[INPUT_DESERIALIZATION_ERRORS] += len(rows)
        if reason in (INVALID_TIMESTAMP, INVALID_KEY):
            _sample(result, kind, _MESSAGES[kind], batch, decoded.events[rows])
            continue
        for fate, what in _FATES.items():
            of_fate = rows[stamps.fate[rows] == fate]
            _sample(result, kind, _MESSAGES[kind] + what, batch, decoded.events[of_fate])
    rejected = counted_events[decoded.rejected_events]
    result.counts[INPUT_DESERIALIZATION_ERRORS] += int(np.count_nonzero(rejected))
    for problem, (kind, message) in PROBLEMS.items():
        of_kind = decoded.rejected_events[rejected & (decoded.rejected_problems == problem)]
        _sample(result, kind, message, batch, of_kind)
    for error in errors:
        where = decoded.events[error.rows]
        where = where[counted_events[where]]
        result.counts[RUNTIME_ERRORS] += len(where)
        _sample(result, RUNTIME_ERROR, error.message, batch, where, error.reason.message)


def _count_split(
    result: RangeResult, counted_events: BoolArray, batch: DecodedBatch, split: Sequence[Int64Array]
) -> None:
    """Count the events that a group lacks, because their key is text and the others' is a number."""
    if split:
        where = np.unique(batch.decoded.events[np.concatenate(split)])
        _sample(result, SPLIT_GROUP, _MESSAGES[SPLIT_GROUP], batch, where[counted_events[where]])


def selected_stamps(stamps: Stamps, rows: BoolArray | Int64Array) -> Stamps:
    """Return the stamps of some rows."""
    return Stamps(
        stamps.system_timestamp[rows],
        stamps.fate[rows],
        stamps.reasons[rows],
        stamps.watermark_event[rows],
        stamps.watermark[rows],
    )


def _sample(
    result: RangeResult, kind: str, message: str, batch: DecodedBatch, places: Int64Array, reason: str = ""
) -> None:
    """Count data errors of a kind and reason, and keep the first few with their place in the log.

    ``reason`` is the message without what differs from event to event; by default, all of it.
    """
    if not len(places):
        return
    reason = reason or message
    taken = result.most_samples - result.reasons[kind, reason]
    result.data_error_counts[kind] += len(places)
    result.reasons[kind, reason] += len(places)
    for place in places[: max(taken, 0)].tolist():
        result.data_errors.append(
            DataError(
                kind=kind,
                input=result.input,
                partition=result.partition,
                sequence_number=int(batch.events.sequence_numbers[place]),
                arrival=int(batch.events.arrivals[place]),
                message=message,
                reason=reason,
                example=batch.events.bodies[place][:_EXAMPLE_BYTES].decode("utf-8", errors="replace"),
            )
        )
