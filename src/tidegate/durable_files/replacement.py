"""Replacing a file's content atomically and durably.

The new content is written beside the old, synced, and renamed over it; then the folder is synced. A rename is atomic,
so whatever happens in between, the old content or the new is found, whole. The order matters: without the first sync a
power failure may keep the rename and lose the content; without the second it may lose the rename after the caller was
told that it had happened. See Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014:
https://www.usenix.org/conference/osdi14/technical-sessions/presentation/pillai
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

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
