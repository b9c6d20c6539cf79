"""The contract of streams, which every kind runs: a class of tests over one log with known events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple, Protocol

import numpy as np
import pytest

from tidegate.connectors.model.events import InputLog, LogRange


class Event(NamedTuple):
    """What a log is to hold; ``arrival`` is None where the kind gives it itself."""

    number: int
    arrival: int
    body: bytes


class Origin(Protocol):
    """A place with a log of at least four events in one partition, and what they are."""

    def open_log(self) -> InputLog:
        """Open it as the next process would."""


def events_of(log_range: LogRange, batch_events: int) -> Iterator[Event]:
    for events in log_range.read_events(batch_events):
        assert len(events.sequence_numbers) == len(events.arrivals) == len(events.bodies) <= batch_events
        for place, body in enumerate(events.bodies):
            yield Event(int(events.sequence_numbers[place]), int(events.arrivals[place]), bytes(body))


class StreamContract:
    """A log is numbered and in order for ever. A subclass provides the fixture `origin`."""

    def whole(self, origin: Origin) -> tuple[str, Sequence[Event]]:
        with closing(origin.open_log()) as log:
            ((partition, end),) = [item for item in log.ends().items() if item[1].end > item[1].begin]
            return partition, list(events_of(log.range(partition, end.begin, end.end), 1000))

    def test_events_are_numbered_without_gaps_and_arrive_in_order(self, origin: Origin) -> None:
        _, events = self.whole(origin)
        assert len(events) >= 4
        assert np.diff([event.number for event in events]).tolist() == [1] * (len(events) - 1)
        assert all(np.diff([event.arrival for event in events]) >= 0)

    def test_a_log_opened_again_is_the_same(self, origin: Origin) -> None:
        assert self.whole(origin) == self.whole(origin)

    @pytest.mark.parametrize("batch_events", [1, 2, 1000])
    def test_any_range_holds_exactly_its_events(self, origin: Origin, batch_events: int) -> None:
        partition, events = self.whole(origin)
        first = events[0].number
        with closing(origin.open_log()) as log:
            log.ends()
            for start in range(len(events)):
                for end in range(start + 1, len(events) + 1):
                    log_range = log.range(partition, first + start, first + end)
                    assert (log_range.start, log_range.end) == (first + start, first + end)
                    assert list(events_of(log_range, batch_events)) == list(events[start:end])

    def test_a_job_resumes_at_the_first_event_that_arrived_since(self, origin: Origin) -> None:
        partition, events = self.whole(origin)
        with closing(origin.open_log()) as log:
            end = log.ends()[partition].end
            for arrival in {event.arrival + more for event in events for more in (-1, 0, 1)}:
                expected = next((event.number for event in events if event.arrival >= arrival), end)
                found = log.first_at(partition, arrival)
                # A hub knows milliseconds: it may begin with an event that is read and passed over.
                assert found <= expected
                assert expected - found <= 0 or self.first_at_is_approximate

    first_at_is_approximate = False
    """Whether `first_at` may give an earlier event."""
