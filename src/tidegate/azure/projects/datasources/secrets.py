"""The secrets of a project's inputs and outputs: from the environment, as the files of a project hold none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from tidegate.blobs.object_store import allows_plain_http, azure_config
from tidegate.connectors.model.errors import ProjectError

STORAGE_VARIABLES = ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
_HIDDEN = re.compile(r"^\**$")
_HOST_AND_PORT = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")


@dataclass(frozen=True, slots=True)
class Secrets:
    """The variables that may hold secrets."""

    variables: Mapping[str, str]

    def connection_string(self, name: str) -> str | None:
        """Return the connection string of an input or output; None if it is not given."""
        return self.variables.get(variable_of(name)) or None

    def password(self, name: str) -> str | None:
        """Return the password of an input or output; None if it is not given."""
        return self.variables.get(password_variable_of(name)) or None

    def storage(self) -> str | None:
        """Return the connection string of the account of Azure Storage; None if it is not given."""
        return self.variables.get(STORAGE_VARIABLES[0]) or None

    def own_storage(self, account: str | None, key: str | None) -> str | None:
        """Return the connection string of a storage account that is given with its key.

        None if it is not, and where the variables are for it: if they name this account, or an emulator, which stands
        for every account.
        """
        own = given(key)
        if account is None or own is None or self._have_storage(account):
            return None
        return storage_connection_string(account, own)

    def _have_storage(self, account: str) -> bool:
        connection = self.storage()
        if connection is None:
            return account in (self.variables.get(name) for name in STORAGE_VARIABLES[1:])
        try:
            config = azure_config(connection)
        except ValueError:
            return True  # who opens it says what is wrong with it
        return allows_plain_http(config, {}) or config.get("account_name", account) == account

    def has_storage(self) -> bool:
        """Return whether the variables for an account of Azure Storage are set."""
        return any(self.variables.get(name) for name in STORAGE_VARIABLES)


def variable_of(name: str) -> str:
    """Return the name of the environment variable with the connection string of an input or output."""
    return f"{_word(name)}_CONNECTION_STRING"


def password_variable_of(name: str) -> str:
    """Return the name of the environment variable with the password of an input or output."""
    return f"{_word(name)}_PASSWORD"


def _word(name: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")


def given(secret: str | None) -> str | None:
    """Return a secret that a file does hold; None for one that is missing or was replaced by asterisks."""
    return None if secret is None or _HIDDEN.match(secret) else secret


class MissingSecretError(ProjectError):
    """A variable of the environment that an input or output needs is not set."""


def storage_connection_string(account: str, key: str) -> str:
    """Return the connection string of a storage account in Azure. Raises ProjectError."""
    account, key = part_of(account, "the account"), part_of(key, "the account's key")
    return f"DefaultEndpointsProtocol=https;AccountName={account};AccountKey={key};EndpointSuffix=core.windows.net"


def part_of(value: str, what: str) -> str:
    """Return a value that becomes a part of a connection string, and no more than that. Raises ProjectError.

    The value itself is not repeated, as it may be a secret.
    """
    if ";" in value or not value.isprintable():
        raise ProjectError(f"{what} has a character that no connection string can hold: ';' or a control character")
    return value


def host_of(written: str, domain: str) -> str:
    """Return the host that a setting names, with its port if it has one; a name without dots is one in the domain.

    Raises:
        ProjectError: It is not a host, but more of a URL.
    """
    if not _HOST_AND_PORT.fullmatch(written):
        raise ProjectError(f"{written[:80]!r} is not the name or address of a server, such as NAME{domain}")
    return written if "." in written or ":" in written or written == "localhost" else f"{written}{domain}"


def missing(what: str, name: str, described: str, variable: str, example: str) -> MissingSecretError:
    """Return the error that the connection string of an input or output is not given.

    Args:
        what: "input" or "output". name: its name. described: what it is, for people.
        variable: the environment variable for it. example: the form of its value.
    """
    return MissingSecretError(
        f"the {what} {name} is {described}, and a project holds no keys: export {variable}='{example}', "
        f"or give another one: --override {what}s.{name}=…"
    )


def parts_of(connection_string: str) -> dict[str, str]:
    """Return the parts of a connection string that are no secrets, by name in lower case; its host as ``host``."""
    parts = {}
    for part in connection_string.split(";"):
        name, _, value = part.partition("=")
        if name.strip().lower() in ("endpoint", "sharedaccesskeyname", "entitypath"):
            parts[name.strip().lower()] = value.strip()
    return {**parts, "host": re.sub(r"^[a-z]+://|[:/].*$", "", parts.get("endpoint", ""))}


def named_part(connection_string: str, name: str) -> str | None:
    """Return one part of a connection string by its name; None if it has none."""
    for part in connection_string.split(";"):
        found, _, value = part.partition("=")
        if found.strip().lower() == name.lower():
            return value.strip()
    return None


def address_of(url: str) -> dict[str, str | None]:
    """Return the server, database and user that the URL of a database names, as project files write them."""
    parts = urlsplit(url)
    user = None if parts.username is None else unquote(parts.username)
    return {"Server": parts.hostname, "Database": parts.path.strip("/") or None, "User": user}
