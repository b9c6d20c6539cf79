import pickle
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ordering.logs import Event, codes_of, columns, cuts, expected, logs, policies, verdicts
from tests.ordering.oracle import Partition
from tidegate import ordering
from tidegate.ordering import Carry, Policy, SubstreamCarry, SubstreamKeys, substreams

KEYS = 4


def scan_all(events: list[Event], carry: SubstreamCarry, policy: Policy) -> tuple[ordering.Stamps, SubstreamCarry]:
    times, arrivals, valid = columns(events)
    codes = codes_of(carry, [event.key for event in events])
    return ordering.scan_substreams(times, arrivals, codes, carry, policy, valid)


@given(logs(keys=KEYS), policies)
def test_each_substream_has_its_own_order_and_all_share_the_arrival_clock(events: list[Event], policy: Policy) -> None:
    oracle = Partition(policy)
    stamps, carry = scan_all(events, SubstreamCarry(), policy)
    assert verdicts(stamps) == expected([oracle.event(event.time, event.arrival, event.key) for event in events])
    of_codes = ordering.substream_watermarks(carry, policy).tolist()
    for key in {event.key for event in events} - {None}:
        (code,) = codes_of(carry, [key]).tolist()
        promise = oracle.watermark(key)
        assert of_codes[code] == (ordering.NO_TIME if promise is None else promise)
        assert ordering.watermark(carry.timeline(code), policy) == of_codes[code]


@given(logs(), policies)
def test_one_substream_is_one_timeline(events: list[Event], policy: Policy) -> None:
    times, arrivals, valid = columns(events)
    alone, _ = ordering.scan(times, arrivals, Carry(), policy, valid)
    stamps, _ = scan_all(events, SubstreamCarry(), policy)
    assert verdicts(stamps) == verdicts(alone)


@given(st.data(), logs(keys=KEYS), policies, st.integers(1, 5))
def test_any_cut_into_batches_gives_the_same(
    data: st.DataObject, events: list[Event], policy: Policy, block: int
) -> None:
    whole, _ = scan_all(events, SubstreamCarry(), policy)
    pieces = []
    carry = SubstreamCarry()
    with mock.patch.object(substreams, "BLOCK_EVENTS", block):
        for start, stop in cuts(data, len(events)):
            stamps, carry = scan_all(events[start:stop], pickle.loads(pickle.dumps(carry)), policy)
            pieces += verdicts(stamps)
    assert pieces == verdicts(whole)


@given(st.data(), logs(keys=KEYS), policies)
def test_forgetting_changes_nothing_that_matters(data: st.DataObject, events: list[Event], policy: Policy) -> None:
    oracle, carry = Partition(policy), SubstreamCarry()
    for start, stop in cuts(data, len(events)):
        estimate = data.draw(st.integers(-10, 100), label="tick")
        oracle.tick(estimate)
        stamps, carry = scan_all(events[start:stop], carry.advance(estimate).forget(policy), policy)
        wanted = expected([oracle.event(event.time, event.arrival, event.key) for event in events[start:stop]])
        for got, want in zip(verdicts(stamps), wanted, strict=True):
            fate, reasons, stamp, event_watermark, watermark = got
            assert (fate, reasons, stamp, watermark) == (*want[:3], want[4])
            if fate != "dropped":
                assert event_watermark == want[3]


@given(logs(keys=KEYS), policies)
def test_what_is_remembered_are_the_substreams_the_arrival_clock_has_not_overtaken(
    events: list[Event], policy: Policy
) -> None:
    _, carry = scan_all(events, SubstreamCarry(), policy)
    floor = ordering.arrival_floor(carry.arrival, policy)
    by_key = dict(zip(carry.keys.keys().to_list(), carry.max_times.tolist(), strict=True))
    remembered = carry.forget(policy)
    assert dict(zip(remembered.keys.keys().to_list(), remembered.max_times.tolist(), strict=True)) == {
        key: time for key, time in by_key.items() if time >= floor and time != ordering.NO_TIME
    }


def test_memory_is_bounded_by_the_substreams_of_the_late_tolerance() -> None:
    policy = Policy(early_ticks=10, late_ticks=1_000, out_of_order_ticks=50)
    carry = SubstreamCarry()
    with mock.patch.object(substreams, "FORGET_FROM", 256):
        carry = SubstreamCarry(SubstreamKeys())
        for step in range(200):
            # A new substream with every event: 100 an arrival unit, seen once and never again.
            arrivals = np.arange(step * 100, step * 100 + 100, dtype=np.int64) * 10
            codes = codes_of(carry, [f"device {number}" for number in range(step * 100, step * 100 + 100)])
            _, carry = ordering.scan_substreams(arrivals, arrivals, codes, carry, policy)
            # 100 substreams are within the tolerance; twice the larger of that and the least worth forgetting.
            assert len(carry.keys) <= 2 * 256 + 100
            assert len(carry.max_times) == len(carry.keys)


def test_without_a_late_tolerance_nothing_is_forgotten() -> None:
    policy = Policy(late_ticks=None)
    carry = SubstreamCarry()
    _, carry = ordering.scan_substreams(
        np.array([0, 10**15]), np.array([0, 10**15]), codes_of(carry, ["a", "b"]), carry, policy
    )
    assert carry.forget(policy).keys.keys().to_list() == [b"'a'", b"'b'"]


def test_two_runs_that_continue_from_one_carry_do_not_share_the_meaning_of_codes() -> None:
    carry = SubstreamCarry()
    codes_of(carry, ["a", "b"])
    other = pickle.loads(pickle.dumps(carry)).renewed()
    assert other.keys.keys().to_list() == carry.keys.keys().to_list()
    assert other.keys.generation != carry.keys.generation
    assert codes_of(carry, ["c", "d"]).tolist() == codes_of(other, ["d", "c"]).tolist() == [2, 3]


@pytest.mark.slow
def test_many_substreams_at_once() -> None:
    rng = np.random.default_rng(11)
    count = 30_000
    arrivals = np.cumsum(rng.integers(0, 4, count))
    times = arrivals - rng.geometric(0.02, count) + rng.integers(0, 30, count)
    # Some substreams have thousands of events, most have one.
    keys = np.minimum(rng.zipf(1.4, count), 20_000)
    for action in ordering.Action:
        policy = Policy(early_ticks=20, late_ticks=120, out_of_order_ticks=60, action=action)
        oracle = Partition(policy)
        events = list(zip(times.tolist(), arrivals.tolist(), keys.tolist(), strict=True))
        carry = SubstreamCarry()
        distinct, which = np.unique(keys, return_inverse=True)
        codes = codes_of(carry, distinct.tolist())[which]
        stamps, _ = ordering.scan_substreams(times, arrivals, codes, carry, policy)
        assert verdicts(stamps) == expected([oracle.event(t, a, key) for t, a, key in events])


def test_a_carry_is_a_value() -> None:
    """A step that is run twice from the same carry, as after a task was lost, gives the same twice."""
    policy = Policy(late_ticks=100, out_of_order_ticks=2)
    _, carry = ordering.scan_substreams(
        np.array([10]), np.array([10]), codes_of(start := SubstreamCarry(), ["a"]), start, policy
    )
    times, arrivals = np.array([5, 30, 20]), np.array([30, 31, 32])
    codes = codes_of(carry, ["a", "b", "a"])
    first, _ = ordering.scan_substreams(times, arrivals, codes, carry, policy)
    again, _ = ordering.scan_substreams(times, arrivals, codes, carry, policy)
    assert verdicts(first) == verdicts(again)
    assert carry.max_times.tolist() == [10]
    assert carry.timeline(1) == Carry(ordering.NO_TIME, 10)


def test_a_code_from_another_dictionary_is_refused() -> None:
    with pytest.raises(ValueError, match="code 3 is not in the carry's dictionary"):
        ordering.scan_substreams(np.array([1]), np.array([1]), np.array([3]), SubstreamCarry(), Policy())
    with pytest.raises(ValueError, match="columns of the same events"):
        ordering.scan_substreams(np.array([1]), np.array([1]), np.array([], dtype=int), SubstreamCarry(), Policy())
