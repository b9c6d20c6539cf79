"""`tidegate hub namespace`."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli.management import NamespaceClient
from tidegate.cli.output import output_option, show
from tidegate.hub.config import MAX_THROUGHPUT_UNITS, Tier

_NO_LIMIT = -1


@click.group()
def namespace() -> None:
    """The namespace: its tier and throughput units.

    \b
    Example:
      tidegate hub namespace update --throughput-units 2 --auto-inflate-to 10
    """


@namespace.command("show")
@output_option
@click.pass_obj
def show_(client: NamespaceClient, output: str) -> None:
    """The namespace as it is, with the units that auto-inflate has added.

    \b
    Example:
      tidegate hub namespace show
    """
    show(_shown(client.show()), output)


@namespace.command()
@click.option(
    "--tier", type=click.Choice([tier.value for tier in Tier]), help="How large a publication may be; for new links."
)
@click.option(
    "--throughput-units",
    metavar="UNITS",
    type=click.IntRange(1, MAX_THROUGHPUT_UNITS),
    help="Take in 1 MB or 1,000 events and give out 2 MB or 4,096 events a second and unit.",
)
@click.option("--unlimited", is_flag=True, help="Have no throughput units, and so no limit.")
@click.option(
    "--auto-inflate-to",
    metavar="UNITS",
    type=click.IntRange(1, MAX_THROUGHPUT_UNITS),
    help="Add throughput units under load, up to this many.",
)
@click.option("--no-auto-inflate", is_flag=True, help="Stay with the units there are.")
@output_option
@click.pass_obj
def update(
    client: NamespaceClient,
    tier: str | None,
    throughput_units: int | None,
    unlimited: bool,
    auto_inflate_to: int | None,
    no_auto_inflate: bool,
    output: str,
) -> None:
    """Change the namespace's limits; what is not named stays.

    \b
    Example:
      tidegate hub namespace update --throughput-units 2 --auto-inflate-to 10
      tidegate hub namespace update --unlimited
    """
    if unlimited and (throughput_units is not None or auto_inflate_to is not None):
        raise click.UsageError("--unlimited and throughput units contradict each other")
    if no_auto_inflate and auto_inflate_to is not None:
        raise click.UsageError("--no-auto-inflate and --auto-inflate-to contradict each other")
    units = _NO_LIMIT if unlimited else throughput_units
    sku = {name: value for name, value in (("name", tier), ("capacity", units)) if value is not None}
    properties: dict[str, Any] = {}
    if auto_inflate_to is not None:
        properties = {"isAutoInflateEnabled": True, "maximumThroughputUnits": auto_inflate_to}
    if no_auto_inflate:
        properties = {"isAutoInflateEnabled": False}
    if not sku and not properties:
        raise click.UsageError("nothing to change: name a tier, throughput units or auto-inflate")
    show(_shown(client.change_namespace({"sku": sku, "properties": properties})), output)


def _shown(namespace: Any) -> dict[str, Any]:
    sku, properties = namespace["sku"], namespace["properties"]
    return {
        "name": namespace["name"],
        "tier": sku["name"].lower(),
        "maxMessageSizeInBytes": properties["maxMessageSizeInBytes"],
        "throughputUnits": sku.get("capacity"),
        "isAutoInflateEnabled": properties["isAutoInflateEnabled"],
        "maximumThroughputUnits": properties["maximumThroughputUnits"] or None,
    }
