"""What a job's process leaves in its folders, as readers of the service want it: the log, data errors, versions.

The job's own folder has the log; its state folder, which `tidegate job run` shares, has everything else.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tidegate.durable_files import FileDamaged, read_checked
from tidegate.service.resource import QueryPeriod

LOG = "log.jsonl"
CONSOLE = "console.jsonl"
METRICS = "metrics.json"
STATE = "state"
_JOURNAL = "journal.json"
_VERSIONS = "versions.json"
_STATUS = "status.json"
DATA_ERRORS = "data-errors.jsonl"
_BLOCK_BYTES = 64 << 10
_LONGEST_LOG_BYTES = 8 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_TICKS = 253_402_300_799 * 10_000_000


@dataclass(frozen=True, slots=True)
class LogPage:
    """Lines of a job's log.

    Attributes:
        lines: the oldest first; each has `time`, `level` and `message`, and further fields.
        next: pass it as `after` to get the lines that follow.
    """

    lines: tuple[Mapping[str, Any], ...]
    next: int


def read_log(folder: Path, *, limit: int, after: int | None = None) -> LogPage:
    """Return the last lines of a job's log, or the first ones after a place.

    Args:
        limit: how many at most.
        after: the `next` of an earlier page; None: the end of the log. A log that was rotated since is read from its
            beginning.
    """
    path = folder / LOG
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            if after is None:
                begin, lines = _last_lines(file, end, limit)
            else:
                begin = after if after <= end else 0
                file.seek(begin)
                lines = [line for _, line in zip(range(limit), file, strict=False)]
    except FileNotFoundError:
        return LogPage((), 0)
    # The last line may be in the middle of being written.
    whole = [line for line in lines if line.endswith(b"\n")]
    return LogPage(tuple(map(_entry, whole)), begin + sum(map(len, whole)))


def rotate(folder: Path) -> None:
    """Copy logs that have grown to NAME.1 and empty them; the process that writes them keeps its open file."""
    for name in (LOG, CONSOLE):
        path = folder / name
        try:
            if path.stat().st_size > _LONGEST_LOG_BYTES:
                shutil.copyfile(path, folder / f"{name}.1")
                os.truncate(path, 0)
        except FileNotFoundError:
            continue


def _last_lines(file: Any, end: int, limit: int) -> tuple[int, list[bytes]]:
    begin, data = end, b""
    while begin and data.count(b"\n") <= limit:
        size = min(_BLOCK_BYTES, begin)
        begin -= size
        file.seek(begin)
        data = file.read(size) + data
    lines = data.splitlines(keepends=True)
    lines = lines[1:] if begin and len(lines) > limit else lines
    kept = lines[-limit:] if limit else []
    return end - sum(map(len, kept)), kept


def _entry(line: bytes) -> Mapping[str, Any]:
    """Return a line as an object; what a library printed has only a message."""
    text = line.decode("utf-8", "replace").rstrip()
    try:
        entry = json.loads(text)
    except ValueError:
        entry = None
    return entry if isinstance(entry, dict) else {"time": None, "level": None, "message": text}


def read_data_errors(state: Path, limit: int) -> list[Mapping[str, Any]]:
    """Return the newest samples of events and results that could not be used, the oldest of them first."""
    try:
        with (state / DATA_ERRORS).open("rb") as file:
            _, lines = _last_lines(file, file.seek(0, os.SEEK_END), limit)
    except FileNotFoundError:
        return []
    return [_entry(line) for line in lines if line.endswith(b"\n")]


def read_versions(state: Path) -> tuple[QueryPeriod, ...]:
    """Return the queries that were run over a state folder, the oldest first."""
    content = _checked(state / _VERSIONS)
    return tuple(_versions(content)) if content else ()


def _versions(content: Mapping[str, Any]) -> Iterator[QueryPeriod]:
    versions = content["versions"]
    ends = [version["results_from"] for version in versions[1:]] + [None]
    for version, end in zip(versions, ends, strict=True):
        yield QueryPeriod(
            version["fingerprint"],
            version["query"],
            version["since"],
            version["results_from"],
            end,
            version["first_rows"],
        )


def read_last_output(state: Path) -> datetime | None:
    """Return up to which time the results of a job have left; None if none have, or all of a log that has ended."""
    content = _checked(state / _JOURNAL)
    return time_of_ticks(content["released"]) if content else None


def read_status(state: Path) -> dict[str, Any] | None:
    """Return what the job last said about its watermarks, whether it still runs or not."""
    return _checked(state / _STATUS)


def read_placement(state: Path) -> dict[str, Any] | None:
    """Return where the job last ran, and why; None if it has not said."""
    content = _checked(state / _STATUS)
    return None if content is None else content.get("placement")


def time_of_ticks(ticks: int) -> datetime | None:
    """Return a time of events; None for the beginning and the end of time."""
    if not -62_135_596_800 * 10_000_000 < ticks < _LAST_TICKS:
        return None
    return _EPOCH + timedelta(microseconds=ticks // 10)


def _checked(path: Path) -> dict[str, Any] | None:
    """Return a checked file's content; None if it is missing or damaged, which only its owner needs to complain of."""
    try:
        return read_checked(path)
    except (FileDamaged, OSError):
        return None
