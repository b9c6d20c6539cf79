"""`tidegate job create` and `update`: a job file becomes a job of the service, or its new definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tidegate.cli.job.managed.service import JobsClient, on_service, settled, wait_option
from tidegate.cli.output import output_option, show
from tidegate.service import StartMode

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
    jobs: JobsClient,
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
    jobs.create(name, {"jobFile": definition, "streamingUnits": streaming_units or 1})
    if starts:
        jobs.call("POST", name, "start", body={"outputStartMode": StartMode.LAST.value})
    show(described(settled(jobs, name, wait_s), output), output)


@click.command()
@_PATH
@_NAME
@_UNITS
@wait_option
@output_option
@on_service
def update(
    jobs: JobsClient, path: Path, name: str | None, streaming_units: int | None, wait_s: float, output: str
) -> None:
    """Give a job of the service the definition in the file JOB.

    A running job stops and goes on from its last output time. If the query, its functions or the event ordering have
    changed, 'tidegate job show' then says which results are the old query's and which the new one's.

    \b
    Example:
      tidegate job update tolls.toml
    """
    definition = read(path)
    name = name or str(definition["name"])
    jobs.find(name)
    _check(jobs, name, definition)
    properties: dict[str, Any] = {"jobFile": definition}
    if streaming_units is not None:
        properties["streamingUnits"] = streaming_units
    jobs.call("PATCH", name, body={"properties": properties})
    show(described(settled(jobs, name, wait_s), output), output)


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
        spark = "the Spark that jobs share" if placement.get("shared") else "Spark"
        where = "its own process" if placement["where"] == "driver" else f"{spark}, {placement['master']}"
        shown["placement"] = f"{where} since {placement['since']}: {placement['why']}"
    if len(job["versions"]) > 1:
        shown["versions"] = [_version(version) for version in job["versions"]]
    return shown


def _version(version: dict[str, Any]) -> str:
    begin, end = version["resultsFrom"] or "the beginning", version["resultsBefore"] or "now on"
    rows = ", ".join(f"{output} after {count:,} rows" for output, count in version["firstRows"].items())
    return f"results from {begin} to {end}{f' ({rows})' if rows else ''}"


def _check(jobs: JobsClient, name: str, definition: dict[str, Any]) -> None:
    if problems := jobs.check(name, definition):
        raise click.ClickException("\n".join([f"job '{name}' cannot run:", *(f"  {problem}" for problem in problems)]))
