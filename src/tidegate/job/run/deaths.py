"""What a job was about when its process died, so that the next one can tell whether an event is to blame.

Before a step its ranges go into a small file of the state folder, which is emptied after it. The file is not made
durable: it has to survive the process, not the machine. A process that finds ranges there follows one that died within
a step. If a step over some of the same events had ended the process before that, too, they are *suspects*. If no single
one of them is to blame, all of them together may need more memory than there is. They are then taken in smaller steps,
and in still smaller ones after each further death.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tidegate.job.runtime.placement import WorkersLost
from tidegate.job.runtime.task import Task

FILE = "in-step.json"
ENOUGH = 2
_PARTS = 32


@dataclass(frozen=True, slots=True)
class EventRange:
    """Events ``start`` ≤ sequence number < ``end`` of a partition."""

    input: str
    partition: str
    start: int
    end: int

    def meets(self, other: EventRange) -> bool:
        """Return whether both have an event."""
        same = (self.input, self.partition) == (other.input, other.partition)
        return same and self.start < other.end and other.start < self.end


class Deaths:
    """The deaths of a job's processes within a step, without progress between them."""

    def __init__(self, folder: Path) -> None:
        """Read what an earlier process has left; what cannot be read is taken for nothing."""
        self._path = folder / FILE
        self._file: IO[bytes] | None = None
        self._count = 0
        self._acquitted = False
        self._of: list[EventRange] = []
        self._in_step: list[EventRange] = []
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            line = self._path.read_bytes().partition(b"\n")[0]
            content = json.loads(line)
            self._count, self._of = int(content["deaths"]), [EventRange(*one) for one in content["of"]]
            self._in_step = [EventRange(*one) for one in content["in_step"]]
            self._acquitted = bool(content["acquitted"])
        self._died()

    @property
    def suspects(self) -> list[EventRange]:
        """What the last steps were about that ended a process, if that has happened often enough."""
        return self._of if self._count >= ENOUGH else []

    def most_events(self, otherwise: int) -> int:
        """Return how many events a step may have: a part of what was acquitted, until that has been passed."""
        if not self._of or not self._acquitted:
            return otherwise
        return min(otherwise, max(1, sum(one.end - one.start for one in self._of) // _PARTS))

    @contextlib.contextmanager
    def step(self, tasks: Sequence[Task]) -> Iterator[None]:
        """Note what a step is about while it is taken.

        If it succeeds, that is above suspicion. Any error but a lack of memory, or the loss of a process of Spark,
        has a reason of its own.
        """
        if not tasks:
            yield
            return
        self._in_step = [
            EventRange(one.input, one.partition, one.log_range.start, one.log_range.end)
            for task in tasks
            for one in task.ranges
        ]
        self._write()
        try:
            yield
        except (MemoryError, WorkersLost):
            self._died()
            raise
        except BaseException:
            self._in_step = []
            self._write()
            raise
        passed, self._in_step = self._in_step, []
        if self._of:
            self._of = [two for two in self._of if not any(one.meets(two) and one.end >= two.end for one in passed)]
            if not self._of:
                self._count, self._acquitted = 0, False
        self._write()

    def _died(self) -> None:
        if self._in_step:
            again = any(one.meets(two) for one in self._in_step for two in self._of)
            self._count, self._acquitted = (self._count + 1, self._acquitted) if again else (1, False)
            self._of, self._in_step = self._in_step, []
            self._write()

    def acquit(self) -> None:
        """Suspect no single event any more; all of them are taken in smaller steps."""
        self._count, self._acquitted = 0, True
        self._write()

    def forget(self) -> None:
        """Suspect nothing any more."""
        self._count, self._of, self._acquitted = 0, [], False
        self._write()

    def close(self) -> None:
        """Close the file, and delete it if it says nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if not self._of and not self._in_step:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        """Write it down; a disk that refuses must not stop the job for this."""
        if self._file is None and not (self._in_step or self._of):
            return
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = self._path.open("wb", buffering=0)
            stretches = {"of": self._of, "in_step": self._in_step}
            written = {key: [[s.input, s.partition, s.start, s.end] for s in of] for key, of in stretches.items()}
            line = (
                json.dumps(
                    {"deaths": self._count, "acquitted": self._acquitted, **written}, separators=(",", ":")
                ).encode()
                + b"\n"
            )
            self._file.seek(0)
            self._file.write(line)
