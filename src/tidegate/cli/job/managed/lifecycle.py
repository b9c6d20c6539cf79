"""`tidegate job start`, `stop`, `scale` and `delete`."""

from __future__ import annotations

import sys

import click

from tidegate.cli.job.managed.definition import described
from tidegate.cli.job.managed.service import JobsClient, on_service, settled, wait_option
from tidegate.cli.management.client import ManagementError
from tidegate.cli.output import output_option, show
from tidegate.service import StartMode

_NAME = click.argument("name")
_MODES = {"now": StartMode.NOW, "custom": StartMode.CUSTOM, "last": StartMode.LAST}


@click.command()
@_NAME
@click.option(
    "--mode",
    type=click.Choice(list(_MODES)),
    help="Where its output starts: now (JobStartTime), custom (CustomTime, with --time), last (LastOutputEventTime, "
    "where it stopped). Default: last, and the beginning of its inputs if it has not run yet.",
)
@click.option("--time", "start_time", metavar="TIME", help="The output start time, such as 2026-01-31T12:00:00Z.")
@wait_option
@output_option
@on_service
def start(jobs: JobsClient, name: str, mode: str | None, start_time: str | None, wait_s: float, output: str) -> None:
    """Start a job of the service.

    \b
    Example:
      tidegate job start tolls
      tidegate job start tolls --mode now
      tidegate job start tolls --mode custom --time 2026-01-31T12:00:00Z
    """
    if (mode == "custom") != (start_time is not None) and not (mode is None and start_time):
        raise click.UsageError("--mode custom and --time go together")
    body = {"outputStartMode": _MODES["custom" if start_time else mode or "last"].value}
    jobs.call("POST", name, "start", body=body | ({"outputStartTime": start_time} if start_time else {}))
    job = settled(jobs, name, wait_s)
    show(described(job, output), output)
    if job["state"] == "Failed":
        raise ManagementError(f"job '{name}' has failed: {job['reason']}")


@click.command()
@_NAME
@wait_option
@output_option
@on_service
def stop(jobs: JobsClient, name: str, wait_s: float, output: str) -> None:
    """Stop a job of the service; it goes on there when it is started again.

    \b
    Example:
      tidegate job stop tolls
    """
    jobs.call("POST", name, "stop")
    show(described(settled(jobs, name, wait_s), output), output)


@click.command()
@_NAME
@click.argument("units", metavar="UNITS", type=click.IntRange(1))
@wait_option
@output_option
@on_service
def scale(jobs: JobsClient, name: str, units: int, wait_s: float, output: str) -> None:
    """Set how many streaming units a job of the service has: 1 GiB of memory for each.

    A running job is started again; its results are the same.

    \b
    Example:
      tidegate job scale tolls 3
    """
    jobs.call("POST", name, "scale", body={"streamingUnits": units})
    show(described(settled(jobs, name, wait_s), output), output)


@click.command()
@_NAME
@click.option("--yes", is_flag=True, help="Do not ask.")
@on_service
def delete(jobs: JobsClient, name: str, yes: bool) -> None:
    """Delete a job of the service with its state and its log; what it wrote to its outputs stays.

    \b
    Example:
      tidegate job delete tolls --yes
    """
    if not yes:
        try:
            click.confirm(f"Delete the job {name} with its state and its log?", abort=True)
        except click.Abort:
            if sys.stdin.isatty():
                raise
            raise click.UsageError("nobody is there to be asked: add --yes") from None
    jobs.delete(name)
