"""Warnings about a run whose events are mostly not used as they are.

A job keeps running whatever its events look like: what has no readable time is left out, what is late is adjusted or
dropped, and all of it is counted. A run of which a large share goes that way is more likely misconfigured than unlucky,
such as one whose TIMESTAMP BY names text that is no time, or whose late tolerance is shorter than its publishers'
delay. Its user should not have to look for the reason in a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tidegate.connectors.model.metrics import DATA_ERRORS_FILE, INPUT_EVENTS, SPLIT_GROUP, DataError
from tidegate.job.runtime.data_error_tally import FEWEST_EVENTS, LEFT_OUT, share_of_events
from tidegate.job.runtime.step import Step


class EventQuality:
    """Counts the data errors of a run by input and kind, and warns once of each that concerns too many events."""

    def __init__(self, share: float) -> None:
        """
        Args:
            share: of an input's events; above it a kind of error is warned about.
        """
        self._share = share
        self._events: Counter[str] = Counter()
        self._errors: Counter[tuple[str, str]] = Counter()
        self._samples: dict[tuple[str, str], DataError] = {}
        self._warned: set[tuple[str, str]] = set()

    def note(self, step: Step) -> list[str]:
        """Count a step, and return the warnings that are due."""
        for (name, _), state in step.timelines.items():
            self._events[name] += state.counters.get(INPUT_EVENTS, 0)
        for (kind, name, _), count in step.data_error_counts.items():
            if not name or kind == SPLIT_GROUP:
                continue
            self._errors[name, kind] += count
            if kind in LEFT_OUT:
                self._events[name] += count
        for sample in step.data_errors:
            self._samples.setdefault((sample.input, sample.kind), sample)
        return list(self._due(FEWEST_EVENTS))

    def at_end(self) -> list[str]:
        """Return the warnings that are due because no further event comes."""
        return list(self._due(1))

    def _due(self, fewest: int) -> Iterator[str]:
        for (name, kind), count in self._errors.items():
            events = self._events[name]
            if (name, kind) in self._warned or events < fewest or count <= self._share * events:
                continue
            self._warned.add((name, kind))
            yield self._warning(name, kind, count, events)

    def _warning(self, name: str, kind: str, count: int, events: int) -> str:
        shown = share_of_events(f"input '{name}'", kind, count, events, self._samples.get((name, kind)))
        return f"{shown}. {DATA_ERRORS_FILE} in the state folder has samples of each kind"
