"""One machine's disk and processes, as the project's file operations see them.

The modules that write files import `os`; here they get an `os` whose file operations count, fail and remember what is
durable. Files are real, in a folder of the test's. A process "dies" by an exception that no code handles, after which
none of its operations has an effect.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SMALL_BYTES = 64 << 10
_SECTOR_BYTES = 512


class ProcessKilled(BaseException):
    """The process is gone; not an Exception, because nothing in it can handle that."""


class SimulatedOs:
    """The module `os` for one process at a time. Everything that is not listed here is the real thing."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self._folder = str(folder)
        self._dice = dice
        self._paths: dict[int, str] = {}
        self._opened: set[int] = set()
        self._durable_bytes: dict[str, int] = {}
        self._durable_content: dict[str, bytes] = {}
        self._dies_in: int | None = None
        self._is_dead = False
        self._is_ghost = False
        self.failing: set[str] = set()
        self.faults = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    # Faults ------------------------------------------------------------------------------------------------------

    @contextmanager
    def process(self, dies_in: int | None, *, is_whole: bool = False) -> Iterator[None]:
        """Run a process that dies at its n-th file operation, or not at all. A death ends the block quietly.

        Args:
            is_whole: The block is all of the process, so its descriptors, and with them its locks, go when it dies.
        """
        self._dies_in, self._is_dead = dies_in, False
        self._opened.clear()
        try:
            yield
        except ProcessKilled:
            self.faults += 1
            for fd in list(self._opened) if is_whole else ():
                self.close(fd)
        finally:
            self._dies_in, self._is_dead = None, False

    @contextmanager
    def ghost(self) -> Iterator[None]:
        """Let a dead process's objects be closed, which releases locks and descriptors, with no effect on any file."""
        self._is_ghost = True
        try:
            yield
        finally:
            self._is_ghost = False

    def lose_power(self) -> None:
        """Keep of every file what was synced and any part of the rest. No process may be running."""
        self.faults += 1
        for path, durable in sorted(self._durable_bytes.items()):
            if not os.path.exists(path):
                continue
            content = Path(path).read_bytes()
            kept = self._durable_content.get(path)
            if kept is not None and kept != content[: len(kept)]:
                content = self._dice.choice([kept, content])
            elif len(content) > durable:
                content = content[: self._dice.randint(durable, len(content))]
                if self._dice.random() < 0.3 and len(content) > durable:
                    torn = self._dice.randint(durable, len(content) - 1)
                    content = content[:torn] + bytes(len(content) - torn)
            Path(path).write_bytes(content)
            self._note_synced(path)

    def _before(self, operation: str) -> None:
        if self._is_dead:
            raise ProcessKilled
        if self._dies_in is not None:
            self._dies_in -= 1
            if self._dies_in < 0:
                self._is_dead = True
                raise ProcessKilled
        if operation in self.failing:
            self.faults += 1
            raise OSError(self._dice.choice([errno.EIO, errno.ENOSPC]), "as the simulation wants")

    def _write(self, fd: int, data: bytes, position: int) -> int:
        if self._is_ghost:
            return len(data)
        was_dead = self._is_dead
        try:
            self._before("write")
        except (ProcessKilled, OSError):
            if not was_dead:  # whatever cuts a write short leaves any of its sectors
                os.pwrite(fd, self._whole_sectors(data, position), position)
            raise
        return os.pwrite(fd, data, position)

    def _whole_sectors(self, data: bytes, position: int) -> bytes:
        """Return a first part of a write that ends where a sector does: no disk tears one."""
        ends = range(_SECTOR_BYTES - position % _SECTOR_BYTES, len(data), _SECTOR_BYTES)
        return data[: self._dice.choice([0, len(data), *ends])]

    # File operations ---------------------------------------------------------------------------------------------

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            if self._is_ghost:
                return os.open(os.devnull, os.O_RDWR)
            self._before("open")
        fd = os.open(path, flags, mode)
        self._opened.add(fd)
        name = os.path.abspath(path)
        if name.startswith(self._folder) and flags & (os.O_WRONLY | os.O_RDWR):
            self._paths[fd] = name
            self._durable_bytes.setdefault(name, os.fstat(fd).st_size)
        return fd

    def close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        self._opened.discard(fd)
        os.close(fd)

    def pwritev(self, fd: int, buffers: Sequence[Any], position: int) -> int:
        return self._write(fd, b"".join(buffers), position)

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        return self._write(fd, bytes(data), position)

    def write(self, fd: int, data: Any) -> int:
        position = os.lseek(fd, 0, os.SEEK_CUR)
        written = self._write(fd, bytes(data), position)
        os.lseek(fd, position + written, os.SEEK_SET)
        return written

    def ftruncate(self, fd: int, size: int) -> None:
        if self._is_ghost:
            return
        self._before("truncate")
        os.ftruncate(fd, size)
        name = self._paths.get(fd)
        if name is not None:
            self._durable_bytes[name] = min(self._durable_bytes[name], size)

    def fdatasync(self, fd: int) -> None:
        self.fsync(fd)

    def fsync(self, fd: int) -> None:
        if self._is_ghost:
            return
        self._before("sync")
        name = self._paths.get(fd)
        if name is not None:
            self._note_synced(name)

    def replace(self, source: Any, target: Any) -> None:
        if self._is_ghost:
            return
        self._before("replace")
        os.replace(source, target)
        old, new = os.path.abspath(source), os.path.abspath(target)
        self._durable_bytes[new] = self._durable_bytes.pop(old, os.path.getsize(new))
        self._durable_content.pop(old, None)
        self._durable_content.pop(new, None)

    def _note_synced(self, name: str) -> None:
        size = os.path.getsize(name)
        self._durable_bytes[name] = size
        if size <= _SMALL_BYTES:
            self._durable_content[name] = Path(name).read_bytes()
