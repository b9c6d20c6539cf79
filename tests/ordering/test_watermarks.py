import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import ordering
from tidegate.ordering import Carry, Policy


@pytest.mark.parametrize(
    ("carry", "promise"),
    [
        (Carry(), ordering.NO_TIME),
        (Carry(max_time=100, arrival=100), 98),
        (Carry(max_time=100, arrival=108), 103),
        (Carry(arrival=108), 103),
    ],
)
def test_the_watermark_is_the_larger_of_the_event_rule_and_the_idle_rule(carry: Carry, promise: int) -> None:
    assert ordering.watermark(carry, Policy(late_ticks=5, out_of_order_ticks=2)) == promise


def test_without_a_late_tolerance_an_idle_timeline_holds_for_ever() -> None:
    policy = Policy(late_ticks=None, out_of_order_ticks=2)
    assert ordering.watermark(Carry(100, 100).advance(10**15), policy) == 98


def test_a_tick_never_moves_time_back() -> None:
    assert Carry(1, 100).advance(99) == Carry(1, 100)
    assert Carry(1, 100).advance(101) == Carry(1, 101)


@given(st.lists(st.integers(ordering.NO_TIME, ordering.END_OF_TIME), min_size=1))
def test_together_timelines_promise_what_the_slowest_promises(watermarks: list[int]) -> None:
    assert ordering.merge(watermarks) == min(watermarks)


def test_no_timeline_promises_nothing_that_could_be_said() -> None:
    with pytest.raises(ValueError, match="at least one timeline"):
        ordering.merge([])
