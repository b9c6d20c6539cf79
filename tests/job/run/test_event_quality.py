"""Warnings about runs that do not use many of their events as they are."""

from __future__ import annotations

from collections import Counter

from tidegate.connectors.model.events import PartitionEnd
from tidegate.connectors.model.metrics import INPUT_EVENTS, DataError
from tidegate.job import Step
from tidegate.job.run.event_quality import EventQuality
from tidegate.job.runtime.data_error_tally import FEWEST_EVENTS
from tidegate.job.runtime.step import TimelineState
from tidegate.ordering import Carry


def step(events: int, **errors: int) -> Step:
    """A step that used so many events, late ones included, and has errors by kind."""
    state = TimelineState(Carry(), 0, PartitionEnd(0, events, 0), 0, Counter({INPUT_EVENTS: events}), events)
    samples = [DataError(kind, "i", "0", 7, 0, f"what {kind} means", '{"t": "soon"}') for kind in errors]
    counts = {(kind, "i", "0"): count for kind, count in errors.items()}
    return Step([], 0, events, 0, {}, data_errors=samples, data_error_counts=counts, timelines={("i", "0"): state})


def test_a_share_above_the_limit_is_warned_about_once() -> None:
    quality = EventQuality(0.1)
    assert quality.note(step(FEWEST_EVENTS, LateInputEvent=FEWEST_EVENTS // 10)) == []
    (said,) = quality.note(step(FEWEST_EVENTS, LateInputEvent=FEWEST_EVENTS))
    assert said.startswith(
        "input 'i': 1,100 of 2,000 events (55 %) were adjusted or rejected: LateInputEvent (what LateInputEvent means)"
        '; for example event 7: {"t": "soon"}.'
    )
    assert quality.note(step(FEWEST_EVENTS, LateInputEvent=FEWEST_EVENTS)) == []
    assert quality.at_end() == []


def test_events_that_were_left_out_are_events_too() -> None:
    quality = EventQuality(0.1)
    (said,) = quality.note(step(0, InvalidInputTimeStamp=FEWEST_EVENTS))
    assert "1,000 of 1,000 events (100 %)" in said


def test_few_events_are_judged_at_the_end() -> None:
    quality = EventQuality(0.1)
    assert quality.note(step(2, OutOfOrderEvent=1)) == []
    (said,) = quality.at_end()
    assert "1 of 2 events (50 %)" in said


def test_a_share_of_1_never_warns_and_groups_that_split_are_no_lost_events() -> None:
    never, always = EventQuality(1.0), EventQuality(0.0)
    assert never.note(step(0, InvalidInputTimeStamp=FEWEST_EVENTS)) == []
    assert always.note(step(FEWEST_EVENTS, SplitGroup=FEWEST_EVENTS)) == []
