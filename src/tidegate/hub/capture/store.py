"""Destinations of capture files: a folder or an object store.

Both store a file atomically: a folder by renaming, an object store because an object is not visible before its last
byte is uploaded. Credentials come from the environment, under the names that each provider's own tools use; Azure's
connection string is read too. They never appear in errors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tidegate.blobs import BlobError, ObjectStore
from tidegate.durable_files import make_folders, replace_file
from tidegate.hub.capture.description import CaptureDescription

_PIECE_BYTES = 8 << 20
_COPY_BYTES = 1 << 20


class StoreError(Exception):
    """The destination rejected a file or cannot be used. Another attempt may succeed."""


class CaptureStore(Protocol):
    """A destination. Names are relative, with slashes. Every method raises StoreError."""

    def head(self, name: str, size: int) -> bytes | None:
        """Return the first `size` bytes of a file (fewer if it is shorter), None if there is no such file."""

    def put(self, name: str, content: Path) -> None:
        """Store the content durably. A file of that name is replaced."""


class Folder:
    """A folder on this machine, created with the first file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def head(self, name: str, size: int) -> bytes | None:
        try:
            with (self._path / name).open("rb") as file:
                return file.read(size)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"{self._path / name} cannot be read: {error.strerror}") from error

    def put(self, name: str, content: Path) -> None:
        target = self._path / name
        try:
            make_folders(target.parent)
            with content.open("rb") as file:
                replace_file(target, iter(partial(file.read, _COPY_BYTES), b""))
        except OSError as error:
            raise StoreError(f"{target} cannot be written: {error.strerror}") from error


class RemoteStore:
    """A container or bucket; under a prefix where the URL has a path."""

    def __init__(self, url: str, environment: Mapping[str, str]) -> None:
        """Raises StoreError for a URL or credentials that cannot be used, ModuleNotFoundError without obstore."""
        try:
            self._store = ObjectStore(url, environment)
        except BlobError as error:
            raise StoreError(str(error)) from None

    def __str__(self) -> str:
        return self._store.url

    def head(self, name: str, size: int) -> bytes | None:
        try:
            there = self._store.api.head(self._store.handle, name)["size"]
            if not there:
                return b""
            found = self._store.api.get_range(self._store.handle, name, start=0, length=min(size, there))
            return bytes(found)
        except FileNotFoundError:
            return None
        except self._store.errors as error:
            raise StoreError(self._store.problem("cannot be read", error, name)) from None

    def put(self, name: str, content: Path) -> None:
        in_pieces = content.stat().st_size > _PIECE_BYTES
        try:
            self._store.api.put(
                self._store.handle, name, content, use_multipart=in_pieces, chunk_size=_PIECE_BYTES, max_concurrency=2
            )
        except self._store.errors as error:
            raise StoreError(self._store.problem("cannot be written", error, name)) from None


def open_store(destination: str, environment: Mapping[str, str] = os.environ) -> CaptureStore:
    """Return the store that a CaptureDescription's destination names: a folder's path, or a URL.

    Raises StoreError, ModuleNotFoundError for a URL without the extra `capture`.
    """
    if "://" not in destination:
        return Folder(Path(destination))
    if destination.startswith("file://"):
        return Folder(Path(destination.removeprefix("file://")))
    return RemoteStore(destination, environment)


def changed_capture(former: CaptureDescription | None, changes: Mapping[str, Any]) -> CaptureDescription:
    """Return the capture of a hub after a change, tried as far as possible without writing.

    A folder is returned as an absolute path, so that it stays the same folder when the hub is started elsewhere.

    Args:
        former: The capture as it is, or the namespace's default; None without either.
        changes: Fields of a CaptureDescription; None leaves a field alone.

    Raises:
        ValidationError: A setting is wrong, or there is no destination (pydantic's).
        StoreError: The destination cannot be used.
    """
    fields: dict[str, Any] = former.model_dump() if former is not None else {}
    given = {name: value for name, value in changes.items() if value is not None}
    description = CaptureDescription(**fields | given)
    if "://" not in description.destination:
        folder = str(Path(description.destination).absolute())
        description = description.model_copy(update={"destination": folder})
    if description.enabled:
        try:
            open_store(description.destination)
        except ModuleNotFoundError as error:
            raise StoreError(str(error)) from None
    return description
