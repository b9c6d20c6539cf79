"""Where a run is: in this process or on Spark, since when, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.job.run.seal_schedule import SealNote
from tidegate.job.runtime.placement import Place
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

    place: Place
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
            "where": "process" if self.place.master is None else "spark",
            "master": self.place.master,
            "shards": self.place.shards,
            "shared": self.place.shared,
            "since": format_time(self.since),
            "why": self.why,
            "moves": self.moves,
            "losses": self.losses,
            "eventsReadAgain": self.read_again,
            "recoverySeconds": round(self.recovery_s, 3),
            "sealed": None if self.sealed is None else self.sealed.as_json(),
        }

    def __str__(self) -> str:
        if self.place.master is None:
            return f"the job runs in this process: {self.why}"
        shards = "1 shard" if self.place.shards == 1 else f"{self.place.shards:,} shards"
        shared = ", shared with other jobs" if self.place.shared else ""
        return f"the job runs on Spark ({self.place.master}{shared}, {shards}): {self.why}"
