"""Browsing neither skips nor repeats an event, in either direction, over any number of partitions and requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate.amqp.messages import Message, encode_message
from tidegate.hub.errors import ArgumentError
from tidegate.log import EventBatch, LogDamaged
from tidegate.portal.events.reading import (
    ReadBudget,
    cursor_text,
    parse_cursor,
    parse_time_ms,
    read_backwards,
    read_forwards,
    starting_cursor,
)
from tidegate.portal.events.searching import parse_search

PLENTY = ReadBudget(seconds=1e9)


class Log:
    """A partition's log in memory: one event for each arrival time."""

    def __init__(self, times_ms: list[int], begin: int = 0, damaged: range = range(0)) -> None:
        self.times_ms = times_ms
        self.begin_sequence_number = min(begin, len(times_ms))
        self.next_sequence_number = len(times_ms)
        self.damaged = damaged

    def read_batches(self, sequence_number: int, *, max_bytes: int, max_events: int) -> list[EventBatch]:
        first = max(sequence_number, self.begin_sequence_number)
        if first in self.damaged:
            raise LogDamaged(Path("log"), 0, "for the test", first, self.damaged.stop)
        stop = min(first + max_events, self.next_sequence_number, first + 7)
        numbers = [number for number in range(first, stop) if number not in self.damaged]
        if numbers and self.damaged and numbers[0] < self.damaged.start:
            numbers = [number for number in numbers if number < self.damaged.start]
        return [
            EventBatch(number, self.times_ms[number], [number * 4], [message(f"event {number}")]) for number in numbers
        ]

    def sequence_at_time(self, time_ms: int, *, inclusive: bool) -> int:
        return next((n for n, at in enumerate(self.times_ms) if at >= time_ms), self.next_sequence_number)

    def sequence_after_offset(self, offset: int, *, inclusive: bool) -> int:
        return min(self.next_sequence_number, -(-offset // 4))


def message(text: str, **properties: Any) -> bytes:
    return encode_message(Message(application_properties=properties or None, body_kind="data", body=[text.encode()]))


def partitions(*logs: Log) -> Any:
    return [SimpleNamespace(partition_id=str(number), log=log) for number, log in enumerate(logs)]


def places(events: Any) -> list[tuple[str, int]]:
    return [(event.partition, event.sequence_number) for event in events]


times = st.lists(st.integers(0, 50), max_size=40).map(sorted)
LOGS = st.lists(st.builds(Log, times, st.integers(0, 10)), min_size=1, max_size=4)


@given(LOGS, st.integers(1, 9), st.booleans())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_reading_forwards_in_pages_gives_every_event_once(logs: list[Log], limit: int, searches: bool) -> None:
    hub = partitions(*logs)
    match = parse_search("event") if searches else None
    found, cursor = [], starting_cursor(hub, "earliest")
    for _ in range(200):
        page = read_forwards(hub, parse_cursor(cursor_text(cursor)), limit, match, PLENTY)
        assert len(page.events) <= limit
        found += places(page.events)
        cursor = page.forward
        if page.is_complete:
            break
    assert sorted(found) == [(one.partition_id, n) for one in hub for n in held(one.log)]
    if not searches:
        assert found == sorted(found, key=lambda place: (hub[int(place[0])].log.times_ms[place[1]], *place))


@given(LOGS, st.integers(1, 9), st.booleans())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_reading_backwards_in_pages_gives_every_event_once(logs: list[Log], limit: int, searches: bool) -> None:
    hub = partitions(*logs)
    match = parse_search("event") if searches else None
    pages: list[list[tuple[str, int]]] = []
    cursor: dict[str, int] = {}
    for _ in range(200):
        page = read_backwards(hub, cursor, limit, match, PLENTY)
        assert len(page.events) <= limit
        pages.insert(0, places(page.events))
        cursor = page.backward
        if page.is_complete:
            break
    found = [place for page in pages for place in page]
    assert sorted(found) == [(one.partition_id, n) for one in hub for n in held(one.log)]
    if not searches:
        assert found == sorted(found, key=lambda place: (hub[int(place[0])].log.times_ms[place[1]], *place))


def held(log: Log) -> Iterator[int]:
    yield from range(log.begin_sequence_number, log.next_sequence_number)


def test_following_continues_where_the_newest_events_ended() -> None:
    log = Log([1, 2, 3])
    hub = partitions(log)
    newest = read_backwards(hub, {}, 2, None, PLENTY)
    assert places(newest.events) == [("0", 1), ("0", 2)]
    log.times_ms += [4, 5]
    log.next_sequence_number = 5
    assert places(read_forwards(hub, newest.forward, 10, None, PLENTY).events) == [("0", 3), ("0", 4)]


def test_damaged_events_are_passed_over_and_reported() -> None:
    hub = partitions(Log(list(range(20)), damaged=range(5, 8)))
    found = read_forwards(hub, {"0": 0}, 50, None, PLENTY)
    assert [number for _, number in places(found.events)] == [*range(5), *range(8, 20)]
    assert found.damages == ["partition 0: events 5 to 7 are damaged"]
    assert places(read_backwards(hub, {}, 50, None, PLENTY).events) == places(found.events)


def test_a_search_stops_at_its_budget_and_goes_on_from_there() -> None:
    hub = partitions(Log(list(range(5000))))
    match = parse_search("4900")
    page = read_forwards(hub, {"0": 0}, 10, match, ReadBudget(events=1500, seconds=1e9))
    assert (page.events, page.searched, page.extent, page.is_complete) == ([], 2000, 5000, False)
    while not page.is_complete and not page.events:
        page = read_forwards(hub, page.forward, 10, match, ReadBudget(events=1500, seconds=1e9))
    assert places(page.events) == [("0", 4900)]


def test_how_much_there_is_to_search_counts_from_where_it_begins() -> None:
    hub = partitions(Log(list(range(20)), begin=5), Log([1, 2, 3]))
    assert read_backwards(hub, {}, 1, None, PLENTY).extent == 18
    assert read_backwards(hub, {"0": 7, "1": 0}, 1, None, PLENTY).extent == 2
    assert read_forwards(hub, {"0": 0, "1": 2}, 1, None, PLENTY).extent == 16


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 2),
        ("latest", 10),
        ("sequence:5", 5),
        ("sequence:0", 2),
        ("offset:17", 5),
        ("time:1970-01-01T00:00:00.007", 7),
        ("time:1970-01-01T01:00:00.007+01:00", 7),
    ],
)
def test_where_to_begin(start: str, first: int) -> None:
    assert starting_cursor(partitions(Log(list(range(10)), begin=2)), start) == {"0": first}


@pytest.mark.parametrize("start", ["sequence:x", "offset:-1", "time:yesterday", "somewhere", "sequence:", ""])
def test_a_position_that_cannot_be_read_says_what_was_expected(start: str) -> None:
    with pytest.raises(ArgumentError, match="expected"):
        starting_cursor(partitions(Log([1])), start)


@pytest.mark.parametrize("text", ["x", "0", "0-", "-1", "0-1-2", "0-1_x"])
def test_a_cursor_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="cursor"):
        parse_cursor(text)


def test_a_time_without_an_offset_is_utc() -> None:
    assert parse_time_ms("1970-01-02 00:00:00") == parse_time_ms("1970-01-02T00:00:00Z") == 86_400_000
