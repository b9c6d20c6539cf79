"""Runs a job on Spark. Everything that can fail without Spark is opened before Spark starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegate.engine import Program
from tidegate.job import Job, RunSummary, StepReport
from tidegate.job.config.spark_settings import SparkSettings
from tidegate.job.run.opening import open_run
from tidegate.job.run.run import Observer, RunHooks, RunSettings, run_steps
from tidegate.ordering import END_OF_TIME
from tidegate.spark.runner import SparkRunner
from tidegate.spark.session import spark_context


def run_job_on_spark(
    job: Job,
    *,
    spark: SparkSettings | None = None,
    master: str | None = None,
    start: int | None = None,
    until: int = END_OF_TIME,
    until_caught_up: bool = False,
    max_events_per_step: int = 1_000_000,
    on_step: Callable[[StepReport], None] | None = None,
    observers: Sequence[Observer] = (),
    should_stop: Callable[[], bool] = lambda: False,
    notice: Callable[[str], None] = lambda text: None,
    accept_missing: bool = False,
    on_spark_ui: Callable[[str], None] = lambda address: None,
) -> RunSummary:
    """Run a job with its tasks on a Spark master; see `tidegate.job.run_job` for the other arguments.

    Args:
        spark: the settings for Spark; None: those of the job file.
        master: Spark master URL; None: that of the settings.
        on_spark_ui: called with the address of Spark's web UI, if the settings ask for it.

    Raises:
        JobError: Spark does not start, or the job cannot start or continue.
    """
    wanted = (spark or job.definition.spark).overridden(master=master, ui=False, conf={})
    with (
        open_run(job, start=start, accept_missing=accept_missing, notice=notice) as opened,
        spark_context(wanted, f"tidegate {job.definition.name}", log_file=opened.folder / "spark.log") as context,
    ):
        if context.uiWebUrl:
            on_spark_ui(context.uiWebUrl)
        runners = [SparkRunner(context, job.program, job.policy)]

        def runner_for(program: Program) -> SparkRunner:
            runners.append(runners.pop().with_program(program, job.policy))
            return runners[-1]

        settings = RunSettings(until, until_caught_up, max_events_per_step, max(1, context.defaultParallelism))
        hooks = RunHooks(on_step or (lambda report: None), observers, should_stop)
        return run_steps(opened, runners[-1], settings, hooks, runner_for)
