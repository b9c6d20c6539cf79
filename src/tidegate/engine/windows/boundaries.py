"""Where windows and their panes end.

A window is (start, end]: an event at its end belongs to it, one at its start does not. Ends of tumbling and hopping
windows are the multiples of the hop, counted from 0001-01-01T00:00:00Z, plus the offset. The end of a window that
would lie beyond the calendar is the calendar's end.

A hopping window is made of panes: stretches of the greatest common divisor of size and hop, so that every window is a
whole number of them (Li et al., "No Pane, No Gain", 2005, https://doi.org/10.1145/1058150.1058158). A tumbling window
is one pane. So an event is added to one pane, however many windows it is in.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np

from tidegate.engine.values.vectors import Int64Array
from tidegate.ordering.ticks import FIRST_TICKS, LAST_TICKS


@dataclass(frozen=True, slots=True)
class Panes:
    """How a hopping window divides time.

    Attributes:
        pane_ticks: the length of a pane.
        panes_a_window, panes_a_hop: how many panes make a window and a hop.
        offset_ticks: by how much ends are shifted.
    """

    pane_ticks: int
    panes_a_window: int
    panes_a_hop: int
    offset_ticks: int = 0

    @classmethod
    def of(cls, size_ticks: int, hop_ticks: int, offset_ticks: int = 0) -> Panes:
        """Return the longest panes of which size and hop are whole numbers."""
        pane = gcd(size_ticks, hop_ticks)
        return cls(pane, size_ticks // pane, hop_ticks // pane, offset_ticks)

    @property
    def size_ticks(self) -> int:
        """The length of a window."""
        return self.pane_ticks * self.panes_a_window

    def ends(self, times: Int64Array) -> Int64Array:
        """Return the end of the pane that each time is in."""
        return ceil_to(times, self.pane_ticks, self.offset_ticks)


def spans_of(time: int, size_ticks: int, hop_ticks: int, offset_ticks: int = 0) -> tuple[tuple[int, int], ...]:
    """Return the windows (start, end] that hold a time, of those that end at the multiples of the hop."""
    origin = FIRST_TICKS + offset_ticks
    first = -((origin - time) // hop_ticks) * hop_ticks + origin
    return tuple((end - size_ticks, end) for end in range(first, time + size_ticks, hop_ticks))


def ceil_to(times: Int64Array, unit_ticks: int, offset_ticks: int = 0) -> Int64Array:
    """Return the first multiple of ``unit_ticks`` (from 0001-01-01, plus an offset) that is not before each time."""
    origin = FIRST_TICKS + offset_ticks
    ends: Int64Array = -((origin - times) // unit_ticks) * unit_ticks + origin
    return ends


def within_calendar(ends: Int64Array) -> Int64Array:
    """Return the ends of windows, at most the end of the calendar."""
    return np.minimum(ends, LAST_TICKS)
