"""`tidegate hub authorization-rule`."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli.management import NamespaceClient
from tidegate.cli.output import output_option, show

_event_hub = click.option("--eventhub", metavar="HUB", help="The event hub it is of; without it, of the namespace.")
_rights = click.option(
    "--rights",
    type=click.Choice(["Send", "Listen", "Manage"], case_sensitive=False),
    multiple=True,
    required=True,
    help="What it allows; more than once for several. Manage includes the others.",
)


def _rules(eventhub: str | None) -> tuple[str, ...]:
    return ("authorizationRules",) if eventhub is None else ("eventhubs", eventhub, "authorizationRules")


def _shown(rule: Any) -> dict[str, Any]:
    return {"name": rule["name"], "rights": rule["properties"]["rights"]}


@click.group("authorization-rule")
def authorization_rule() -> None:
    """Authorization rules (shared access policies) and their keys.

    \b
    Example:
      tidegate hub authorization-rule create gates --eventhub tolls --rights Send
      tidegate hub authorization-rule keys list gates --eventhub tolls
    """


@authorization_rule.command("list")
@_event_hub
@output_option
@click.pass_obj
def list_(client: NamespaceClient, eventhub: str | None, output: str) -> None:
    """All rules of the namespace or of an event hub.

    \b
    Example:
      tidegate hub authorization-rule list
    """
    show({"value": [_shown(rule) for rule in client.list(*_rules(eventhub))]}, output)


@authorization_rule.command("show")
@click.argument("name")
@_event_hub
@output_option
@click.pass_obj
def show_(client: NamespaceClient, name: str, eventhub: str | None, output: str) -> None:
    """One rule, without its keys.

    \b
    Example:
      tidegate hub authorization-rule show gates --eventhub tolls
    """
    show(_shown(client.show(*_rules(eventhub), name)), output)


@authorization_rule.command()
@click.argument("name")
@_event_hub
@_rights
@output_option
@click.pass_obj
def create(client: NamespaceClient, name: str, eventhub: str | None, rights: tuple[str, ...], output: str) -> None:
    """Make a rule with two keys of its own.

    \b
    Example:
      tidegate hub authorization-rule create gates --eventhub tolls --rights Send
    """
    show(_shown(client.create(*_rules(eventhub), name, properties={"rights": list(rights)})), output)


@authorization_rule.command()
@click.argument("name")
@_event_hub
@_rights
@output_option
@click.pass_obj
def update(client: NamespaceClient, name: str, eventhub: str | None, rights: tuple[str, ...], output: str) -> None:
    """Give a rule other rights; its keys stay.

    \b
    Example:
      tidegate hub authorization-rule update gates --eventhub tolls --rights Send --rights Listen
    """
    show(_shown(client.update(*_rules(eventhub), name, properties={"rights": list(rights)})), output)


@authorization_rule.command()
@click.argument("name")
@_event_hub
@click.pass_obj
def delete(client: NamespaceClient, name: str, eventhub: str | None) -> None:
    """Delete a rule; tokens signed with its keys are refused from then on.

    \b
    Example:
      tidegate hub authorization-rule delete gates --eventhub tolls
    """
    client.delete(*_rules(eventhub), name)


@authorization_rule.group()
def keys() -> None:
    """The two keys of a rule.

    \b
    Example:
      tidegate hub authorization-rule keys renew gates --key primary
    """


@keys.command("list")
@click.argument("name")
@_event_hub
@output_option
@click.pass_obj
def list_keys(client: NamespaceClient, name: str, eventhub: str | None, output: str) -> None:
    """The keys of a rule, and connection strings with them.

    \b
    Example:
      tidegate hub authorization-rule keys list gates --eventhub tolls -o json
    """
    show(client.act(*_rules(eventhub), name, "listKeys"), output)


@keys.command()
@click.argument("name")
@_event_hub
@click.option(
    "--key",
    type=click.Choice(["primary", "secondary"]),
    required=True,
    help="Which key to replace; the other stays valid.",
)
@output_option
@click.pass_obj
def renew(client: NamespaceClient, name: str, eventhub: str | None, key: str, output: str) -> None:
    """Make a key anew; tokens signed with the former are refused from then on.

    \b
    Example:
      tidegate hub authorization-rule keys renew gates --eventhub tolls --key secondary
    """
    body = {"keyType": f"{key.capitalize()}Key"}
    show(client.act(*_rules(eventhub), name, "regenerateKeys", body=body), output)
