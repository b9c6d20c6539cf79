"""How often a run may lose its state, or processes that it needs, without getting further.

A loss costs time and no result: the run reads the log again. If the cause is permanent, such as executors with too
little memory for the job's state, it would do so for ever. So each loss without progress since the one before is
followed by a longer pause, and after a number of them the run fails and says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tidegate.job.model.errors import UnavailableError

Reached = tuple[int, ...]
"""How far a run has come, in several measures that only grow while it gets further."""


@dataclass(slots=True)
class Losses:
    """The losses of one run.

    Attributes:
        most: how many there may be without progress.
        first_pause_s, longest_pause_s: the pauses after the second one and at most.
        total: how many there have been.
    """

    most: int = 8
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    sleep: Callable[[float], None] = time.sleep
    total: int = 0
    _in_a_row: int = 0
    _furthest: Reached = ()

    def note(self, why: Exception, reached: Reached) -> None:
        """Note a loss, and pause if there was one before and no progress since.

        Raises:
            UnavailableError: there have been too many; the service may try again later.
        """
        self.total += 1
        before = self._furthest or reached
        got_further = any(new > old for new, old in zip(reached, before, strict=True))
        self._furthest = tuple(map(max, reached, before))
        self._in_a_row = 1 if got_further else self._in_a_row + 1
        if self._in_a_row >= self.most:
            raise UnavailableError(
                f"{why}; the job stops because this has happened {self._in_a_row} times and it got no further; the "
                "next run resumes after the last committed result"
            ) from why
        if self._in_a_row > 1:
            self.sleep(min(self.first_pause_s * 2 ** (self._in_a_row - 2), self.longest_pause_s))
