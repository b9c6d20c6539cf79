"""Secrets of inputs and outputs: encrypted at rest, and never given out.

A document is JSON. A member whose name says that its value is a secret (`connection_string`, `password`, `accountKey`)
is replaced on disk by ``{"encrypted": "…"}``, a Fernet token under the service's key, and in what readers get by None.
The key is a file beside the jobs that only its owner can read, or the one that the settings name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet, InvalidToken

from tidegate.durable_files import replace_file
from tidegate.service.errors import SecretsUnreadable

_SECRET = re.compile(
    r"connection_?string|password|secret|credential|passphrase|pwd|token$|sas_?(url|uri)?$"
    r"|(account|access|policy|api|master|shared|storage|function|subscription|service|signing|encryption)_?keys?$",
    re.IGNORECASE,
)
_WHERE = re.compile(
    r"namespace|account|server|host|endpoint|url|uri|authority|tenant|user|policyname|broker|path|port$", re.IGNORECASE
)
_OF_USERS = frozenset({"columns", "tags"})
"""Members whose members are named by users, who may call a column a password."""
_BY_TYPE: Mapping[str, frozenset[str]] = {"webhook": frozenset({"key", "headers"}), "powerbi": frozenset({"push_url"})}
"""Further secrets of some types of outputs; of an object, all members."""
_ENCRYPTED = "encrypted"


def is_secret(name: str) -> bool:
    """Return whether the value of a member of this name is a secret."""
    return bool(_SECRET.search(name))


def is_secret_of(section: Mapping[str, Any], name: str) -> bool:
    """Return whether a member of an input or output is a secret: by its name, or by the section's type."""
    return is_secret(name) or name in _BY_TYPE.get(str(section.get("type")), ())


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

    def seal(self, document: Any) -> Any:
        """Return a document with its secrets encrypted."""

        def encrypt(value: str) -> dict[str, str]:
            return {_ENCRYPTED: self._fernet.encrypt(value.encode()).decode()}

        return _with_secrets(document, encrypt)

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


def redacted(document: Any) -> Any:
    """Return a document with None in place of its secrets."""
    return _with_secrets(document, lambda value: None)


def secret_values(document: Any) -> set[str]:
    """Return the secrets of a document, so that they can be kept out of what is written elsewhere."""
    found: set[str] = set()

    def note(value: str) -> str:
        found.add(value)
        return value

    _with_secrets(document, note)
    return found


def _with_secrets(document: Any, change: Callable[[str], Any]) -> Any:
    if isinstance(document, Mapping):
        return {name: _member(document, name, value, change) for name, value in document.items()}
    if isinstance(document, list):
        return [_with_secrets(value, change) for value in document]
    return document


def _member(document: Mapping[str, Any], name: str, value: Any, change: Callable[[str], Any]) -> Any:
    if is_secret_of(document, name):
        if isinstance(value, str) and value:
            return change(value)
        if isinstance(value, Mapping) and not is_secret(name):
            return {key: change(one) if isinstance(one, str) and one else one for key, one in value.items()}
    return value if name in _OF_USERS else _with_secrets(value, change)
