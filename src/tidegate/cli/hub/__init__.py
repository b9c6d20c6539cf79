"""`tidegate hub`: what a running hub holds, shown and changed through Azure's management API.

One module a noun; the nouns and verbs are Azure's.
"""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli.hub.authorization_rule import authorization_rule
from tidegate.cli.hub.consumer_group import consumer_group
from tidegate.cli.hub.event_hub import event_hub
from tidegate.cli.hub.namespace import namespace
from tidegate.cli.hub.publisher import publisher
from tidegate.cli.management import NamespaceClient, ServiceConnection, connection_options


@click.group()
@connection_options
@click.pass_context
def hub(context: click.Context, /, **connection: Any) -> None:
    """Show and change what a running hub holds.

    The namespace's limits, event hubs, consumer groups, authorization rules with their keys, and publishers.

    A hub on this machine is found by its data directory, and its key is read there. One elsewhere needs --url and a
    connection string, or a service principal ('tidegate principal create').

    \b
    Example:
      tidegate hub eventhub create orders --partition-count 8 --retention-time 168
      tidegate hub --data data eventhub list -o json
      tidegate hub authorization-rule create reader --eventhub orders --rights Listen
    """
    context.obj = NamespaceClient(ServiceConnection(**connection).open)


for noun in (namespace, event_hub, consumer_group, authorization_rule, publisher):
    hub.add_command(noun)
