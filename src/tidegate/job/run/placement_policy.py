"""Where a run is: in this process or on Spark, since when and why; when it moves, and when its shards spread.

A small job is faster here: a step of a few thousand events takes some ten milliseconds, and Spark needs hundreds to
plan one and start its tasks. A job is too large for this process if it falls behind, or if its state fills the memory.
It returns once it has been small for a while. A move is a restart from the run's progress: results do not depend on it.

A live job that runs on Spark need not wait for Spark to start, which takes seconds in which events gather: its first
steps may be taken here (`BeginHere`).

Shards stay on the executors that they began on, so those that join later only run tasks. If some have been idle for a
while, shards move to them with their states, between two steps (`RebalancePolicy`). If more shards are wanted, the run
starts again from its progress, in the same place: its state is sealed first if the run has seals, and otherwise
computed from the log, as after a loss. Results do not depend on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidegate.job.run.seal_schedule import SealNote
from tidegate.job.runtime.placement import StateLocation
from tidegate.job.runtime.step import Step
from tidegate.ordering import format_time

CONFIGURED = "its settings say so"


@dataclass(frozen=True, slots=True)
class RunLocation:
    """Where a run is.

    Attributes:
        since: ticks of the clock; when it began there.
        why: why it is there.
        moves: how often it has moved.
        losses: how often its state was lost, or a process of Spark died within a step.
        read_again: how many events were read again to compute lost states, as far as that is done.
        recovery_s: how long that took, in seconds.
        sealed: the last seal of its state; None if it has taken none.
    """

    location: StateLocation
    since: int
    why: str
    moves: int = 0
    losses: int = 0
    read_again: int = 0
    recovery_s: float = 0.0
    sealed: SealNote | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as `status.json` and the management API have it."""
        return {
            "where": "process" if self.location.master is None else "spark",
            "master": self.location.master,
            "shards": self.location.shards,
            "shared": self.location.shared,
            "child": self.location.child,
            "since": format_time(self.since),
            "why": self.why,
            "moves": self.moves,
            "losses": self.losses,
            "eventsReadAgain": self.read_again,
            "recoverySeconds": round(self.recovery_s, 3),
            "sealed": None if self.sealed is None else self.sealed.as_json(),
        }

    def __str__(self) -> str:
        if self.location.master is None:
            where = "a child of this process" if self.location.child else "this process"
            return f"the job runs in {where}: {self.why}"
        shards = "1 shard" if self.location.shards == 1 else f"{self.location.shards:,} shards"
        shared = ", shared with other jobs" if self.location.shared else ""
        return f"the job runs on Spark ({self.location.master}{shared}, {shards}): {self.why}"


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
        self.on_spark = backlog > self.budget.backlog_events
        return "its settings say so" if self.on_spark else "Spark is starting"

    def should_move(self, step: Step) -> str | None:
        return None if self.on_spark or not self.is_up() else "Spark is up"

    def move(self) -> None:
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


_LOOK_EVERY_S = 2.0
_SHARE = 20


@dataclass(slots=True)
class RebalancePolicy:
    """The decision to spread, after each step of a run.

    Attributes:
        steady_s: how long there must have been idle executors, as several often join together.
        pause_s, longest_pause_s: from one time to the next if the first has not helped, and at most.
    """

    steady_s: float = 10.0
    pause_s: float = 60.0
    longest_pause_s: float = 3600.0
    clock: Callable[[], float] = time.monotonic
    _look_at: float = float("-inf")
    _since: float | None = None
    _not_before: float = float("-inf")
    _in_vain: int = 0

    def is_due(self, idle: Callable[[], int]) -> int:
        """Return how many executors are idle if the shards should spread now, otherwise 0.

        Args:
            idle: counts the executors that would have a shard if the run started again, and have none.
        """
        now = self.clock()
        if now < self._look_at:
            return 0
        self._look_at = now + _LOOK_EVERY_S
        count = idle()
        if not count:
            self._since, self._in_vain = None, 0
            return 0
        self._since = now if self._since is None else self._since
        return count if now - self._since >= self.steady_s and now >= self._not_before else 0

    def note(self, seconds: float) -> None:
        """Note that the shards have spread, and how long that took; it takes no more than a twentieth of the time."""
        pause_s = min(self.pause_s * 2**self._in_vain, self.longest_pause_s)
        self._not_before = self.clock() + max(pause_s, _SHARE * seconds)
        self._since = None
        self._in_vain += 1
