"""`tidegate job list`, `show` and `logs`."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from tidegate.cli.job.managed.definition import described
from tidegate.cli.job.managed.service import JobsClient, flat, on_service
from tidegate.cli.output import output_option
from tidegate.cli.output import show as show_resource

_NAME = click.argument("name")
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
