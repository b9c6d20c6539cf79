"""`tidegate hub eventhub`."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli.capture_options import capture_settings, own_capture_options
from tidegate.cli.management import NamespaceClient
from tidegate.cli.output import confirm, output_option, show

RETENTION_TIME = click.IntRange(1, 2160)
_FOR_EVER = -1
_LONGEST = (1 << 63) - 1
"""How the API shows a retention without end."""
_FOLDER = "Tidegate.Folder"
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
def list_(client: NamespaceClient, output: str) -> None:
    """All event hubs of the namespace.

    \b
    Example:
      tidegate hub eventhub list -o json
    """
    show({"value": [_shown(hub) for hub in client.list("eventhubs")]}, output)


@event_hub.command("show")
@click.argument("name")
@output_option
@click.pass_obj
def show_(client: NamespaceClient, name: str, output: str) -> None:
    """One event hub.

    \b
    Example:
      tidegate hub eventhub show orders
    """
    show(_shown(client.show("eventhubs", name)), output)


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
def create(client: NamespaceClient, /, name: str, partition_count: int, output: str, **options: Any) -> None:
    """Make an event hub. Without a retention its events are kept for ever.

    \b
    Example:
      tidegate hub eventhub create orders --partition-count 8 --retention-time 168
      tidegate hub eventhub create clicks --capture az://archive --capture-interval 60
    """
    properties = {"partitionCount": partition_count, **_properties(**options)}
    retention = {"retentionTimeInHours": _FOR_EVER, **properties.get("retentionDescription", {})}
    properties["retentionDescription"] = retention
    properties.get("captureDescription", {}).setdefault("enabled", True)
    show(_shown(client.create("eventhubs", name, properties=properties)), output)


@event_hub.command()
@click.argument("name")
@_retention_time
@_retention_size
@click.option("--keep-for-ever", is_flag=True, help="Take away both retentions.")
@own_capture_options
@_user_metadata
@output_option
@click.pass_obj
def update(client: NamespaceClient, /, name: str, keep_for_ever: bool, output: str, **options: Any) -> None:
    """Change an event hub; what is not named stays.

    \b
    Example:
      tidegate hub eventhub update orders --retention-time 24
      tidegate hub eventhub update orders --capture archive --capture-interval 60 --capture-skip-empty
      tidegate hub eventhub update orders --no-capture
    """
    properties = _properties(**options)
    if keep_for_ever:
        if "retentionDescription" in properties:
            raise click.UsageError("--keep-for-ever and a retention contradict each other")
        properties["retentionDescription"] = {
            "retentionTimeInHours": _FOR_EVER,
            "retentionSizeInBytes": _FOR_EVER,
        }
    if not properties:
        raise click.UsageError("nothing to change: name a retention, a setting of capture or --user-metadata")
    if "captureDescription" in properties and "enabled" not in properties["captureDescription"]:
        now = client.show("eventhubs", name)["properties"].get("captureDescription")
        properties["captureDescription"]["enabled"] = now is None or now["enabled"]
    show(_shown(client.update("eventhubs", name, properties=properties)), output)


@event_hub.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(client: NamespaceClient, name: str, yes: bool) -> None:
    """Delete an event hub with all its events.

    \b
    Example:
      tidegate hub eventhub delete orders --yes
    """
    if not yes:
        confirm(f"Delete the event hub {name} with all its events?")
    client.delete("eventhubs", name)


def _properties(
    retention_time: int | None, retention_size: int | None, user_metadata: str | None, **capture: Any
) -> dict[str, Any]:
    """Return what the options mean, as the properties of an event hub."""
    properties: dict[str, Any] = {} if user_metadata is None else {"userMetadata": user_metadata}
    figures = (("retentionTimeInHours", retention_time), ("retentionSizeInBytes", retention_size))
    if retention := {name: value for name, value in figures if value is not None}:
        properties["retentionDescription"] = retention
    settings = capture_settings(**capture)
    if settings is not None:
        place = {
            "folder": settings.pop("destination", None),
            "archiveNameFormat": settings.pop("archiveNameFormat", None),
        }
        if place["folder"] is not None:
            settings = {"enabled": True, **settings}
        if any(place.values()):
            settings["destination"] = {"name": _FOLDER, "properties": place}
        properties["captureDescription"] = settings
    return properties


def _shown(hub: Any) -> dict[str, Any]:
    properties = hub["properties"]
    retention = properties["retentionDescription"]
    hours = retention["retentionTimeInHours"]
    return {
        "name": hub["name"],
        "partitionCount": properties["partitionCount"],
        "partitionIds": properties["partitionIds"],
        "retentionTimeInHours": None if hours == _LONGEST else hours,
        "retentionSizeInBytes": retention.get("retentionSizeInBytes"),
        "userMetadata": properties.get("userMetadata", ""),
        "consumerGroups": properties["consumerGroups"],
        "capture": _shown_capture(properties.get("captureDescription")),
        "createdAt": properties["createdAt"],
    }


def _shown_capture(capture: Any) -> dict[str, Any] | None:
    if capture is None:
        return None
    place = capture["destination"]["properties"]
    is_folder = capture["destination"]["name"] == _FOLDER
    return {
        "enabled": capture["enabled"],
        "destination": place["folder"] if is_folder else f"az://{place['blobContainer']}",
        "intervalInSeconds": capture["intervalInSeconds"],
        "sizeLimitInBytes": capture["sizeLimitInBytes"],
        "skipEmptyArchives": capture["skipEmptyArchives"],
        "archiveNameFormat": place["archiveNameFormat"],
    }
