"""The checker of recorded histories finds every promise that is broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.store.kafka.histories import (
    OBSERVATION_S,
    OWNERS_LIMIT_S,
    Bound,
    Event,
    Ownership,
    Stored,
    check_batches,
    check_bounds,
    check_gateways_agree,
    check_group,
    check_log,
    check_numbered,
    check_owners,
    longest_joint_ownership_s,
    longest_silence_s,
)

# Six events in two batches, a marker between them, and a second broker whose clock is behind.
RECORDS = [
    Stored(0, 100, False),
    Stored(1, 100, False),
    Stored(2, 100, False),
    Stored(3, 160, True),
    Stored(4, 130, False),
    Stored(5, 130, False),
    Stored(6, 170, False),
]
TIMES = {0: 100, 1: 100, 2: 100, 4: 160, 5: 160, 6: 170}
BODIES = ["b/0/0", "b/0/1", "b/0/2", "b/1/0", "b/1/1", "b/1/2"]
EVENTS = [Event(number, time_ms, body) for (number, time_ms), body in zip(TIMES.items(), BODIES, strict=True)]


def changed(index: int, **values: object) -> list[Event]:
    return [event._replace(**values) if at == index else event for at, event in enumerate(EVENTS)]


def broken(check: Callable[[], object], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check()


def test_gateways_that_give_different_events() -> None:
    assert check_gateways_agree({"a": EVENTS, "b": list(EVENTS)}) == EVENTS
    for other in (EVENTS[:-1], changed(3, time_ms=161), changed(3, body="b/1/9"), [*EVENTS, EVENTS[-1]]):
        broken(lambda other=other: check_gateways_agree({"a": EVENTS, "b": other}), "a and b give different events")


def test_numbers_with_gaps_and_enqueued_times_that_are_not_those_of_the_log() -> None:
    check_log(EVENTS, RECORDS)
    broken(lambda: check_log(EVENTS[:-1], RECORDS), "numbers have gaps")
    broken(lambda: check_log([*EVENTS[:3], EVENTS[2], *EVENTS[3:]], RECORDS), "numbers have gaps or repeat")
    broken(lambda: check_log(EVENTS, [*RECORDS[:3], *RECORDS[4:]]), "log itself has gaps")
    unmarked = [one._replace(is_marker=False) for one in RECORDS]
    broken(lambda: check_log(EVENTS, unmarked), "numbers have gaps")
    broken(lambda: check_log(changed(3, time_ms=130), RECORDS), "enqueued times are others")
    broken(lambda: check_log(changed(5, time_ms=171), RECORDS), "enqueued times are others")


def test_batches_that_are_torn_lost_invented_or_out_of_order() -> None:
    def check(events: list[Event], acknowledged: list[int], attempted: int = 2) -> None:
        check_batches(events, acknowledged, attempted, name="b", size=3)

    check(EVENTS, [0, 1])
    check([*EVENTS, *EVENTS[:3]], [0, 1])  # a publisher that does not number may repeat
    broken(lambda: check(EVENTS[:-1], [0, 1]), "not whole")
    broken(lambda: check([EVENTS[1], EVENTS[0], *EVENTS[2:]], [0, 1]), "not whole")
    broken(lambda: check([*EVENTS[:2], EVENTS[3], EVENTS[2], *EVENTS[4:]], [0, 1]), "not whole")
    broken(lambda: check(EVENTS[:3], [0, 1]), "acknowledged are lost")
    broken(lambda: check(EVENTS, [0, 1], 1), "never sent")
    broken(lambda: check(EVENTS, [1, 0]), "not in the order")
    broken(lambda: check(changed(0, body="other/0/0"), [0, 1]), "never sent to this partition")


def test_numbered_events_that_are_doubled_lost_invented_or_out_of_order() -> None:
    def check(*numbers: int, acknowledged: list[int], attempted: int = 4) -> None:
        events = [Event(at, 0, f"n/{number}") for at, number in enumerate(numbers)]
        check_numbered(events, acknowledged, attempted, name="n")

    check(0, 1, 3, acknowledged=[0, 3])
    check(acknowledged=[])
    broken(lambda: check(0, 1, 1, acknowledged=[0, 1]), "there twice")
    broken(lambda: check(1, 0, acknowledged=[0, 1]), "not in their order")
    broken(lambda: check(0, 1, acknowledged=[0, 1, 2]), "1 acknowledged are lost, such as 2")
    broken(lambda: check(0, 9, acknowledged=[0]), "never sent")


def test_events_before_a_lower_bound() -> None:
    check_bounds(EVENTS, [Bound("a", 0, 50), Bound("a", 3, 160), Bound("b", 3, 0), Bound("a", 7, 999)])
    check_bounds([], [Bound("a", 0, 50)])
    broken(lambda: check_bounds(EVENTS, [Bound("a", 3, 161)]), "event 4 is enqueued at 160, .* before 161")
    broken(lambda: check_bounds(EVENTS, [Bound("a", 0, 101)]), "event 0 is enqueued at 100")
    broken(lambda: check_bounds(EVENTS, [Bound("a", 6, 171)]), "event 6")


def test_two_owners_for_longer_than_the_limit() -> None:
    first = Ownership("a", 1, 0.0, 20.0)
    limit_s = OWNERS_LIMIT_S + OBSERVATION_S
    check_owners([])
    check_owners([first])
    check_owners([first, Ownership("b", 2, 20.0 - limit_s, 30.0)])
    check_owners([first, Ownership("b", 2, 1.0, 1.0)])  # it lost the partition as soon as it had it
    both = [first, Ownership("b", 2, 13.9, 30.0)]
    assert longest_joint_ownership_s(both) == pytest.approx(6.1)
    broken(lambda: check_owners(both), "two own it")
    broken(lambda: check_owners([Ownership("c", 0, 0.0, 1.0), both[1], both[0]]), "two own it")


def test_a_group_that_misses_an_event() -> None:
    check_group(EVENTS, set(BODIES))
    broken(lambda: check_group(EVENTS, set(BODIES[1:])), "missed 1 events, such as b/0/0")


def test_the_longest_silence_during_a_fault() -> None:
    acknowledged_at_s = [0.0, 1.0, 4.0, 4.5, 9.0]
    assert longest_silence_s(acknowledged_at_s, 1.5, 2.0) == 3.0
    assert longest_silence_s(acknowledged_at_s, 4.1, 4.2) == 0.5
    assert longest_silence_s(acknowledged_at_s, 0.0, 9.0) == 4.5
    assert longest_silence_s([], 0.0, 9.0) == 0.0
