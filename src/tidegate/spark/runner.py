"""Runs the tasks of a step on Spark.

A step is one stage without a shuffle: each task reads its ranges of the log, stamps and evaluates them where they
were read, and sends back what is left, mostly open panes. The prepared query is broadcast once, so a step ships only
ranges and carries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from tidegate.engine import Program
from tidegate.job import InputError, JobError
from tidegate.job.task import RangeResult, Task, run_task
from tidegate.ordering import Policy


class SparkRunner:
    """A ``tidegate.job.Runner`` for one query and policy on one Spark context."""

    def __init__(self, context: SparkContext, program: Program, policy: Policy, thread: _Thread | None = None) -> None:
        self._context = context
        self._thread = thread or _Thread()
        self._shared = context.broadcast((program, policy))

    def with_program(self, program: Program, policy: Policy) -> SparkRunner:
        """One for another program, which takes this one's place."""
        self._shared.unpersist()
        return SparkRunner(self._context, program, policy, self._thread)

    def __call__(self, tasks: Sequence[Task]) -> Sequence[Sequence[RangeResult]]:
        """Run the tasks, one Spark task each.

        Raises:
            InputError: a task could not read its range.
            JobError: Spark failed; the message has the task's own reason.
        """
        if not tasks:
            return []
        shared = self._shared

        def run(task: Task) -> Any:
            program, policy = shared.value
            try:
                return run_task(task, program, policy)
            except InputError as error:
                # Comes back as a value: as an exception it would be retried, and arrive as pages of two traces.
                return error

        try:
            results: list[Any] = self._thread.call(
                lambda: self._context.parallelize(list(tasks), len(tasks)).map(run).collect()
            )
        except Py4JJavaError as error:
            raise JobError(f"a step failed on Spark: {_last_line(error)}") from error
        for result in results:
            if isinstance(result, InputError):
                raise result
        return results


class _Thread:
    """Makes calls in a thread of its own.

    A signal then breaks off the waiting for a call and not the call: py4j, broken off, says so in pages.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        threading.Thread(target=self._work, name="tidegate-steps", daemon=True).start()

    def call(self, function: Callable[[], Any]) -> Any:
        """What the function returns or raises."""
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
    """The Python error of the task out of Spark's report, which holds it between two traces."""
    lines = [line.strip() for line in str(error.java_exception.getMessage()).splitlines()]
    named = [
        line
        for line in lines
        if ": " in line and not line.startswith(("File ", "at ", "Driver stacktrace", "SQLSTATE"))
    ]
    return named[-1] if named else (lines[0] if lines else "no reason given")
