"""What a job remembers between runs: one small file, replaced as a whole.

A restart is a start: a job that finds a journal reads on from the watermark in it, as if it had been started there by
hand. The journal therefore keeps only what the log cannot tell: up to where results have left, how much each output
held then (rows beyond that were written by a step that did not finish, and are dropped and written again), and the
counters. The file carries a checksum (`tidegate.connectors.model.state_file`), as a changed digit would change results.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tidegate.connectors.model.state_file import DamagedStateError, read_state, write_state
from tidegate.ordering import NO_TIME

FILE = "journal.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Commit:
    """The state of a job after a step.

    Attributes:
        identity: which journal this is, so that an output can tell its marks from those of a job started anew.
        query: a fingerprint of what was run; a changed query takes over from here (`tidegate.job.run.versions`).
        released: ticks; every result before this time has left, none at or after it.
        ahead: by output, ticks; up to where its results have left, for outputs that are ahead of ``released``.
        positions: by input and partition, the sequence number from which events have not been counted.
        counters: metric totals over the life of the job.
        outputs: by output, its mark: what the output needs to return to this commit. The mark of an output that only
            an earlier query wrote is kept.
        left: ticks; with substreams that leave on their own watermark, which results from ``released`` on have left:
            those before the second time that wait for an arrival before the first.
        side_outputs: by section of the job file, the state of its side output.
        steps: how many commits there have been.
        logs: by input and partition, the identity of the log that the positions are in, where it has one.
    """

    identity: str
    query: str
    released: int
    ahead: dict[str, int] = field(default_factory=dict)
    positions: dict[str, dict[str, int]] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    left: tuple[int, int] | None = None
    side_outputs: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    logs: dict[str, dict[str, str]] = field(default_factory=dict)


class Journal:
    """The journal of one job in its state folder, open for one process at a time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def read_commit(self) -> Commit | None:
        """Return the last commit, or None before the first.

        Raises:
            DamagedStateError: the file is not what was written.
            JobError: the file cannot be read, or another version of Tidegate wrote it.
        """
        content = read_state(self._path, _VERSION)
        if content is None:
            return None
        del content["version"]
        try:
            commit = Commit(**content)
        except TypeError as error:
            raise DamagedStateError(self._path, str(error)) from error
        problem = _problem(commit)
        if problem is not None:
            raise DamagedStateError(self._path, problem)
        return commit

    def write_commit(self, commit: Commit) -> None:
        """Make a commit durable; return when it is.

        Raises:
            UnavailableError: the disk refuses; a later attempt may succeed.
        """
        write_state(self._path, {"version": _VERSION, **asdict(commit)})


def _problem(commit: Commit) -> str | None:
    """Return what is wrong with the values of a commit, None if nothing is."""
    numbers = {"released": commit.released, "steps": commit.steps, **commit.counters, **commit.ahead}
    numbers |= {name: number for partitions in commit.positions.values() for name, number in partitions.items()}
    wrong = [name for name, number in numbers.items() if type(number) is not int]
    if wrong:
        return f"expected whole numbers in {', '.join(wrong)}"
    if commit.released < NO_TIME:
        return f"'released' is before the beginning of time: {commit.released}"
    if not all(isinstance(text, str) for text in (commit.identity, commit.query)):
        return "expected text in 'identity' and 'query'"
    if commit.left is not None and not (len(commit.left) == 2 and all(type(time) is int for time in commit.left)):
        return f"'left' is not two times: {commit.left}"
    return None
