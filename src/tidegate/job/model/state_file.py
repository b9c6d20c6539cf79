"""JSON documents of the state folder: replaced atomically, and verified when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegate.durable_files import FileDamaged, read_checked, write_checked
from tidegate.job.model.errors import JobError


def write_state(path: Path, document: Mapping[str, Any]) -> None:
    """Replace a document; it is durable when this returns.

    Raises:
        JobError: the disk refuses.
    """
    try:
        write_checked(path, document)
    except OSError as error:
        raise JobError(f"cannot write {path}: {error.strerror}") from error


def read_state(path: Path, version: int, unchecked_version: int) -> dict[str, Any] | None:
    """Return a document, or None if there is no such file.

    Args:
        version: the version of documents that `write_state` writes.
        unchecked_version: the version that was written before documents had a checksum.

    Raises:
        JobError: it is damaged, or of another version.
    """
    try:
        document = read_checked(path, unchecked_versions=(unchecked_version,))
    except OSError as error:
        raise JobError(f"cannot read {path}: {error.strerror}") from error
    except FileDamaged as error:
        raise JobError(f"{error}; restore the file, or move the state folder away to start afresh") from error
    if document is not None and document.get("version") not in (version, unchecked_version):
        raise JobError(f"{path} is not of version {version}; move the state folder away to start afresh")
    return document
