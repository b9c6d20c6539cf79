"""The queries that a job has run, and which results are whose: `versions.json` in its state folder.

Results depend on the log alone, so one query can take over from another at any output time: the old one has computed
every result before it, the new one computes every result from it on. There is no gap, and no result is there twice.
A job whose query, functions or event ordering has changed therefore continues where its results ended. This file says
where that was, in time and by rows of each output.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tidegate.connectors.model.state_file import DamagedStateError, read_state, write_state
from tidegate.job.prepare.loading import Job
from tidegate.job.run.journal import Commit
from tidegate.ordering import END_OF_TIME, NO_TIME, format_time

FILE = "versions.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class QueryVersion:
    """One query with its functions and event ordering.

    Attributes:
        fingerprint: what tells it apart (`Job.fingerprint`).
        query: its text; None if somebody has deleted the file in which it stood.
        event_ordering: its policy, for people.
        since: when it was first run; None if that is not known.
        results_from: its results begin at this time; None: at the log's beginning.
        first_rows: by output, how many rows the output had when it took over.
    """

    fingerprint: str
    query: str | None
    event_ordering: str | None
    since: str | None
    results_from: str | None = None
    first_rows: Mapping[str, int] = field(default_factory=dict)


class Versions:
    """The versions of one job."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def read(self) -> list[QueryVersion]:
        """Return all versions, the oldest first.

        Raises:
            JobError: the file is damaged or cannot be read.
        """
        content = read_state(self._path, _VERSION)
        if content is None:
            return []
        try:
            return [QueryVersion(**version) for version in content["versions"]]
        except (KeyError, TypeError) as error:
            raise DamagedStateError(self._path, repr(error)) from error

    def begin(self, job: Job, start: int | None) -> None:
        """Record the query of a job that runs for the first time, or whose file is gone.

        Args:
            start: the output start time in ticks, if there is one.

        Raises:
            JobError: the file is damaged, or the disk refuses.
        """
        if not self.read():
            self._write([_present(job, start or NO_TIME, {})])

    def take_over(self, job: Job, commit: Commit, released: int, rows: Mapping[str, int]) -> None:
        """Record that the query of a job takes over from that of its journal.

        Args:
            commit: the last commit of the query before.
            released: ticks; the output start time of the new one.
            rows: by output, how many rows it has.

        Raises:
            JobError: the file is damaged, or the disk refuses.
        """
        before = self.read() or [QueryVersion(commit.query, None, None, None)]
        if before[-1].fingerprint != commit.query:
            before = before[:-1]  # An earlier attempt ended before the journal had it.
        present = _present(job, released, rows)
        self._write([present] if released == NO_TIME else [*before, present])

    def _write(self, versions: list[QueryVersion]) -> None:
        write_state(self._path, {"version": _VERSION, "versions": [asdict(version) for version in versions]})


def _present(job: Job, start: int, rows: Mapping[str, int]) -> QueryVersion:
    bounded = start not in (NO_TIME, END_OF_TIME)
    return QueryVersion(
        fingerprint=job.fingerprint,
        query=job.sql,
        event_ordering=job.policy.describe(),
        since=format_time(time.time_ns() // 100),
        results_from=format_time(start) if bounded else None,
        first_rows=dict(rows),
    )


def rows_of(marks: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Return by output how many rows its mark counts."""
    return {name: mark["rows"] for name, mark in marks.items()}
