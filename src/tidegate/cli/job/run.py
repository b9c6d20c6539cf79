"""`tidegate job run`: a job goes on until it is stopped."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click

from tidegate.cli.job.local_run import run_local
from tidegate.cli.job.options import PROJECT, TEXT_OR_JSON, shown_time, time_of
from tidegate.job import Job, JobError, RunSummary, StepReport, load_job
from tidegate.job.analysis.query_plan import plan_of
from tidegate.job.model.metrics import (
    DATA_CONVERSION_ERRORS,
    DATA_ERRORS_FILE,
    INPUT_DESERIALIZATION_ERRORS,
    RUNTIME_ERRORS,
    WATERMARK_DELAY,
)
from tidegate.job.prepare.functions import registered_functions
from tidegate.job.project.live import load_project
from tidegate.job.project.reading import read_project
from tidegate.job.run.journal import Journal
from tidegate.job.run.prometheus import JobCollector, served
from tidegate.job.run.status import read_status
from tidegate.ordering import END_OF_TIME, NO_TIME


@click.command()
@click.argument("path", metavar="[JOB]", required=False, type=click.Path(path_type=Path, dir_okay=False))
@PROJECT
@click.option("--local", is_flag=True, help="With --project: read its local inputs, and end with them.")
@click.option(
    "--output-path",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False),
    help="With --local: write a file of JSON lines for each output, instead of to standard output.",
)
@click.option("--master", default="local[2]", show_default=True, help="Spark master URL the job's tasks run on.")
@click.option("--until-caught-up", is_flag=True, help="End when what is in the log now has been read and let out.")
@click.option("--until", metavar="TIME", help="Let out only results before this time, then end.")
@click.option(
    "--start",
    metavar="TIME",
    help="Output start time: 'now' (JobStartTime), 'last' (LastOutputEventTime: where the job stopped, the default), "
    "a time, or 'beginning' (the default of a job that has not run yet).",
)
@click.option(
    "--accept-missing",
    is_flag=True,
    help="Go on though events that were never read have been removed from the log.",
)
@click.option(
    "--max-events-per-step",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(1),
    help="How much of a backlog one step takes.",
)
@click.option(
    "--metrics-port",
    metavar="PORT",
    type=click.IntRange(0, 65_535),
    help="Serve metrics for Prometheus on this port (0: any free one); without, none are served.",
)
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="Address the metrics are served on.")
@click.option(
    "-o",
    "output",
    type=TEXT_OR_JSON,
    default="text",
    show_default=True,
    help="Progress for people, or one JSON line a step.",
)
def run(
    path: Path | None,
    project: Path | None,
    local: bool,
    output_path: Path | None,
    master: str,
    until_caught_up: bool,
    until: str | None,
    start: str | None,
    accept_missing: bool,
    max_events_per_step: int,
    metrics_port: int | None,
    metrics_host: str,
    output: str,
) -> None:
    """Run the job in the file JOB, or that of a Stream Analytics project, until it is stopped.

    Results go to the job's outputs, each once, in time order. Progress goes to standard error. Ctrl-C stops it; the
    next run goes on where this one stopped, or leaves out what lies before a later --start.

    With --metrics-port, http://127.0.0.1:PORT/metrics has, by input and partition,
    tidegate_job_{input_events, input_event_bytes, early_input_events, late_input_events, out_of_order_events,
    input_deserialization_errors, runtime_errors}_total, tidegate_job_backlogged_input_events,
    tidegate_job_watermark_delay_seconds and tidegate_job_watermark_timestamp_seconds; by output,
    tidegate_job_{output_events, data_conversion_errors}_total; and tidegate_job_steps_total. /status beside it has what
    'tidegate job blockers -o json' prints, for a page.

    \b
    Example:
      tidegate job run tolls.toml --metrics-port 9464
      tidegate job run tolls.toml --until-caught-up -o json
      tidegate job run --project asset-maintenance --local
    """
    if (path is None) == (project is None):
        raise click.UsageError("give either JOB (a job file) or --project, one of the two")
    if (local and project is None) or (output_path is not None and not local):
        raise click.UsageError("--local is for --project, and --output-path for --local")
    if local and project is not None:
        run_local(read_project(project), output_path, master, max_events_per_step)
        return
    loaded = _loaded(path, project)
    show = _Progress(loaded, output)
    collector = JobCollector(loaded.definition.name)
    with _stop_on_signals() as stopped, _metrics(collector, metrics_host, metrics_port, show, loaded):
        try:
            from tidegate.spark import run_job_on_spark

            summary = run_job_on_spark(
                loaded,
                master=master,
                start=_start(start, loaded),
                until=END_OF_TIME if until is None else time_of("--until", until),
                until_caught_up=until_caught_up,
                max_events_per_step=max_events_per_step,
                on_step=show.step,
                observers=[] if metrics_port is None else [collector.see],
                should_stop=stopped.is_set,
                notice=show.notice,
                accept_missing=accept_missing,
            )
        except KeyboardInterrupt:
            # Stopping in the middle of a step is safe: what has not been committed will come out again, the same.
            show.broken_off()
            return
    show.end(summary)


def _loaded(path: Path | None, project: Path | None) -> Job:
    if path is not None:
        return load_job(path)
    assert project is not None
    read = read_project(project)
    for note in read.notes:
        click.echo(f"note: {note}", err=True)
    if (mode := read.config.output_start_mode) is not None:
        option = {"jobstarttime": "now", "customtime": read.config.output_start_time}.get(mode, "last")
        click.echo(f"note: the project's OutputStartMode is not taken over; give --start {option} for it", err=True)
    return load_project(read)


_LOST = (INPUT_DESERIALIZATION_ERRORS, RUNTIME_ERRORS, DATA_CONVERSION_ERRORS)


class _Progress:
    """What a run says while it goes on, on standard error; results are the outputs' affair."""

    def __init__(self, loaded: Job, output: str) -> None:
        self._json = output == "json"
        self._last: StepReport | None = None
        folder = loaded.definition.state_dir
        assert folder is not None
        self._data_errors = folder / DATA_ERRORS_FILE
        if not self._json:
            click.echo(f"{loaded.definition.name}: {loaded.policy.describe()}", err=True)
            for kept in plan_of(loaded.program.query, registered_functions(loaded.definition.functions)).kept():
                click.echo(f"keeps for {kept}", err=True)

    def metrics(self, address: str) -> None:
        """Where the metrics are, before the first step."""
        click.echo(json.dumps({"metrics": address}) if self._json else f"metrics: {address}", err=True)

    def notice(self, text: str) -> None:
        """What the run waits for, and warnings."""
        click.echo(json.dumps({"notice": text}) if self._json else text, err=True)

    def step(self, report: StepReport) -> None:
        """One line a step."""
        self._last = report
        if self._json:
            click.echo(
                json.dumps({"step": report.number, "watermark": shown_time(report.step.watermark), **_numbers(report)}),
                err=True,
            )
            return
        delay = "" if report.watermark_delay_s is None else f", {report.watermark_delay_s:.1f} s behind the clock"
        totals = report.totals
        click.echo(
            f"step {report.number}: {report.step.events:,} events, {_result_count(report):,} results; "
            f"watermark {shown_time(report.step.watermark) or 'none yet'}{delay}; "
            f"early {totals['Early Input Events']}, late {totals['Late Input Events']}, "
            f"out of order {totals['Out-of-Order Events']}",
            err=True,
        )

    def end(self, summary: RunSummary) -> None:
        """The last line."""
        self._end(summary.why, summary.watermark, summary.totals, summary.gauges)

    def broken_off(self) -> None:
        """The last lines of a run that was stopped within a step, or while it waited."""
        if self._last is not None or self._json:
            last = self._last
            self._end("stopped", *((last.step.watermark, last.totals, last.gauges()) if last else (NO_TIME, {}, {})))
        if not self._json:
            click.echo("stopped; the next run goes on from the last committed result", err=True)

    def _end(self, why: str, watermark: int, totals: Mapping[str, int], now: Mapping[str, float | None]) -> None:
        if self._json:
            told = {"ended": why, "watermark": shown_time(watermark), "metrics": {**totals, **now}}
            click.echo(json.dumps(told), err=True)
            return
        shown = {
            name: f"{value:,.1f} s" if name == WATERMARK_DELAY else f"{value:,}" for name, value in now.items() if value
        }
        counted = [f"{name} {count:,}" for name, count in totals.items() if count]
        counted += [f"{name} {value}" for name, value in shown.items()]
        click.echo(f"{why}: {', '.join(counted) or 'nothing read'}", err=True)
        lost = sum(totals.get(name, 0) for name in _LOST)
        if lost:
            click.echo(f"{lost:,} could not be used; samples are in {self._data_errors}", err=True)


def _numbers(report: StepReport) -> dict[str, Any]:
    return {
        "events": report.step.events,
        "results": _result_count(report),
        "backlog": report.step.backlog,
        "watermarkDelayS": report.watermark_delay_s,
        "metrics": {**report.totals, **report.gauges()},
    }


def _result_count(report: StepReport) -> int:
    return sum(len(rows) for rows in report.step.rows)


def _start(text: str | None, loaded: Job) -> int | None:
    """Ticks of an output start time, by our names or those of the service's outputStartMode."""
    folder = loaded.definition.state_dir
    assert folder is not None
    match (text or "").lower():
        case "":
            return None
        case "beginning":
            if Journal(folder).read_commit() is not None:
                raise JobError(
                    f"'{loaded.definition.name}' has run before (its journal is in {folder}): move that folder and "
                    "the outputs away to start from the beginning"
                )
            return None
        case "last" | "lastoutputeventtime":
            if Journal(folder).read_commit() is None:
                raise JobError(
                    f"'{loaded.definition.name}' has not run yet (there is no journal in {folder}) and has nothing to "
                    "go on from; start it with --start beginning, now or a time"
                )
            return None
        case "now" | "jobstarttime":
            return time.time_ns() // 100
        case "customtime":
            raise click.BadParameter("give the time itself, such as 2026-01-31T12:00:00Z", param_hint="--start")
        case _:
            return time_of("--start", text or "", also="now, last, beginning or ")


@contextmanager
def _metrics(collector: JobCollector, host: str, port: int | None, show: _Progress, loaded: Job) -> Iterator[None]:
    """Answer Prometheus, and who asks how things stand, while the job runs, if it is wanted."""
    if port is None:
        yield
        return
    folder = loaded.definition.state_dir
    assert folder is not None
    with served(collector, host, port, lambda: read_status(folder)) as address:
        show.metrics(address)
        yield


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
