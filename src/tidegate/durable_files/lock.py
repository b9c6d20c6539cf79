"""A directory that one process owns."""

from __future__ import annotations

import importlib
import os
from contextlib import suppress
from pathlib import Path

from tidegate.durable_files.operations import Files

_FILES = Files()
_LOCKED_BYTE = 1 << 30  # Windows refuses to read locked bytes: the lock is far behind the process id
_OWNER_BYTES = 20


class DirectoryLocked(Exception):
    """Another process owns the directory."""


class DirectoryLock:
    """An exclusive lock on `directory`, held until `release` or the end of the process.

    The lock is the operating system's, on the file `name`, so a crash leaves none behind; the process id in the file is
    for people.
    """

    def __init__(self, directory: Path, name: str = "lock") -> None:
        """Lock the directory, which is created if it is missing.

        Raises:
            DirectoryLocked: Another process holds the lock; the message names it and says what to do.
            OSError: The lock file cannot be opened.
        """
        directory.mkdir(parents=True, exist_ok=True)
        try:
            self._fd = _FILES.open(directory / name)
        except OSError:
            if not (directory / name).exists():
                raise
            self._fd = _FILES.open_to_read(directory / name)  # a disk that takes no writes can still be read
        if not _try_lock(self._fd):
            owner = _FILES.read_at(self._fd, 0, _OWNER_BYTES).decode("ascii", "replace").strip()
            _FILES.close(self._fd)
            raise DirectoryLocked(
                f"{directory} is in use by process {owner or 'unknown'}: stop it first, or choose another directory"
            )
        # The process id only helps people, so a full disk does not prevent the lock.
        with suppress(OSError):
            _FILES.truncate(self._fd, 0)
            _FILES.write_at(self._fd, 0, [f"{os.getpid()}\n".encode("ascii")])

    def release(self) -> None:
        """Give the directory up. Calling it again does nothing."""
        if self._fd >= 0:
            _FILES.close(self._fd)
            self._fd = -1


def _try_lock(fd: int) -> bool:
    try:
        fcntl = importlib.import_module("fcntl")
    except ImportError:
        return _try_lock_on_windows(fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_lock_on_windows(fd: int) -> bool:
    msvcrt = importlib.import_module("msvcrt")
    os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True
