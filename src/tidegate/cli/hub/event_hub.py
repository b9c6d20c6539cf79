"""`tidegate hub eventhub`."""

from __future__ import annotations

import sys
from typing import Any

import click

from tidegate.cli.capture_options import capture_settings, own_capture_options
from tidegate.cli.output import output_option, show

RETENTION_TIME = click.FloatRange(1, 2160)
_retention_time = click.option(
    "--retention-time", metavar="HOURS", type=RETENTION_TIME, help="How long events are kept: 1 to 2160 hours."
)
_retention_size = click.option(
    "--retention-size",
    metavar="BYTES",
    type=click.IntRange(1),
    help="How much of each partition is kept; the oldest go first.",
)
_user_metadata = click.option("--user-metadata", metavar="TEXT", help="Words of your own, 1,024 characters at most.")


@click.group("eventhub")
def event_hub() -> None:
    """Event hubs.

    \b
    Example:
      tidegate hub eventhub create orders --partition-count 8 --retention-time 168
      tidegate hub eventhub list
    """


@event_hub.command("list")
@output_option
@click.pass_obj
def list_(client: Any, output: str) -> None:
    """All event hubs of the namespace.

    \b
    Example:
      tidegate hub eventhub list -o json
    """
    show(client().call("GET", "eventhubs"), output)


@event_hub.command("show")
@click.argument("name")
@output_option
@click.pass_obj
def show_(client: Any, name: str, output: str) -> None:
    """One event hub.

    \b
    Example:
      tidegate hub eventhub show orders
    """
    show(client().call("GET", "eventhubs", name), output)


@event_hub.command()
@click.argument("name")
@click.option(
    "--partition-count",
    type=click.IntRange(1, 32),
    default=1,
    show_default=True,
    help="1 to 32; it cannot be changed later.",
)
@_retention_time
@_retention_size
@own_capture_options
@_user_metadata
@output_option
@click.pass_obj
def create(client: Any, /, name: str, partition_count: int, output: str, **options: Any) -> None:
    """Make an event hub. Without a retention its events are kept for ever.

    \b
    Example:
      tidegate hub eventhub create orders --partition-count 8 --retention-time 168
      tidegate hub eventhub create clicks --capture az://archive --capture-interval 60
    """
    body = {"partitionCount": partition_count, **_body(**options)}
    show(client().call("PUT", "eventhubs", name, body=body), output)


@event_hub.command()
@click.argument("name")
@_retention_time
@_retention_size
@click.option("--keep-for-ever", is_flag=True, help="Take away both retentions.")
@own_capture_options
@_user_metadata
@output_option
@click.pass_obj
def update(client: Any, /, name: str, keep_for_ever: bool, output: str, **options: Any) -> None:
    """Change an event hub; what is not named stays.

    \b
    Example:
      tidegate hub eventhub update orders --retention-time 24
      tidegate hub eventhub update orders --capture archive --capture-interval 60 --capture-skip-empty
      tidegate hub eventhub update orders --no-capture
    """
    body = _body(**options)
    if keep_for_ever:
        if "retentionTimeInHours" in body or "retentionSizeInBytes" in body:
            raise click.UsageError("--keep-for-ever and a retention contradict each other")
        body |= {"retentionTimeInHours": None, "retentionSizeInBytes": None}
    if not body:
        raise click.UsageError("nothing to change: name a retention, a setting of capture or --user-metadata")
    show(client().call("PATCH", "eventhubs", name, body=body), output)


@event_hub.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(client: Any, name: str, yes: bool) -> None:
    """Delete an event hub with all its events.

    \b
    Example:
      tidegate hub eventhub delete orders --yes
    """
    if not yes and not _confirmed(f"Delete the event hub {name} with all its events?"):
        raise click.ClickException("nothing was deleted")
    client().call("DELETE", "eventhubs", name)


def _confirmed(question: str) -> bool:
    try:
        return click.confirm(question)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError("nobody is there to be asked: add --yes") from None


def _body(
    retention_time: float | None, retention_size: int | None, user_metadata: str | None, **capture: Any
) -> dict[str, Any]:
    fields = {
        "retentionTimeInHours": retention_time,
        "retentionSizeInBytes": retention_size,
        "userMetadata": user_metadata,
    }
    return {name: value for name, value in fields.items() if value is not None} | capture_settings(**capture)
