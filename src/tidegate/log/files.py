"""The few file operations a log is made of, in one place so that a test can make any of them fail."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

_fdatasync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class Files:
    """The operating system's. Every method raises OSError."""

    def open(self, path: Path) -> int:
        """For reading and writing, created if missing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def open_to_read(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def write_at(self, fd: int, position: int, buffers: Sequence[bytes]) -> None:
        """All of the buffers, one after the other, or an error with any part of them written."""
        written = os.pwritev(fd, buffers, position)
        whole = sum(map(len, buffers))
        if written < whole:  # a full disk or a signal may cut a write short; the rest is tried once more to learn which
            rest = memoryview(b"".join(buffers))
            while written < whole:
                written += os.pwrite(fd, rest[written:], position + written)

    def read_at(self, fd: int, position: int, size: int) -> bytes:
        return os.pread(fd, size, position)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def sync(self, fd: int) -> None:
        """Content and length on the disk when it returns."""
        _fdatasync(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def close(self, fd: int) -> None:
        os.close(fd)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_directory(self, directory: Path) -> None:
        """Makes created and removed names durable."""
        fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
