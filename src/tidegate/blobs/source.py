"""Where files are read from: a folder, or an object store through obstore.

A file is known by its name, size, time and (in a store) its entity tag: one that has another of these is another
file. Credentials come from the environment, under the names that each provider's own tools use; Azure's connection
string is read too. They are never part of an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from tidegate.blobs.object_store import BlobError, BlobGone, ObjectStore


@dataclass(frozen=True, slots=True)
class Blob:
    """One file. ``name`` is relative to its source, with slashes; ``modified`` in ticks of 100 ns since 1970."""

    name: str
    size: int
    modified: int
    etag: str = ""


class BlobSource(Protocol):
    """Files that can be read. Every method raises BlobError."""

    def __hash__(self) -> int: ...

    def list(self, prefix: str, depth: int | None = None) -> list[Blob]:
        """The files below a folder, in any order; at most ``depth`` folders down if given."""

    def head(self, name: str) -> Blob | None:
        """One file by its name; None if there is none."""

    def read_blob(self, blob: Blob) -> bytes:
        """The content of a file. Raises BlobGone if it is not there any more, or is another one."""


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A folder of this machine."""

    folder: str

    def list(self, prefix: str, depth: int | None = None) -> list[Blob]:
        """Names that begin with a dot or an underscore are unfinished work, not files."""
        found = []
        top = Path(self.folder) / prefix
        if not Path(self.folder).exists():
            raise BlobError(f"there is no folder {self.folder}")
        try:
            for folder, folders, names in os.walk(top):
                below = len(Path(folder).relative_to(top).parts)
                deeper = depth is None or below < depth
                folders[:] = [name for name in folders if deeper and not name.startswith((".", "_"))]
                for name in names:
                    if name.startswith((".", "_")):
                        continue
                    path = Path(folder) / name
                    blob = self._blob(path)
                    if blob is not None:
                        found.append(blob)
        except OSError as error:
            raise BlobError(f"{top} cannot be listed: {error.strerror}") from error
        return found

    def head(self, name: str) -> Blob | None:
        path = Path(self.folder) / name
        return self._blob(path) if path.is_file() else None

    def read_blob(self, blob: Blob) -> bytes:
        path = Path(self.folder) / blob.name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise BlobGone(f"{path} is not there any more") from None
        except OSError as error:
            raise BlobError(f"{path} cannot be read: {error.strerror}") from error
        if self._blob(path) != blob:
            raise BlobGone(f"{path} has changed since it was taken in")
        return content

    def _blob(self, path: Path) -> Blob | None:
        try:
            status = path.stat()
        except FileNotFoundError:  # it was removed between the two looks
            return None
        return Blob(path.relative_to(self.folder).as_posix(), status.st_size, status.st_mtime_ns // 100)

    def __str__(self) -> str:
        return self.folder


class StoreSource:
    """A container or bucket, through obstore."""

    def __init__(self, url: str, environment: Mapping[str, str] | None = None) -> None:
        """Raises BlobError for a URL or credentials that cannot be used, ModuleNotFoundError without obstore."""
        self._address = url
        self._environment = dict(environment) if environment is not None else None
        self._store = ObjectStore(url, self._environment)

    def __eq__(self, other: object) -> bool:
        # Two accounts may have containers of one name.
        return (
            isinstance(other, StoreSource)
            and other._address == self._address
            and other._environment == self._environment
        )

    def __hash__(self) -> int:
        return hash(self._address)

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker opens the store anew, with the credentials of its own environment.
        return StoreSource, (self._address, self._environment)

    def list(self, prefix: str, depth: int | None = None) -> list[Blob]:
        try:
            return [
                Blob(item["path"], item["size"], _ticks(item["last_modified"]), _etag(item))
                for page in self._store.api.list(self._store.handle, prefix=prefix or None)
                for item in page
                if not any(part.startswith((".", "_")) for part in item["path"].split("/"))
            ]
        except self._store.errors as error:
            raise BlobError(self._store.problem("cannot be listed", error, prefix)) from None

    def head(self, name: str) -> Blob | None:
        try:
            found = self._store.api.head(self._store.handle, name)
        except FileNotFoundError:
            return None
        except self._store.errors as error:
            raise BlobError(self._store.problem("cannot be read", error, name)) from None
        return Blob(name, found["size"], _ticks(found["last_modified"]), _etag(found))

    def read_blob(self, blob: Blob) -> bytes:
        try:
            # No "if-match": not every store has it on every way; what was read says what it is.
            result = self._store.api.get(self._store.handle, blob.name)
            meta = result.meta
            same = (meta["size"], _etag(meta)) == (blob.size, blob.etag)
            content = bytes(result.bytes()) if same else b""
        except FileNotFoundError:
            raise BlobGone(f"{self._store.url}/{blob.name} is not there any more") from None
        except self._store.errors as error:
            raise BlobError(self._store.problem("cannot be read", error, blob.name)) from None
        if not same:
            raise BlobGone(f"{self._store.url}/{blob.name} has changed since it was taken in")
        return content

    def __str__(self) -> str:
        return self._store.url


def open_source(root: str, environment: Mapping[str, str] | None = None) -> BlobSource:
    """The source that a root names: a folder's path, or the URL of a container or bucket.

    Raises:
        BlobError: it cannot be used, or needs what is not installed.
    """
    if "://" not in root:
        return FolderSource(root)
    try:
        return StoreSource(root, environment)
    except ModuleNotFoundError:
        raise BlobError(f'{root} needs an extra: pip install "tidegate[capture]"') from None


def _etag(meta: Any) -> str:
    """The entity tag without quotes: the same store has them in one answer and leaves them out in another."""
    return (meta["e_tag"] or "").strip('"')


def _ticks(time: datetime) -> int:
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10_000_000 + since.microseconds * 10
