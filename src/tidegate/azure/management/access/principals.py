"""Service principals: who may use the management API, in which role. They are kept in the data directory.

The file holds no secret, only what verifies one (scrypt, RFC 7914). It is read again whenever it has changed, so that
`tidegate principal` needs no running hub and takes effect at once.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import re
import secrets
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from tidegate.azure.management.access.requests import PrincipalRole
from tidegate.durable_files import DirectoryLock, DirectoryLocked, make_folders, replace_file

FOLDER = "arm"
FILE_NAME = "principals.json"
_LOCK_NAME = "principals.lock"
_LONGEST_WAIT_S = 10.0
_PAUSE_S = 0.02
MIN_SECRET_CHARACTERS = 16
# Of scrypt: the memory and time that each guess of a secret takes.
_COST = 1 << 14
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")


class PrincipalError(Exception):
    """A service principal that cannot be created, found or read; the message says what to do."""


class Principal(BaseModel):
    """A service principal. Its name is the client id with which it logs in."""

    model_config = ConfigDict(frozen=True)

    name: Annotated[str, StringConstraints(pattern=_NAME)]
    role: PrincipalRole
    created_at: datetime
    salt: str = Field(repr=False)
    verifier: str = Field(repr=False)

    @property
    def object_id(self) -> str:
        """A GUID made of the name, for clients that expect one."""
        return object_id(self.name)

    def accepts(self, secret: str) -> bool:
        """Return whether this is the principal's secret."""
        return hmac.compare_digest(_verifier(secret, self.salt), self.verifier)


class _File(BaseModel):
    principals: tuple[Principal, ...] = ()


def object_id(name: str) -> str:
    """Return the GUID of a principal's name."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"tidegate:principal:{name.lower()}"))


def _verifier(secret: str, salt: str) -> str:
    data = secret.encode("utf-8", "surrogatepass")
    digest = hashlib.scrypt(data, salt=salt.encode("ascii"), n=_COST, r=8, p=1, dklen=32)
    return base64.b64encode(digest).decode("ascii")


class Principals:
    """The service principals of a data directory. Safe to call from any thread."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FOLDER / FILE_NAME
        self._lock = threading.Lock()
        self._read_at: tuple[int, int, int] | None = None
        self._principals: dict[str, Principal] = {}

    def all(self) -> list[Principal]:
        """Return them by name. Raises PrincipalError for a file that cannot be read."""
        return sorted(self._current().values(), key=lambda principal: principal.name.lower())

    def find(self, name: str) -> Principal | None:
        """Return one, None if there is no such principal. Raises PrincipalError."""
        return self._current().get(name.lower())

    def create(self, name: str, role: PrincipalRole, secret: str | None = None) -> str:
        """Create a principal and return its secret, a new one unless it is given. Raises PrincipalError, OSError."""
        if not _NAME.fullmatch(name):
            raise PrincipalError(
                f"{name!r} is no name of a principal: 1 to 128 letters, digits, '.', '-' or '_', "
                "beginning and ending with a letter or digit"
            )
        make_folders(self._path.parent)
        with self._alone():
            if self.find(name) is not None:
                advice = "`tidegate principal reset` changes its secret"
                raise PrincipalError(f"there is a principal {name} already; {advice}")
            return self._set_secret(name, role, secret, datetime.now(UTC))

    def reset(self, name: str, secret: str | None = None) -> str:
        """Give a principal another secret, which ends its tokens. Raises PrincipalError, OSError."""
        with self._alone():
            principal = self._required(name)
            return self._set_secret(principal.name, principal.role, secret, principal.created_at)

    def assign(self, name: str, role: PrincipalRole) -> None:
        """Give a principal another role. Raises PrincipalError, OSError."""
        with self._alone():
            principal = self._required(name)
            self._write({**self._current(), name.lower(): principal.model_copy(update={"role": role})})

    def delete(self, name: str) -> None:
        """Delete a principal; its tokens are refused from now on. Raises PrincipalError, OSError."""
        with self._alone():
            self._required(name)
            self._write({key: other for key, other in self._current().items() if key != name.lower()})

    def verify(self, name: str, secret: str) -> Principal | None:
        """Return the principal of a name and secret. An unknown name takes as long. Raises PrincipalError."""
        principal = self.find(name)
        if principal is None:
            _NOBODY.accepts(secret)
            return None
        return principal if principal.accepts(secret) else None

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep others from changing the file: of two who read it at once, the later one would undo the other."""
        if not self._path.parent.is_dir():  # there is nothing to change, and nowhere to lock
            yield
            return
        give_up_at = time.monotonic() + _LONGEST_WAIT_S
        while True:
            try:
                lock = DirectoryLock(self._path.parent, _LOCK_NAME)
                break
            except DirectoryLocked as error:
                if time.monotonic() > give_up_at:
                    raise PrincipalError(
                        f"the service principals are being changed by another process: {error}"
                    ) from None
                time.sleep(_PAUSE_S)
        try:
            yield
        finally:
            lock.release()

    def _required(self, name: str) -> Principal:
        principal = self.find(name)
        if principal is None:
            raise PrincipalError(f"there is no principal {name!r}; `tidegate principal list` shows them")
        return principal

    def _set_secret(self, name: str, role: PrincipalRole, secret: str | None, created_at: datetime) -> str:
        secret = secrets.token_urlsafe(32) if secret is None else secret
        if len(secret) < MIN_SECRET_CHARACTERS:
            raise PrincipalError(f"a secret has at least {MIN_SECRET_CHARACTERS} characters")
        salt = secrets.token_hex(16)
        verifier = _verifier(secret, salt)
        principal = Principal(name=name, role=role, created_at=created_at, salt=salt, verifier=verifier)
        self._write({**self._current(), name.lower(): principal})
        return secret

    def _current(self) -> dict[str, Principal]:
        with self._lock:
            try:
                stat = os.stat(self._path)
                stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
                if stamp != self._read_at:
                    found = _File.model_validate_json(self._path.read_bytes()).principals
                    self._principals = {principal.name.lower(): principal for principal in found}
                    self._read_at = stamp
            except FileNotFoundError:
                self._principals, self._read_at = {}, None
            except (OSError, ValidationError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is damaged"
                raise PrincipalError(f"the service principals in {self._path} cannot be read: {reason}") from None
            return self._principals

    def _write(self, principals: dict[str, Principal]) -> None:
        content = _File(principals=tuple(principals.values())).model_dump_json(indent=1)
        replace_file(self._path, content.encode("utf-8"), mode=0o600)


_NOBODY = Principal(name="nobody", role=PrincipalRole.READER, created_at=datetime.min, salt="00", verifier="")
