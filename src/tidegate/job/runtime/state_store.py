"""The state of shards on a local disk: versions that share what has not changed.

Theory. A state is a tree of objects with its bulk in a few large buffers, the columns of waiting and held rows. Pickle
protocol 5 (PEP 574, https://peps.python.org/pep-0574/) hands those buffers out one by one. Each is written once, to a
*chunk* file, and a version is the pickled tree with the extents of its buffers. A loaded state has its buffers mapped
read-only, so that a buffer which is part of the next version as well is known by its address and not written again. The
pages of a mapped file are the system's cache: a state may be larger than the memory, and is read as it is touched.

A chunk is deleted once no kept version refers to it. If little of a chunk is still referred to, that is written anew.
Versions are replaced by renaming, so a reader finds a whole one or none; chunks have names that no other attempt has,
so an attempt that Spark repeats harms nothing. Nothing is synchronised to the disk: a state is a cache of the log.
"""

from __future__ import annotations

import mmap
import os
import pickle
import shutil
import uuid
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

IN_TREE_BYTES = 4096
"""Smaller buffers stay in the tree."""
_ALIGNMENT = 64
_LITTLE = 4
"""A chunk of which less than one in this many bytes is used is written anew."""


@dataclass(frozen=True, slots=True)
class _Extent:
    """A buffer: ``length`` bytes of a chunk from ``offset`` on."""

    chunk: str
    offset: int
    length: int


@dataclass(slots=True)
class _Mapped:
    """A chunk in memory."""

    chunk: str
    address: int
    length: int
    view: memoryview


@dataclass(slots=True)
class _Maps:
    """The mapped chunks of a state, by address."""

    addresses: list[int] = field(default_factory=list)
    maps: list[_Mapped] = field(default_factory=list)

    def place_of(self, address: int, length: int) -> _Extent | None:
        """Return where a buffer is kept; None if it is not part of a chunk."""
        index = bisect_right(self.addresses, address) - 1
        if index < 0:
            return None
        found = self.maps[index]
        offset = address - found.address
        return _Extent(found.chunk, offset, length) if offset + length <= found.length else None


class StateStore:
    """The versions of several states in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, name: str, version: int, state: Any, before: StoredState | None) -> StoredState:
        """Write a version of a state, and return the state as it was loaded again.

        Args:
            before: the version before, from which ``state`` was made; it is kept, and older ones are deleted.

        Raises:
            OSError: the disk refuses.
        """
        self._folder.mkdir(0o750, parents=True, exist_ok=True)
        maps = _Maps() if before is None else before.maps
        buffers: list[pickle.PickleBuffer] = []
        tree = pickle.dumps(state, protocol=5, buffer_callback=lambda buffer: _keep_in_tree(buffer, buffers))
        chunk = f"{name}.{version}.{uuid.uuid4().hex}.chunk"
        extents = self._write_buffers(chunk, buffers, maps)
        temporary = self._folder / f"{chunk}.version"
        temporary.write_bytes(pickle.dumps((tree, extents), protocol=5))
        temporary.replace(self._version(name, version))
        self._delete_others(name, version, extents, [] if before is None else before.extents)
        return self.load(name, version)

    def load(self, name: str, version: int) -> StoredState:
        """Return a version of a state.

        Raises:
            FileNotFoundError: it is not here.
        """
        tree, extents = pickle.loads(self._version(name, version).read_bytes())
        maps = self._map({extent.chunk for extent in extents})
        views = {mapped.chunk: mapped.view for mapped in maps.maps}
        buffers = [views[extent.chunk][extent.offset : extent.offset + extent.length] for extent in extents]
        size = len(tree) + sum(extent.length for extent in extents)
        return StoredState(pickle.loads(tree, buffers=buffers), extents, maps, size)

    def has(self, name: str, version: int) -> bool:
        """Return whether a version of a state is here."""
        return self._version(name, version).exists()

    def files(self, name: str, version: int) -> list[Path]:
        """Return the files of a version: its chunks, and last the version itself.

        Raises:
            FileNotFoundError: it is not here.
        """
        path = self._version(name, version)
        _, extents = pickle.loads(path.read_bytes())
        return [*sorted({self._folder / extent.chunk for extent in extents}), path]

    def adopt(self, other: StateStore, name: str, version: int, as_version: int) -> None:
        """Take over a version of a state from another store of the same disk, under a number of its own.

        Raises:
            FileNotFoundError: the other store does not have it.
        """
        if self.has(name, as_version) and not other.has(name, version):
            # An attempt at the same has done it.
            return
        *chunks, tree = other.files(name, version)
        self._folder.mkdir(0o750, parents=True, exist_ok=True)
        self.forget(name)
        for path in chunks:
            path.replace(self._folder / path.name)
        tree.replace(self._version(name, as_version))

    def forget(self, name: str) -> None:
        """Delete all versions of a state."""
        for path in self._folder.glob(f"{name}.*"):
            path.unlink(missing_ok=True)

    def path(self, name: str) -> Path:
        """Return where a file of this name is, in a folder that exists."""
        self._folder.mkdir(0o750, parents=True, exist_ok=True)
        return self._folder / name

    def delete(self) -> None:
        """Delete everything."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _version(self, name: str, version: int) -> Path:
        return self._folder / f"{name}.{version}.version"

    def _write_buffers(self, chunk: str, buffers: list[pickle.PickleBuffer], maps: _Maps) -> list[_Extent]:
        """Write the buffers that are not in a chunk yet, and return the extent of each."""
        found = [maps.place_of(_address(raw), raw.nbytes) for raw in (buffer.raw() for buffer in buffers)]
        used: dict[str, int] = {}
        for extent in found:
            if extent is not None:
                used[extent.chunk] = used.get(extent.chunk, 0) + extent.length
        worn = {one.chunk for one in maps.maps if used.get(one.chunk, 0) * _LITTLE < one.length}
        extents: list[_Extent] = []
        offset = 0
        file = None
        try:
            for extent, buffer in zip(found, buffers, strict=True):
                if extent is None or extent.chunk in worn:
                    if file is None:
                        file = (self._folder / chunk).open("wb")
                    raw = buffer.raw()
                    extent = _Extent(chunk, offset, raw.nbytes)
                    file.write(raw)
                    padding = -raw.nbytes % _ALIGNMENT
                    file.write(bytes(padding))
                    offset += raw.nbytes + padding
                extents.append(extent)
        finally:
            if file is not None:
                file.close()
        return extents

    def _map(self, chunks: set[str]) -> _Maps:
        mapped = []
        for chunk in chunks:
            with (self._folder / chunk).open("rb") as file:
                length = os.fstat(file.fileno()).st_size
                view = memoryview(mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ))
            mapped.append(_Mapped(chunk, _address(view), length, view))
        mapped.sort(key=lambda one: one.address)
        return _Maps([one.address for one in mapped], mapped)

    def _delete_others(self, name: str, version: int, extents: list[_Extent], before: list[_Extent]) -> None:
        """Delete what neither this version nor the one before refers to."""
        kept = {extent.chunk for extent in (*extents, *before)}
        kept |= {self._version(name, one).name for one in (version, version - 1)}
        for path in self._folder.glob(f"{name}.*"):
            if path.name not in kept:
                path.unlink(missing_ok=True)


@dataclass(slots=True)
class StoredState:
    """A state whose large buffers are mapped from chunks.

    Attributes:
        value: the state.
        bytes: how much it holds.
    """

    value: Any
    extents: list[_Extent]
    maps: _Maps
    bytes: int


def _keep_in_tree(buffer: pickle.PickleBuffer, buffers: list[pickle.PickleBuffer]) -> bool:
    """Return whether a buffer stays in the tree; otherwise add it to the others."""
    if buffer.raw().nbytes < IN_TREE_BYTES:
        return True
    buffers.append(buffer)
    return False


def _address(view: memoryview) -> int:
    address: int = np.frombuffer(view, dtype=np.uint8).__array_interface__["data"][0]
    return address
