"""`tidegate job run`: run a job until it is stopped."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click

from tidegate.azure.projects.live import functions_of, load_project
from tidegate.azure.projects.local import run_locally
from tidegate.azure.projects.reading import Project, read_project
from tidegate.cli.job.options import (
    OVERRIDE,
    PROJECT,
    SPARK_CONF,
    SPARK_UI,
    TEXT_OR_JSON,
    json_line,
    overrides_of,
    placements,
    spark_settings,
    time_of,
)
from tidegate.job import Job, JobError, load_job
from tidegate.job.config.overrides import Override
from tidegate.job.config.spark_settings import SparkSettings, WhereRun
from tidegate.job.run.journal import Journal
from tidegate.job.run.prometheus import JobCollector, served
from tidegate.job.run.run_log import RunLog
from tidegate.job.run.status import read_status
from tidegate.job.run.tracing import traced_to
from tidegate.job.runtime.data_error_tally import DataErrorTally
from tidegate.job.runtime.timelines import MOST_EVENTS_PER_STEP
from tidegate.log_format import log_to_standard_error
from tidegate.ordering import END_OF_TIME

_STATE = "local"


def run_local(
    project: Project, output_path: Path | None, spark: SparkSettings, max_events_per_step: int | None
) -> None:
    """Run a project over its local inputs; rows go to standard output, or to a file for each output below a folder.

    Args:
        spark: the settings for Spark; without a master, everything runs in this process.

    Raises:
        JobError: a file cannot be read, or the query reads an input that has none.
        OSError: a file cannot be written.
    """
    for note in project.notes:
        click.echo(f"note: {note}", err=True)
    with placements(spark, f"tidegate {project.name}") as place:
        results = run_locally(
            project,
            list(project.local_inputs.values()),
            functions_of(project),
            place,
            max_events_per_step=max_events_per_step or MOST_EVENTS_PER_STEP,
        )
    for note in results.notes:
        click.echo(f"note: {note}", err=True)
    for name, rows in results.rows.items():
        lines = "".join(json_line(row) + "\n" for row in rows)
        if output_path is None:
            click.echo(lines, nl=False)
        else:
            output_path.mkdir(parents=True, exist_ok=True)
            (output_path / f"{name}.json").write_text(lines, encoding="utf-8")
    for doubt in results.doubts:
        click.echo(f"warning: {project.query_file.name}, {doubt.render(project.sql)}", err=True)
    _report(results.data_errors, project, output_path)
    counted = ", ".join(f"{name} {len(rows)}" for name, rows in results.rows.items())
    click.echo(f"{project.name}: {counted}; a local run, without an event ordering policy", err=True)


def _report(errors: DataErrorTally, project: Project, output_path: Path | None) -> None:
    """Say what could not be used, and write samples of it: beside the rows, or below the job's state folder."""
    for line in errors.report():
        click.echo(line, err=True)
    folder = output_path or project.folder / f"{project.name}.state" / _STATE
    try:
        path = errors.write(folder)
    except (OSError, JobError) as error:
        click.echo(f"note: the samples cannot be written: {error}", err=True)
        return
    if path is not None:
        click.echo(f"samples: {path}", err=True)


_INTERRUPTED = 130


@click.command()
@click.pass_context
@click.argument("path", metavar="[JOB]", required=False, type=click.Path(path_type=Path, dir_okay=False))
@PROJECT
@OVERRIDE
@click.option("--local", is_flag=True, help="With --project: read its local inputs to their end, then stop.")
@click.option(
    "--output-path",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False),
    help="With --local: write a file of JSON lines for each output, instead of to standard output.",
)
@click.option(
    "--master",
    metavar="URL",
    help="Spark master URL the job's tasks run on; default: that of the job file's [spark], or local[2]. "
    "With --local, the default is this process.",
)
@SPARK_CONF
@SPARK_UI
@click.option(
    "--placement",
    type=click.Choice([one.value for one in WhereRun]),
    help="Where the job runs: on Spark, in this process (without Java, for the edge), or on Spark only while it is too "
    "large for this process (auto). Default: what the job file or TIDEGATE_PLACEMENT says, else spark.",
)
@click.option("--until-caught-up", is_flag=True, help="End when everything now in the log has been read and emitted.")
@click.option("--until", metavar="TIME", help="Emit only results before this time, then end.")
@click.option(
    "--start",
    metavar="TIME",
    help="Output start time: 'now' (JobStartTime), 'last' (LastOutputEventTime: where the job stopped, the default), "
    "a time, or 'beginning' (the default of a job that has not run yet).",
)
@click.option(
    "--accept-missing",
    is_flag=True,
    help="Continue although events were removed from the log before the job read them, or another log is in its place. "
    "What is lost is said.",
)
@click.option(
    "--max-events-per-step",
    type=click.IntRange(1),
    help="How much of a backlog one step reads. Default: [spark] max_events_per_step of the job file, or what takes "
    "about two seconds.",
)
@click.option(
    "--metrics-port",
    metavar="PORT",
    type=click.IntRange(0, 65_535),
    help="Serve metrics for Prometheus on this port (0: any free one); without it, none are served.",
)
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="Address the metrics are served on.")
@click.option(
    "--log-format",
    type=TEXT_OR_JSON,
    default="text",
    show_default=True,
    help="Log lines for people, or JSON objects.",
)
@click.option(
    "--progress",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Append a JSON object for each step, in the form of Spark's StreamingQueryProgress; '-' is standard output.",
)
@click.option(
    "--traces",
    metavar="URL",
    help="Send OpenTelemetry traces of the steps to this collector (OTLP over HTTP), such as http://127.0.0.1:4318; "
    "needs the extra tracing.",
)
@click.option("-o", "log_format_before", type=TEXT_OR_JSON, hidden=True, help="The old name of --log-format.")
def run(
    context: click.Context,
    path: Path | None,
    project: Path | None,
    overrides: tuple[str, ...],
    local: bool,
    output_path: Path | None,
    master: str | None,
    spark_conf: dict[str, str],
    spark_ui: bool,
    placement: str | None,
    until_caught_up: bool,
    until: str | None,
    start: str | None,
    accept_missing: bool,
    max_events_per_step: int | None,
    metrics_port: int | None,
    metrics_host: str,
    log_format: str,
    progress: Path | None,
    traces: str | None,
    log_format_before: str | None,
) -> None:
    """Run the job in the file JOB, or that of a Stream Analytics project, until it is stopped.

    Results go to the job's outputs, each once, in time order. The log goes to standard error, with a summary every few
    seconds. Ctrl-C and SIGTERM stop the job; the next run resumes where this one stopped, or skips results before a
    later --start. Exit code 0: it ended by itself or by SIGTERM; 1: it failed; 130: Ctrl-C.

    With --metrics-port, http://127.0.0.1:PORT/metrics has, by input and partition,
    tidegate_job_{input_events, input_event_bytes, early_input_events, late_input_events, out_of_order_events,
    input_deserialization_errors, runtime_errors}_total, tidegate_job_backlogged_input_events,
    tidegate_job_watermark_delay_seconds and tidegate_job_watermark_timestamp_seconds; by output,
    tidegate_job_{output_events, data_conversion_errors}_total; and tidegate_job_steps_total. /status serves what
    'tidegate job blockers -o json' prints.

    \b
    Example:
      tidegate job run tolls.toml --metrics-port 9464
      tidegate job run tolls.toml --until-caught-up -o json
      tidegate job run --project asset-maintenance --local
      tidegate job run --project asset-maintenance --override outputs.alerts=console
    """
    _check_usage(path, project, overrides, output_path, local=local)
    if local and project is not None:
        run_local(read_project(project), output_path, spark_settings(master, spark_ui, spark_conf), max_events_per_step)
        return
    log_to_standard_error(log_format_before or log_format, logging.WARNING)
    logging.getLogger("tidegate").setLevel(logging.INFO)
    loaded = _loaded(path, project, overrides_of(overrides))
    log = RunLog(loaded, shows_events=True)
    collector = JobCollector(loaded.definition.name, loaded.event_hubs())
    with (
        _stop_on_signals() as stopped,
        _metrics(collector, metrics_host, metrics_port, log, loaded),
        _json_lines(progress) as on_progress,
        traced_to(loaded.definition.name, traces) as timed,
    ):
        try:
            from tidegate.spark import run_job_on_spark

            summary = run_job_on_spark(
                loaded,
                spark=loaded.definition.spark.overridden(
                    master=master,
                    ui=spark_ui,
                    conf=spark_conf,
                    placement=None if placement is None else WhereRun(placement),
                ),
                start=_start(start, loaded),
                until=END_OF_TIME if until is None else time_of("--until", until),
                until_caught_up=until_caught_up,
                max_events_per_step=max_events_per_step,
                on_step=log.step,
                observers=[] if metrics_port is None else [collector.see],
                should_stop=stopped.is_set,
                notice=log.notice,
                accept_missing=accept_missing,
                on_spark_ui=log.spark_ui,
                on_place=log.place,
                on_progress=on_progress,
                timed=timed,
            )
        except KeyboardInterrupt:
            # Stopping within a step is safe: uncommitted results are computed again, and are the same.
            log.interrupted()
            if not stopped.is_set():
                context.exit(_INTERRUPTED)
            return
    log.end(summary)


def _check_usage(
    path: Path | None, project: Path | None, overrides: Sequence[str], output_path: Path | None, *, local: bool
) -> None:
    """Refuse options that contradict each other. Raises click.UsageError."""
    if (path is None) == (project is None):
        raise click.UsageError("give either JOB (a job file) or --project")
    if (local and project is None) or (output_path is not None and not local):
        raise click.UsageError("--local is for --project, and --output-path for --local")
    if local and overrides:
        raise click.UsageError("--override is not for --local, which reads local inputs and writes no outputs")


def _loaded(path: Path | None, project: Path | None, overrides: Sequence[Override]) -> Job:
    if path is not None:
        return load_job(path, overrides)
    assert project is not None
    read = read_project(project)
    for note in read.notes:
        click.echo(f"note: {note}", err=True)
    if (mode := read.config.output_start_mode) is not None:
        option = {"jobstarttime": "now", "customtime": read.config.output_start_time}.get(mode, "last")
        click.echo(f"note: the project's OutputStartMode is ignored; give --start {option} instead", err=True)
    return load_project(read, lambda note: click.echo(f"note: {note}", err=True), overrides)


def _start(text: str | None, loaded: Job) -> int | None:
    """Return an output start time in ticks, given by its name here or in the service's outputStartMode."""
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
                    f"'{loaded.definition.name}' has not run yet (there is no journal in {folder}), so there is "
                    "nothing to resume; give --start beginning, now or a time"
                )
            return None
        case "now" | "jobstarttime":
            return time.time_ns() // 100
        case "customtime":
            raise click.BadParameter("give the time itself, such as 2026-01-31T12:00:00Z", param_hint="--start")
        case _:
            return time_of("--start", text or "", also="now, last, beginning or ")


@contextmanager
def _metrics(collector: JobCollector, host: str, port: int | None, log: RunLog, loaded: Job) -> Iterator[None]:
    """Serve metrics and the status while the job runs, if a port was given."""
    if port is None:
        yield
        return
    folder = loaded.definition.state_dir
    assert folder is not None
    with served(collector, host, port, lambda: read_status(folder)) as address:
        log.metrics(address)
        yield


@contextmanager
def _json_lines(path: Path | None) -> Iterator[Callable[[Mapping[str, Any]], None] | None]:
    """Yield what appends a JSON object to a file; None without one."""
    if path is None:
        yield None
        return
    try:
        file = click.open_file(str(path), "a", encoding="utf-8")
    except OSError as error:
        raise JobError(f"cannot write the progress to {path}: {error.strerror}") from error
    with file:

        def append(report: Mapping[str, Any]) -> None:
            file.write(json.dumps(report, ensure_ascii=False) + "\n")
            file.flush()

        yield append


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Let SIGTERM stop the job as Ctrl-C does; the event is set if it was SIGTERM."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGTERM, previous)
