"""`tidegate principal`: who may use the management API. It edits the data directory; no hub need run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tidegate.azure.management import PrincipalRole, Principals
from tidegate.cli.output import output_option, show

_role = click.option(
    "--role",
    type=click.Choice([role.value for role in PrincipalRole]),
    default=PrincipalRole.CONTRIBUTOR.value,
    show_default=True,
    help="A reader sees everything but keys, a contributor may also change it, an owner everything.",
)
_secret = click.option(
    "--secret",
    envvar="TIDEGATE_PRINCIPAL_SECRET",
    help="The secret, of at least 16 characters; better given as TIDEGATE_PRINCIPAL_SECRET. Without it, a new one.",
)


@click.group()
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("data"),
    show_default=True,
    help="The data directory of the hub.",
)
@click.pass_context
def principal(context: click.Context, data: Path) -> None:
    """Service principals: who may use Azure's management API here.

    `az login`, SDKs and Terraform log in with a principal's name and secret. A change takes effect at once.

    \b
    Example:
      tidegate principal create pipeline --role contributor
      tidegate principal --data data list
    """
    context.obj = lambda: Principals(data)


@principal.command()
@click.argument("name")
@_role
@_secret
@output_option
@click.pass_obj
def create(principals: Any, name: str, role: str, secret: str | None, output: str) -> None:
    """Create a principal, and print its secret, which is shown only now.

    \b
    Example:
      tidegate principal create pipeline --role contributor
    """
    issued = principals().create(name, PrincipalRole(role), secret)
    show({"clientId": name, "clientSecret": issued if secret is None else "as given", "role": role}, output)


@principal.command("list")
@output_option
@click.pass_obj
def list_(principals: Any, output: str) -> None:
    """All principals with their roles.

    \b
    Example:
      tidegate principal list
    """
    found = [
        {"clientId": one.name, "role": one.role.value, "createdAt": f"{one.created_at:%Y-%m-%d %H:%M:%S}Z"}
        for one in principals().all()
    ]
    show({"value": found}, output)


@principal.command()
@click.argument("name")
@_secret
@output_option
@click.pass_obj
def reset(principals: Any, name: str, secret: str | None, output: str) -> None:
    """Give a principal a new secret; the former and all tokens end.

    \b
    Example:
      tidegate principal reset pipeline
    """
    issued = principals().reset(name, secret)
    show({"clientId": name, "clientSecret": issued if secret is None else "as given"}, output)


@principal.command()
@click.argument("name")
@_role
@click.pass_obj
def assign(principals: Any, name: str, role: str) -> None:
    """Give a principal another role.

    \b
    Example:
      tidegate principal assign pipeline --role reader
    """
    principals().assign(name, PrincipalRole(role))


@principal.command()
@click.argument("name")
@click.pass_obj
def delete(principals: Any, name: str) -> None:
    """Delete a principal; its tokens are refused from now on.

    \b
    Example:
      tidegate principal delete pipeline
    """
    principals().delete(name)
