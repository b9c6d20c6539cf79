"""`tidegate hub publisher`."""

from __future__ import annotations

import click

from tidegate.cli.management import NamespaceClient
from tidegate.cli.output import output_option, show

_event_hub = click.option("--eventhub", required=True, metavar="HUB", help="The event hub that it publishes to.")


@click.group()
def publisher() -> None:
    """Publishers that are shut out, whatever their tokens say.

    \b
    Example:
      tidegate hub publisher revoke gate-7 --eventhub tolls
    """


@publisher.command("list")
@_event_hub
@output_option
@click.pass_obj
def list_(client: NamespaceClient, eventhub: str, output: str) -> None:
    """The publishers that are revoked.

    \b
    Example:
      tidegate hub publisher list --eventhub tolls
    """
    found = client.list("eventhubs", eventhub, "revokedPublishers")
    show({"value": [{"name": one["name"]} for one in found]}, output)


@publisher.command()
@click.argument("name")
@_event_hub
@click.pass_obj
def revoke(client: NamespaceClient, name: str, eventhub: str) -> None:
    """Take nothing more from a publisher.

    \b
    Example:
      tidegate hub publisher revoke gate-7 --eventhub tolls
    """
    client.put("eventhubs", eventhub, "revokedPublishers", name, properties={})


@publisher.command()
@click.argument("name")
@_event_hub
@click.pass_obj
def restore(client: NamespaceClient, name: str, eventhub: str) -> None:
    """Let a revoked publisher publish again.

    \b
    Example:
      tidegate hub publisher restore gate-7 --eventhub tolls
    """
    client.delete("eventhubs", eventhub, "revokedPublishers", name)
