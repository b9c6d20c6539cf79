"""Files that survive a crash: replaced atomically, verified when read, and owned by one process at a time.

Everything that decides what was acknowledged or emitted is written through this module. `replace_file` puts new
content in place of old, whole or not at all; `write_checked` and `read_checked` do the same for JSON documents that
carry a checksum; `DirectoryLock` keeps a second process out. `Files` holds the few operations of the operating system
underneath, so that they have one portable implementation and tests can make any of them fail.

How a file is replaced. The new content is written beside the old, synced, and renamed over it; then the folder is
synced. A rename is atomic, so whatever happens in between, the old content or the new is found, whole. The order
matters: without the first sync a power failure may keep the rename and lose the content; without the second it may lose
the rename after the caller was told that it had happened. See Pillai et al., "All File Systems Are Not Created Equal",
OSDI 2014: https://www.usenix.org/conference/osdi14/technical-sessions/presentation/pillai

A checked document is an ordinary JSON object whose last member is `"checksum": "crc32c:…"`, the CRC-32C (in hex) of the
bytes before that member. People and tools can read it; a changed digit, a lost half or a foreign file is refused.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from google_crc32c import value as crc32c

__all__ = [
    "DirectoryLock",
    "DirectoryLocked",
    "FileDamaged",
    "Files",
    "decode_checked",
    "encode_checked",
    "make_folders",
    "read_checked",
    "refuses_writes",
    "replace_file",
    "try_lock",
    "write_checked",
]

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
    """The operating system's file operations. Every method raises OSError.

    Windows lacks positional reads and writes, `fdatasync`, and a way to sync a directory; it also refuses to rename
    over or delete a file that another process has open. Each method says what it does there.
    """

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


_FILES = Files()


def replace_file(path: Path, content: bytes | Iterable[bytes], *, mode: int = 0o640, files: Files = _FILES) -> None:
    """Make `content` the durable content of the file at `path`, which need not exist yet.

    One writer at a time: the new content is first written to `.NAME.new` in the same folder, which a crash may leave
    behind and the next replacement overwrites.

    Args:
        path: The file. Its folder must exist.
        content: The new content, whole or in pieces.
        mode: Permissions of the file, from which the umask is taken.
        files: The operating system, unless a test says otherwise.

    Raises:
        OSError: The old content or the new is in place, and the new may not be durable.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        fd = files.create(new, mode)
        try:
            position = 0
            for piece in (content,) if isinstance(content, bytes) else content:
                files.write_at(fd, position, [piece])
                position += len(piece)
            files.sync(fd)
        finally:
            files.close(fd)
        files.replace(new, path)
    except BaseException:
        with suppress(OSError):  # a full disk needs the space
            files.remove(new)
        raise
    files.sync_directory(path.parent)


def make_folders(folder: Path, *, files: Files = _FILES) -> None:
    """Create a folder and its parents, durably. Existing ones are left alone. Raises OSError."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        files.sync_directory(new.parent)


_CHECKSUM = "checksum"
_SUFFIX = re.compile(rb'(?:, |,?\n  )?"checksum": "crc32c:([0-9a-f]{8})"\n?\}\n?\Z')


class FileDamaged(Exception):
    """The file's content is not what was written.

    Attributes:
        path: The file.
        reason: What is wrong with it, for people.
        advice: What a person can do about it.
    """

    def __init__(self, path: Path, reason: str, advice: str = "restore it from a backup") -> None:
        self.path = path
        self.reason = reason
        self.advice = advice
        super().__init__(f"{path} is damaged: {reason}; {advice}")


def encode_checked(document: Mapping[str, Any], *, indented: bool = False) -> bytes:
    """Return the document as JSON with its checksum, without a final line end.

    Args:
        document: The members.
        indented: Write a line for each member, for documents that people read, instead of one for all.

    Raises:
        ValueError: The document already has a `checksum`, or JSON has no form for a value.
    """
    if _CHECKSUM in document:
        raise ValueError(f"{_CHECKSUM!r} is the name of the checksum and cannot be another member's")
    body = json.dumps(document, allow_nan=False, indent=2 if indented else None).encode("ascii")
    members = body[:-1].rstrip()
    separator = (b"," if document else b"") + (b"\n  " if indented else b" " if document else b"")
    end = b"\n}" if indented else b"}"
    return b'%b%b"checksum": "crc32c:%08x"%b' % (members, separator, crc32c(members), end)


def decode_checked(data: bytes) -> dict[str, Any]:
    """Return the document in `data`, without its checksum.

    Args:
        data: What `encode_checked` returned, with or without a line end.

    Raises:
        ValueError: The bytes are not a document, or not the one that was written; the message says which.
    """
    found = _SUFFIX.search(data)
    members = data[: found.start()] if found else b""
    if found and crc32c(members) != int(found[1], 16):
        raise ValueError("its checksum differs from its content")
    try:
        document = json.loads(members + b"}" if found else data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from None
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    if not found:
        raise ValueError("it has no checksum")
    return document


def write_checked(
    path: Path, document: Mapping[str, Any], *, indented: bool = False, mode: int = 0o640, files: Files = _FILES
) -> None:
    """Replace the file at `path` by the document with its checksum, atomically and durably (see `replace_file`).

    Raises:
        ValueError: JSON has no form for the document.
        OSError: The old document or the new is in place, and the new may not be durable.
    """
    replace_file(path, encode_checked(document, indented=indented) + b"\n", mode=mode, files=files)


def read_checked(path: Path, *, advice: str = "restore it from a backup") -> dict[str, Any] | None:
    """Return the document that was last written to `path`, None if there is no such file.

    Args:
        path: The file.
        advice: What a person can do about a damaged file; it ends the message of FileDamaged.

    Raises:
        FileDamaged: The file holds something else.
        OSError: The file cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return decode_checked(data)
    except ValueError as error:
        raise FileDamaged(path, str(error), advice) from None


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
        if not try_lock(self._fd):
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


def try_lock(fd: int) -> bool:
    """Lock an open file until it is closed, and return False if another open file has the lock. Raises OSError."""
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
