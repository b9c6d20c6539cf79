"""`tidegate connection-string`: the connection string of a running hub, on request."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli.management import NamespaceClient, ServiceConnection, connection_options
from tidegate.hub.access_rules import ROOT_RULE

__all__ = ["connection_string"]


@click.command("connection-string")
@connection_options
@click.option("--rule", default=ROOT_RULE, show_default=True, help="The authorization rule whose key it has.")
@click.option("--eventhub", metavar="HUB", help="The event hub that it names, and that a rule of its own belongs to.")
@click.option(
    "--key",
    type=click.Choice(["primary", "secondary"]),
    default="primary",
    show_default=True,
    help="Which key of the rule.",
)
def connection_string(rule: str, eventhub: str | None, key: str, **connection: Any) -> None:
    """Print the connection string of a running hub, with a key.

    The rule is looked for at the event hub, if one is named, and then at the namespace.

    \b
    Example:
      tidegate connection-string
      tidegate connection-string --eventhub orders --rule gates
    """
    client = NamespaceClient(ServiceConnection(**connection).open)
    level: tuple[str, ...] = ("authorizationRules",)
    if eventhub is not None:
        own = ("eventhubs", eventhub, "authorizationRules")
        if rule.lower() in (one["name"].lower() for one in client.list(*own)):
            level = own
    text: str = client.act(*level, rule, "listKeys")[f"{key}ConnectionString"]
    if eventhub is not None and "EntityPath=" not in text:
        text = f"{text.rstrip(';')};EntityPath={eventhub};"
    click.echo(text)
