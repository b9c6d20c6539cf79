"""Tuning: over a recorded stretch, what each pair of tolerances would do, from one pass and not from one a pair.

Theory. Let T be the largest time of all events before one that are not lost to rules 0 and 1, and A the latest arrival
(an arrival that goes back counts as the latest before it). Of an event with time t keep three differences:

  lateness  A - t     how far it is behind the arrival clock
  disorder  T - t     how far it is behind the largest time before it
  lead      T - A     how far that largest time is ahead of the arrival clock

The scan's M is the running maximum of max(t, A - late), which is max(T, A' - late) with A' not after A, so its
watermark is max(T - out_of_order, A - late): the tolerances leave T, A, and so the differences, as they are. Hence

  late              lateness > late
  touched           lateness > late or disorder > out_of_order
  out of order      t, or A - late where that is larger, lies below T - out_of_order:
    adjusting         disorder > out_of_order and lead > out_of_order - late
    dropping          disorder > out_of_order and not late (a late event is gone before rule 3)
  watermark delay   A - W = min(A - T + out_of_order, late), T now with the event itself

Dropping keeps T too: a late event lies below A - late and so below every later event that is not late, and an event
out of order lies below T. Each of these is a count of events in a quadrant, so a histogram over the candidates' bounds
answers all candidates at once; and the delay grows with A - T, so its quantiles come from quantiles of A - T.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.ordering.key_index import Codes
from tidegate.ordering.policy import EARLY_TICKS, LONGEST_LATE_TICKS, Action, Policy
from tidegate.ordering.substreams import BLOCK_EVENTS, running_maxima
from tidegate.ordering.ticks import END_OF_TIME, NO_TIME, TICKS_PER_SECOND, Times
from tidegate.ordering.timeline import Mask, columns, plus, running_arrival

Tolerances = tuple[int | None, int | None]
"""Late tolerance and out-of-order tolerance, ticks; None as in Policy."""


@dataclass(frozen=True)
class TuningOutcome:
    """What one pair of tolerances does to the stretch; counts of events, delays in ticks.

    ``untouched`` events keep their own time. ``late`` and ``out_of_order`` are what the metrics would count when
    adjusting, ``out_of_order_dropping`` when dropping (there a late event is gone before it can be out of order).
    All ``touched`` events are adjusted or dropped, by the policy's action. ``watermark_delay_*``: how far the
    watermark is behind the arrival clock over the events; None where it never moves.
    """

    late_ticks: int | None
    out_of_order_ticks: int | None
    events: int
    untouched: int
    touched: int
    late: int
    out_of_order: int
    out_of_order_dropping: int
    watermark_delay_median_ticks: int | None
    watermark_delay_p95_ticks: int | None

    @property
    def share_untouched(self) -> float:
        """Untouched events among all that were read, early and unreadable ones included; 1.0 of none."""
        return self.untouched / self.events if self.events else 1.0

    def policy(self, action: Action, early_ticks: int | None = EARLY_TICKS) -> Policy:
        """Return the policy with these tolerances."""
        return Policy(early_ticks, self.late_ticks, self.out_of_order_ticks, action)


@dataclass(frozen=True, eq=False)
class Disorder:
    """The differences of a stretch's k events that no tolerance loses, int64[k] ticks each, and how many it loses.

    ``lateness``, ``disorder``, ``lead`` as in the module's text (NO_TIME where no event came before); ``lag``: A - T
    after the event.
    """

    lateness: Times
    disorder: Times
    lead: Times
    lag: Times
    early: int
    unreadable: int

    @property
    def events(self) -> int:
        """Return how many events the stretch has."""
        return len(self.lateness) + self.early + self.unreadable

    @classmethod
    def joined(cls, parts: Sequence[Disorder]) -> Disorder:
        """Return the differences of several partitions together."""
        return cls(
            np.concatenate([part.lateness for part in parts]),
            np.concatenate([part.disorder for part in parts]),
            np.concatenate([part.lead for part in parts]),
            np.concatenate([part.lag for part in parts]),
            sum(part.early for part in parts),
            sum(part.unreadable for part in parts),
        )

    def outcomes(self, tolerances: Sequence[Tolerances]) -> list[TuningOutcome]:
        """Return what each pair of tolerances does, in the order given."""
        lates = _bounds([late for late, _ in tolerances])
        orders = _bounds([order for _, order in tolerances])
        gaps = _bounds([order - late for late, order in tolerances if late is not None and order is not None])
        late_of = np.searchsorted(lates, self.lateness)
        within = _cumulated(late_of, len(lates), np.searchsorted(orders, self.disorder), len(orders))
        # Only late events can be touched by both rules.
        some_late = np.flatnonzero(late_of)
        leads = np.searchsorted(gaps, self.lead[some_late])
        leading = _cumulated(late_of[some_late], len(lates), leads, len(gaps))
        lag = self._lag_quantiles()
        return [self._outcome(late, order, lates, orders, gaps, within, leading, lag) for late, order in tolerances]

    def smallest(self, share: float, *, step_ticks: int = TICKS_PER_SECOND, most: int = 12) -> list[TuningOutcome]:
        """Return the smallest tolerances that leave at least ``share`` of all events untouched.

        There is no one smallest pair: a smaller out-of-order tolerance asks for a larger late tolerance. Given are at
        most ``most`` pairs from the smallest possible out-of-order tolerance to the one from where the late tolerance
        is the smallest possible, each with the smallest late tolerance that suffices beside it (None where it would
        be longer than a policy allows). Empty if early and unreadable events alone are too many. Raises ValueError
        for a share outside 0 to 1.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"a share lies between 0 and 1: {share}")
        # Rounded down first where a product like 0.07 * 100 falls just above the whole number that is meant.
        needed = int(np.ceil(round(share * self.events, 6)))
        if needed > len(self.lateness):
            return []
        if not needed:
            return self.outcomes([(0, 0)])
        late = -(-np.maximum(self.lateness, 0) // step_ticks)
        order = -(-np.maximum(self.disorder, 0) // step_ticks)
        least_order = int(np.partition(order, needed - 1)[needed - 1])
        least_late = int(np.partition(late, needed - 1)[needed - 1])
        enough_order = int(np.partition(order[late <= least_late], needed - 1)[needed - 1])
        pairs: list[Tolerances] = []
        for steps in np.unique(np.linspace(least_order, enough_order, most).astype(np.int64)).tolist():
            beside = int(np.partition(late[order <= steps], needed - 1)[needed - 1]) * step_ticks
            tolerance = beside if beside <= LONGEST_LATE_TICKS else None
            if not pairs or pairs[-1][0] != tolerance:
                pairs.append((tolerance, steps * step_ticks))
        return self.outcomes(pairs)

    def _lag_quantiles(self) -> tuple[int, int] | None:
        if not len(self.lag):
            return None
        last = len(self.lag) - 1
        places = (last // 2, last * 95 // 100)
        ordered = np.partition(self.lag, places)
        return int(ordered[places[0]]), int(ordered[places[1]])

    def _outcome(
        self,
        late: int | None,
        order: int | None,
        lates: Times,
        orders: Times,
        gaps: Times,
        within: npt.NDArray[np.int64],
        leading: npt.NDArray[np.int64],
        lag: tuple[int, int] | None,
    ) -> TuningOutcome:
        all_within = int(within[-1, -1])
        i, j = _place(lates, late), _place(orders, order)
        untouched, on_time = int(within[i, j]), int(within[i, -1])
        late_count = all_within - on_time
        out_of_order = on_time - untouched
        both = 0
        if late is not None and order is not None:
            # Late events with a lead above the gap: all late ones without those at or below it.
            m = _place(gaps, order - late)
            both = int((leading[-1, -1] - leading[i, -1]) - (leading[-1, m] - leading[i, m]))
        delays = [_delay(quantile, late, order) for quantile in lag] if lag else [None, None]
        return TuningOutcome(
            late_ticks=late,
            out_of_order_ticks=order,
            events=self.events,
            untouched=untouched,
            touched=all_within - untouched,
            late=late_count,
            out_of_order=out_of_order + both,
            out_of_order_dropping=out_of_order,
            watermark_delay_median_ticks=delays[0],
            watermark_delay_p95_ticks=delays[1],
        )


def measure(
    event_time: Times,
    arrival: Times,
    *,
    early_ticks: int | None = EARLY_TICKS,
    valid: Mask | None = None,
    codes: Codes | None = None,
) -> Disorder:
    """Measure n events of a partition, in broker order, in one pass; columns as for `tidegate.ordering.scan`.

    ``codes``: int64[n], the substream of each event as small numbers from 0 (negative: NULL key); None without OVER.
    Raises ValueError if lengths differ.
    """
    event_time, arrival, valid = columns(event_time, arrival, valid)
    count = len(event_time)
    codes = np.zeros(count, dtype=np.int64) if codes is None else np.maximum(np.asarray(codes, dtype=np.int64), -1)
    if len(codes) != count:
        raise ValueError("codes and event_time must be columns of the same events")
    one_timeline = not count or int(codes.min()) == int(codes.max()) == 0
    max_times = np.full(int(codes.max()) + 1 if count else 0, NO_TIME, dtype=np.int64)
    lateness, disorder, lead, lag = (np.empty(count, dtype=np.int64) for _ in range(4))
    filled = early = unreadable = 0
    latest_known = NO_TIME
    for start in range(0, count, BLOCK_EVENTS):
        stop = min(start + BLOCK_EVENTS, count)
        time, latest = event_time[start:stop], running_arrival(arrival[start:stop], latest_known)
        latest_known = int(latest[-1])
        kept = codes[start:stop] >= 0 if valid is None else valid[start:stop] & (codes[start:stop] >= 0)
        unreadable += len(kept) - int(np.count_nonzero(kept))
        if early_ticks is not None:
            ahead = kept & (time > plus(latest, early_ticks))
            early += int(np.count_nonzero(ahead))
            kept &= ~ahead
        if not kept.all():
            time, latest = time[kept], latest[kept]
        if not len(time):
            continue
        if one_timeline:
            after = np.maximum.accumulate(np.maximum(time, max_times[0]))
            before = np.append(max_times, after[:-1])
            max_times[0] = after[-1]
        else:
            before, after = running_maxima(time, codes[start:stop][kept], max_times)
        part = slice(filled, filled + len(time))
        filled = part.stop
        np.subtract(latest, time, out=lateness[part])
        np.subtract(before, time, out=disorder[part])
        np.subtract(before, latest, out=lead[part])
        np.subtract(latest, after, out=lag[part])
        first = before == NO_TIME
        if first.any():
            disorder[part][first] = NO_TIME
            lead[part][first] = NO_TIME
    return Disorder(lateness[:filled], disorder[:filled], lead[:filled], lag[:filled], early, unreadable)


def tune(
    event_time: Times,
    arrival: Times,
    tolerances: Sequence[Tolerances],
    *,
    early_ticks: int | None = EARLY_TICKS,
    valid: Mask | None = None,
    codes: Codes | None = None,
) -> list[TuningOutcome]:
    """Return what each of many pairs of tolerances would do to one partition's events."""
    return measure(event_time, arrival, early_ticks=early_ticks, valid=valid, codes=codes).outcomes(tolerances)


def _bounds(tolerances: Sequence[int | None]) -> Times:
    """Return the distinct bounds in order; without a bound (None) every event is within."""
    return np.unique(np.array([tolerance for tolerance in tolerances if tolerance is not None], dtype=np.int64))


def _place(bounds: Times, tolerance: int | None) -> int:
    return len(bounds) if tolerance is None else int(np.searchsorted(bounds, tolerance))


def _cumulated(
    rows: npt.NDArray[np.intp], row_bounds: int, across: npt.NDArray[np.intp], across_bounds: int
) -> npt.NDArray[np.int64]:
    """Count the events at or below each pair of places: int64[row_bounds + 1, across_bounds + 1]."""
    width = across_bounds + 1
    counted = np.bincount(rows * width + across, minlength=(row_bounds + 1) * width)
    table: npt.NDArray[np.int64] = counted.reshape(row_bounds + 1, width).cumsum(axis=0).cumsum(axis=1)
    return table


def _delay(lag: int, late: int | None, order: int | None) -> int | None:
    by_events = END_OF_TIME if order is None else lag + order
    by_arrival = END_OF_TIME if late is None else late
    delay = min(by_events, by_arrival)
    return None if delay == END_OF_TIME else delay
