"""`tidegate job create` and `update`: a job file becomes a job of the service, or its new definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tidegate.cli.job.managed.service import Jobs, on_service, settled, wait_option
from tidegate.cli.output import output_option, show

_PATH = click.argument("path", metavar="JOB", type=click.Path(path_type=Path, dir_okay=False))
_NAME = click.option("--name", help="The job's name in the service; default: the file's.")
_UNITS = click.option(
    "--streaming-units",
    metavar="UNITS",
    type=click.IntRange(1),
    help="What the job may use: 1 GiB of memory for each.",
)


@click.command()
@_PATH
@_NAME
@_UNITS
@click.option("--start", "starts", is_flag=True, help="Start it too.")
@wait_option
@output_option
@on_service
def create(
    jobs: Jobs,
    path: Path,
    name: str | None,
    streaming_units: int | None,
    starts: bool,
    wait_s: float,
    output: str,
) -> None:
    """Create a job of the service from the file JOB.

    The service keeps its own copy, with values from the environment filled in here and secrets encrypted; the file may
    change or go. The state folder stays where the file has it, so the job goes on where 'tidegate job run' stopped.

    \b
    Example:
      tidegate job create tolls.toml --start
      tidegate job create tolls.toml --name tolls-2 --streaming-units 3
    """
    definition = read(path)
    name = name or str(definition["name"])
    _check(jobs, name, definition)
    job = jobs("PUT", name, body={"definition": definition, "streamingUnits": streaming_units or 1})
    if starts:
        jobs("POST", name, "start")
        job = settled(jobs, name, wait_s) if wait_s else jobs("GET", name)
    show(described(job, output), output)


@click.command()
@_PATH
@_NAME
@_UNITS
@wait_option
@output_option
@on_service
def update(jobs: Jobs, path: Path, name: str | None, streaming_units: int | None, wait_s: float, output: str) -> None:
    """Give a job of the service the definition in the file JOB.

    A running job stops and goes on from its last output time. If the query, its functions or the event ordering have
    changed, 'tidegate job show' then says which results are the old query's and which the new one's.

    \b
    Example:
      tidegate job update tolls.toml
    """
    definition = read(path)
    name = name or str(definition["name"])
    _check(jobs, name, definition)
    body: dict[str, Any] = {"definition": definition}
    if streaming_units is not None:
        body["streamingUnits"] = streaming_units
    job = jobs("PATCH", name, body=body)
    show(described(settled(jobs, name, wait_s) if wait_s else job, output), output)


def read(path: Path) -> dict[str, Any]:
    """Return the content of a job file as the service takes it: complete, with absolute paths.

    Raises:
        JobError: the file is not a job file.
    """
    from tidegate.job.config.definition import complete_content

    return complete_content(path)


def described(job: dict[str, Any], output: str) -> dict[str, Any]:
    """Return what is shown of a job: everything as JSON; for people, not what the service only keeps."""
    if output == "json":
        return job
    hidden = ("id", "etag", "definition", "versions", "changed")
    shown = {key: value for key, value in job.items() if key not in hidden}
    if placement := job.get("placement"):
        where = "its own process" if placement["where"] == "driver" else f"Spark, {placement['master']}"
        shown["placement"] = f"{where} since {placement['since']}: {placement['why']}"
    if len(job["versions"]) > 1:
        shown["versions"] = [_version(version) for version in job["versions"]]
    return shown


def _version(version: dict[str, Any]) -> str:
    begin, end = version["resultsFrom"] or "the beginning", version["resultsBefore"] or "now on"
    rows = ", ".join(f"{output} after {count:,} rows" for output, count in version["firstRows"].items())
    return f"results from {begin} to {end}{f' ({rows})' if rows else ''}"


def _check(jobs: Jobs, name: str, definition: dict[str, Any]) -> None:
    problems = jobs("POST", name, "check", body={"definition": definition})["problems"]
    if problems:
        raise click.ClickException("\n".join([f"job '{name}' cannot run:", *(f"  {problem}" for problem in problems)]))
