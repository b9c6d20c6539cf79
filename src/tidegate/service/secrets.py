"""Secrets of a job: encrypted at rest, and never given out.

Every setting of a job file declares whether it is secret (`tidegate.connectors.model.section`). The hub's process does
not load the engine, so it reads the declarations from ``secret_settings.json``, which ``make reference`` writes. A
setting that is not declared there, such as one of a third-party output, counts as secret. Parts of the
management API have Azure's names for their properties, and Azure's names of secrets.

On disk a secret is replaced by ``{"encrypted": "…"}``, a Fernet token under the service's key, and in what readers get
by None. The key is a file beside the jobs that only its owner can read, or the one that the settings name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.fernet import Fernet, InvalidToken

from tidegate.durable_files import replace_file
from tidegate.service.errors import SecretsUnreadable

_AZURE_SECRET = re.compile(
    r"connection_?string|password|secret|credential|passphrase|pwd|token$|sas_?(url|uri)?$"
    r"|(account|access|policy|api|master|shared|storage|function|subscription|service|signing|encryption)_?keys?$",
    re.IGNORECASE,
)
_WHERE = re.compile(
    r"namespace|account|server|host|endpoint|url|uri|authority|tenant|user|policyname|broker|path|port$", re.IGNORECASE
)
_PARTS = ("inputs", "outputs", "functions")
"""The members of a definition that hold named sections."""
_ENCRYPTED = "encrypted"
_PUBLIC, _URL = "public", "url"

Change = Callable[[str], Any]
"""What becomes of a secret."""


@cache
def _declared() -> Mapping[str, Mapping[str, Any]]:
    """Return the declaration of each setting, by the type of its section: public, secret, url, or public options."""
    found: dict[str, dict[str, Any]] = json.loads(files(__package__).joinpath("secret_settings.json").read_bytes())
    return found


def _declaration(section: Mapping[str, Any], name: str) -> Any:
    return _declared().get(str(section.get("type", "code")), {"type": _PUBLIC}).get(name, "secret")


def is_secret_of(section: Mapping[str, Any], name: str) -> bool:
    """Return whether a member of an input, output or function is a secret, or a dictionary of secrets."""
    declared = _declaration(section, name)
    return _has_credentials(section.get(name)) if declared == _URL else declared != _PUBLIC


def _has_credentials(url: Any) -> bool:
    """Return whether a URL has a part in which people put credentials: a user, a query, a fragment."""
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return True
    return bool("@" in parts.netloc or parts.query or parts.fragment)


def is_secret(name: str) -> bool:
    """Return whether a property of Azure's management API is a secret."""
    return bool(_AZURE_SECRET.search(name))


def says_where(name: str) -> bool:
    """Return whether a member of this name says to whom a secret is shown."""
    return bool(_WHERE.search(name)) and not is_secret(name)


class Sealer:
    """Encrypts and decrypts the secrets of documents."""

    def __init__(self, key: bytes) -> None:
        self._fernet = Fernet(key)

    @classmethod
    def of_file(cls, path: Path) -> Sealer:
        """Return the sealer of a key file, which is made if it is missing.

        Raises:
            SecretsUnreadable: it cannot be read, or does not hold a key.
        """
        try:
            if not path.exists():
                replace_file(path, Fernet.generate_key() + b"\n", mode=0o600)
            if os.name == "posix" and path.stat().st_mode & 0o077:
                raise SecretsUnreadable(
                    f"{path} holds the key of all secrets and can be read by others: run 'chmod 600 {path}'"
                )
            return cls(path.read_bytes().strip())
        except OSError as error:
            raise SecretsUnreadable(f"cannot use the key file {path}: {error.strerror}") from error
        except ValueError:
            raise SecretsUnreadable(
                f"{path} does not hold a key: restore it from a backup, or delete it and enter all secrets again"
            ) from None

    def seal(self, definition: Mapping[str, Any]) -> dict[str, Any]:
        """Return the definition of a job with its secrets encrypted."""
        return _of_definition(definition, self._encrypt)

    def seal_properties(self, properties: Any) -> Any:
        """Return properties of the management API with their secrets encrypted."""
        return _of_properties(properties, self._encrypt)

    def _encrypt(self, secret: str) -> dict[str, str]:
        return {_ENCRYPTED: self._fernet.encrypt(secret.encode()).decode()}

    def unseal(self, document: Any) -> Any:
        """Return a sealed document as it was.

        Raises:
            SecretsUnreadable: it was sealed with another key.
        """
        if isinstance(document, Mapping):
            if document.keys() == {_ENCRYPTED}:
                try:
                    return self._fernet.decrypt(document[_ENCRYPTED]).decode()
                except (InvalidToken, TypeError):
                    raise SecretsUnreadable(
                        "a secret was encrypted with another key: restore the key file from a backup, or enter the "
                        "secret again"
                    ) from None
            return {name: self.unseal(value) for name, value in document.items()}
        if isinstance(document, list):
            return [self.unseal(value) for value in document]
        return document


def redacted(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition of a job with None in place of its secrets."""
    return _of_definition(definition, lambda secret: None)


def redacted_properties(properties: Any) -> Any:
    """Return properties of the management API with None in place of their secrets."""
    return _of_properties(properties, lambda secret: None)


def _of_definition(definition: Mapping[str, Any], change: Change) -> dict[str, Any]:
    changed = dict(definition)
    for part in _PARTS:
        sections = definition.get(part)
        if isinstance(sections, Mapping):
            changed[part] = {name: _of_section(section, change) for name, section in sections.items()}
    spark = definition.get("spark")
    if isinstance(spark, Mapping):
        marked = _of_section({**spark, "type": "spark"}, change)
        changed["spark"] = {name: value for name, value in marked.items() if name != "type"}
    return changed


def _of_section(section: Any, change: Change) -> Any:
    if not isinstance(section, Mapping):
        return section
    return {name: _of_member(section, name, value, change) for name, value in section.items()}


def _of_member(section: Mapping[str, Any], name: str, value: Any, change: Change) -> Any:
    if not is_secret_of(section, name):
        return value
    declared = _declaration(section, name)
    public = declared if isinstance(declared, list) else ()
    return _all_of(value, change, public)


def _all_of(value: Any, change: Change, public: Any = ()) -> Any:
    """Change every text in a secret value; what is neither text nor holds any is shown."""
    if isinstance(value, str):
        return change(value) if value else value
    if isinstance(value, Mapping):
        return {key: one if key in public else _all_of(one, change) for key, one in value.items()}
    if isinstance(value, list):
        return [_all_of(one, change) for one in value]
    return value


def _of_properties(properties: Any, change: Change) -> Any:
    if isinstance(properties, Mapping):
        return {
            name: change(value)
            if is_secret(name) and isinstance(value, str) and value
            else _of_properties(value, change)
            for name, value in properties.items()
        }
    return [_of_properties(one, change) for one in properties] if isinstance(properties, list) else properties
