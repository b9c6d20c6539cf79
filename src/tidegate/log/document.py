"""Documents kept beside a partition's segments, such as how far its capture has come."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegate.durable_files import FileDamaged, decode_checked, make_folders, write_checked


class FolderDocument:
    """A document in a file of its own, with a checksum. The first write creates its folder."""

    def __init__(self, path: Path, advice: str) -> None:
        """`advice` says what a person can do about a damaged file; it ends the message of FileDamaged."""
        self.path = path
        self._advice = advice

    def __str__(self) -> str:
        return str(self.path)

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self.path.exists()

    def read(self) -> Mapping[str, Any] | None:
        """Return what was last written, None if there is no file, {} if it is empty. Raises FileDamaged, OSError."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        if not data:
            return {}
        try:
            return decode_checked(data)
        except ValueError as error:
            raise self.damaged(str(error)) from None

    def write(self, document: Mapping[str, Any]) -> None:
        """Replace the file, atomically and durably. Raises OSError, or ValueError if JSON has no form for it."""
        make_folders(self.path.parent)
        write_checked(self.path, document)

    def damaged(self, reason: str) -> FileDamaged:
        """Return the error to raise for content that makes no sense."""
        return FileDamaged(self.path, reason, self._advice)
