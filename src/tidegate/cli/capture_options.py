"""The options of `tidegate up` that say what is captured where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from tidegate.hub.capture.description import DEFAULT_NAME_FORMAT, CaptureDescription

Function = TypeVar("Function", bound=Callable[..., Any])

# The command line's names for the fields of the description.
_OPTIONS = {
    "capture": "destination",
    "capture_interval": "interval_in_seconds",
    "capture_size": "size_limit_in_bytes",
    "capture_names": "archive_name_format",
    "capture_skip_empty": "skip_empty_archives",
}


def capture_options(function: Function) -> Function:
    """Add the options to a command, which passes what it gets for them to `capture_description`."""
    options = (
        click.option(
            "--capture",
            metavar="PLACE",
            help="Write the events of every hub to Avro files there: a folder, or az://CONTAINER, s3://BUCKET, gs://BUCKET.",
        ),
        click.option("--capture-interval", metavar="SECONDS", type=int, help="Close a file after 60 to 900 s (300)."),
        click.option(
            "--capture-size", metavar="BYTES", type=int, help="… or at 10485760 to 524288000 bytes (314572800)."
        ),
        click.option(
            "--capture-names",
            metavar="FORMAT",
            help=f"The files' names, all nine parts in them; without it {DEFAULT_NAME_FORMAT}.",
        ),
        click.option(
            "--capture-skip-empty", is_flag=True, default=None, help="Write no file for a window without events."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def own_capture_options(function: Function) -> Function:
    """The same for one event hub, with what turns it off again; `capture_settings` takes what it gets for them."""
    options = (
        click.option(
            "--capture",
            metavar="PLACE",
            help="Write the events to Avro files there: a folder of the hub's machine, or az://CONTAINER, s3://BUCKET, "
            "gs://BUCKET.",
        ),
        click.option("--capture-interval", metavar="SECONDS", type=int, help="Close a file after 60 to 900 s (300)."),
        click.option(
            "--capture-size", metavar="BYTES", type=int, help="… or at 10485760 to 524288000 bytes (314572800)."
        ),
        click.option("--capture-names", metavar="FORMAT", help="The files' names, all nine parts in them."),
        click.option(
            "--capture-skip-empty/--capture-keep-empty",
            default=None,
            help="Whether a window without events gets no file, or an empty one.",
        ),
        click.option("--no-capture", is_flag=True, help="Turn capture off; its other settings are kept."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def capture_settings(no_capture: bool, **given: Any) -> dict[str, Any] | None:
    """Return the settings that the options name, None without any. Raises click.UsageError."""
    settings = {to_camel(_OPTIONS[name]): value for name, value in given.items() if value is not None}
    if no_capture:
        if settings:
            raise click.UsageError("--no-capture and settings of a capture contradict each other")
        return {"enabled": False}
    return settings or None


def capture_description(**given: Any) -> CaptureDescription | None:
    """What the options mean, None without `--capture`. Raises click.UsageError."""
    named = {name: value for name, value in given.items() if value is not None}
    if not named:
        return None
    if "capture" not in named:
        first = next(iter(named)).replace("_", "-")
        raise click.UsageError(f"--{first} needs --capture: where are the files to go?")
    try:
        return CaptureDescription(**{_OPTIONS[name]: value for name, value in named.items()})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        option = next(name for name, field in _OPTIONS.items() if field == problem["loc"][0])
        said = str(problem["msg"]).removeprefix("Value error, ")
        raise click.UsageError(f"--{option.replace('_', '-')}: {said}") from None
