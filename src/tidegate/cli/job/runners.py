"""Where the tasks of a command run: in this process, or on Spark if a master is given.

PySpark is imported, and Java started, only in the second case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidegate.engine import Program
from tidegate.job import Runner
from tidegate.job.runtime.task import local_runner
from tidegate.ordering import Policy


@contextmanager
def runners(master: str | None, name: str) -> Iterator[Callable[[Program, Policy], Runner]]:
    """Yield a function that returns the runner for a query and a policy.

    Args:
        master: Spark master URL; None: this process.
        name: the name of the application on Spark.

    Raises:
        JobError: Spark does not start.
    """
    if master is None:
        yield local_runner
        return
    from tidegate.spark import SparkRunner, spark_context

    with spark_context(master, name) as context:
        yield lambda program, policy: SparkRunner(context, program, policy)
