from decimal import Decimal

import pytest

from tidegate.ordering import TICKS_PER_SECOND, Action, Policy, PolicyError


def test_the_default_is_the_portals() -> None:
    policy = Policy()
    assert policy == Policy.seconds()
    assert (policy.early_ticks, policy.late_ticks, policy.out_of_order_ticks) == (3_000_000_000, 50_000_000, 0)
    assert policy.action is Action.ADJUST


def test_seconds_become_ticks_exactly() -> None:
    policy = Policy.seconds(early=None, late=0.1, out_of_order=Decimal("0.0000001"), action="Drop")
    assert (policy.early_ticks, policy.late_ticks, policy.out_of_order_ticks) == (None, 1_000_000, 1)
    assert not policy.adjusts


def test_minus_one_waits_indefinitely() -> None:
    assert Policy.seconds(late=-1).late_ticks is None


@pytest.mark.parametrize("late", [0, 1, 1_814_399])
def test_every_documented_late_tolerance_is_allowed(late: int) -> None:
    assert Policy.seconds(late=late).late_ticks == late * TICKS_PER_SECOND


@pytest.mark.parametrize("out_of_order", [0, 599, 86_400])
def test_out_of_order_tolerance_may_go_beyond_the_portals(out_of_order: int) -> None:
    assert Policy.seconds(out_of_order=out_of_order).out_of_order_ticks == out_of_order * TICKS_PER_SECOND


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"late": 1_814_400}, "late arrival tolerance: 1814400 s is out of range; allowed is 0 to 1814399 s"),
        ({"late": -2}, "late arrival tolerance"),
        ({"out_of_order": -1}, "out-of-order tolerance"),
        ({"early": -1}, "early arrival window"),
        ({"late": 0.00000001}, "finer than 100 ns"),
        ({"late": float("nan")}, "no length of time"),
        ({"out_of_order": 1e300}, "no length of time"),
        ({"late": True}, "a number of seconds is needed"),
        ({"action": "ignore"}, "adjust or drop, not 'ignore'"),
    ],
)
def test_what_no_policy_may_have_is_refused_by_name(settings: dict[str, object], says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        Policy.seconds(**settings)


def test_the_effective_policy_is_one_line() -> None:
    assert Policy.seconds(late=10, out_of_order=3).describe() == (
        "event ordering: early more than 5 min dropped; late more than 10 s adjusted; "
        "out of order more than 3 s adjusted"
    )
    assert "1 min dropped (extension)" in Policy.seconds(early=60).describe()
    assert "early rule off (extension)" in Policy.seconds(early=None).describe()
    assert "for ever" in Policy.seconds(late=-1).describe()
    assert "late more than 5 s dropped" in Policy.seconds(action="drop").describe()
    assert "local run" in Policy.none().describe()


def test_only_local_run_mode_is_no_policy() -> None:
    assert Policy.none().is_none
    assert not Policy.seconds(early=None, late=-1).is_none
