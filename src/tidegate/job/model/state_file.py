"""Small JSON files of a job's state folder that decide what the job has read or emitted.

Each is replaced atomically and carries a checksum (`tidegate.durable_files`), so that a crash leaves the old content
or the new, and a damaged file is refused instead of changing results.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegate.durable_files import FileDamaged, read_checked, write_checked
from tidegate.job.model.errors import JobError, UnavailableError


class DamagedStateError(JobError):
    """A file of a state folder is not what was written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path} is damaged: {reason}; restore the state folder {path.parent} from a backup, or move it and the "
            "job's outputs away and start the job again, which computes all results anew"
        )


def write_state(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a state file; return when its new content, which has a `version`, is durable.

    Raises:
        UnavailableError: the disk refuses; a later attempt may succeed.
    """
    try:
        write_checked(path, content)
    except OSError as error:
        raise UnavailableError(f"cannot write {path}: {error.strerror}") from error


def read_state(path: Path, version: int, unchecked_version: int) -> dict[str, Any] | None:
    """Return the content of a state file; None if there is no such file.

    Args:
        version: what `write_state` writes today.
        unchecked_version: the version before there were checksums. A job that finds one reads it, and writes today's
            version at its next commit.

    Raises:
        DamagedStateError: the content is not what was written.
        JobError: the file cannot be read, or another version of Tidegate wrote it.
    """
    try:
        content = read_checked(path, unchecked_versions=(unchecked_version,))
    except FileDamaged as error:
        raise DamagedStateError(path, error.reason) from error
    except OSError as error:
        raise JobError(f"cannot read {path}: {error.strerror}") from error
    if content is None:
        return None
    found = content.get("version")
    if found not in (version, unchecked_version):
        raise JobError(
            f"{path} was written by another version of Tidegate (its format is {found!r}, this one reads {version}); "
            f"run the job with that version, or move {path.parent} and the job's outputs away and start the job again"
        )
    return content
