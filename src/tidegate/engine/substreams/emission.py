"""Complete results that await emission, where each substream has a watermark of its own.

A result waits with its emission arrival and is emitted once all timelines have passed that arrival
(`tidegate.ordering.emission`). Results are emitted by emission arrival, then by time, then in the order they have
otherwise.

A join of streams may find keys of different substreams equal: `=` does not tell 'a' from 'A', GROUP BY and OVER do.
Whether a row will meet one of a substream that nobody has seen yet is only known from the watermark of a substream
without events. So joins, and whatever reads their results, are computed at that watermark, in the order of time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.engine.expressions.frames import Frame
from tidegate.engine.values.grouping import sorted_rows
from tidegate.ordering import END_OF_TIME, NO_TIME, Emission
from tidegate.ordering.timeline import plus


@dataclass(frozen=True, slots=True)
class EmissionRange:
    """Which results to emit: those with from_ticks ≤ time < until_ticks that have not been emitted before.

    Attributes:
        from_ticks, until_ticks: times, in ticks.
        emitted_before, emitted_until_ticks: results with an emission arrival before the one and a time before the
            other have been emitted; in ticks.
    """

    from_ticks: int = NO_TIME
    until_ticks: int = END_OF_TIME
    emitted_before: int = NO_TIME
    emitted_until_ticks: int = END_OF_TIME

    def take_emitted(self, complete: list[Frame]) -> Frame | None:
        """Remove the results to emit from the complete ones, and drop those emitted before or too early.

        Args:
            complete: results with their emission arrivals as their order; changed in place.

        Returns:
            The results in the order of emission; None if there are none.
        """
        if not complete:
            return None
        frame = Frame.concat(complete)
        (arrivals,) = frame.order
        outside = frame.times < self.from_ticks
        outside |= (arrivals < self.emitted_before) & (frame.times < self.emitted_until_ticks)
        later = ~outside & (frame.times >= self.until_ticks)
        complete[:] = [frame.take(np.flatnonzero(later))] if later.any() else []
        places = np.flatnonzero(~outside & ~later)
        if not len(places):
            return None
        frame = frame.take(places)
        return frame.take(sorted_rows([frame.order[0], frame.times]))


def with_emission_arrivals(frame: Frame, emission: Emission, delay_ticks: int) -> Frame:
    """Return newly complete results with their emission arrivals as their order.

    Args:
        frame: results; each is complete once its substream's watermark has passed its time + ``delay_ticks``. Rows
            without a substream wait for the watermark of one that has no events.
        emission: the job's substreams.
        delay_ticks: how far the results lag behind the watermark.
    """
    times = plus(frame.times, delay_ticks)
    frame = frame.with_ties(*frame.tie_breakers())
    if frame.substreams is None:
        return frame.with_order((emission.floor_arrivals(times),))
    return frame.with_order((emission.emission_arrivals(frame.substreams, times),))
