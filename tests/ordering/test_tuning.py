from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.ordering.logs import Event, codes_of, columns, logs, tolerances
from tests.ordering.oracle import Partition, Verdict
from tidegate import ordering
from tidegate.ordering import Action, Carry, SubstreamCarry
from tidegate.ordering.tuning import Disorder, TuningOutcome, measure, tune


def said_by_the_rules(
    events: list[Event], outcome: TuningOutcome, early_ticks: int | None, action: Action
) -> list[Verdict]:
    oracle = Partition(outcome.policy(action, early_ticks))
    verdicts, latest = [], None
    for event in events:
        # An arrival that goes back counts as the latest before it.
        latest = event.arrival if latest is None else max(latest, event.arrival)
        verdicts.append(oracle.event(event.time, latest, event.key))
    return verdicts


def number(verdicts: list[Verdict], reason: str) -> int:
    return sum(reason in verdict.reasons for verdict in verdicts)


pairs = st.lists(st.tuples(tolerances, tolerances), min_size=1, max_size=6)


@pytest.mark.parametrize("keys", [0, 3])
@given(st.data(), pairs, tolerances)
def test_every_candidate_is_what_the_rules_would_have_done(
    keys: int, data: st.DataObject, candidates: list[tuple[int | None, int | None]], early: int | None
) -> None:
    events = data.draw(logs(keys=keys))
    times, arrivals, valid = columns(events)
    codes = codes_of(SubstreamCarry(), [event.key for event in events]) if keys else None
    outcomes = tune(times, arrivals, candidates, early_ticks=early, valid=valid, codes=codes)
    assert [(outcome.late_ticks, outcome.out_of_order_ticks) for outcome in outcomes] == candidates
    for outcome in outcomes:
        adjusted = said_by_the_rules(events, outcome, early, Action.ADJUST)
        dropped = said_by_the_rules(events, outcome, early, Action.DROP)
        assert outcome.events == len(events)
        assert outcome.untouched == sum(verdict.fate == "ok" for verdict in adjusted)
        assert outcome.untouched == sum(verdict.fate == "ok" for verdict in dropped)
        assert outcome.touched == sum(verdict.fate == "adjusted" for verdict in adjusted)
        assert outcome.late == number(adjusted, "late") == number(dropped, "late")
        assert outcome.out_of_order == number(adjusted, "out_of_order")
        assert outcome.out_of_order_dropping == number(dropped, "out_of_order")


@given(logs(steady=True), tolerances, tolerances)
def test_the_watermarks_delay_is_the_scans(events: list[Event], late: int | None, order: int | None) -> None:
    times, arrivals, valid = columns(events)
    (outcome,) = tune(times, arrivals, [(late, order)], valid=valid)
    stamps, _ = ordering.scan(times, arrivals, Carry(), outcome.policy(Action.ADJUST), valid)
    kept = stamps.fate != ordering.DROPPED
    if not kept.any() or (late is None and order is None):
        assert outcome.watermark_delay_median_ticks is None
        assert outcome.watermark_delay_p95_ticks is None
        return
    delays = sorted((arrivals - stamps.watermark)[kept].tolist())
    assert outcome.watermark_delay_median_ticks == delays[(len(delays) - 1) // 2]
    assert outcome.watermark_delay_p95_ticks == delays[(len(delays) - 1) * 95 // 100]


@given(logs(), st.integers(0, 100), st.integers(1, 4))
def test_the_smallest_tolerances_suffice_and_smaller_ones_do_not(events: list[Event], percent: int, step: int) -> None:
    times, arrivals, valid = columns(events)
    disorder = measure(times, arrivals, early_ticks=10, valid=valid)
    needed = -(-percent * len(events) // 100)
    found = disorder.smallest(percent / 100, step_ticks=step)
    assert bool(found) == (needed <= len(disorder.lateness))
    assume(found)
    for outcome in found:
        late, order = outcome.late_ticks, outcome.out_of_order_ticks
        assert late is not None
        assert order is not None
        assert late % step == order % step == 0
        assert outcome.untouched >= needed
        if late:
            (tighter,) = disorder.outcomes([(late - step, order)])
            assert tighter.untouched < needed
    first, last = found[0], found[-1]
    if first.out_of_order_ticks:
        (tighter,) = disorder.outcomes([(None, first.out_of_order_ticks - step)])
        assert tighter.untouched < needed
    if last.late_ticks:
        (tighter,) = disorder.outcomes([(last.late_ticks - step, None)])
        assert tighter.untouched < needed
    assert all(
        one.out_of_order_ticks < other.out_of_order_ticks and one.late_ticks > other.late_ticks
        for one, other in pairwise(found)
    )


def test_partitions_join() -> None:
    one, other = np.array([10, 5, 12]), np.array([1, 9, 2])
    arrivals = np.array([10, 11, 12])
    parts = [measure(one, arrivals), measure(other, arrivals, valid=np.array([True, False, True]))]
    candidates = [(2, 1), (None, 3), (5, None)]
    joined = Disorder.joined(parts).outcomes(candidates)
    for outcome, *alone in zip(joined, *(part.outcomes(candidates) for part in parts), strict=True):
        assert outcome.events == 6
        for count in ("untouched", "touched", "late", "out_of_order", "out_of_order_dropping"):
            assert getattr(outcome, count) == sum(getattr(part, count) for part in alone)


def test_the_documents_table() -> None:
    minute = ordering.TICKS_PER_MINUTE
    arrivals = np.array([7, 8, 11, 13, 16, 17, 18, 19, 21, 22, 24, 27]) * minute
    times = np.array([7, 8, 17, 8, 19, 12, 17, 20, 16, 23, 22, 21]) * minute
    disorder = measure(times, arrivals)
    (outcome,) = disorder.outcomes([(5 * minute, 2 * minute)])
    assert (outcome.untouched, outcome.late, outcome.out_of_order, disorder.early) == (8, 1, 2, 1)
    # Event 12 is 6 minutes late, event 6 is 7 minutes behind event 5; no more is needed to leave 11 of 12 alone.
    assert [(o.late_ticks, o.out_of_order_ticks) for o in disorder.smallest(11 / 12)] == [(6 * minute, 7 * minute)]
    assert disorder.smallest(1.0) == []


def test_a_late_tolerance_longer_than_a_policy_allows_is_for_ever() -> None:
    disorder = measure(np.array([0]), np.array([30 * ordering.TICKS_PER_DAY]))
    assert [outcome.late_ticks for outcome in disorder.smallest(1.0)] == [None]


def test_an_empty_stretch() -> None:
    empty = np.array([], dtype=np.int64)
    (outcome,) = tune(empty, empty, [(5, 0)])
    assert (outcome.events, outcome.touched, outcome.share_untouched) == (0, 0, 1.0)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        measure(np.array([1]), np.array([1])).smallest(1.5)
    with pytest.raises(ValueError, match="columns of the same events"):
        measure(np.array([1]), np.array([1]), codes=np.array([0, 1]))
