"""Where capture files go: a folder, or an object store.

Both put a file in its place whole or not at all: a folder by renaming, an object store because an object is not there
before its last byte is. Credentials come from the environment, under the names that each provider's own tools use;
Azure's connection string is read too. They are never part of an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tidegate.blobs.account import AZURE_SCHEMES, CONNECTION_STRING, allows_plain_http, azure_config
from tidegate.durable_files import make_folders, replace_file

_PIECE_BYTES = 8 << 20
_COPY_BYTES = 1 << 20
_QUERY = re.compile(r"\?[^\s\"')]*")
# A step of capture waits for its store; what takes longer is tried again later and holds up nobody else so long.
_REQUEST_TIMEOUT_S = 60
_RETRY_FOR_S = 20


class StoreError(Exception):
    """The destination did not take a file, or cannot be used; another attempt may succeed."""


class Store(Protocol):
    """A destination. Names are relative, with slashes. Every method raises StoreError."""

    def head(self, name: str, size: int) -> bytes | None:
        """The first `size` bytes of a file (fewer if it is shorter), None if there is no such file."""

    def put(self, name: str, content: Path) -> None:
        """Put the content in its place, durably when it returns. A file of that name is replaced."""


class Folder:
    """A folder of this machine, made when the first file is put."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def head(self, name: str, size: int) -> bytes | None:
        """See Store."""
        try:
            with (self._path / name).open("rb") as file:
                return file.read(size)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"{self._path / name} cannot be read: {error.strerror}") from error

    def put(self, name: str, content: Path) -> None:
        """See Store. Readers that list `*.avro` do not see the file before it is whole."""
        target = self._path / name
        try:
            make_folders(target.parent)
            with content.open("rb") as file:
                replace_file(target, iter(partial(file.read, _COPY_BYTES), b""))
        except OSError as error:
            raise StoreError(f"{target} cannot be written: {error.strerror}") from error


class ObjectStore:
    """A container or bucket, through obstore; under a prefix where the URL has a path."""

    def __init__(self, url: str, environment: Mapping[str, str]) -> None:
        """Raises StoreError for a URL or credentials that cannot be used, ModuleNotFoundError without obstore."""
        import obstore.exceptions  # an extra: a hub that captures to a folder does without
        import obstore.store

        self._url = _QUERY.sub("", url)
        self._api = obstore
        self._errors = (obstore.exceptions.BaseError, OSError)
        config: dict[str, str] = {}
        scheme = url.partition("://")[0]
        if scheme in AZURE_SCHEMES and CONNECTION_STRING in environment:
            try:
                config = azure_config(environment[CONNECTION_STRING])
            except ValueError as error:
                raise StoreError(str(error)) from None
        plain = allows_plain_http(config, environment)
        options: dict[str, Any] = {
            "config": config or None,  # what it does not say is in the environment
            "client_options": {"timeout": timedelta(seconds=_REQUEST_TIMEOUT_S), "allow_http": plain},
            "retry_config": {"max_retries": 3, "retry_timeout": timedelta(seconds=_RETRY_FOR_S)},
        }
        try:
            self._store = obstore.store.from_url(url, **options)
        except (*self._errors, ValueError) as error:
            raise StoreError(f"{self._url} cannot be used: {_without_secrets(error)}") from None

    def __str__(self) -> str:
        return self._url

    def head(self, name: str, size: int) -> bytes | None:
        """See Store."""
        try:
            there = self._api.head(self._store, name)["size"]
            return bytes(self._api.get_range(self._store, name, start=0, length=min(size, there))) if there else b""
        except FileNotFoundError:
            return None
        except self._errors as error:
            raise StoreError(f"{self._url}/{name} cannot be read: {_without_secrets(error)}") from None

    def put(self, name: str, content: Path) -> None:
        """See Store. A large file goes in pieces, and is there with the last one."""
        in_pieces = content.stat().st_size > _PIECE_BYTES
        try:
            self._api.put(
                self._store, name, content, use_multipart=in_pieces, chunk_size=_PIECE_BYTES, max_concurrency=2
            )
        except self._errors as error:
            raise StoreError(f"{self._url}/{name} cannot be written: {_without_secrets(error)}") from None


def open_store(destination: str, environment: Mapping[str, str] = os.environ) -> Store:
    """The store that a CaptureDescription's destination names: a folder's path, or a URL.

    Raises StoreError, ModuleNotFoundError for a URL without the extra `capture`.
    """
    if "://" not in destination:
        return Folder(Path(destination))
    if destination.startswith("file://"):
        return Folder(Path(destination.removeprefix("file://")))
    return ObjectStore(destination, environment)


def _without_secrets(error: Exception) -> str:
    """The first line of an error, without the query of any URL in it: that is where signatures are."""
    text = _QUERY.sub("", str(error)).strip() or type(error).__name__
    return text.splitlines()[0][:300]
