import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.ordering.logs import Event, codes_of, columns, logs, policies, verdicts
from tidegate import ordering
from tidegate.ordering import Carry, Policy, SubstreamCarry


def from_the_first_event_at(events: list[Event], arrival: int) -> int:
    """Where a reader that seeks by arrival begins: the first event not before it."""
    return next((i for i, event in enumerate(events) if event.arrival >= arrival), len(events))


def of_time(stamps: ordering.Stamps, position: int, time: int) -> list[tuple[object, ...]]:
    """What is said, from ``position`` of the log on, about events stamped at ``time`` or later."""
    return [
        (position + i, *verdict[:3])
        for i, verdict in enumerate(verdicts(stamps))
        if verdict[0] != "dropped" and verdict[2] >= time
    ]


@given(logs(), policies, st.integers(-20, 200), st.integers(0, 30))
def test_starting_anywhere_gives_the_suffix_of_starting_at_the_beginning(
    events: list[Event], policy: Policy, start: int, lookback: int
) -> None:
    arrival = ordering.read_from(start, lookback, policy)
    assume(arrival is not None)
    times, arrivals, valid = columns(events)
    whole, _ = ordering.scan(times, arrivals, Carry(), policy, valid)
    at = from_the_first_event_at(events, arrival)
    part, _ = ordering.scan(times[at:], arrivals[at:], Carry(), policy, valid[at:])
    assert of_time(part, at, start - lookback) == of_time(whole, 0, start - lookback)
    floor = start - lookback
    # Watermarks, too, agree as soon as they matter, so results leave at the same places of the log.
    assert (np.maximum(part.watermark, floor) == np.maximum(whole.watermark[at:], floor)).all()


@given(logs(keys=3), policies, st.integers(-20, 200), st.integers(0, 30))
def test_so_it_does_with_substreams(events: list[Event], policy: Policy, start: int, lookback: int) -> None:
    arrival = ordering.read_from(start, lookback, policy)
    assume(arrival is not None)
    at = from_the_first_event_at(events, arrival)

    def scan(some: list[Event]) -> ordering.Stamps:
        carry = SubstreamCarry()
        times, arrivals, valid = columns(some)
        codes = codes_of(carry, [event.key for event in some])
        return ordering.scan_substreams(times, arrivals, codes, carry, policy, valid)[0]

    assert of_time(scan(events[at:]), at, start - lookback) == of_time(scan(events), 0, start - lookback)


def test_the_place_is_no_later_than_it_must_be() -> None:
    """An event exactly at the early window's end belongs to the first instant looked back on."""
    policy = Policy(early_ticks=300, late_ticks=50, out_of_order_ticks=0)
    assert ordering.read_from(1_000, 100, policy) == 600
    stamps, _ = ordering.scan(np.array([900]), np.array([600]), Carry(), policy)
    assert stamps.system_timestamp.tolist() == [900]
    stamps, _ = ordering.scan(np.array([900]), np.array([599]), Carry(), policy)
    assert stamps.fate.tolist() == [ordering.DROPPED]


def test_without_the_early_rule_only_the_beginning_is_safe() -> None:
    assert ordering.read_from(1_000, 0, Policy(early_ticks=None)) is None
    assert ordering.read_from(1_000, 0, Policy.none()) is None


def test_arrival_time_mode_reads_from_the_lookback() -> None:
    assert ordering.read_from(1_000, 100, Policy.arrival_time()) == 900


def test_the_beginning_of_time_stays_in_int64() -> None:
    assert ordering.read_from(ordering.NO_TIME + 5, 100, Policy()) == ordering.NO_TIME


def test_a_negative_lookback_is_refused() -> None:
    with pytest.raises(ValueError, match="look back"):
        ordering.read_from(0, -1, Policy())
