"""The file operations that durability rests on, in one place: portable, and replaceable by a test that makes one fail.

Windows lacks positional reads and writes, `fdatasync`, and a way to sync a directory; it also refuses to rename over or
delete a file that another process has open. Each method says what it does there.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path

_IS_WINDOWS = os.name == "nt"
_RETRIES = 100
_RETRY_PAUSE_S = 0.01


_REFUSALS = frozenset(
    getattr(errno, name, -1) for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS", "EACCES", "EPERM")
)


def refuses_writes(error: OSError) -> bool:
    """Return whether a disk may take no writes, and can still be read: full, over a quota, failing or read-only."""
    return error.errno in _REFUSALS


def _flags(flags: int) -> int:
    # O_BINARY exists on Windows only, where text mode would rewrite line ends
    return flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Files:
    """The operating system's file operations. Every method raises OSError."""

    def open(self, path: Path) -> int:
        """Open for reading and writing; create the file if it is missing."""
        return os.open(path, _flags(os.O_RDWR | os.O_CREAT), 0o640)

    def open_to_read(self, path: Path) -> int:
        """Open an existing file for reading."""
        return os.open(path, _flags(os.O_RDONLY))

    def create(self, path: Path, mode: int = 0o640) -> int:
        """Open for writing, empty. `mode` holds the permissions of a new file, from which the umask is taken."""
        return os.open(path, _flags(os.O_RDWR | os.O_CREAT | os.O_TRUNC), mode)

    def write_at(self, fd: int, position: int, buffers: Sequence[bytes]) -> None:
        """Write all of the buffers one after the other, or raise with any part of them written."""
        if not hasattr(os, "pwritev"):
            os.lseek(fd, position, os.SEEK_SET)
            rest = memoryview(b"".join(buffers))
            while rest:
                rest = rest[os.write(fd, rest) :]
            return
        written = os.pwritev(fd, buffers, position)
        whole = sum(map(len, buffers))
        if written < whole:  # a full disk or a signal may cut a write short; writing the rest tells which
            rest = memoryview(b"".join(buffers))
            while written < whole:
                written += os.pwrite(fd, rest[written:], position + written)

    def read_at(self, fd: int, position: int, size: int) -> bytes:
        """Read up to `size` bytes. On Windows two threads must not share the descriptor."""
        if not hasattr(os, "pread"):
            os.lseek(fd, position, os.SEEK_SET)
            return os.read(fd, size)
        return os.pread(fd, size, position)

    def size(self, fd: int) -> int:
        """Return the file's size in bytes."""
        return os.fstat(fd).st_size

    def sync(self, fd: int) -> None:
        """Make the file's content and length durable."""
        if hasattr(os, "fdatasync"):  # neither macOS nor Windows has it
            os.fdatasync(fd)
        else:
            os.fsync(fd)

    def truncate(self, fd: int, size: int) -> None:
        """Cut or extend the file."""
        os.ftruncate(fd, size)

    def close(self, fd: int) -> None:
        """Close the descriptor."""
        os.close(fd)

    def replace(self, source: Path, target: Path) -> None:
        """Rename over what is there. On Windows, retry for a second while another process has the target open."""
        for _ in range(_RETRIES if _IS_WINDOWS else 0):
            try:
                os.replace(source, target)
            except PermissionError:
                time.sleep(_RETRY_PAUSE_S)
            else:
                return
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Delete a file if it exists."""
        path.unlink(missing_ok=True)

    def sync_directory(self, directory: Path) -> None:
        """Make created, renamed and removed names durable. Windows needs no such operation: NTFS journals names."""
        if not hasattr(os, "O_DIRECTORY"):
            return
        fd = os.open(directory, _flags(os.O_RDONLY))
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
