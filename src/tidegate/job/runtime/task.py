"""What one task of a step does: read a range, decode it, stamp it, evaluate it, and return the partial results.

A task is a function of its arguments and of the log. It may run in a Spark executor on any machine, more than once and
concurrently with a copy of itself, and always returns the same result.
"""

from __future__ import annotations

from tidegate.engine import Program, TaskSide
from tidegate.job.runtime.batch import PROBLEMS, Batch, RangeResult, RangeTask, Task, TraceRows, batches
from tidegate.job.runtime.emission import AnyCarry, reached
from tidegate.job.runtime.merged import run_merged
from tidegate.ordering import (
    END_OF_TIME,
    Carry,
    Policy,
    Stamps,
    scan,
    scan_arrival,
    scan_substreams,
)


def run_task(task: Task, program: Program, policy: Policy) -> list[RangeResult]:
    """Process the ranges of a task one after the other, or together if they are one merged timeline.

    Raises:
        InputError: a range cannot be read.
    """
    engine = TaskSide(program)
    if policy.merged:
        results = run_merged(task, engine, policy)
    else:
        results = [_run_range(task_range, task, engine, policy) for task_range in task.ranges]
    for result, task_range in zip(results, task.ranges, strict=True):
        _settle(result, task_range, task, program, policy)
    return results


def _settle(result: RangeResult, task_range: RangeTask, task: Task, program: Program, policy: Policy) -> None:
    """Note how far the timeline of a range has come."""
    if policy.merged and task.before < END_OF_TIME:
        result.carry = result.carry.advance(task.before)
    position = task_range.log_range.end if result.stop is None else result.stop
    result.carry, result.settled = reached(result.carry, position, task_range.end, result.input, program, policy)


def _run_range(task_range: RangeTask, task: Task, engine: TaskSide, policy: Policy) -> RangeResult:
    result = RangeResult(task_range.input, task_range.partition, task_range.carry, most_samples=task.most_samples)
    runs = task_range.log_range.read_events(task.batch_events)
    for batch in (batch for events in runs for batch in batches(task_range, events, engine)):
        events = batch.events
        before = result.carry.advance(events.reached)
        stamps, result.carry = stamp(batch, before, policy)
        latest = batch.latest_arrivals(before.arrival)
        batch.finish(result, stamps, latest, timeline=task_range.partition, trace=task.trace)
    return result


def stamp(batch: Batch, carry: AnyCarry, policy: Policy) -> tuple[Stamps, AnyCarry]:
    """Stamp a batch; return the stamps and the carry after it."""
    stamps, after = _stamp_rows(batch, carry, policy) if len(batch) else (Stamps.empty(0), carry)
    # Events without a row have arrived all the same.
    return stamps, after.advance(int(batch.events.arrivals.max()))


def _stamp_rows(batch: Batch, carry: AnyCarry, policy: Policy) -> tuple[Stamps, AnyCarry]:
    arrivals, latest = batch.rows.arrivals, batch.latest_arrivals(carry.arrival)
    if batch.rows.times is None:
        assert isinstance(carry, Carry)
        return scan_arrival(arrivals, carry, latest)
    times, valid = batch.rows.times
    if isinstance(carry, Carry):
        return scan(times, arrivals, carry, policy, valid, latest)
    return scan_substreams(times, arrivals, batch.substream_codes(carry), carry, policy, valid, latest)


__all__ = ["PROBLEMS", "AnyCarry", "RangeResult", "RangeTask", "Task", "TraceRows", "run_task", "stamp"]
