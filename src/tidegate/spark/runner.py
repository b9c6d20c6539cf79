"""Runs the tasks of a step on Spark.

A step is one stage without a shuffle: each task reads its ranges of the log, stamps and evaluates the events there, and
returns what remains, mostly open panes. The prepared query is broadcast once, so a step ships only ranges and the
changes of carries (`tidegate.job.carries`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.core.broadcast import Broadcast

from tidegate.engine import Program
from tidegate.job import InputError, JobError
from tidegate.job.runtime.carries import SentCarries, run_sent_task
from tidegate.job.runtime.task import RangeResult, Task
from tidegate.ordering import Policy


class SparkRunner:
    """A ``tidegate.job.Runner`` for one query and policy on one Spark context."""

    def __init__(self, context: SparkContext, program: Program, policy: Policy, thread: _Thread | None = None) -> None:
        self._context = context
        self._thread = thread or _Thread()
        # Partitions that are one timeline share a carry, which is sent once for all of them.
        self._carries = None if policy.merged else SentCarries(self._publish, self._withdraw)
        self._shared = context.broadcast((program, policy))

    def with_program(self, program: Program, policy: Policy) -> SparkRunner:
        """Return a runner for another program, which replaces this one."""
        self._shared.unpersist()
        successor = SparkRunner(self._context, program, policy, self._thread)
        successor._carries = self._carries
        return successor

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

        try:
            results: list[Any] = self._thread.call(
                lambda: self._context.parallelize(sent, len(sent)).map(run).collect()
            )
        except Py4JJavaError as error:
            raise JobError(f"a step failed on Spark: {_last_line(error)}") from error
        for result in results:
            if isinstance(result, InputError):
                raise result
        if carries is not None:
            for task, of_task in zip(tasks, results, strict=True):
                for task_range, result in zip(task.ranges, of_task, strict=True):
                    carries.received(result, task_range)
        return results


class _Thread:
    """Makes calls in a thread of its own.

    A signal then interrupts the wait for a call, not the call: an interrupted py4j prints pages of errors.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        threading.Thread(target=self._work, name="tidegate-steps", daemon=True).start()

    def call(self, function: Callable[[], Any]) -> Any:
        """Return or raise what the function returns or raises."""
        self._calls.put(function)
        result, error = self._results.get()
        if error is not None:
            raise error
        return result

    def _work(self) -> None:
        while True:
            function = self._calls.get()
            try:
                self._results.put((function(), None))
            except BaseException as error:
                self._results.put((None, error))


def _last_line(error: Py4JJavaError) -> str:
    """Extract the task's Python error from Spark's report, which has it between two tracebacks."""
    lines = [line.strip() for line in str(error.java_exception.getMessage()).splitlines()]
    named = [
        line
        for line in lines
        if ": " in line and not line.startswith(("File ", "at ", "Driver stacktrace", "SQLSTATE"))
    ]
    return named[-1] if named else (lines[0] if lines else "no reason given")
