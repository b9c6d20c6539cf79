"""`tidegate hub consumer-group`."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli.management import NamespaceClient
from tidegate.cli.output import output_option, show

_event_hub = click.option("--eventhub", required=True, metavar="HUB", help="The event hub it is of.")
_user_metadata = click.option("--user-metadata", metavar="TEXT", default="", help="Words of your own.")


def _shown(group: Any) -> dict[str, Any]:
    return {"name": group["name"], "userMetadata": group["properties"].get("userMetadata", "")}


@click.group("consumer-group")
def consumer_group() -> None:
    """Consumer groups of an event hub.

    \b
    Example:
      tidegate hub consumer-group create billing --eventhub orders
    """


@consumer_group.command("list")
@_event_hub
@output_option
@click.pass_obj
def list_(client: NamespaceClient, eventhub: str, output: str) -> None:
    """All consumer groups of an event hub.

    \b
    Example:
      tidegate hub consumer-group list --eventhub orders
    """
    show({"value": [_shown(group) for group in client.list("eventhubs", eventhub, "consumergroups")]}, output)


@consumer_group.command("show")
@click.argument("name")
@_event_hub
@output_option
@click.pass_obj
def show_(client: NamespaceClient, name: str, eventhub: str, output: str) -> None:
    """One consumer group.

    \b
    Example:
      tidegate hub consumer-group show billing --eventhub orders
    """
    show(_shown(client.show("eventhubs", eventhub, "consumergroups", name)), output)


@consumer_group.command()
@click.argument("name")
@_event_hub
@_user_metadata
@output_option
@click.pass_obj
def create(client: NamespaceClient, name: str, eventhub: str, user_metadata: str, output: str) -> None:
    """Make a consumer group.

    \b
    Example:
      tidegate hub consumer-group create billing --eventhub orders
    """
    properties = {"userMetadata": user_metadata}
    show(_shown(client.create("eventhubs", eventhub, "consumergroups", name, properties=properties)), output)


@consumer_group.command()
@click.argument("name")
@_event_hub
@_user_metadata
@output_option
@click.pass_obj
def update(client: NamespaceClient, name: str, eventhub: str, user_metadata: str, output: str) -> None:
    """Change a consumer group's metadata.

    \b
    Example:
      tidegate hub consumer-group update billing --eventhub orders --user-metadata "the invoices"
    """
    properties = {"userMetadata": user_metadata}
    show(_shown(client.update("eventhubs", eventhub, "consumergroups", name, properties=properties)), output)


@consumer_group.command()
@click.argument("name")
@_event_hub
@click.pass_obj
def delete(client: NamespaceClient, name: str, eventhub: str) -> None:
    """Delete a consumer group and disconnect its readers.

    \b
    Example:
      tidegate hub consumer-group delete billing --eventhub orders
    """
    client.delete("eventhubs", eventhub, "consumergroups", name)
