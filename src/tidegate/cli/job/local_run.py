"""`tidegate job run --project … --local`: a project over its local inputs, to their end."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.cli.job.options import json_line
from tidegate.cli.job.runners import runners
from tidegate.job import JobError
from tidegate.job.config.spark_settings import SparkSettings
from tidegate.job.project.live import functions_of
from tidegate.job.project.local import run_locally
from tidegate.job.project.reading import Project
from tidegate.job.runtime.data_error_tally import DataErrorTally
from tidegate.job.runtime.timelines import MOST_EVENTS_PER_STEP

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
    with runners(spark, f"tidegate {project.name}") as runner:
        came = run_locally(
            project,
            list(project.local_inputs.values()),
            functions_of(project),
            runner,
            max_events_per_step=max_events_per_step or MOST_EVENTS_PER_STEP,
        )
    for note in came.notes:
        click.echo(f"note: {note}", err=True)
    for name, rows in came.rows.items():
        lines = "".join(json_line(row) + "\n" for row in rows)
        if output_path is None:
            click.echo(lines, nl=False)
        else:
            output_path.mkdir(parents=True, exist_ok=True)
            (output_path / f"{name}.json").write_text(lines, encoding="utf-8")
    for doubt in came.doubts:
        click.echo(f"warning: {project.query_file.name}, {doubt.render(project.sql)}", err=True)
    _report(came.data_errors, project, output_path)
    counted = ", ".join(f"{name} {len(rows)}" for name, rows in came.rows.items())
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
