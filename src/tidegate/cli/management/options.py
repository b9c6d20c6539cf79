"""Where the service is and who calls it, as options that `tidegate hub` and the commands on jobs have in common."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from tidegate.cli.management.client import ManagementClient, ManagementError, Place
from tidegate.hub.access_rules import ROOT_RULE
from tidegate.hub.snapshot import FILE_NAME, read_state
from tidegate.server.endpoint import read_endpoint

_PLAIN = re.compile("[!-~]+")
Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("data"),
        show_default=True,
        help="The data directory of `tidegate up`, when it runs on this machine.",
    ),
    click.option("--url", help="Where its HTTPS port is, when it runs elsewhere: https://HOST:PORT."),
    click.option(
        "--connection-string",
        envvar="TIDEGATE_CONNECTION_STRING",
        help=f"With --url: one with the key of {ROOT_RULE}; also as TIDEGATE_CONNECTION_STRING.",
    ),
    click.option(
        "--ca-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="With --url: the CA that its certificate is of.",
    ),
    click.option("--principal", metavar="NAME", help="Log in as this service principal, instead of by the key."),
    click.option(
        "--principal-secret",
        metavar="SECRET",
        envvar="TIDEGATE_PRINCIPAL_SECRET",
        help="With --principal: its secret; better given as TIDEGATE_PRINCIPAL_SECRET.",
    ),
)


def connection_options(command: Function) -> Function:
    """Add the options to a command, which passes what it gets for them to `Connection`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Connection:
    """What the options say."""

    data: Path
    url: str | None = None
    connection_string: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    principal: str | None = None
    principal_secret: str | None = field(default=None, repr=False)

    def open(self) -> ManagementClient:
        """Return a client of the service. Raises click.UsageError, ManagementError, ConfigError, OSError."""
        place = self._here() if self.url is None else Place(self.url, self.ca_file, "is that its HTTP or HTTPS port?")
        if self.principal is not None:
            name, secret = self.principal, self.principal_secret
            if not secret:
                raise click.UsageError("--principal needs its secret: set TIDEGATE_PRINCIPAL_SECRET")
            return ManagementClient(place, lambda client: client.log_in(name, secret))
        if self.url is None:
            key = _key_of_data_directory(self.data)
        elif self.connection_string:
            key = key_of(self.connection_string)
        else:
            raise click.UsageError(
                "--url needs --connection-string (or TIDEGATE_CONNECTION_STRING), or --principal with its secret"
            )
        # a header cannot carry every key that somebody may have chosen
        return ManagementClient(place, lambda client: key if _PLAIN.fullmatch(key) else client.log_in(ROOT_RULE, key))

    def _here(self) -> Place:
        endpoint = read_endpoint(self.data)
        start = f"start it with `tidegate up --data {self.data}`"
        if endpoint is None:
            raise ManagementError(
                f"no hub runs on the data directory {self.data}: {start}, or name another with --data"
            )
        return Place(endpoint.url, self.ca_file or endpoint.authority_file, start, is_here=True)


def key_of(connection_string: str) -> str:
    """Return the key of the root rule, which the API accepts. Raises click.UsageError, which never repeats it."""
    parts = {
        name.strip().lower(): value.strip()
        for name, _, value in (part.partition("=") for part in connection_string.split(";"))
    }
    name, key = parts.get("sharedaccesskeyname"), parts.get("sharedaccesskey")
    if not name or not key:
        raise click.UsageError("the connection string has no SharedAccessKeyName and SharedAccessKey")
    if name.lower() != ROOT_RULE.lower():
        raise click.UsageError(
            f"the connection string is of the rule {name!r}: the management API accepts the key of {ROOT_RULE} only; "
            "use that, or a service principal (--principal)"
        )
    return key


def _key_of_data_directory(data: Path) -> str:
    state = read_state(data)
    rule = next((rule for rule in state.rules if rule.name.lower() == ROOT_RULE.lower()), None) if state else None
    if rule is None:
        raise ManagementError(
            f"{data / FILE_NAME} has no rule {ROOT_RULE}: log in with --principal ('tidegate principal create')"
        )
    return rule.primary_key
