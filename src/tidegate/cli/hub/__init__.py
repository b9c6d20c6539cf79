"""`tidegate hub`: what a running hub holds, shown and changed. One module a noun; the nouns and verbs are Azure's."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.cli.hub.authorization_rule import authorization_rule
from tidegate.cli.hub.consumer_group import consumer_group
from tidegate.cli.hub.event_hub import event_hub
from tidegate.cli.hub.management_client import ManagementClient
from tidegate.cli.hub.namespace import namespace
from tidegate.cli.hub.publisher import publisher


@click.group()
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("data"),
    show_default=True,
    help="The data directory of the hub, when it runs on this machine.",
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
@click.pass_context
def hub(
    context: click.Context, data: Path, url: str | None, connection_string: str | None, ca_file: Path | None
) -> None:
    """Show and change what a running hub holds.

    The namespace's limits, event hubs, consumer groups, authorization rules with their keys, and publishers.

    A hub on this machine is found by its data directory, and its keys are read there. One elsewhere needs --url and a
    connection string.

    \b
    Example:
      tidegate hub eventhub create orders --partition-count 8 --retention-time 168
      tidegate hub --data data eventhub list -o json
      tidegate hub authorization-rule create reader --eventhub orders --rights Listen
    """
    if url is not None:
        if not connection_string:
            raise click.UsageError("--url needs --connection-string (or TIDEGATE_CONNECTION_STRING)")
        context.obj = lambda: ManagementClient.with_connection_string(url, connection_string, ca_file)
    else:
        context.obj = lambda: ManagementClient.of_data_directory(data)


for noun in (namespace, event_hub, consumer_group, authorization_rule, publisher):
    hub.add_command(noun)
