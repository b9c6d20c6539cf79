"""Where the service is, and what every command on its jobs has in common."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tidegate.cli.hub.management_client import ManagementClient, ManagementError
from tidegate.service import JobState

SETTLED = {state.value for state in JobState} - {JobState.STARTING.value, JobState.STOPPING.value}
_ASK_EVERY_S = 0.2

Jobs = Callable[..., Any]
"""Calls an operation below `/jobs`: method, segments of the path, body, parameters."""


def on_service(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where the service is; the command is called with `jobs`."""

    @click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("data"),
        show_default=True,
        help="The data directory of the service, when it runs on this machine.",
    )
    @click.option("--url", help="Where its HTTP or HTTPS port is, when it runs elsewhere: https://HOST:PORT.")
    @click.option(
        "--connection-string",
        envvar="TIDEGATE_CONNECTION_STRING",
        help="With --url: name and key of a rule that may manage; also as TIDEGATE_CONNECTION_STRING.",
    )
    @click.option(
        "--ca-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="With --url: the CA that its certificate is of.",
    )
    @functools.wraps(command)
    def with_service(
        *arguments: Any,
        data: Path,
        url: str | None,
        connection_string: str | None,
        ca_file: Path | None,
        **options: Any,
    ) -> Any:
        if url is not None and not connection_string:
            raise click.UsageError("--url needs --connection-string (or TIDEGATE_CONNECTION_STRING)")
        if url is not None:
            client = ManagementClient.with_connection_string(url, connection_string or "", ca_file)
        else:
            client = ManagementClient.of_data_directory(data)
        return command(*arguments, jobs=_jobs(client), **options)

    return with_service


def _jobs(client: ManagementClient) -> Jobs:
    def call(method: str, *path: str, body: Any = None, parameters: dict[str, Any] | None = None) -> Any:
        return client.call(method, "jobs", *path, body=body, parameters=parameters)

    return call


def settled(jobs: Jobs, name: str, wait_s: float) -> dict[str, Any]:
    """Return a job when it is neither Starting nor Stopping.

    Raises:
        ManagementError: it still is after `wait_s`.
    """
    deadline = time.monotonic() + wait_s
    while True:
        job: dict[str, Any] = jobs("GET", name)
        if job["state"] in SETTLED:
            return job
        if time.monotonic() > deadline:
            raise ManagementError(
                f"job '{name}' is still {job['state']} after {wait_s:g} s; it goes on, and "
                f"'tidegate job show {name}' shows how it is"
            )
        time.sleep(_ASK_EVERY_S)


wait_option = click.option(
    "--wait",
    "wait_s",
    metavar="SECONDS",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="How long to wait until it is done; 0: return at once.",
)
