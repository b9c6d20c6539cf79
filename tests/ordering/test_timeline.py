from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ordering.logs import Event, columns, cuts, expected, extreme_logs, extreme_policies, logs, policies, verdicts
from tests.ordering.oracle import Partition
from tidegate import ordering
from tidegate.ordering import Carry, Policy, timeline


@given(logs(), policies)
def test_the_scan_says_what_the_rules_say_one_event_at_a_time(events: list[Event], policy: Policy) -> None:
    oracle = Partition(policy)
    times, arrivals, valid = columns(events)
    stamps, carry = ordering.scan(times, arrivals, Carry(), policy, valid)
    assert verdicts(stamps) == expected([oracle.event(event.time, event.arrival) for event in events])
    assert ordering.watermark(carry, policy) == (int(stamps.watermark[-1]) if events else ordering.NO_TIME)


@given(extreme_logs, extreme_policies)
def test_the_ends_of_int64_are_compared_exactly(events: list[Event], policy: Policy) -> None:
    oracle = Partition(policy)
    times, arrivals, valid = columns(events)
    stamps, _ = ordering.scan(times, arrivals, Carry(), policy, valid)
    assert verdicts(stamps) == expected([oracle.event(event.time, event.arrival) for event in events])


@given(st.data(), logs(), policies, st.integers(1, 5))
def test_any_cut_into_batches_gives_the_same(
    data: st.DataObject, events: list[Event], policy: Policy, block: int
) -> None:
    times, arrivals, valid = columns(events)
    whole, carry_of_whole = ordering.scan(times, arrivals, Carry(), policy, valid)
    pieces = []
    carry = Carry()
    with mock.patch.object(timeline, "BLOCK_EVENTS", block):
        for start, stop in cuts(data, len(events)):
            stamps, carry = ordering.scan(times[start:stop], arrivals[start:stop], carry, policy, valid[start:stop])
            pieces += verdicts(stamps)
    assert pieces == verdicts(whole)
    assert carry == carry_of_whole


@given(st.data(), logs(), policies)
def test_ticks_between_events_are_ticks_in_the_rules(data: st.DataObject, events: list[Event], policy: Policy) -> None:
    oracle, carry = Partition(policy), Carry()
    times, arrivals, valid = columns(events)
    for start, stop in cuts(data, len(events)):
        # An estimate of the arrival clock may be behind what is known and may overshoot what then comes.
        estimate = data.draw(st.integers(-10, 200), label="tick")
        oracle.tick(estimate)
        carry = carry.advance(estimate)
        stamps, carry = ordering.scan(times[start:stop], arrivals[start:stop], carry, policy, valid[start:stop])
        verdict = [oracle.event(event.time, event.arrival) for event in events[start:stop]]
        assert verdicts(stamps) == expected(verdict)


@given(logs(steady=True), policies)
def test_on_arrivals_that_go_forward_only_the_event_watermark_touches_events(
    events: list[Event], policy: Policy
) -> None:
    """The documents' rule 3 says W = largest time - tolerance; the arrival clock may only move when output leaves."""
    times, arrivals, valid = columns(events)
    stamps, _ = ordering.scan(times, arrivals, Carry(), policy, valid)
    max_time = None
    for i, event in enumerate(events):
        if stamps.fate[i] == ordering.DROPPED and not stamps.reasons[i] & ordering.OUT_OF_ORDER:
            continue
        time = event.time
        if stamps.reasons[i] & ordering.LATE:
            time = event.arrival - policy.late_ticks
        below = (
            max_time is not None
            and policy.out_of_order_ticks is not None
            and time < max_time - policy.out_of_order_ticks
        )
        assert bool(stamps.reasons[i] & ordering.OUT_OF_ORDER) == below
        if below and policy.adjusts:
            time = max_time - policy.out_of_order_ticks
        if not below or policy.adjusts:
            assert stamps.system_timestamp[i] == time
            max_time = time if max_time is None else max(max_time, time)


@given(logs(), policies)
def test_no_event_is_stamped_before_a_watermark_already_given(events: list[Event], policy: Policy) -> None:
    times, arrivals, valid = columns(events)
    stamps, _ = ordering.scan(times, arrivals, Carry(), policy, valid)
    kept = stamps.fate[1:] != ordering.DROPPED
    assert (stamps.watermark[1:] >= stamps.watermark[:-1]).all()
    assert (stamps.system_timestamp[1:][kept] >= stamps.watermark[:-1][kept]).all()


@pytest.mark.slow
def test_many_events_at_once() -> None:
    rng = np.random.default_rng(7)
    arrivals = np.cumsum(rng.integers(0, 4, 40_000))
    times = arrivals - rng.geometric(0.02, 40_000) + rng.integers(0, 30, 40_000)
    valid = rng.random(40_000) > 0.01
    for action in ordering.Action:
        policy = Policy(early_ticks=20, late_ticks=120, out_of_order_ticks=60, action=action)
        oracle = Partition(policy)
        events = zip(times.tolist(), arrivals.tolist(), valid.tolist(), strict=True)
        stamps, _ = ordering.scan(times, arrivals, Carry(), policy, valid)
        assert verdicts(stamps) == expected([oracle.event(t if ok else None, a) for t, a, ok in events])


@given(logs())
def test_without_timestamp_by_the_arrival_is_the_time(events: list[Event]) -> None:
    _, arrivals, _ = columns(events)
    stamps, carry = ordering.scan_arrival(arrivals, Carry())
    # An arrival clock that went back is held at where it was: the watermark has been given out.
    latest = np.maximum.accumulate(arrivals)
    assert stamps.system_timestamp.tolist() == stamps.watermark.tolist() == latest.tolist()
    assert (stamps.fate != ordering.DROPPED).all()
    assert (stamps.fate == ordering.OK).tolist() == (arrivals == latest).tolist()
    assert ordering.watermark(carry, Policy.arrival_time()) == (latest[-1] if events else ordering.NO_TIME)


def test_local_run_mode_touches_nothing_and_promises_nothing() -> None:
    times = np.array([30, 10, 20], dtype=np.int64)
    no_arrival = np.full(3, ordering.NO_TIME, dtype=np.int64)
    stamps, carry = ordering.scan(times, no_arrival, Carry(), Policy.none())
    assert stamps.system_timestamp.tolist() == [30, 10, 20]
    assert not stamps.fate.any()
    assert not stamps.reasons.any()
    assert ordering.watermark(carry, Policy.none()) == ordering.NO_TIME


def test_one_tick_tells_two_events_apart() -> None:
    policy = Policy(early_ticks=5, late_ticks=100, out_of_order_ticks=10)
    base = ordering.parse_time("2019-01-01T00:00:00Z")
    offsets = [(5, 0), (6, 0), (-95, 5), (-96, 5), (-5, 5), (-6, 5)]
    times = np.array([base + t for t, _ in offsets], dtype=np.int64)
    arrivals = np.array([base + a for _, a in offsets], dtype=np.int64)
    reasons = []
    for i in range(len(offsets)):
        stamps, _ = ordering.scan(times[i : i + 1], arrivals[i : i + 1], Carry(base + 5, base), policy)
        reasons.append(int(stamps.reasons[0]))
    assert reasons == [
        0,
        ordering.EARLY,
        ordering.OUT_OF_ORDER,
        ordering.LATE | ordering.OUT_OF_ORDER,
        0,
        ordering.OUT_OF_ORDER,
    ]


def test_late_and_out_of_order_counts_as_both() -> None:
    policy = Policy(late_ticks=5, out_of_order_ticks=0)
    stamps, _ = ordering.scan(np.array([12, 1]), np.array([12, 13]), Carry(), policy)
    assert ordering.counts(stamps) == {"Early Input Events": 0, "Late Input Events": 1, "Out-of-Order Events": 1}


def test_columns_of_different_events_are_refused() -> None:
    with pytest.raises(ValueError, match="columns of the same events"):
        ordering.scan(np.array([1, 2]), np.array([1]), Carry(), Policy())
    with pytest.raises(ValueError, match="columns of the same events"):
        ordering.scan(np.array([1, 2]), np.array([1, 2]), Carry(), Policy(), np.array([True]))


def test_the_arguments_are_left_as_they_were() -> None:
    times, arrivals = np.array([9, 1, 5]), np.array([9, 10, 11])
    valid = np.array([True, False, True])
    for array in (times, arrivals, valid):
        array.flags.writeable = False
    ordering.scan(times, arrivals, Carry(20, 20), Policy(0, 0, 0), valid)
    ordering.scan_arrival(arrivals, Carry(20, 20))
