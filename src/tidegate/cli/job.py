"""`tidegate job`: run a query over streams, check it, or test it on recorded logs."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click

from tidegate.job import Job, JobError, JobQueryError, RunSummary, StepReport, case_result, load_job, read_case
from tidegate.ordering import END_OF_TIME, NO_TIME, format_time, parse_time
from tidegate.spark import SparkRunner, run_job_on_spark, spark_context

_JSON = click.Choice(["text", "json"])


@click.group()
def job() -> None:
    """Run a query over streams, or test it on recorded ones.

    \b
    Example:
      tidegate job run tolls.toml --until-caught-up
    """


@job.command()
@click.argument("path", metavar="JOB", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--master", default="local[2]", show_default=True, help="Spark master URL the job's tasks run on.")
@click.option("--until-caught-up", is_flag=True, help="End when what is in the log now has been read and let out.")
@click.option("--until", metavar="TIME", help="Let out only results before this time, then end.")
@click.option(
    "--start",
    metavar="TIME",
    help="Output start time of a job that has not run yet: 'beginning' (the default), 'now', or a time.",
)
@click.option(
    "--max-events-per-step",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(1),
    help="How much of a backlog one step takes.",
)
@click.option(
    "-o", "output", type=_JSON, default="text", show_default=True, help="Progress for people, or one JSON line a step."
)
def run(
    path: Path,
    master: str,
    until_caught_up: bool,
    until: str | None,
    start: str | None,
    max_events_per_step: int,
    output: str,
) -> None:
    """Run the job in the file JOB until it is stopped.

    Results go to the job's outputs, each once, in time order. Progress goes to standard error. Ctrl-C stops it; the
    next run goes on where this one stopped.

    \b
    Example:
      tidegate job run tolls.toml
      tidegate job run tolls.toml --until-caught-up -o json
    """
    loaded = load_job(path)
    show = _Progress(loaded, output)
    with _stop_on_signals() as stopped:
        try:
            summary = run_job_on_spark(
                loaded,
                master=master,
                start=_start(start),
                until=END_OF_TIME if until is None else _time("--until", until),
                until_caught_up=until_caught_up,
                max_events_per_step=max_events_per_step,
                on_step=show.step,
                should_stop=stopped.is_set,
            )
        except KeyboardInterrupt:
            # Stopping in the middle of a step is safe: what has not been committed will come out again, the same.
            click.echo("stopped; the next run goes on from the last committed result", err=True)
            return
    show.end(summary)


@job.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--master", default="local[2]", show_default=True, help="Spark master URL the tests run on.")
@click.option(
    "-o", "output", type=_JSON, default="text", show_default=True, help="Text for people, or one JSON line a case."
)
@click.option(
    "--max-events-per-step",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(1),
    help="Cut the log into smaller steps; no row may differ.",
)
def test(paths: tuple[Path, ...], master: str, output: str, max_events_per_step: int) -> None:
    """Run case files: a query, a recorded log and the rows it must give.

    A PATH that is a folder stands for the case files in it. Exit code 0: all passed; 1: at least one differs; 2: not
    a case.

    \b
    Example:
      tidegate job test tests/cases/tp01-seed12-early.json
      tidegate job test cases/ -o json
    """
    try:
        cases = [(path, read_case(path)) for path in _case_files(paths)]
    except JobError as error:
        raise click.UsageError(str(error)) from error
    failed = 0
    with spark_context(master, "tidegate job test") as context:
        for path, case in cases:
            result = case_result(
                case,
                lambda program, policy: SparkRunner(context, program, policy),
                max_events_per_step=max_events_per_step,
                with_trace=True,
            )
            failed += not result.passed
            if output == "json":
                click.echo(json.dumps(result.as_json(), ensure_ascii=False))
            elif result.passed:
                click.echo(f"pass  {case.name} ({len(result.rows)} rows)")
            else:
                click.echo(f"FAIL  {case.name} ({path})")
                for line in result.differences:
                    click.echo(f"      {line}")
    if output == "text":
        click.echo(f"{len(cases) - failed} passed, {failed} failed")
    if failed:
        sys.exit(1)


@job.command()
@click.argument("path", metavar="JOB", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "-o", "output", type=_JSON, default="text", show_default=True, help="Text for people, or JSON for editors."
)
def check(path: Path, output: str) -> None:
    """Check a job file and its query without running it: every problem, with its line and a caret.

    \b
    Example:
      tidegate job check tolls.toml
    """
    if output == "text":
        loaded = load_job(path)
        click.echo(f"{path}: the job '{loaded.definition.name}' is fine; {loaded.policy.describe()}")
        return
    try:
        load_job(path)
    except JobQueryError as error:
        found = [
            {
                "line": item.line,
                "column": item.column,
                "length": item.length,
                "message": item.message,
                "hint": item.hint,
            }
            for item in error.diagnostics
        ]
        click.echo(json.dumps({"job": str(path), "problems": found}))
        sys.exit(1)
    except JobError as error:
        click.echo(json.dumps({"job": str(path), "problems": [{"message": str(error)}]}))
        sys.exit(1)
    click.echo(json.dumps({"job": str(path), "problems": []}))


class _Progress:
    """What a run says while it goes on, on standard error; results are the outputs' affair."""

    def __init__(self, loaded: Job, output: str) -> None:
        self._json = output == "json"
        if not self._json:
            click.echo(f"{loaded.definition.name}: {loaded.policy.describe()}", err=True)

    def step(self, report: StepReport) -> None:
        """One line a step."""
        if self._json:
            click.echo(
                json.dumps({"step": report.number, "watermark": _shown(report.step.watermark), **_numbers(report)}),
                err=True,
            )
            return
        delay = "" if report.watermark_delay_s is None else f", {report.watermark_delay_s:.1f} s behind the clock"
        totals = report.totals
        click.echo(
            f"step {report.number}: {report.step.events:,} events, {_result_count(report):,} results; "
            f"watermark {_shown(report.step.watermark) or 'none yet'}{delay}; early {totals['Early Input Events']}, "
            f"late {totals['Late Input Events']}, out of order {totals['Out-of-Order Events']}",
            err=True,
        )

    def end(self, summary: RunSummary) -> None:
        """The last line."""
        if self._json:
            click.echo(
                json.dumps({"ended": summary.why, "watermark": _shown(summary.watermark), "metrics": summary.totals}),
                err=True,
            )
            return
        counted = ", ".join(f"{name} {count:,}" for name, count in summary.totals.items() if count)
        click.echo(f"{summary.why}: {counted or 'nothing read'}", err=True)


def _numbers(report: StepReport) -> dict[str, Any]:
    return {
        "events": report.step.events,
        "results": _result_count(report),
        "backlog": report.step.backlog,
        "watermarkDelayS": report.watermark_delay_s,
        "metrics": report.totals,
    }


def _result_count(report: StepReport) -> int:
    return sum(len(rows) for rows in report.step.rows)


def _case_files(paths: tuple[Path, ...]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            found = sorted(path.glob("*.json"))
            if not found:
                raise click.UsageError(f"{path} holds no case files (*.json)")
            files.extend(found)
        else:
            files.append(path)
    return files


def _start(text: str | None) -> int | None:
    if text is None or text == "beginning":
        return None
    if text == "now":
        import time

        return time.time_ns() // 100
    return _time("--start", text)


def _time(option: str, text: str) -> int:
    try:
        return parse_time(text)
    except ValueError as error:
        raise click.BadParameter(
            f"expected a time such as 2026-01-31T12:00:00Z, got {text!r}", param_hint=option
        ) from error


def _shown(ticks: int) -> str | None:
    if ticks == END_OF_TIME:
        return "the end of the log"
    return None if ticks == NO_TIME else format_time(ticks)


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """SIGTERM asks for an end as Ctrl-C does: between steps at once, within one by breaking it off."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGTERM, previous)
