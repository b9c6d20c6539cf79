"""The carry after a run of events follows from its summary, whatever was before it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.ordering.logs import Event, columns, cuts, extreme_logs, extreme_policies, logs, policies
from tidegate import ordering
from tidegate.ordering import NO_TIME, Carry, Policy, ScanSummary


@given(st.data(), logs(), policies)
def test_carries_follow_from_summaries(data: st.DataObject, events: list[Event], policy: Policy) -> None:
    _check(data, events, policy)


@given(st.data(), extreme_logs, extreme_policies)
def test_carries_follow_from_summaries_at_the_ends_of_int64(
    data: st.DataObject, events: list[Event], policy: Policy
) -> None:
    _check(data, events, policy)


@given(st.data(), logs(), policies)
def test_events_without_a_row_count_as_arrivals(data: st.DataObject, events: list[Event], policy: Policy) -> None:
    times, arrivals, valid = columns(events)
    has_row = np.array(data.draw(st.lists(st.booleans(), min_size=len(events), max_size=len(events))), dtype=np.bool_)
    every, rows = ScanSummary(), ScanSummary()
    for start, stop in cuts(data, len(events)):
        of_rows = np.flatnonzero(has_row[start:stop]) + start
        latest = np.maximum.accumulate(arrivals[start:stop])
        every = every.then(
            ScanSummary.of(times[start:stop], arrivals[start:stop], policy, (valid & has_row)[start:stop]), policy
        )
        part = ScanSummary.of(times[of_rows], arrivals[of_rows], policy, valid[of_rows], latest[of_rows - start])
        part = part.then(ScanSummary(arrival=int(latest[-1]) if stop > start else NO_TIME), policy)
        rows = rows.then(part, policy)
    assert rows == every


@given(st.data(), logs(), policies)
def test_a_run_that_outweighs_bounds_is_the_summary_of_itself_and_what_is_before(
    data: st.DataObject, events: list[Event], policy: Policy
) -> None:
    times, arrivals, valid = columns(events)
    cut = data.draw(st.integers(0, len(events)))
    before, last, whole = (
        ScanSummary.of(times[part], arrivals[part], policy, valid[part])
        for part in (slice(0, cut), slice(cut, None), slice(0, None))
    )
    more = st.integers(0, 5)
    bound = ScanSummary(before.max_time + data.draw(more), before.arrival, before.arrival + data.draw(more))
    if last.outweighs(bound, policy):
        assert last == whole


def _check(data: st.DataObject, events: list[Event], policy: Policy) -> None:
    times, arrivals, valid = columns(events)
    begin = Carry(*data.draw(st.tuples(st.integers(-50, 200), st.integers(-50, 200)), label="carry"))
    carry = scanned = begin
    whole = ScanSummary()
    for start, stop in cuts(data, len(events)):
        part = ScanSummary.of(times[start:stop], arrivals[start:stop], policy, valid[start:stop])
        _, scanned = ordering.scan(times[start:stop], arrivals[start:stop], scanned, policy, valid[start:stop])
        carry, whole = part.after(carry, policy), whole.then(part, policy)
        assert carry == scanned
    assert whole.after(begin, policy) == scanned
