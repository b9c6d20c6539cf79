"""Where windows end.

A window is (start, end]: an event at its end belongs to it, one at its start does not. Ends of tumbling and hopping
windows are the multiples of the hop, counted from 0001-01-01T00:00:00Z, plus the offset. The end of a window that
would lie beyond the calendar is the calendar's end.

A hopping window is made of panes: stretches of the greatest common divisor of size and hop, so that every window is a
    whole number of them. A tumbling window is one pane. So an event is added to one pane, however many windows it is
    in.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np

from tidegate.engine.values.vectors import Int64Array
from tidegate.ordering.ticks import FIRST_TICKS, LAST_TICKS
from tidegate.saql.plan import nodes as plan


@dataclass(frozen=True, slots=True)
class Panes:
    """How time is cut for one window.

    Attributes:
        pane_ticks: the length of a pane; 0 is a pane for each instant (snapshot).
        panes_a_window, panes_a_hop: 1 and 1 for a tumbling window.
        offset_ticks: what ends are shifted by.
    """

    pane_ticks: int
    panes_a_window: int = 1
    panes_a_hop: int = 1
    offset_ticks: int = 0

    @classmethod
    def of(cls, window: plan.SimpleWindow) -> Panes | None:
        """The panes of a window; None if it does not come in panes."""
        match window:
            case plan.Tumbling(size_ticks=size, offset_ticks=offset):
                return cls(size, offset_ticks=offset)
            case plan.Hopping(size_ticks=size, hop_ticks=hop, offset_ticks=offset):
                pane = gcd(size, hop)
                return cls(pane, size // pane, hop // pane, offset)
            case plan.Snapshot():
                return cls(0)
            case _:
                return None

    @property
    def size_ticks(self) -> int:
        """The length of a window."""
        return self.pane_ticks * self.panes_a_window

    def ends(self, times: Int64Array) -> Int64Array:
        """The end of the pane that each time is in."""
        if not self.pane_ticks:
            return times
        return ceil_to(times, self.pane_ticks, self.offset_ticks)

    def window_ends(self, low: int, high: int) -> list[int]:
        """The ends e of windows with low ≤ e < high."""
        hop = self.pane_ticks * self.panes_a_hop
        first = -(-(low - FIRST_TICKS - self.offset_ticks) // hop) * hop + FIRST_TICKS + self.offset_ticks
        return list(range(first, high, hop))


def ceil_to(times: Int64Array, unit_ticks: int, offset_ticks: int = 0) -> Int64Array:
    """The next multiple of ``unit_ticks`` (counted from 0001-01-01, plus an offset) that is not before each time."""
    origin = FIRST_TICKS + offset_ticks
    ends: Int64Array = -((origin - times) // unit_ticks) * unit_ticks + origin
    return ends


def within_calendar(ends: Int64Array) -> Int64Array:
    """Ends of windows as times."""
    return np.minimum(ends, LAST_TICKS)
