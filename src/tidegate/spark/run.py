"""A job's run on Spark: a context, a runner, and `tidegate.job.run_job`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegate.engine import Program
from tidegate.job import Job, RunSummary, StepReport, run_job
from tidegate.job.run.run import Observer
from tidegate.ordering import END_OF_TIME
from tidegate.spark.runner import SparkRunner
from tidegate.spark.session import spark_context


def run_job_on_spark(
    job: Job,
    *,
    master: str = "local[2]",
    start: int | None = None,
    until: int = END_OF_TIME,
    until_caught_up: bool = False,
    max_events_per_step: int = 1_000_000,
    on_step: Callable[[StepReport], None] | None = None,
    observers: Sequence[Observer] = (),
    should_stop: Callable[[], bool] = lambda: False,
    notice: Callable[[str], None] = lambda text: None,
    accept_missing: bool = False,
) -> RunSummary:
    """Run a job with its tasks on a Spark master; see `tidegate.job.run_job` for the arguments.

    Raises:
        JobError: Spark does not start, or the job cannot go on.
    """
    folder = job.definition.state_dir
    assert folder is not None
    folder.mkdir(parents=True, exist_ok=True)
    with spark_context(master, f"tidegate {job.definition.name}", log_file=folder / "spark.log") as context:
        runners = [SparkRunner(context, job.program, job.policy)]

        def runner_for(program: Program) -> SparkRunner:
            runners.append(runners.pop().with_program(program, job.policy))
            return runners[-1]

        return run_job(
            job,
            runners[-1],
            start=start,
            until=until,
            until_caught_up=until_caught_up,
            max_events_per_step=max_events_per_step,
            parallelism=max(1, context.defaultParallelism),
            on_step=on_step,
            observers=observers,
            should_stop=should_stop,
            runner_for=runner_for,
            notice=notice,
            accept_missing=accept_missing,
        )
