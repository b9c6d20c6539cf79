"""`tidegate job explain-plan`: how a query is computed, and what state it keeps."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.cli.job.options import PROJECT, TEXT_OR_JSON, json_line
from tidegate.engine import CATALOG
from tidegate.job import JobError, JobQueryError, load_job
from tidegate.job.analysis.query_plan import QueryPlan, plan_of
from tidegate.job.prepare.functions import registered_functions
from tidegate.job.project.live import functions_of
from tidegate.job.project.local import compile_project
from tidegate.job.project.reading import read_project
from tidegate.saql import QueryError, compile_query


@click.command("explain-plan")
@click.argument("path", metavar="[JOB]", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--query",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="A query alone, in place of a job; - reads it from standard input.",
)
@click.option("--reference", metavar="NAME", multiple=True, help="With --query: an input that is reference data.")
@PROJECT
@click.option(
    "-o", "output", type=TEXT_OR_JSON, default="text", show_default=True, help="Text for people, or one JSON object."
)
def explain_plan(
    path: Path | None, query: Path | None, reference: tuple[str, ...], project: Path | None, output: str
) -> None:
    """Show the plan of a query: its steps, what each reads, and what is kept between steps.

    State kept for keys does not grow with the number of events; state kept as rows grows with the events of the
    period shown. "Looks back" is how far back a result may depend on events.

    \b
    Example:
      tidegate job explain-plan tolls.toml
      tidegate job explain-plan --query query.asaql -o json
    """
    if sum(one is not None for one in (path, query, project)) != 1:
        raise click.UsageError("give one of JOB, --query and --project")
    if reference and query is None:
        raise click.UsageError("--reference is for --query; a job or a project declares its own")
    if path is not None:
        job = load_job(path)
        shown = plan_of(job.program.query, registered_functions(job.definition.functions))
        if output == "text":
            click.echo(f"{job.definition.name}: {job.policy.describe()}")
    elif project is not None:
        shown = _of_project(project)
    else:
        assert query is not None
        shown = _of_query(query, reference)
    click.echo(json_line(shown.as_json()) if output == "json" else shown.text())


def _of_query(path: Path, reference: tuple[str, ...]) -> QueryPlan:
    try:
        with click.open_file(str(path), encoding="utf-8-sig") as file:
            sql = file.read()
    except UnicodeDecodeError as error:
        raise JobError(f"cannot read {path}: it is not UTF-8 text") from error
    try:
        return plan_of(compile_query(sql, reference_inputs=reference, catalog=CATALOG))
    except QueryError as error:
        raise JobQueryError(str(path), sql, error) from error


def _of_project(path: Path) -> QueryPlan:
    project = read_project(path)
    functions = functions_of(project)
    local = [one.definition.alias for one in project.local_inputs.values() if one.definition.is_reference]
    live = [one.name for one in project.inputs.values() if one.is_reference]
    return plan_of(compile_project(project, functions, reference_inputs=[*local, *live]), functions)
