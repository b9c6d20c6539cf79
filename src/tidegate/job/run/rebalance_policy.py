"""When the shards of a run spread to executors that have none.

Shards stay on the executors that they began on, so those that join later only run tasks. If some have been idle for a
while, the run starts again from its progress, in the same place. Its state is sealed first if the run has seals, and
otherwise computed from the log, as after a loss. Results do not depend on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

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
