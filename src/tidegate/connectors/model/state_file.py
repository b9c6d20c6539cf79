"""Small JSON files in a job's state folder that record what the job has read or emitted.

Each is replaced atomically and carries a checksum (`tidegate.durable_files`), so that a crash leaves the old content
or the new, and a damaged file is refused instead of changing results.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegate.connectors.model.errors import JobError, UnavailableError
from tidegate.durable_files import FileDamaged, read_checked, write_checked


class DamagedStateError(JobError):
    """A file of a state folder differs from what was written."""

    def __init__(self, path: Path, reason: str, advice: str | None = None) -> None:
        """
        Args:
            path: the file.
            reason: what is wrong with it.
            advice: what to do; None: what there is to do about a job's state folder, in which the file is.
        """
        advice = advice or (
            f"restore the state folder {path.parent} from a backup, or move it and the job's outputs away and start "
            "the job again, which recomputes all results"
        )
        super().__init__(f"{path} is damaged: {reason}; {advice}")


def write_state(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a state file with content that has a `version`, and return once it is durable.

    Raises:
        UnavailableError: the disk refuses the write; a later attempt may succeed.
    """
    try:
        write_checked(path, content)
    except OSError as error:
        raise UnavailableError(f"cannot write {path}: {error.strerror}") from error


def read_state(path: Path, version: int) -> dict[str, Any] | None:
    """Return the content of a state file; None if there is no such file.

    Args:
        version: the version that `write_state` writes.

    Raises:
        DamagedStateError: the content differs from what was written.
        JobError: the file cannot be read, or another version of Tidegate wrote it.
    """
    try:
        content = read_checked(path)
    except FileDamaged as error:
        raise DamagedStateError(path, error.reason) from error
    except OSError as error:
        raise JobError(f"cannot read {path}: {error.strerror}") from error
    if content is None:
        return None
    found = content.get("version")
    if found != version:
        raise JobError(
            f"{path} was written by another version of Tidegate (its format is {found!r}, this one reads {version}); "
            f"run the job with that version, or move {path.parent} and the job's outputs away and start the job again"
        )
    return content
