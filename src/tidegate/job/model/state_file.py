"""Files of the state folder that are replaced whole: beside the old one, flushed to the disk, and moved over it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tidegate.job.model.errors import JobError


def write_state(path: Path, content: bytes) -> None:
    """Make a file's new content durable; returns when it is.

    Raises:
        JobError: the disk refuses.
    """
    beside = path.with_name(f".{path.name}.new")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise JobError(f"cannot write {path}: {error.strerror}") from error


def read_state(path: Path, version: int) -> dict[str, Any] | None:
    """What a JSON file of the state folder holds; None if there is no such file.

    Raises:
        JobError: it is not such a file, or of another version.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise JobError(f"cannot read {path}: {error}; move the folder away to start afresh") from error
    if not isinstance(content, dict) or content.get("version") != version:
        raise JobError(f"{path} is not of version {version}; move the folder away to start afresh")
    return content
