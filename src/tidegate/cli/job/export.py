"""`tidegate job export`: a job as an Azure Resource Manager template."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tidegate.cli.job.options import PROJECT
from tidegate.job import read_definition
from tidegate.job.project.reading import read_project
from tidegate.job.project.template_export import ExportedTemplate, export_job, export_project


@click.command()
@click.argument("path", metavar="[JOB]", required=False, type=click.Path(path_type=Path, dir_okay=False))
@PROJECT
@click.option("--arm", is_flag=True, help="Write an Azure Resource Manager template. There is no other form yet.")
@click.option(
    "--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="The file; default: print it."
)
def export(path: Path | None, project: Path | None, arm: bool, output: Path | None) -> None:
    """Write the job in the file JOB, or a Stream Analytics project, for Azure.

    The template has the query, inputs, outputs, functions in JavaScript and the event ordering policy. It holds no
    secret: each is a parameter that a deployment asks for. What the service does not have is left out, with a note on
    standard error.

    \b
    Example:
      tidegate job export tolls.toml --arm --output tolls.json
      tidegate job export --project asset-maintenance --arm
    """
    if (path is None) == (project is None):
        raise click.UsageError("give either JOB (a job file) or --project")
    if not arm:
        raise click.UsageError("give --arm, the form to write")
    exported = _exported(path, project)
    for note in exported.notes:
        click.echo(f"note: {note}", err=True)
    text = json.dumps(exported.content, indent=2, ensure_ascii=False) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")


def _exported(path: Path | None, project: Path | None) -> ExportedTemplate:
    if path is not None:
        return export_job(read_definition(path))
    assert project is not None
    return export_project(read_project(project))
