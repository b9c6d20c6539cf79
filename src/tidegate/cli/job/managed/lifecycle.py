"""`tidegate job start`, `stop`, `scale` and `delete`."""

from __future__ import annotations

import sys

import click

from tidegate.cli.hub.management_client import ManagementError
from tidegate.cli.job.managed.definition import described
from tidegate.cli.job.managed.service import Jobs, on_service, settled, wait_option
from tidegate.cli.output import output_option, show

_NAME = click.argument("name")


@click.command()
@_NAME
@click.option(
    "--mode",
    type=click.Choice(["now", "custom", "last"]),
    help="Where its output starts: now (JobStartTime), custom (CustomTime, with --time), last (LastOutputEventTime, "
    "where it stopped). Default: last, and the beginning of its inputs if it has not run yet.",
)
@click.option("--time", "start_time", metavar="TIME", help="The output start time, such as 2026-01-31T12:00:00Z.")
@wait_option
@output_option
@on_service
def start(jobs: Jobs, name: str, mode: str | None, start_time: str | None, wait_s: float, output: str) -> None:
    """Start a job of the service.

    \b
    Example:
      tidegate job start tolls
      tidegate job start tolls --mode now
      tidegate job start tolls --mode custom --time 2026-01-31T12:00:00Z
    """
    if (mode == "custom") != (start_time is not None) and not (mode is None and start_time):
        raise click.UsageError("--mode custom and --time go together")
    jobs("POST", name, "start", body={"outputStartMode": mode, "outputStartTime": start_time})
    job = settled(jobs, name, wait_s) if wait_s else jobs("GET", name)
    show(described(job, output), output)
    if job["state"] == "Failed":
        raise ManagementError(f"job '{name}' has failed: {job['reason']}")


@click.command()
@_NAME
@wait_option
@output_option
@on_service
def stop(jobs: Jobs, name: str, wait_s: float, output: str) -> None:
    """Stop a job of the service; it goes on there when it is started again.

    \b
    Example:
      tidegate job stop tolls
    """
    job = jobs("POST", name, "stop")
    show(described(settled(jobs, name, wait_s) if wait_s else job, output), output)


@click.command()
@_NAME
@click.argument("units", metavar="UNITS", type=click.IntRange(1))
@wait_option
@output_option
@on_service
def scale(jobs: Jobs, name: str, units: int, wait_s: float, output: str) -> None:
    """Set how many streaming units a job of the service has: 1 GiB of memory for each.

    A running job is started again; its results are the same.

    \b
    Example:
      tidegate job scale tolls 3
    """
    job = jobs("PATCH", name, body={"streamingUnits": units})
    show(described(settled(jobs, name, wait_s) if wait_s else job, output), output)


@click.command()
@_NAME
@click.option("--yes", is_flag=True, help="Do not ask.")
@on_service
def delete(jobs: Jobs, name: str, yes: bool) -> None:
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
    jobs("DELETE", name)
