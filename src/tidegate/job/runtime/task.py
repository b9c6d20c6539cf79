"""What one task of a step does: read a range, decode it, stamp it, evaluate it, and give back what is left.

It is a function of its arguments and of the log. It may run in a Spark executor on any machine, more than once and at
the same time as itself, and always comes to the same result.
"""

from __future__ import annotations

from tidegate.engine import Program
from tidegate.job.runtime.batch import PROBLEMS, AnyCarry, Batch, RangeResult, RangeTask, Task, TraceRows
from tidegate.job.runtime.merged import run_merged
from tidegate.ordering import (
    Carry,
    Policy,
    Stamps,
    running_arrival,
    scan,
    scan_arrival,
    scan_substreams,
)


def run_task(task: Task, program: Program, policy: Policy) -> list[RangeResult]:
    """Do the ranges of a task one after the other; those of an input whose partitions are one timeline together.

    Raises:
        InputError: a range cannot be read.
    """
    if policy.merged:
        return run_merged(task, program, policy)
    return [_run_range(task_range, task, program, policy) for task_range in task.ranges]


def _run_range(task_range: RangeTask, task: Task, program: Program, policy: Policy) -> RangeResult:
    result = RangeResult(task_range.input, task_range.partition, task_range.carry)
    for events in task_range.log_range.read(task.batch_events):
        before = result.carry.advance(events.reached)
        batch = Batch(task_range, events, program)
        stamps, result.carry = stamp(batch, before, policy)
        # Bodies that held no row have arrived all the same.
        result.carry = result.carry.advance(int(events.arrivals[-1]))
        latest = running_arrival(batch.arrivals, before.arrival) if len(batch) else batch.arrivals
        batch.finish(result, stamps, latest, timeline=task_range.partition, trace=task.trace)
    return result


def stamp(batch: Batch, carry: AnyCarry, policy: Policy) -> tuple[Stamps, AnyCarry]:
    """The stamps of a batch and the carry after it."""
    if not len(batch):
        return Stamps.empty(0), carry
    if batch.times is None:
        assert isinstance(carry, Carry)
        return scan_arrival(batch.arrivals, carry)
    times, valid = batch.times
    if isinstance(carry, Carry):
        return scan(times, batch.arrivals, carry, policy, valid)
    return scan_substreams(times, batch.arrivals, batch.codes(carry), carry, policy, valid)


__all__ = ["PROBLEMS", "AnyCarry", "RangeResult", "RangeTask", "Task", "TraceRows", "run_task", "stamp"]
