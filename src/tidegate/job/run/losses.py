"""How often a run may lose its state, or processes that it needs, without getting further.

A loss costs time and no result: the run reads the log again. If the cause is permanent, such as executors with too
little memory for the job's state, it would do so for ever. So each loss without progress since the one before is
followed by a longer pause, and after a number of them the run fails and says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidegate.connectors.model.errors import UnavailableError
from tidegate.job.runtime.step import Timeline, TimelineState

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


@dataclass(slots=True)
class RecoveryCost:
    """What lost states cost a run, from each loss until the run is as far in the log as it was.

    Attributes:
        events: how many events were read again.
        seconds: how long it took.
    """

    monotonic_s: Callable[[], float] = time.monotonic
    events: int = 0
    seconds: float = 0.0
    _since_s: float | None = None
    _events: int = 0

    def begin(self) -> None:
        """Note a loss; a loss while the run still recovers from another one is part of the same recovery."""
        if self._since_s is None:
            self._since_s, self._events = self.monotonic_s(), 0

    def add(self, events: int) -> None:
        """Note that events were read again for lost shards, beside the steps of the run."""
        self._events += events

    def note(self, timelines: Mapping[Timeline, TimelineState], reached: Mapping[str, Mapping[str, int]]) -> str | None:
        """Note a step, and return what a recovery has cost if the step ends it.

        Args:
            timelines: where each one is after the step.
            reached: by input and partition, the sequence number that the run had reached.
        """
        if self._since_s is None:
            return None
        is_back = True
        for (name, partition), state in timelines.items():
            before = reached.get(name, {}).get(partition, 0)
            self._events += max(0, min(state.position, before) - (state.position - state.events))
            is_back = is_back and state.position >= before
        if not is_back:
            return None
        seconds = self.monotonic_s() - self._since_s
        self.events, self.seconds, self._since_s = self.events + self._events, self.seconds + seconds, None
        return f"the state is complete again: {self._events:,} events were read again, in {seconds:.1f} s"
