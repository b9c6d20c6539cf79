"""When a job moves between this process and Spark.

A small job is faster here: a step of a few thousand events takes some ten milliseconds, and Spark needs hundreds to
plan one and start its tasks. A job is too large for this process if it falls behind, or if its state fills the memory.
It returns once it has been small for a while. A move is a restart from the run's progress: results do not depend on it.

A live job that runs on Spark need not wait for Spark to start, which takes seconds in which events gather: its first
steps may be taken here (`BeginHere`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tidegate.job.runtime.step import Step

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Budget:
    """What a job may use in this process.

    Attributes:
        backlog_events: more events to read than this are read on Spark.
        state_bytes: a larger state is held on Spark.
        small_s: a job that has been within half of this budget for so long returns from Spark.
    """

    backlog_events: int = 250_000
    state_bytes: int = 256 * 2**20
    small_s: float = 60.0


class MovePolicy(Protocol):
    """Decides where a run is.

    Attributes:
        on_spark: where it runs now.
    """

    on_spark: bool

    def begin(self, backlog: int) -> str:
        """Decide where a run begins, given how many events it will read first, and return why."""

    def should_move(self, step: Step) -> str | None:
        """Return why the run should move to the other place after a step; None if it should stay."""

    def move(self) -> None:
        """Note that the run is in the other place."""


@dataclass(slots=True)
class BeginHere:
    """A run that begins in this process and moves to Spark once Spark is up.

    Attributes:
        is_up: returns whether Spark is up, and raises why it cannot start; the first call starts it. That is after the
            first step, whose results would otherwise wait while Java takes all of the processor.
        budget: a run with a larger backlog waits for Spark.
    """

    is_up: Callable[[], bool]
    budget: Budget = field(default_factory=Budget)
    on_spark: bool = False

    def begin(self, backlog: int) -> str:
        """See `MovePolicy.begin`."""
        self.on_spark = backlog > self.budget.backlog_events
        return "its settings say so" if self.on_spark else "Spark is starting"

    def should_move(self, step: Step) -> str | None:
        """See `MovePolicy.should_move`."""
        return None if self.on_spark or not self.is_up() else "Spark is up"

    def move(self) -> None:
        """See `MovePolicy.move`."""
        self.on_spark = True


@dataclass(slots=True)
class PlacementPolicy:
    """The decision where a run continues, after each of its steps.

    Attributes:
        on_spark: where it runs now.
    """

    budget: Budget = field(default_factory=Budget)
    on_spark: bool = False
    clock: Clock = time.monotonic
    _small_since: float | None = None

    def begin(self, backlog: int) -> str:
        """Decide where a run begins, given how many events it will read first, and return why."""
        self.on_spark = backlog > self.budget.backlog_events
        return f"{backlog:,} events are waiting" if self.on_spark else "it is small"

    def should_move(self, step: Step) -> str | None:
        """Return why the run should move to the other place after a step; None if it should stay."""
        budget, held = self.budget, step.state_bytes or 0
        if not self.on_spark:
            if step.backlog > budget.backlog_events:
                return f"{step.backlog:,} events are waiting"
            return f"its state has {held >> 20:,} MB" if held > budget.state_bytes else None
        small = 2 * (step.backlog + step.events) <= budget.backlog_events and 2 * held <= budget.state_bytes
        if not small:
            self._small_since = None
            return None
        now = self.clock()
        self._small_since = now if self._small_since is None else self._small_since
        return "it has caught up and is small" if now - self._small_since >= budget.small_s else None

    def move(self) -> None:
        """Note that the run is in the other place."""
        self.on_spark, self._small_since = not self.on_spark, None
