"""What clients of gateways and the cluster itself have seen of a run, and the checks that it kept the promises.

Everything here is data, so that each check can be tried on a history that breaks its promise.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise
from typing import NamedTuple

OWNERS_LIMIT_S = 5.0
"""For how long two readers may own a partition: until the gateway of one notices that it has lost the cluster."""
OBSERVATION_S = 1.0
"""What it takes on a busy machine until a gateway acts on that, and its client sees it."""


class Event(NamedTuple):
    """An event as a gateway gives it to a reader."""

    number: int
    time_ms: int
    body: str


class Stored(NamedTuple):
    """A record as a broker has it: its offset and the time of its append."""

    offset: int
    append_time_ms: int
    is_marker: bool


class Bound(NamedTuple):
    """What a gateway said of a partition: no event from `end` on is enqueued before `lower_bound_ms`."""

    gateway: str
    end: int
    lower_bound_ms: int


@dataclass(slots=True)
class Ownership:
    """A reader with an owner level: from when on it had the partition, and when it got its last event."""

    gateway: str
    level: int
    granted_s: float
    read_s: float


def check_gateways_agree(histories: Mapping[str, Sequence[Event]]) -> Sequence[Event]:
    """Check that every gateway gives the same events, and return them."""
    (first, events), *others = histories.items()
    for name, found in others:
        assert list(found) == list(events), f"gateways {first} and {name} give different events"
    return events


def check_log(events: Sequence[Event], records: Sequence[Stored]) -> None:
    """Check that numbers are dense but for markers, and that enqueued times are the running maximum of the appends."""
    assert [one.offset for one in records] == list(range(len(records))), "the log itself has gaps"
    numbers = [one.offset for one in records if not one.is_marker]
    assert [event.number for event in events] == numbers, "numbers have gaps or repeat"
    times = list(accumulate((one.append_time_ms for one in records), max))
    assert [event.time_ms for event in events] == [times[number] for number in numbers], "enqueued times are others"
    assert all(before.time_ms <= after.time_ms for before, after in pairwise(events)), "enqueued times go back"


def check_batches(
    events: Sequence[Event], acknowledged: Sequence[int], attempted: int, *, name: str, size: int
) -> None:
    """Check a partition to which one publisher sent batches in turn: NAME/BATCH/PART, each of `size` parts."""
    batches = [_number(event.body, name) for event in events[::size]]
    expected = [f"{name}/{number}/{part}" for number in batches for part in range(size)]
    assert [event.body for event in events] == expected, "batches are not whole"
    _check_sent(batches, acknowledged, attempted)
    awaited = set(acknowledged)
    first = [number for number in dict.fromkeys(batches) if number in awaited]
    assert first == list(acknowledged), "batches are not in the order in which they were acknowledged"


def check_numbered(events: Sequence[Event], acknowledged: Sequence[int], attempted: int, *, name: str) -> None:
    """Check a partition to which one idempotent producer sent NAME/NUMBER."""
    sent = [_number(event.body, name) for event in events]
    assert max(Counter(sent).values(), default=1) == 1, "a numbered event is there twice"
    assert sent == sorted(sent), "numbered events are not in their order"
    _check_sent(sent, acknowledged, attempted)


def check_bounds(events: Sequence[Event], bounds: Sequence[Bound]) -> None:
    """Check that no event came before a lower bound that a gateway had given."""
    numbers = [event.number for event in events]
    for bound in bounds:
        at = bisect_left(numbers, bound.end)
        later = min((event.time_ms for event in events[at : at + 1]), default=bound.lower_bound_ms)
        assert later >= bound.lower_bound_ms, (
            f"event {numbers[at]} is enqueued at {later}, and gateway {bound.gateway} had said that none from "
            f"{bound.end} on comes before {bound.lower_bound_ms}"
        )


def longest_joint_ownership_s(owners: Sequence[Ownership]) -> float:
    """Return for how long two readers both owned the partition and read."""
    return max([0.0, *(_joint_s(one, other) for one, other in combinations(owners, 2))])


def check_owners(owners: Sequence[Ownership]) -> None:
    """Check that no two readers owned the partition for longer than the limit."""
    for one, other in combinations(owners, 2):
        assert _joint_s(one, other) <= OWNERS_LIMIT_S + OBSERVATION_S, f"two own it: {one}, {other}"


def check_group(events: Sequence[Event], found: Collection[str]) -> None:
    """Check that a consumer group has missed nothing."""
    missed = {event.body for event in events} - set(found)
    assert not missed, f"a group has missed {len(missed)} events, such as {min(missed)}"


def longest_silence_s(acknowledged_at_s: Sequence[float], began_s: float, ended_s: float) -> float:
    """Return the longest time without an acknowledgement, of those that overlap with a fault."""
    return max(_silences(acknowledged_at_s, began_s, ended_s), default=0.0)


def _silences(acknowledged_at_s: Sequence[float], began_s: float, ended_s: float) -> Iterator[float]:
    for before, after in pairwise(acknowledged_at_s):
        if before < ended_s and after > began_s:
            yield after - before


def _joint_s(one: Ownership, other: Ownership) -> float:
    return min(one.read_s, other.read_s) - max(one.granted_s, other.granted_s)


def _number(body: str, name: str) -> int:
    parts = body.split("/")
    assert parts[0] == name, f"{body} was never sent to this partition"
    return int(parts[1])


def _check_sent(sent: Sequence[int], acknowledged: Sequence[int], attempted: int) -> None:
    lost = set(acknowledged) - set(sent)
    assert not lost, f"{len(lost)} acknowledged are lost, such as {min(lost)}"
    invented = set(sent) - set(range(attempted))
    assert not invented, f"{len(invented)} were never sent, such as {min(invented)}"
