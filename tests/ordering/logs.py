"""Random logs of one partition, and the scan's columns held against the oracle's verdicts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tests.ordering.oracle import Verdict
from tidegate import ordering
from tidegate.ordering import Action, Keys, Policy, Stamps, SubstreamCarry

REASONS = {
    ordering.EARLY: "early",
    ordering.LATE: "late",
    ordering.OUT_OF_ORDER: "out_of_order",
    ordering.INVALID_TIMESTAMP: "invalid_timestamp",
    ordering.INVALID_KEY: "invalid_key",
}
FATES = ("ok", "adjusted", "dropped")


@dataclass(frozen=True)
class Event:
    time: int | None
    arrival: int
    key: Hashable = ()


# Small numbers, so that events often stand exactly at a bound or one tick beside it.
tolerances = st.one_of(st.none(), st.integers(0, 12))
policies = st.builds(
    Policy,
    early_ticks=tolerances,
    late_ticks=tolerances,
    out_of_order_ticks=tolerances,
    action=st.sampled_from(Action),
)


@st.composite
def logs(draw: st.DrawFn, keys: int = 0, steady: bool = False) -> list[Event]:
    """Events whose arrivals mostly go forward (always, if ``steady``); ``keys`` > 0: OVER that many values and NULL."""
    arrival = draw(st.integers(-5, 5))
    key = st.one_of(st.none(), st.integers(0, keys - 1)) if keys else st.just(())
    events = []
    for forward, ahead, of in draw(
        st.lists(st.tuples(st.integers(0 if steady else -3, 8), st.one_of(st.none(), st.integers(-40, 16)), key))
    ):
        arrival += forward
        events.append(Event(None if ahead is None else arrival + ahead, arrival, of))
    return events


extreme_times = st.one_of(
    st.integers(ordering.NO_TIME, ordering.NO_TIME + 3),
    st.integers(-3, 3),
    st.integers(ordering.END_OF_TIME - 3, ordering.END_OF_TIME),
)
extreme_policies = st.builds(
    Policy,
    early_ticks=st.one_of(st.none(), st.sampled_from([0, 2, ordering.END_OF_TIME - 1, ordering.END_OF_TIME])),
    late_ticks=st.one_of(st.none(), st.sampled_from([0, 2, 10**13])),
    out_of_order_ticks=st.one_of(st.none(), st.sampled_from([0, 2, ordering.END_OF_TIME - 1, ordering.END_OF_TIME])),
    action=st.sampled_from(Action),
)
extreme_logs = st.lists(st.builds(Event, st.one_of(st.none(), extreme_times), extreme_times))


def columns(events: Sequence[Event]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Event times, arrivals and validity; an unreadable time has a value that must not matter."""
    times = np.array([ordering.END_OF_TIME if event.time is None else event.time for event in events], dtype=np.int64)
    arrivals = np.array([event.arrival for event in events], dtype=np.int64)
    return times, arrivals, np.array([event.time is not None for event in events], dtype=np.bool_)


def in_int64(time: int | None) -> int:
    """None, and a time below all that int64 can say, are NO_TIME."""
    return ordering.NO_TIME if time is None else max(ordering.NO_TIME, time)


def verdicts(stamps: Stamps) -> list[tuple[str, frozenset[str], int, int, int]]:
    return [
        (
            FATES[stamps.fate[i]],
            frozenset(name for bit, name in REASONS.items() if stamps.reasons[i] & bit),
            int(stamps.system_timestamp[i]),
            int(stamps.watermark_event[i]),
            int(stamps.watermark[i]),
        )
        for i in range(len(stamps))
    ]


def expected(verdicts: Sequence[Verdict]) -> list[tuple[str, frozenset[str], int, int, int]]:
    return [
        (
            verdict.fate,
            verdict.reasons,
            in_int64(verdict.system_timestamp),
            in_int64(verdict.watermark_event),
            in_int64(verdict.watermark),
        )
        for verdict in verdicts
    ]


def cuts(draw: st.DataObject, count: int) -> list[tuple[int, int]]:
    """A cut of ``count`` events into consecutive batches, empty ones among them."""
    inner = sorted(draw.draw(st.lists(st.integers(0, count), max_size=5), label="cuts"))
    bounds = [0, *inner, count]
    return list(pairwise(bounds))


def codes_of(carry: SubstreamCarry, keys: Sequence[Hashable]) -> npt.NDArray[np.int64]:
    """The code of each key on a timeline, -1 of None."""
    distinct = [key for key in dict.fromkeys(keys) if key is not None]
    codes = dict(zip(distinct, carry.keys.codes(Keys.of([repr(key).encode() for key in distinct])), strict=True))
    return np.array([codes.get(key, -1) for key in keys], dtype=np.int64)
