"""The jobs of a service in the management API, and what every command on them has in common."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import click

from tidegate.cli.management.client import GROUP, SUBSCRIPTION, Answer, ManagementClient, ManagementError, path_of
from tidegate.cli.management.options import Connection, connection_options
from tidegate.service import JobState

SETTLED = {state.value for state in JobState} - {JobState.STARTING.value, JobState.STOPPING.value}
JOBS = "providers/Microsoft.StreamAnalytics/streamingjobs"
_EXPANDED = {"$expand": "jobFile,queryVersions"}
_ASK_EVERY_S = 0.2
_MISSING, _PRECONDITION_FAILED = 404, 412


class JobsClient:
    """Calls the management API for the jobs of a service, which have unique names in whatever group they are."""

    def __init__(self, client: ManagementClient) -> None:
        self._client = client
        self._places: dict[str, str] = {}

    def all(self) -> list[Any]:
        """Return all jobs as resources. Raises ManagementError."""
        found: list[Any] = self._client.call("GET", f"{SUBSCRIPTION}/{JOBS}").body["value"]
        return found

    def show(self, name: str) -> dict[str, Any]:
        """Return a job, flat and with its job file. Raises ManagementError."""
        return flat(self.call("GET", name, parameters=_EXPANDED).body)

    def create(self, name: str, properties: Mapping[str, Any]) -> None:
        """Create a job. Raises ManagementError, also if it exists."""
        path = f"{GROUP}/{JOBS}/{path_of(name)}"
        try:
            self._client.call("PUT", path, {"properties": dict(properties)}, headers={"If-None-Match": "*"})
        except ManagementError as error:
            if error.status != _PRECONDITION_FAILED:
                raise
            raise ManagementError(
                f"a job '{name}' exists already; update or delete it, or choose another name"
            ) from None

    def delete(self, name: str) -> None:
        """Delete a job. Raises ManagementError, also if there is none."""
        self.find(name)
        self.call("DELETE", name)

    def find(self, name: str) -> None:
        """Find the group that a job is in. Raises ManagementError if there is none."""
        self.call("GET", name)

    def check(self, name: str, definition: Mapping[str, Any]) -> list[str]:
        """Return what is wrong with a job file; the job need not exist. Raises ManagementError."""
        path = f"{self._path(name)}/checkJobFile"
        problems: list[str] = self._client.call("POST", path, {"properties": {"jobFile": dict(definition)}}).body[
            "problems"
        ]
        return problems

    def call(
        self, method: str, name: str, *below: str, body: Any = None, parameters: Mapping[str, Any] | None = None
    ) -> Answer:
        """Return what the API answers to a request on a job or below it. Raises ManagementError."""
        path = self._path(name)
        below_path = "".join(f"/{path_of(segment)}" for segment in below)
        try:
            return self._client.call(method, path + below_path, body, parameters=parameters)
        except ManagementError as error:
            if error.status != _MISSING:
                raise
            missing = error
        place = next((job["id"] for job in self.all() if job["name"].lower() == name.lower()), None)
        if place is None:
            raise _no_job(name)
        if place.lower() == path.lower():
            raise missing
        self._places[name] = place
        return self.call(method, name, *below, body=body, parameters=parameters)

    def _path(self, name: str) -> str:
        return self._places.get(name, f"{GROUP}/{JOBS}/{path_of(name)}")


def flat(resource: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job as the commands show it."""
    properties: Mapping[str, Any] = resource["properties"]
    return {
        "name": resource["name"],
        "id": properties["jobId"],
        "etag": properties["etag"],
        "state": properties["jobState"],
        "reason": properties.get("jobStateReason"),
        "stateSince": properties["jobStateSince"],
        "created": properties["createdDate"],
        "changed": properties["changedDate"],
        "started": properties.get("startedDate"),
        "outputStartMode": properties.get("outputStartMode"),
        "outputStartTime": properties.get("outputStartTime"),
        "lastOutputEventTime": properties.get("lastOutputEventTime"),
        "streamingUnits": properties["streamingUnits"],
        "restarts": properties["restarts"],
        "process": properties.get("process"),
        "placement": properties.get("placement"),
        "definition": properties.get("jobFile"),
        "versions": properties.get("queryVersions", []),
    }


def on_service(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where the service is; the command is called with `jobs`."""

    @connection_options
    @functools.wraps(command)
    def with_service(*arguments: Any, **options: Any) -> Any:
        named = {name: options.pop(name) for name in Connection.__dataclass_fields__}
        return command(*arguments, jobs=JobsClient(Connection(**named).open()), **options)

    return with_service


def settled(jobs: JobsClient, name: str, wait_s: float) -> dict[str, Any]:
    """Return a job when it is neither Starting nor Stopping; on a terminal, tell each state on the way.

    Raises:
        ManagementError: it still is after `wait_s`. Without time to wait, the job is returned in any state.
    """
    deadline = time.monotonic() + wait_s
    told = None
    while True:
        job = jobs.show(name)
        if job["state"] in SETTLED or not wait_s:
            return job
        if time.monotonic() > deadline:
            raise ManagementError(
                f"job '{name}' is still {job['state']} after {wait_s:g} s; it goes on, and "
                f"'tidegate job show {name}' shows how it is"
            )
        if job["state"] != told and sys.stderr.isatty():
            told = job["state"]
            click.echo(f"{name}: {told} …", err=True)
        time.sleep(_ASK_EVERY_S)


def wait_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how long to wait; the command is called with `wait_s`."""

    @click.option(
        "--wait",
        metavar="SECONDS",
        type=click.FloatRange(0),
        default=60.0,
        show_default=True,
        help="How long to wait until it is done.",
    )
    @click.option("--no-wait", is_flag=True, help="Return at once: the operation goes on.")
    @functools.wraps(command)
    def with_wait(*arguments: Any, wait: float, no_wait: bool, **options: Any) -> Any:
        return command(*arguments, wait_s=0.0 if no_wait else wait, **options)

    return with_wait


def _no_job(name: str) -> ManagementError:
    return ManagementError(f"there is no job '{name}'; 'tidegate job list' shows those there are")
