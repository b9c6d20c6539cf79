"""Locations that files are written to: a folder, or a container or bucket of an object store.

A file appears whole or not at all. Names are relative to the location, with slashes. Every method raises
OutputUnavailableError where the same call may succeed later, and OutputError where it will not.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tidegate.blobs import BlobError, ObjectStore
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs.output import OutputUnavailableError
from tidegate.durable_files import DirectoryLock, DirectoryLocked, Files, make_folders, replace_file

# What waiting does not change: a path that is a file, a name that is too long, a folder that may not be written.
FINAL_ERRORS = frozenset(
    {errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EINVAL}
)
_FINAL_OF_STORES = ("PermissionDeniedError", "UnauthenticatedError", "NotSupportedError", "InvalidPathError")

_FILES = Files()
_AT_ONCE = 8

Result = TypeVar("Result")
One = TypeVar("One")


class ChangedByAnotherError(Exception):
    """A file that only this run should replace has been replaced by another."""


class FileLocation(Protocol):
    """One location; it can be pickled, and is then opened again."""

    def put(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Write files durably, given by name and content; a reader may see one that is half there."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is none."""

    def move(self, moves: Sequence[tuple[str, str]]) -> None:
        """Rename files, given by old and new name; one that is gone has been renamed before.

        It may be under way until `settle` returns.
        """

    def settle(self) -> None:
        """Return when moves are made and durable; after a failure, another call tries again."""

    def delete(self, names: Sequence[str]) -> None:
        """Delete files, as far as they exist."""

    def names(self, folder: str) -> list[str]:
        """Return the files in a folder."""

    def read_guarded(self, name: str) -> tuple[bytes | None, str]:
        """Return the content of a file with its version, for `replace_guarded`."""

    def replace_guarded(self, name: str, content: bytes, version: str) -> str:
        """Replace a file that is still of a version, "" for none, and return the new version.

        Raises:
            ChangedByAnotherError: it is of another version.
        """

    def close(self) -> None:
        """Give up locks, and leave moves that did not succeed to the next run."""


class FolderLocation:
    """A folder of this machine, or one that several machines share."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._lock: DirectoryLock | None = None
        self._changed: set[Path] = set()

    def __str__(self) -> str:
        return str(self._path)

    def __reduce__(self) -> tuple[Any, ...]:
        return FolderLocation, (str(self._path),)

    def put(self, files: Sequence[tuple[str, bytes]]) -> None:
        for folder in {(self._path / name).parent for name, _ in files}:
            with self._trouble(folder):
                make_folders(folder)
        in_parallel(self._put_one, files)
        in_parallel(self._sync_folder, list({(self._path / name).parent for name, _ in files}))

    def _put_one(self, file: tuple[str, bytes]) -> None:
        path = self._path / file[0]
        with self._trouble(path), path.open("wb") as opened:
            opened.write(file[1])
            opened.flush()
            _FILES.sync(opened.fileno())

    def _sync_folder(self, folder: Path) -> None:
        with self._trouble(folder):
            _FILES.sync_directory(folder)

    def read(self, name: str) -> bytes | None:
        path = self._path / name
        with self._trouble(path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def move(self, moves: Sequence[tuple[str, str]]) -> None:
        for name, target in moves:
            path, new = self._path / name, self._path / target
            with self._trouble(new):
                if path.exists():
                    make_folders(new.parent)
                    os.replace(path, new)
            # Also of one that was renamed before: that may not be durable yet.
            self._changed.add(new.parent)

    def settle(self) -> None:
        in_parallel(self._sync_folder, [folder for folder in self._changed if folder.exists()])
        self._changed.clear()

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            with self._trouble(self._path / name):
                (self._path / name).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        path = self._path / folder
        with self._trouble(path):
            return [f"{folder}/{one.name}" for one in path.iterdir() if one.is_file()] if path.is_dir() else []

    def read_guarded(self, name: str) -> tuple[bytes | None, str]:
        """The folder of the file is locked from now on."""
        path = self._path / name
        if self._lock is None:
            with self._trouble(path.parent):
                make_folders(path.parent)
                try:
                    self._lock = DirectoryLock(path.parent)
                except DirectoryLocked as error:
                    message = f"another run of the job writes to {self._path}: {error}"
                    raise OutputUnavailableError(message) from error
        return self.read(name), ""

    def replace_guarded(self, name: str, content: bytes, version: str) -> str:
        path = self._path / name
        with self._trouble(path):
            make_folders(path.parent)
            replace_file(path, content)
        return ""

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @contextmanager
    def _trouble(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = f"cannot write {path}: {error.strerror}"
            if error.filename is not None and Path(error.filename) != path:
                message += f" ({error.filename})"
            raise (OutputError if error.errno in FINAL_ERRORS else OutputUnavailableError)(message) from error


class StoreLocation:
    """A container or bucket, or a folder of one, through obstore."""

    def __init__(self, url: str, environment: Mapping[str, str] | None = None) -> None:
        """
        Args:
            environment: where credentials are; default: this process's.
        """
        self._url = url
        self._environment = environment
        self._moves: list[tuple[str, str]] = []
        self._moving: Future[None] | None = None

    def __str__(self) -> str:
        return self._url.partition("?")[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreLocation, (self._url, self._environment)

    @cached_property
    def _store(self) -> ObjectStore:
        try:
            return ObjectStore(self._url, self._environment)
        except ModuleNotFoundError as error:
            raise OutputError(f'{self} needs an extra: pip install "tidegate[capture]"') from error
        except BlobError as error:
            raise OutputError(str(error)) from error

    def put(self, files: Sequence[tuple[str, bytes]]) -> None:
        def put(file: tuple[str, bytes]) -> None:
            self._on_store(file[0], lambda store: store.api.put(store.handle, *file))

        in_parallel(put, files)

    def read(self, name: str) -> bytes | None:
        return self.read_guarded(name)[0]

    def move(self, moves: Sequence[tuple[str, str]]) -> None:
        """A store copies, which the job does not wait for."""
        self.settle()
        self._moves = list(moves)
        self._moving = self._mover.submit(self._move_now, self._moves)

    def settle(self) -> None:
        if self._moving is not None:
            moving, self._moving = self._moving, None
            with suppress(OutputUnavailableError):
                moving.result()
                self._moves = []
        if self._moves:
            self._move_now(self._moves)
            self._moves = []

    @cached_property
    def _mover(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "tidegate-move")

    def _move_now(self, moves: Sequence[tuple[str, str]]) -> None:
        def copy(move: tuple[str, str]) -> None:
            def copy_in(store: ObjectStore) -> None:
                with suppress(FileNotFoundError):
                    store.api.copy(store.handle, *move)

            self._on_store(move[1], copy_in)

        in_parallel(copy, moves)
        self.delete([name for name, _ in moves])

    def delete(self, names: Sequence[str]) -> None:
        """Stores take many names in a request, and may stop at one that does not exist."""

        def delete(some: str | list[str]) -> None:
            self._on_store(names[0], lambda store: store.api.delete(store.handle, some))

        if not names:
            return
        try:
            delete(list(names))
        except _GoneError:
            for name in names:
                with suppress(_GoneError):
                    delete(name)

    def names(self, folder: str) -> list[str]:
        return self._on_store(
            folder,
            lambda store: [one["path"] for page in store.api.list(store.handle, prefix=folder) for one in page],
        )

    def read_guarded(self, name: str) -> tuple[bytes | None, str]:
        def read(store: ObjectStore) -> tuple[bytes | None, str]:
            try:
                found = store.api.get(store.handle, name)
            except FileNotFoundError:
                return None, ""
            return bytes(found.bytes()), found.meta["e_tag"] or ""

        return self._on_store(name, read)

    def replace_guarded(self, name: str, content: bytes, version: str) -> str:
        def put(store: ObjectStore) -> str:
            import obstore.exceptions

            mode: Any = {"e_tag": version} if version else "create"
            try:
                return store.api.put(store.handle, name, content, mode=mode)["e_tag"] or ""
            except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError) as error:
                raise ChangedByAnotherError from error

        return self._on_store(name, put)

    def close(self) -> None:
        if "_mover" in self.__dict__:
            self._mover.shutdown()

    def _on_store(self, name: str, work: Callable[[ObjectStore], Result]) -> Result:
        store = self._store
        try:
            return work(store)
        except store.errors as error:
            message = store.problem("cannot be written", error, name)
            final = type(error).__name__ in _FINAL_OF_STORES or isinstance(error, FileNotFoundError | PermissionError)
            kind = _GoneError if isinstance(error, FileNotFoundError) else OutputError
            raise (kind if final else OutputUnavailableError)(message) from None


class _GoneError(OutputError):
    """There is no such file."""


def open_location(root: str, environment: Mapping[str, str] | None = None) -> FileLocation:
    """Return the location that a root names: a folder's path, or the URL of a container or bucket.

    Args:
        environment: where credentials are; default: that of the process that uses the location.
    """
    return StoreLocation(root, environment) if "://" in root else FolderLocation(root)


def in_parallel(work: Callable[[One], None], items: Sequence[One]) -> None:
    """Do work that waits for a disk or a store, several items at once; raise what the first failure raised."""
    if len(items) < 2:
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(min(_AT_ONCE, len(items))) as pool:
        for _ in pool.map(work, items):
            pass
