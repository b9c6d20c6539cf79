"""Whether the events of a partition arrived in the order of their positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.events import Events, Int64Array
from tidegate.ordering import TICKS_PER_SECOND, format_time

_BACK_TICKS = TICKS_PER_SECOND
_FEW_STEPS_BACK, _MOST_STEPS_BACK = 10, 0.01


@dataclass(frozen=True, slots=True)
class ArrivalSteps:
    """How events of a partition arrived, in the order of their positions.

    Attributes:
        events: how many there are.
        first, last: ticks; the arrivals of the first and the last.
        back: how many arrived more than a second before the one before them.
    """

    events: int = 0
    first: int = 0
    last: int = 0
    back: int = 0

    def then(self, arrivals: Int64Array) -> ArrivalSteps:
        """Return the same with more events."""
        if not len(arrivals):
            return self
        first, last = int(arrivals[0]), int(arrivals[-1])
        before = self.last if self.events else first
        back = int(np.count_nonzero(np.diff(arrivals, prepend=before) < -_BACK_TICKS))
        return ArrivalSteps(self.events + len(arrivals), self.first if self.events else first, last, self.back + back)

    def after(self, later: ArrivalSteps) -> ArrivalSteps:
        """Return these events and later ones, as one."""
        if not self.events or not later.events:
            return later if later.events else self
        back = int(later.first - self.last < -_BACK_TICKS)
        return ArrivalSteps(self.events + later.events, self.first, later.last, self.back + later.back + back)


class ArrivalOrder:
    """Checks that the events of a partition arrived in the order of their positions, as those of a broker do.

    A broker's clock may be set back now and then. Events of which many arrived more than a second before the one before
    them are ordered by something else, and everything that depends on arrival would be wrong.
    """

    def __init__(self, input_name: str, partition: str, earlier: ArrivalSteps | None = None) -> None:
        """``earlier``: the events before those that are checked."""
        self._where = f"input '{input_name}', partition {partition}"
        self._steps = earlier or ArrivalSteps()

    def check(self, events: Events) -> None:
        """Look at the next events.

        Raises:
            InputError: too many so far arrived before the one before them.
        """
        arrivals = events.arrivals
        earlier, self._steps = self._steps, self._steps.then(arrivals)
        steps = self._steps
        if steps.back == earlier.back or steps.back <= max(_FEW_STEPS_BACK, _MOST_STEPS_BACK * steps.events):
            return
        first = earlier.last if earlier.events else int(arrivals[0])
        place = int(np.flatnonzero(np.diff(arrivals, prepend=first) < -_BACK_TICKS)[-1])
        before = first if place == 0 else int(arrivals[place - 1])
        raise InputError(
            f"{self._where}: the order contradicts the arrival: {steps.back:,} of {steps.events:,} events arrived more "
            f"than a second before the one before them, such as number {int(events.sequence_numbers[place])}, which "
            f"arrived at {format_time(int(arrivals[place]))} after one of {format_time(before)}. Pass to events() as "
            "order= the position in which the broker got the events and as arrival= the time, or leave out order= to "
            "order them by arrival"
        )
