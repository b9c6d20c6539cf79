"""What other tolerances would have done to a stretch of a job's log, computed in one pass.

Each partition's event times, arrivals and substreams are read once, as the job reads them; `ordering.tuning` then
evaluates any number of pairs of tolerances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tidegate.connectors.model.errors import JobError
from tidegate.engine import TaskSide
from tidegate.job.analysis.replay import BATCH_EVENTS, stretch
from tidegate.job.analysis.replay_source import ReplaySource
from tidegate.job.runtime.step import Timeline
from tidegate.ordering import TICKS_PER_SECOND, Disorder, SubstreamKeys, TuningOutcome, measure

_LADDER_S = (0, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800, 1814399)
"""Commonly chosen tolerances, in seconds."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """The effect of tolerances on a stretch.

    Attributes:
        late_ticks, out_of_order_ticks: the candidates of the grid.
        grid: an outcome for each pair, by late tolerance and then by out-of-order tolerance.
        current: the outcome of the job's own tolerances.
        smallest: the smallest tolerances that leave ``keep`` of all events untouched; empty if none do.
        early, unreadable: events that no tolerance keeps.
    """

    events: int
    partitions: int
    early: int
    unreadable: int
    keep: float
    late_ticks: tuple[int, ...]
    out_of_order_ticks: tuple[int, ...]
    grid: tuple[tuple[TuningOutcome, ...], ...]
    current: TuningOutcome
    smallest: tuple[TuningOutcome, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the object that `-o json` prints; tolerances and delays in seconds, null for unlimited."""
        return {
            "events": self.events,
            "partitions": self.partitions,
            "early": self.early,
            "unreadable": self.unreadable,
            "keep": self.keep,
            "current": _as_json(self.current),
            "smallest": [_as_json(outcome) for outcome in self.smallest],
            "grid": [_as_json(outcome) for row in self.grid for outcome in row],
        }


def tuned(
    source: ReplaySource,
    *,
    from_ticks: int | None = None,
    to_ticks: int | None = None,
    keep: float = 0.999,
    late_ticks: Sequence[int] = (),
    out_of_order_ticks: Sequence[int] = (),
) -> Tuning:
    """Read a stretch of arrival times once and compute the effect of tolerances on it.

    Args:
        keep: the share of all events to leave untouched.
        late_ticks, out_of_order_ticks: candidates; if empty, they are chosen from the log.

    Raises:
        JobError: no input has event times, so no tolerance applies.
        InputError: a log cannot be read.
    """
    if not any(map(source.program.has_event_time, source.logs)):
        raise JobError("nothing to tune: the query reads no input with TIMESTAMP BY, so no tolerance applies to it")
    parts = [
        _measured(source, timeline, first, stop)
        for timeline, (first, stop) in stretch(source, from_ticks, to_ticks).items()
        if source.program.has_event_time(timeline[0])
    ]
    disorder = Disorder.joined(parts or [_nothing()])
    own = source.policy
    lates = tuple(sorted(set(late_ticks))) or _candidates(disorder.lateness, own.late_ticks)
    orders = tuple(sorted(set(out_of_order_ticks))) or _candidates(disorder.disorder, own.out_of_order_ticks)
    pairs = [(late, order) for late in lates for order in orders]
    outcomes = disorder.outcomes([*pairs, (own.late_ticks, own.out_of_order_ticks)])
    width = len(orders)
    return Tuning(
        events=disorder.events,
        partitions=len(parts),
        early=disorder.early,
        unreadable=disorder.unreadable,
        keep=keep,
        late_ticks=lates,
        out_of_order_ticks=orders,
        grid=tuple(tuple(outcomes[row * width : (row + 1) * width]) for row in range(len(lates))),
        current=outcomes[-1],
        smallest=tuple(disorder.smallest(keep)),
    )


def _measured(source: ReplaySource, timeline: Timeline, first: int, stop: int) -> Disorder:
    """Measure the disorder of a partition in one pass."""
    name, partition = timeline
    engine = TaskSide(source.program)
    keys = SubstreamKeys()
    times, valid, arrivals, codes = [], [], [], []
    rejected = 0
    for events in source.logs[name].range(partition, first, stop).read_events(BATCH_EVENTS) if stop > first else ():
        batch = engine.decode(name, partition, events)
        rejected += len(batch.decoded.rejected_events)
        assert batch.times is not None
        times.append(batch.times[0])
        valid.append(batch.times[1])
        arrivals.append(batch.arrivals)
        if batch.substreams is not None:
            known = np.append(keys.codes(batch.substreams.keys), np.int64(-1))
            codes.append(known[batch.substreams.codes])
    if not times:
        return _nothing()
    disorder = measure(
        np.concatenate(times),
        np.concatenate(arrivals),
        early_ticks=source.policy.early_ticks,
        valid=np.concatenate(valid),
        codes=np.concatenate(codes) if codes else None,
    )
    return replace(disorder, unreadable=disorder.unreadable + rejected)


def _nothing() -> Disorder:
    return measure(np.empty(0, np.int64), np.empty(0, np.int64))


def _candidates(observed: np.ndarray[Any, np.dtype[np.int64]], own: int | None) -> tuple[int, ...]:
    """Return round tolerances up to the first that covers everything observed, and the job's own."""
    most = max(0, int(observed.max())) if len(observed) else 0
    ladder = [seconds * TICKS_PER_SECOND for seconds in _LADDER_S]
    enough = next((place for place, ticks in enumerate(ladder) if ticks >= most), len(ladder) - 1)
    return tuple(sorted({*ladder[: enough + 1], *([] if own is None else [own])}))


def _as_json(outcome: TuningOutcome) -> dict[str, Any]:
    return {
        "lateArrivalToleranceS": _seconds(outcome.late_ticks),
        "outOfOrderToleranceS": _seconds(outcome.out_of_order_ticks),
        "shareUntouched": outcome.share_untouched,
        "untouched": outcome.untouched,
        "late": outcome.late,
        "outOfOrderAdjusting": outcome.out_of_order,
        "outOfOrderDropping": outcome.out_of_order_dropping,
        "watermarkDelayMedianS": _seconds(outcome.watermark_delay_median_ticks),
        "watermarkDelayP95S": _seconds(outcome.watermark_delay_p95_ticks),
    }


def _seconds(ticks: int | None) -> float | None:
    return None if ticks is None else ticks / TICKS_PER_SECOND
