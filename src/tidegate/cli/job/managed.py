"""Manage the jobs of a service through its API, without the engine or Spark."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from tidegate.cli.management import (
    GROUP,
    SUBSCRIPTION,
    ManagementClient,
    ManagementError,
    ManagementResponse,
    ServiceConnection,
    connection_options,
    path_of,
)
from tidegate.cli.output import confirm, output_option
from tidegate.cli.output import show as show_resource
from tidegate.service import JobState, StartMode

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
    ) -> ManagementResponse:
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
        named = {name: options.pop(name) for name in ServiceConnection.__dataclass_fields__}
        return command(*arguments, jobs=JobsClient(ServiceConnection(**named).open()), **options)

    return with_service


def settled(jobs: JobsClient, name: str, wait_s: float) -> dict[str, Any]:
    """Return a job when it is neither Starting nor Stopping; on a terminal, tell each state on the way.

    Raises:
        ManagementError: it still is after `wait_s`. Without time to wait, the job is returned in any state.
    """
    deadline = time.monotonic() + wait_s
    shown = None
    while True:
        job = jobs.show(name)
        if job["state"] in SETTLED or not wait_s:
            return job
        if time.monotonic() > deadline:
            raise ManagementError(
                f"job '{name}' is still {job['state']} after {wait_s:g} s; it is still working on it, and "
                f"'tidegate job show {name}' shows how it is"
            )
        if job["state"] != shown and sys.stderr.isatty():
            shown = job["state"]
            click.echo(f"{name}: {shown} …", err=True)
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
    @click.option("--no-wait", is_flag=True, help="Return at once, without waiting for the operation.")
    @functools.wraps(command)
    def with_wait(*arguments: Any, wait: float, no_wait: bool, **options: Any) -> Any:
        return command(*arguments, wait_s=0.0 if no_wait else wait, **options)

    return with_wait


def _no_job(name: str) -> ManagementError:
    return ManagementError(f"there is no job '{name}'; 'tidegate job list' shows those there are")


_PATH = click.argument("path", metavar="JOB", type=click.Path(path_type=Path, dir_okay=False))
_NAME = click.argument("name")
_NAME_OPTION = click.option("--name", help="The job's name in the service; default: the file's.")
_UNITS = click.option(
    "--streaming-units",
    metavar="UNITS",
    type=click.IntRange(1),
    help="What the job may use: 1 GiB of memory for each.",
)


@click.command()
@_PATH
@_NAME_OPTION
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
    change or go. The state folder stays where the file has it, so the job continues where 'tidegate job run' stopped.

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
    show_resource(described(settled(jobs, name, wait_s), output), output)


@click.command()
@_PATH
@_NAME_OPTION
@_UNITS
@wait_option
@output_option
@on_service
def update(
    jobs: JobsClient, path: Path, name: str | None, streaming_units: int | None, wait_s: float, output: str
) -> None:
    """Give a job of the service the definition in the file JOB.

    A running job stops and continues from its last output time. If the query, its functions or the event ordering have
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
    show_resource(described(settled(jobs, name, wait_s), output), output)


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
        own = "a child of its process" if placement.get("child") else "its own process"
        where = own if placement["where"] != "spark" else f"{spark}, {placement['master']}"
        shown["placement"] = f"{where} since {placement['since']}: {placement['why']}"
    if len(job["versions"]) > 1:
        shown["versions"] = [_version(version) for version in job["versions"]]
    return shown


def _version(version: dict[str, Any]) -> str:
    begin, before = version["resultsFrom"] or "the beginning", version["resultsBefore"]
    rows = ", ".join(f"{output} after {count:,} rows" for output, count in version["firstRows"].items())
    return f"results from {begin} {f'to {before}' if before else 'on'}{f' ({rows})' if rows else ''}"


def _check(jobs: JobsClient, name: str, definition: dict[str, Any]) -> None:
    if problems := jobs.check(name, definition):
        raise click.ClickException("\n".join([f"job '{name}' cannot run:", *(f"  {problem}" for problem in problems)]))


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
    show_resource(described(job, output), output)
    if job["state"] == "Failed":
        raise ManagementError(f"job '{name}' has failed: {job['reason']}")


@click.command()
@_NAME
@wait_option
@output_option
@on_service
def stop(jobs: JobsClient, name: str, wait_s: float, output: str) -> None:
    """Stop a job of the service; it continues there when it is started again.

    \b
    Example:
      tidegate job stop tolls
    """
    jobs.call("POST", name, "stop")
    show_resource(described(settled(jobs, name, wait_s), output), output)


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
    show_resource(described(settled(jobs, name, wait_s), output), output)


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
        confirm(f"Delete the job {name} with its state and its log?")
    jobs.delete(name)


_FOLLOW_EVERY_S = 0.5


@click.command("list")
@output_option
@on_service
def list_(jobs: JobsClient, output: str) -> None:
    """All jobs of the service.

    \b
    Example:
      tidegate job list
      tidegate job list -o json
    """
    shown = ("name", "state", "reason", "lastOutputEventTime", "streamingUnits", "restarts")
    found = [{name: value for name, value in flat(job).items() if name in shown} for job in jobs.all()]
    show_resource({"value": found}, output)


@click.command()
@_NAME
@click.option("--metrics", is_flag=True, help="Its metrics instead.")
@output_option
@on_service
def show(jobs: JobsClient, name: str, metrics: bool, output: str) -> None:
    """One job of the service: how it is and why, and which query produced which results.

    \b
    Example:
      tidegate job show tolls
      tidegate job show tolls --metrics
      tidegate job show tolls -o json
    """
    if metrics:
        show_resource(jobs.call("GET", name, "metrics").body["metrics"], output)
        return
    show_resource(described(jobs.show(name), output), output)


@click.command()
@_NAME
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="How many lines.")
@click.option("--follow", is_flag=True, help="Print further lines as they come, until Ctrl-C.")
@click.option("--errors", is_flag=True, help="The events and results that could not be used instead.")
@click.option(
    "-o", "output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Text, or JSON lines."
)
@on_service
def logs(jobs: JobsClient, name: str, limit: int, follow: bool, errors: bool, output: str) -> None:
    """The log of a job of the service.

    \b
    Example:
      tidegate job logs tolls --follow
      tidegate job logs tolls --errors -o json
    """
    if errors:
        for error in jobs.call("GET", name, "dataErrors", parameters={"limit": limit}).body["value"]:
            click.echo(json.dumps(error, ensure_ascii=False) if output == "json" else _error(error))
        return
    page = jobs.call("GET", name, "logs", parameters={"limit": limit}).body
    while True:
        for line in page["value"]:
            click.echo(json.dumps(line, ensure_ascii=False) if output == "json" else _line(line))
        if not follow:
            return
        time.sleep(_FOLLOW_EVERY_S)
        page = jobs.call("GET", name, "logs", parameters={"after": page["next"]}).body


def _line(line: dict[str, Any]) -> str:
    head = " ".join(line[key] for key in ("time", "level") if line.get(key))
    return f"{head} {line['message']}".strip()


def _error(error: dict[str, Any]) -> str:
    examples = "; ".join(json.dumps(example, ensure_ascii=False) for example in error.get("ExampleEvents", [])[:1])
    return f"{error.get('FromTimestamp')} {error.get('EventCount')} × {error.get('Message')}: {examples}"
