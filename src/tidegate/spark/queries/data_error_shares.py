"""Whether a query over history can use most of its events as they are.

A query continues whatever its events look like. If a large share of them is adjusted or rejected, the query is more
likely wrong than the events, such as one whose late tolerance is shorter than its publishers' delay. A job says so in
its notices (`tidegate.job.run.event_quality`). A query over history has none: its tasks log a warning, or end it.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass

from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.metrics import INPUT_EVENTS, SPLIT_GROUP, DataError
from tidegate.job.runtime.batch import RangeResult
from tidegate.job.runtime.data_error_tally import FEWEST_EVENTS, LEFT_OUT, share_of_events
from tidegate.job.runtime.emission import Timeline

_logger = logging.getLogger(__name__)


def place_of(timeline: Timeline) -> str:
    """Return how messages name a timeline: an input and its partition, or the input if all are merged."""
    name, partition = timeline
    return f"input '{name}', partition {partition}" if partition else f"input '{name}'"


@dataclass(frozen=True, slots=True)
class DataErrorShares:
    """Shares of the events of a timeline, from 0 to 1, above which a kind of data error is noticed; 1 means never.

    Attributes:
        warning: a warning is logged.
        stop: the query ends.
    """

    warning: float = 1.0
    stop: float = 1.0

    @property
    def counts(self) -> bool:
        """Whether data errors have to be counted."""
        return min(self.warning, self.stop) < 1


class TimelineErrors:
    """Counts the data errors of a timeline by kind."""

    def __init__(self, timeline: Timeline, shares: DataErrorShares) -> None:
        self._timeline = timeline
        self._shares = shares
        self._events = 0
        self._errors: Counter[str] = Counter()
        self._samples: dict[str, DataError] = {}

    def add(self, result: RangeResult) -> None:
        """Count some events."""
        self._events += result.counts[INPUT_EVENTS]
        for kind, count in result.data_error_counts.items():
            if kind != SPLIT_GROUP:
                self._errors[kind] += count
                self._events += count if kind in LEFT_OUT else 0
        for sample in result.data_errors:
            self._samples.setdefault(sample.kind, sample)

    def check(self, *, are_all: bool) -> None:
        """Log a warning of each kind that concerns too many events.

        Args:
            are_all: whether the events are all of the timeline.

        Raises:
            InputError: a kind concerns so many that the query is to end.
        """
        if self._events < FEWEST_EVENTS and not are_all:
            return
        for kind, count in self._errors.items():
            if count > self._shares.stop * self._events:
                raise InputError(
                    f"{self._sentence(kind, count)} That is more than data_error_stop_share ({self._shares.stop:g}) "
                    "allows: correct event_ordering or TIMESTAMP BY, or raise the share"
                )
            if count > self._shares.warning * self._events:
                _logger.warning(self._sentence(kind, count))

    def _sentence(self, kind: str, count: int) -> str:
        shown = share_of_events(place_of(self._timeline), kind, count, self._events, self._samples.get(kind))
        return f"{shown}. tidegate.spark.rejected(…) returns those that were rejected."
