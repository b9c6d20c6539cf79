"""Options and formatting that the commands of a job share: files, times, forms of output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tidegate.engine import Program
from tidegate.job.config.overrides import Override, parse_override
from tidegate.job.config.spark_settings import SparkSettings, parse_property
from tidegate.job.runtime.placement import DriverPlacement, Placement
from tidegate.ordering import Policy, parse_time

TEXT_OR_JSON = click.Choice(["text", "json"])

REPLAY_SOURCE = click.argument("path", metavar="JOB", type=click.Path(path_type=Path, dir_okay=False))
PROJECT = click.option(
    "--project",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="A Stream Analytics project: its folder, its asaproj.json, its *.asaproj, or an ARM template with the job.",
)


def _properties(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    try:
        return dict(map(parse_property, given))
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


SPARK_CONF = click.option(
    "--spark-conf",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_properties,
    help="A Spark configuration property, such as spark.executor.memory=4g; may be given several times.",
)
SPARK_UI = click.option(
    "--spark-ui", is_flag=True, help="Serve Spark's web UI while it runs; the address goes to standard error."
)
OVERRIDE = click.option(
    "--override",
    "overrides",
    metavar="NAME=VALUE",
    multiple=True,
    help="Another input or output for this run: outputs.alerts=console, inputs.rides=rides.csv, a connection string; "
    "or another setting: outputs.alerts.table=alerts. May be repeated.",
)
FROM_TIME = click.option("--from", "from_time", metavar="TIME", help="Only events that arrived at this time or later.")
TO_TIME = click.option("--to", "to_time", metavar="TIME", help="Only events that arrived before this time.")


# Some readers of lines (Python's splitlines among them) take these for line ends, and JSON does not.
_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def json_line(value: Any) -> str:
    """Return a value as JSON on one line, for any reader's notion of a line's end."""
    return json.dumps(value, ensure_ascii=False).translate(_LINE_ENDS)


def overrides_of(texts: Sequence[str]) -> list[Override]:
    """Parse the values of --override; paths in them are relative to the working directory.

    Raises:
        JobError: one is not of the form.
    """
    return [parse_override(text, Path.cwd()) for text in texts]


def time_of(option: str, text: str, also: str = "") -> int:
    """Parse an option's time to ticks, or raise a usage error. ``also``: what else the option accepts."""
    try:
        return parse_time(text)
    except ValueError as error:
        raise click.BadParameter(
            f"expected {also}a time such as 2026-01-31T12:00:00Z, got {text!r}", param_hint=option
        ) from error


def optional_time(option: str, text: str | None) -> int | None:
    """Parse an option's time to ticks; None if it was not given."""
    return None if text is None else time_of(option, text)


def spark_settings(master: str | None, ui: bool, conf: Mapping[str, str]) -> SparkSettings:
    """Return the settings that a command line has.

    Raises:
        click.UsageError: there are some for Spark, but no master to run on.
    """
    if master is None and (ui or conf):
        raise click.UsageError("--spark-conf and --spark-ui need --master: without it, no Spark is started")
    return SparkSettings().overridden(master=master, ui=ui, conf=conf)


@contextmanager
def placements(spark: SparkSettings | None, name: str) -> Iterator[Callable[[Program, Policy], Placement]]:
    """Yield a function that returns where a query runs under a policy.

    Args:
        spark: the settings for Spark; None or no master: this process.
        name: the name of the application on Spark.

    Raises:
        JobError: Spark does not start, or executors do not share the current folder with this process.
    """
    if spark is None or spark.master is None:
        yield DriverPlacement
        return
    from tidegate.spark import placements_on_spark

    with placements_on_spark(spark, name, lambda address: click.echo(f"Spark UI: {address}", err=True)) as place:
        yield place
