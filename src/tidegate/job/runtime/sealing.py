"""Sealed state: copies of shards' states in a folder that outlives their processes.

A state is a cache of the log, and so is a copy of it: a copy shortens the computation of a lost state, and may be
missing, damaged or old without changing a result. The files of a `StateStore` are immutable, so a copy that was made
earlier is made only of what is new since. Every file is listed with its length and digest. It is copied back to a
disk of its reader and compared there, before anything in it is used: a file on shared storage may change at any time.
"""

from __future__ import annotations

import hashlib
import pickle
import shutil
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate.job.runtime.state_store import StateStore

_PIECE_BYTES = 1 << 20
UNREADABLE = (
    OSError,
    pickle.UnpicklingError,
    AttributeError,
    EOFError,
    ImportError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
)
"""What reading a pickled value of another version, or one that is no longer there, may raise."""


class SealUnusable(Exception):
    """A sealed state cannot be used; the message says why."""


class SealSlower(SealUnusable):
    """A sealed state would take longer to copy than the log that it replaces takes to read."""


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A file of a state, and its copy.

    Attributes:
        name: what the state calls it.
        copy: the copy's name.
        bytes: its length.
        digest: SHA-256, in hex.
    """

    name: str
    copy: str
    bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class SealedState:
    """The state of all shards at one version.

    Attributes:
        shards: how many shards each level has; None: one state in the driver, which is not divided.
        seed: what the hashes of keys start from.
        version: the version in the stores of the shards.
        files: by the name of a state, its files.
    """

    shards: int | None
    seed: int
    version: int
    files: Mapping[str, tuple[SealedFile, ...]] = field(default_factory=dict)

    @property
    def known(self) -> dict[str, SealedFile]:
        """All files by name."""
        return {file.name: file for files in self.files.values() for file in files}

    @property
    def bytes(self) -> int:
        """How much the copies hold."""
        return sum(file.bytes for file in self.known.values())

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        files = {
            name: [[one.name, one.copy, one.bytes, one.digest] for one in listed] for name, listed in self.files.items()
        }
        return {"shards": self.shards, "seed": str(self.seed), "version": self.version, "files": files}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> SealedState:
        """Return what `as_json` was called on.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: `as_json` did not write this.
        """
        files = {name: tuple(SealedFile(*one) for one in listed) for name, listed in content["files"].items()}
        return cls(content["shards"], int(content["seed"]), content["version"], files)


@dataclass(frozen=True, slots=True)
class SealFolder:
    """Where sealed states are.

    Attributes:
        path: a folder that all places of a run share.
        known: by name, the files that the last sealed state has there.
    """

    path: Path
    known: Mapping[str, SealedFile] = field(default_factory=dict)

    def add(self, value: Any) -> SealedFile:
        """Write a value.

        Raises:
            OSError: the disk refuses.
        """
        content = pickle.dumps(value, protocol=5)
        self.path.mkdir(0o750, parents=True, exist_ok=True)
        copy = f"{uuid.uuid4().hex}.value"
        (self.path / copy).write_bytes(content)
        return SealedFile(copy, copy, len(content), hashlib.sha256(content).hexdigest())

    def value_of(self, file: SealedFile) -> Any:
        """Return a value that `add` has written.

        Raises:
            SealUnusable: it is not what was written.
        """
        try:
            content = (self.path / file.copy).read_bytes()
        except OSError as error:
            raise SealUnusable(f"{file.copy}: {error.strerror or type(error).__name__}") from error
        if (len(content), hashlib.sha256(content).hexdigest()) != (file.bytes, file.digest):
            raise SealUnusable(f"{file.copy} is damaged")
        try:
            return pickle.loads(content)
        except UNREADABLE as error:
            raise SealUnusable(f"{file.copy} cannot be read ({error!r})") from error

    def seal(self, store: StateStore, name: str, version: int) -> tuple[SealedFile, ...]:
        """Copy a version of a state.

        Raises:
            FileNotFoundError: the store does not have it.
            OSError: the disk refuses.
        """
        self.path.mkdir(0o750, parents=True, exist_ok=True)
        *chunks, tree = store.files(name, version)
        return (*(self._sealed_chunk(path) for path in chunks), self._copied(tree, f"{tree.name}.{uuid.uuid4().hex}"))

    def _sealed_chunk(self, path: Path) -> SealedFile:
        """Return the copy of a chunk; chunks have names that no other has, and do not change."""
        known = self.known.get(path.name)
        if known is not None and _length(self.path / known.copy) == known.bytes:
            return known
        return self._copied(path, path.name)

    def _copied(self, path: Path, copy: str) -> SealedFile:
        beside = self.path / f"{copy}.{uuid.uuid4().hex}.new"
        length, digest = _copy(path, beside)
        beside.replace(self.path / copy)
        return SealedFile(path.name, copy, length, digest)

    def restore(self, store: StateStore, name: str, sealed: SealedState) -> None:
        """Copy a state to a store, which then has its version.

        Raises:
            SealUnusable: it is not what was sealed.
        """
        try:
            for file in sealed.files[name]:
                found = _copy(self.path / file.copy, store.path(file.name))
                if found != (file.bytes, file.digest):
                    raise SealUnusable(f"{file.copy} is damaged")
            store.load(name, sealed.version)
        except UNREADABLE as error:
            raise SealUnusable(f"the state {name} cannot be read ({error})") from error

    def keep_only(self, files: Iterable[SealedFile], others: Iterable[str]) -> None:
        """Delete everything except some files, and others by name."""
        kept = {*(file.copy for file in files), *others}
        for path in self.path.glob("*"):
            if path.name not in kept:
                path.unlink(missing_ok=True)

    def delete(self) -> None:
        """Delete everything."""
        shutil.rmtree(self.path, ignore_errors=True)


def _copy(source: Path, target: Path) -> tuple[int, str]:
    """Copy a file; return the length and digest of what was copied."""
    digest, length = hashlib.sha256(), 0
    with source.open("rb") as read, target.open("wb") as written:
        while piece := read.read(_PIECE_BYTES):
            written.write(piece)
            digest.update(piece)
            length += len(piece)
    return length, digest.hexdigest()


def _length(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
