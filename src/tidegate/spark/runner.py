"""Runs the tasks of a step on Spark.

A step is one stage without a shuffle: each task reads its ranges of the log, stamps and evaluates the events there, and
returns what remains, mostly open panes. The prepared query is broadcast once, so a step ships only ranges and the
changes of carries (`tidegate.job.carries`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark import SparkContext
from pyspark.core.broadcast import Broadcast

from tidegate.engine import Program
from tidegate.job import InputError
from tidegate.job.runtime.carries import SentCarries, run_sent_task
from tidegate.job.runtime.task import RangeResult, Task
from tidegate.ordering import Policy
from tidegate.spark.calls import StepThread, readable


class SparkRunner:
    """A ``tidegate.job.Runner`` for one query and policy on one Spark context."""

    def __init__(self, context: SparkContext, program: Program, policy: Policy) -> None:
        self._context = context
        self._thread = StepThread()
        # Partitions that are one timeline share a carry, which is sent once for all of them.
        self._carries = None if policy.merged else SentCarries(self._publish, self._withdraw)
        self._shared = context.broadcast((program, policy))

    def _publish(self, value: object) -> Broadcast[Any]:
        published: Broadcast[Any] = self._thread.call(lambda: self._context.broadcast(value))
        return published

    def _withdraw(self, published: Broadcast[Any]) -> None:
        self._thread.call(published.destroy)

    def __call__(self, tasks: Sequence[Task]) -> Sequence[Sequence[RangeResult]]:
        """Run the tasks, one Spark task each.

        Raises:
            InputError: a task could not read its range.
            JobError: Spark failed; the message has the task's own reason.
        """
        if not tasks:
            return []
        shared, carries = self._shared, self._carries
        sent = list(tasks) if carries is None else [carries.sent(task) for task in tasks]
        published = {} if carries is None else dict(carries.published)

        def run(task: Task) -> Any:
            program, policy = shared.value
            try:
                return run_sent_task(task, published, program, policy)
            except InputError as error:
                # Returned as a value: an exception would be retried, and arrive as pages of two tracebacks.
                return error

        def collect() -> list[Any]:
            self._context.setJobDescription(f"{len(sent)} tasks of a step")
            return self._context.parallelize(sent, len(sent)).map(run).collect()

        results: list[Any] = readable(lambda: self._thread.call(collect))
        for result in results:
            if isinstance(result, InputError):
                raise result
        if carries is not None:
            for task, of_task in zip(tasks, results, strict=True):
                for task_range, result in zip(task.ranges, of_task, strict=True):
                    carries.received(result, task_range)
        return results
