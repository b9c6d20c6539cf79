"""Where the tasks of a command run: in this process, or on Spark if a master is given.

PySpark is imported, and Java started, only in the second case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import click

from tidegate.engine import Program
from tidegate.job import Runner
from tidegate.job.config.spark_settings import SparkSettings
from tidegate.job.runtime.task import local_runner
from tidegate.ordering import Policy


def spark_settings(master: str | None, ui: bool, conf: Mapping[str, str]) -> SparkSettings:
    """Return the settings that a command line has.

    Raises:
        click.UsageError: there are some for Spark, but no master to run on.
    """
    if master is None and (ui or conf):
        raise click.UsageError("--spark-conf and --spark-ui need --master: without it, no Spark is started")
    return SparkSettings().overridden(master=master, ui=ui, conf=conf)


@contextmanager
def runners(spark: SparkSettings | None, name: str) -> Iterator[Callable[[Program, Policy], Runner]]:
    """Yield a function that returns the runner for a query and a policy.

    Args:
        spark: the settings for Spark; None or no master: this process.
        name: the name of the application on Spark.

    Raises:
        JobError: Spark does not start.
    """
    if spark is None or spark.master is None:
        yield local_runner
        return
    from tidegate.spark import SparkRunner, spark_context

    with spark_context(spark, name) as context:
        if context.uiWebUrl:
            click.echo(f"Spark UI: {context.uiWebUrl}", err=True)
        yield lambda program, policy: SparkRunner(context, program, policy)
