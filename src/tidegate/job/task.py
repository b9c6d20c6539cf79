"""What one task of a step does: read a range, decode it, stamp it, evaluate it, and give back what is left.

It is a function of its arguments and of the log. It may run in a Spark executor on any machine, more than once and at
the same time as itself, and always comes to the same result.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from tidegate.engine import (
    BatchSubstreams,
    Decoded,
    Partial,
    Problem,
    Program,
    Rows,
    SubstreamCodes,
    byte_sizes,
    decoder_of,
)
from tidegate.job.events import Events, Int64Array, LogRange
from tidegate.job.metrics import (
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
    INVALID_KEY,
    INVALID_TIMESTAMP,
    NO_TIME,
    Advances,
    Carry,
    Policy,
    Stamps,
    SubstreamCarry,
    counts,
    running_arrival,
    scan,
    scan_arrival,
    scan_substreams,
)

AnyCarry = Carry | SubstreamCarry

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
    """

    input: str
    partition: str
    log_range: LogRange
    carry: AnyCarry
    count_from: int


@dataclass(frozen=True, slots=True)
class Task:
    """Ranges for one task, each of another timeline."""

    ranges: list[RangeTask]
    batch_events: int
    trace: bool = False


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
    """What is left of a range."""

    input: str
    partition: str
    carry: AnyCarry
    partials: list[Partial] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    data_errors: list[DataError] = field(default_factory=list)
    data_error_counts: Counter[str] = field(default_factory=Counter)
    traces: list[TraceRows] = field(default_factory=list)


def run_task(task: Task, program: Program, policy: Policy) -> list[RangeResult]:
    """Do the ranges of a task one after the other.

    Raises:
        InputError: a range cannot be read.
    """
    return [_run_range(task_range, task, program, policy) for task_range in task.ranges]


def _run_range(task_range: RangeTask, task: Task, program: Program, policy: Policy) -> RangeResult:
    result = RangeResult(task_range.input, task_range.partition, task_range.carry)
    wanted = program.wanted(task_range.input)
    for events in task_range.log_range.read(task.batch_events):
        result.carry = result.carry.advance(events.reached)
        decoded = decoder_of(wanted, events.format).decode(events.bodies)
        arrivals = events.arrivals[decoded.events]
        before = result.carry
        substreams = program.substream_codes(task_range.input, decoded, task_range.partition, events)
        numbers = _numbers(before, substreams)
        event_times, stamps, result.carry = _stamp(
            task_range, program, policy, events, decoded, arrivals, result.carry, substreams, numbers
        )
        # Bodies that held no row have arrived all the same.
        result.carry = result.carry.advance(int(events.arrivals[-1]))
        selected = np.flatnonzero(stamps.fate != DROPPED)
        partial = program.run_stateless(
            task_range.input,
            Rows(
                decoded,
                selected,
                stamps.system_timestamp[selected],
                task_range.partition,
                events,
                substreams.codes[selected] if program.by_substream and substreams is not None else None,
            ),
        )
        if program.by_substream and substreams is not None and isinstance(before, SubstreamCarry) and len(arrivals):
            advances = Advances.of(stamps, running_arrival(arrivals, before.arrival), substreams.codes)
            partial.substreams = BatchSubstreams(
                task_range.input, task_range.partition, substreams.keys, numbers, before.keys.generation, advances
            )
        result.partials.append(partial)
        _count(result, task_range.count_from, events, decoded, stamps, partial)
        if task.trace:
            numbers = events.sequence_numbers[decoded.events]
            result.traces.append(
                TraceRows(task_range.input, task_range.partition, numbers, event_times, arrivals, stamps)
            )
    return result


def _stamp(
    task_range: RangeTask,
    program: Program,
    policy: Policy,
    events: Events,
    decoded: Decoded,
    arrivals: Int64Array,
    carry: AnyCarry,
    substreams: SubstreamCodes | None,
    known: Int64Array,
) -> tuple[Int64Array, Stamps, AnyCarry]:
    """Event times, stamps and the carry after a batch."""
    times = program.event_times(task_range.input, decoded, task_range.partition, events)
    if not len(arrivals):
        return arrivals, Stamps.empty(0), carry
    if times is None:
        assert isinstance(carry, Carry)
        stamps, after = scan_arrival(arrivals, carry)
        return arrivals, stamps, after
    event_times, valid = times
    shown = np.where(valid, event_times, NO_TIME)
    if isinstance(carry, Carry):
        stamps, after = scan(event_times, arrivals, carry, policy, valid)
        return shown, stamps, after
    assert substreams is not None
    codes = np.where(substreams.codes < 0, np.int64(-1), known[substreams.codes] if len(known) else np.int64(-1))
    stamps, substream_carry = scan_substreams(event_times, arrivals, codes, carry, policy, valid)
    return shown, stamps, substream_carry


def _numbers(carry: AnyCarry, substreams: SubstreamCodes | None) -> Int64Array:
    """The number of each key of a batch on its timeline."""
    if substreams is None or not isinstance(carry, SubstreamCarry):
        return np.empty(0, dtype=np.int64)
    return carry.keys.codes(substreams.keys)


def _count(
    result: RangeResult, count_from: int, events: Events, decoded: Decoded, stamps: Stamps, partial: Partial
) -> None:
    """Count what has not been counted before, and keep samples of what went wrong."""
    counted_events = events.sequence_numbers >= count_from
    if not counted_events.any():
        return
    result.counts[INPUT_EVENTS] += int(np.count_nonzero(counted_events))
    result.counts[INPUT_EVENT_BYTES] += int(byte_sizes(events.bodies)[counted_events].sum())
    counted_rows = counted_events[decoded.events]
    result.counts.update(counts(stamps if counted_rows.all() else _selected(stamps, counted_rows)))
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


def _selected(stamps: Stamps, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Stamps:
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
