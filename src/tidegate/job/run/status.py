"""The status that a running job publishes: `status.json` in its state folder, about once a second.

It is for people and for `job blockers`; a restart needs only the journal. The file is replaced as a whole and carries a
checksum, but is never synced to disk.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegate.connectors.model.errors import JobError, UnavailableError
from tidegate.durable_files import FileDamaged, encode_checked, read_checked
from tidegate.engine import Program
from tidegate.job.run.placement_policy import RunLocation
from tidegate.job.runtime.step import Step, Timeline, gauges
from tidegate.job.runtime.watermark_blockers import watermark_report
from tidegate.ordering import Policy, format_time

_FILE = "status.json"
_VERSION = 2
_WRITE_EVERY_S = 1.0


class StatusFile:
    """The status of one run."""

    def __init__(
        self, folder: Path, program: Program, policy: Policy, now_ticks: Callable[[], int] = lambda: _now_ticks()
    ) -> None:
        self._path = folder / _FILE
        self._program = program
        self._policy = policy
        self._now_ticks = now_ticks
        self._written_at_s: float | None = None
        self._where: RunLocation | None = None
        self._watermarks: dict[Timeline, int] = {}
        self._since: dict[Timeline, int] = {}
        self._of_substreams: dict[tuple[str, str, str], tuple[str | None, str]] = {}

    def place(self, where: RunLocation) -> None:
        """Record where the run is; the file has it with the next step."""
        self._where = where

    def update(self, step: Step, totals: Mapping[str, int]) -> None:
        """Record a step, and write the file if it is due.

        Raises:
            UnavailableError: the disk refuses the write; a later attempt may succeed.
        """
        now = self._now_ticks()
        for timeline, state in step.timelines.items():
            if self._watermarks.get(timeline) != state.watermark:
                self._watermarks[timeline] = state.watermark
                self._since[timeline] = now
        if self._written_at_s is None or time.monotonic() - self._written_at_s >= _WRITE_EVERY_S or step.complete:
            self._write(step, totals, now)
            self._written_at_s = time.monotonic()

    def _write(self, step: Step, totals: Mapping[str, int], now: int) -> None:
        content = {
            "version": _VERSION,
            "updated": format_time(now),
            "process": os.getpid(),
            "waiting": None,
            "placement": None if self._where is None else {**self._where.as_json(), "stateBytes": step.state_bytes},
            **watermark_report(step.timelines, self._program, self._policy, self._since).as_json(),
            "metrics": {**totals, **gauges(step, now)},
        }
        self._watch_substreams(content["timelines"], content["updated"])
        _replace(self._path, content)

    def _watch_substreams(self, timelines: Sequence[dict[str, Any]], now: str) -> None:
        """Add the time since which each of the slowest substreams has had its present watermark."""
        before, self._of_substreams = self._of_substreams, {}
        for one in timelines:
            for substream in one["substreams"]:
                key = (one["input"], one["partition"], substream["key"])
                watermark, since = before.get(key, (None, now))
                substream["since"] = since if watermark == substream["watermark"] else now
                self._of_substreams[key] = (substream["watermark"], substream["since"])


def note_waiting(folder: Path, what: str | None) -> None:
    """Write into the status of this process what its run waits for; None: nothing. The next step says nothing of it.

    The run itself cannot: it waits, perhaps before its first step.
    """
    before: dict[str, Any] | None = None
    with contextlib.suppress(OSError, FileDamaged):
        before = read_checked(folder / _FILE)
    if before is None or before.get("process") != os.getpid():
        timelines: dict[str, Any] = {"watermark": None, "bySubstream": False, "heldBackBy": [], "timelines": []}
        before = {"version": _VERSION, "process": os.getpid(), "placement": None, **timelines, "metrics": {}}
    # A disk that refuses is reported by the next step.
    with contextlib.suppress(UnavailableError):
        _replace(folder / _FILE, {**before, "updated": format_time(_now_ticks()), "waiting": what})


def _replace(path: Path, content: Mapping[str, Any]) -> None:
    beside = path.with_name(f".{_FILE}.new")
    try:
        beside.write_bytes(encode_checked(content) + b"\n")
        os.replace(beside, path)
    except OSError as error:
        raise UnavailableError(f"cannot write {path}: {error.strerror}") from error


def read_status(folder: Path) -> dict[str, Any] | None:
    """Return the latest status of the job that runs over a state folder; None if none runs or none has been written.

    Raises:
        JobError: the file is damaged.
    """
    path = folder / _FILE
    try:
        content = read_checked(path)
        if content is None:
            return None
        # Trying the folder's lock would also show it, but could turn away a job that starts at that moment.
        os.kill(int(content["process"]), 0)
    except PermissionError:
        return content
    except FileDamaged as error:
        raise JobError(
            f"{error}; a running job writes it again within a second, and a job that does not run does not need it: "
            "delete the file"
        ) from error
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return content


def _now_ticks() -> int:
    return time.time_ns() // 100
