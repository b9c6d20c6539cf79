"""What a run of events does to the carry of its timeline, whatever the carry before it is.

A scan passes a carry from each run of events to the next, so runs are scanned one after the other. Where several tasks
read a timeline, each first sums up its own run. The carries at the beginnings of all runs follow from the summaries
alone, and then every task scans its run at the same time as the others.

Theory (the rules and letters are those of `tidegate.ordering.timeline`). With A' and M' for what is known before the
run, the maximum after it is that of M' and the x of the events that are not lost:

  * When adjusting, x = max(t, max(A', a) - late), where a is the running arrival within the run. Neither maximum
    depends on the order in which they are taken, and a only grows. So the largest x is the largest t, or A' - late, or
    a - late at the last event that is not lost.
  * When dropping, an event counts if t >= max(A', a) - late. Those with t >= a - late can be found without A'. If the
    one of them with the largest t fails A', so do all others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.ordering.policy import Policy
from tidegate.ordering.ticks import NO_TIME, Times
from tidegate.ordering.timeline import Carry, Mask, columns, less, minus, plus


@dataclass(frozen=True, slots=True)
class ScanSummary:
    """A run of events, as far as the carry after it depends on them. In ticks; NO_TIME means none.

    Attributes:
        max_time: the largest time among the events that may count.
        counted_arrival: when adjusting, the latest arrival within the run at the last event that counts.
        arrival: the latest arrival.
    """

    max_time: int = NO_TIME
    counted_arrival: int = NO_TIME
    arrival: int = NO_TIME

    @classmethod
    def of(
        cls,
        event_time: Times,
        arrival: Times,
        policy: Policy,
        valid: Mask | None = None,
        latest: Times | None = None,
    ) -> ScanSummary:
        """Sum up n events of one timeline, given as to `scan`. Raises ValueError if lengths differ.

        ``latest``: int64[n], the latest arrival of the run after each event, those between them included.
        """
        event_time, arrival, valid = columns(event_time, arrival, valid)
        if not len(arrival):
            return cls()
        latest = np.maximum.accumulate(arrival) if latest is None else latest
        counts = np.ones(len(arrival), dtype=np.bool_) if valid is None else valid.copy()
        if policy.early_ticks is not None:
            counts &= event_time <= plus(arrival, policy.early_ticks)
        if not policy.adjusts:
            counts &= event_time >= minus(latest, policy.late_ticks)
        places = np.flatnonzero(counts)
        if not len(places):
            return cls(arrival=int(latest[-1]))
        return cls(int(event_time[places].max()), int(latest[places[-1]]), int(latest[-1]))

    def then(self, later: ScanSummary, policy: Policy) -> ScanSummary:
        """Return the summary of this run and the one that follows it."""
        max_time, counted_arrival = self.max_time, self.counted_arrival
        if later._counts_after(self.arrival, policy):
            max_time = max(max_time, later.max_time)
            counted_arrival = max(self.arrival, later.counted_arrival)
        return ScanSummary(max_time, counted_arrival, max(self.arrival, later.arrival))

    def after(self, carry: Carry, policy: Policy) -> Carry:
        """Return the carry after the run, given the one before it: what the scan of the run returns."""
        max_time = carry.max_time
        if self._counts_after(carry.arrival, policy):
            max_time = max(max_time, self.max_time)
            if policy.adjusts:
                max_time = max(max_time, less(max(carry.arrival, self.counted_arrival), policy.late_ticks))
        return Carry(max_time, max(carry.arrival, self.arrival))

    def outweighs(self, earlier: ScanSummary, policy: Policy) -> bool:
        """Return whether this is also the summary of both runs, whichever run of at most these values is before it.

        All of ``earlier`` may be too large, as bounds are.
        """
        return self._counts_after(earlier.arrival, policy) and earlier.then(self, policy) == self

    def _counts_after(self, arrival: int, policy: Policy) -> bool:
        """Return whether an event counts if the latest arrival before the run is this one."""
        if self.counted_arrival == NO_TIME:
            return False
        return policy.adjusts or self.max_time >= less(arrival, policy.late_ticks)
