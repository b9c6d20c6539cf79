"""What a running job shows of itself: `status.json` in its state folder, about once a second.

It is for looking at, not for going on from (that is the journal), so it is replaced whole but never synced.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegate.engine import Program
from tidegate.job.model.errors import UnavailableError
from tidegate.job.runtime.step import Step, Timeline, gauges
from tidegate.job.runtime.watermark_blockers import watermark_report
from tidegate.ordering import Policy, format_time

_FILE = "status.json"
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
        self._watermarks: dict[Timeline, int] = {}
        self._since: dict[Timeline, int] = {}
        self._of_substreams: dict[tuple[str, str, str], tuple[str | None, str]] = {}

    def see(self, step: Step, totals: Mapping[str, int]) -> None:
        """Take note of a step, and write if it is time.

        Raises:
            UnavailableError: the disk refuses; it may be asked again.
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
            "updated": format_time(now),
            "process": os.getpid(),
            **watermark_report(step.timelines, self._program, self._policy, self._since).as_json(),
            "metrics": {**totals, **gauges(step, now)},
        }
        self._watch_substreams(content["timelines"], content["updated"])
        beside = self._path.with_suffix(".new")
        try:
            beside.write_text(json.dumps(content), encoding="utf-8")
            os.replace(beside, self._path)
        except OSError as error:
            raise UnavailableError(f"cannot write {self._path}: {error.strerror}") from error

    def _watch_substreams(self, timelines: Sequence[dict[str, Any]], now: str) -> None:
        """Say since when the slowest substreams have been seen where they are."""
        before, self._of_substreams = self._of_substreams, {}
        for one in timelines:
            for substream in one["substreams"]:
                key = (one["input"], one["partition"], substream["key"])
                watermark, since = before.get(key, (None, now))
                substream["since"] = since if watermark == substream["watermark"] else now
                self._of_substreams[key] = (substream["watermark"], substream["since"])


def read_status(folder: Path) -> dict[str, Any] | None:
    """What the job that is running over a state folder last said of itself; None if none is running, or none yet."""
    try:
        content: dict[str, Any] = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        # The lock on the folder would tell as well, but to try it could turn away a job that starts at that moment.
        os.kill(int(content["process"]), 0)
    except PermissionError:
        return content
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return content


def _now_ticks() -> int:
    return time.time_ns() // 100
