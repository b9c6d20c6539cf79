"""Replace a file's content atomically and durably; JSON documents carry a checksum, so that damage is found.

The new content is written beside the old, synced, and renamed over it; then the folder is synced. A rename is atomic,
so whatever happens in between, the old content or the new is found, whole. The order matters: without the first sync a
power failure may keep the rename and lose the content; without the second it may lose the rename after the caller was
told that it had happened. See Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014:
https://www.usenix.org/conference/osdi14/technical-sessions/presentation/pillai

A checked document is an ordinary JSON object whose last member is `"checksum": "crc32c:…"`, the CRC-32C (in hex) of the
bytes before that member. People and tools can read it; a changed digit, a lost half or a foreign file is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from google_crc32c import value as crc32c

from tidegate.durable_files.operations import Files

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


_FILES = Files()
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
