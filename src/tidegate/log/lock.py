"""One process owns a directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tidegate.log.errors import DirectoryLocked


class DirectoryLock:
    """An exclusive lock on `directory` (created if missing), held until `release` or the end of the process.

    The lock is the kernel's (flock on the file `name`), so a crash leaves none behind; the process id in the file is
    for people.
    """

    def __init__(self, directory: Path, name: str = "lock") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._fd, 20, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise DirectoryLocked(
                f"{directory} is in use by process {owner or 'unknown'}: stop it first, or choose another directory"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Give the directory up; again is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
