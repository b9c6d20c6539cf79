"""When a step began, had its rows, and had made them durable."""

from __future__ import annotations

from dataclasses import dataclass

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The times of a step in nanoseconds of Unix time."""

    began_ns: int
    computed_ns: int
    committed_ns: int

    def as_json(self) -> dict[str, int]:
        """Return how long the step and its parts took, in milliseconds."""
        return {
            "compute": (self.computed_ns - self.began_ns) // _NS_PER_MS,
            "commit": (self.committed_ns - self.computed_ns) // _NS_PER_MS,
            "triggerExecution": (self.committed_ns - self.began_ns) // _NS_PER_MS,
        }
