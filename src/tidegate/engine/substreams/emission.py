"""Complete results on their way out, where each substream has a watermark of its own.

A result waits with its departure, and leaves once all timelines have reached an arrival beyond it. Results leave by
departure, then by time; of the same, in the order they have otherwise. Rows that a join has put together have none
that holds for any cut, as their numbers count the rows of all substreams; of those the key decides first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tidegate.engine.expressions.frames import Frame
from tidegate.engine.values.grouping import sorted_rows
from tidegate.engine.values.vectors import Int64Array
from tidegate.ordering import END_OF_TIME, NO_TIME, Departures
from tidegate.ordering.timeline import plus


@dataclass(frozen=True, slots=True)
class Leaving:
    """What may leave: results with from_ticks ≤ time < until_ticks, but for those that have left already, which are
    those before ``left_until_ticks`` whose departure is before ``left_before``.

    A departure is an arrival, in ticks.
    """

    from_ticks: int = NO_TIME
    until_ticks: int = END_OF_TIME
    left_before: int = NO_TIME
    left_until_ticks: int = END_OF_TIME

    def take(self, departing: list[Frame], key_ranks: Callable[[Int64Array], Int64Array] | None) -> Frame | None:
        """Take what leaves out of results that wait; None for nothing."""
        if not departing:
            return None
        frame = Frame.concat(departing)
        (departures,) = frame.order
        outside = frame.times < self.from_ticks
        outside |= (departures < self.left_before) & (frame.times < self.left_until_ticks)
        later = ~outside & (frame.times >= self.until_ticks)
        departing[:] = [frame.take(np.flatnonzero(later))] if later.any() else []
        places = np.flatnonzero(~outside & ~later)
        if not len(places):
            return None
        frame = frame.take(places)
        columns = [frame.order[0], frame.times]
        if key_ranks is not None and frame.substreams is not None:
            columns.append(key_ranks(frame.substreams))
        return frame.take(sorted_rows(columns))


def with_departures(frame: Frame, departures: Departures, delay_ticks: int) -> Frame:
    """Results that have just become complete, so long after their time, with their departures as their order."""
    assert frame.substreams is not None
    return frame.with_order((departures.of_results(frame.substreams, plus(frame.times, delay_ticks)),))
