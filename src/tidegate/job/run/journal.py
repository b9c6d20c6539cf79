"""What a job remembers between runs: one small file, replaced whole.

A restart is a start: a job that finds a journal reads on from the watermark it holds, as one started there by hand
would. So the journal keeps only what the log cannot tell again: up to where results have left, how long each output
was then (what an output holds beyond that was written by a step that did not finish, and is cut off and written
again), and what had been counted. The file is written beside the old one, flushed to the disk and moved over it, so
that a crash leaves the one or the other.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tidegate.job.model.errors import JobError, UnavailableError

_VERSION = 2


@dataclass(frozen=True, slots=True)
class Commit:
    """The state of a job after a step.

    Attributes:
        identity: which journal this is, so that an output knows its marks from those of a job started afresh.
        query: a fingerprint of what was run; another query cannot go on from here.
        released: ticks; every result before this time has left, none at or after it.
        ahead: by output, up to where results have left of those that are beyond ``released``; ticks.
        positions: by input and partition, the sequence number that counting goes on from.
        counters: metric totals over the life of the job.
        outputs: by output, its mark: what the output needs to come back to this commit.
        left: of a job whose substreams leave by themselves, which results from ``released`` on have left: those before
            the second time that wait for an arrival before the first; ticks.
        early: where early results came to (`tidegate.job.early_results`).
        explained: ticks; events that arrived before have their explanation, where the job gives any.
        promises: by input and partition, ticks; the last word of the log that moved the watermark without an event.
        steps: how many steps have been committed.
    """

    identity: str
    query: str
    released: int
    ahead: dict[str, int] = field(default_factory=dict)
    positions: dict[str, dict[str, int]] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    left: tuple[int, int] | None = None
    early: dict[str, Any] | None = None
    explained: int | None = None
    promises: dict[str, dict[str, int]] = field(default_factory=dict)
    steps: int = 0


class Journal:
    """The journal of one job in its state folder, open for one process at a time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "journal.json"
        self._folder = folder

    def read(self) -> Commit | None:
        """The last commit, None before the first.

        Raises:
            JobError: the file is not a journal of this version.
        """
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise JobError(
                f"cannot read the journal {self._path}: {error}; move the folder away to start afresh"
            ) from error
        if not isinstance(content, dict) or content.pop("version", None) != _VERSION:
            raise JobError(f"{self._path} is not a journal of version {_VERSION}; move the folder away to start afresh")
        try:
            return Commit(**content)
        except TypeError as error:
            raise JobError(f"{self._path} is damaged ({error}); move the folder away to start afresh") from error

    def write(self, commit: Commit) -> None:
        """Make a commit durable; returns when it is.

        Raises:
            UnavailableError: the disk refuses.
        """
        beside = self._path.with_suffix(".new")
        try:
            with beside.open("w", encoding="utf-8") as file:
                json.dump({"version": _VERSION, **asdict(commit)}, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self._path)
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise UnavailableError(f"cannot write the journal {self._path}: {error.strerror}") from error
