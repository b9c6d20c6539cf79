"""The delay of a watermark is the sum of its causes, and nothing else is claimed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidegate.portal.jobs.descriptions import LastStep, parsed, seconds, watermark_rows


def at(second: int) -> str:
    return f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}.0000000Z"


def timeline(watermark: int, arrival: int, latest: int, backlog: int = 0) -> dict[str, Any]:
    return {"watermark": at(watermark), "latestArrival": at(arrival), "latestTime": at(latest), "backlog": backlog}


NOW = datetime(2026, 1, 1, 0, 1, 0, tzinfo=UTC)
ORDERING = {"late_arrival_tolerance_s": 5, "out_of_order_tolerance_s": 2}


def row(step: LastStep | None = None, later_s: int = 0, **settings: Any) -> dict[str, Any]:
    one = {"input": "in", "partition": "0", "backlog": 0, "substreams": [], "release": "an event", **settings}
    status = {"updated": at(60), "timelines": [one], "heldBackBy": [{"input": "in", "partition": "0"}]}
    (found,) = watermark_rows(status, ORDERING, NOW + timedelta(seconds=later_s), step, is_running=later_s > 0)
    return found


@pytest.mark.parametrize(
    ("one", "causes"),
    [
        # By the hub's clock: the late tolerance.
        (
            {"watermark": at(55), "latestArrival": at(60), "latestTime": at(10)},
            {"idle": 0, "tolerance": 5, "eventTime": 0},
        ),
        # By an event just now: the out-of-order tolerance.
        (
            {"watermark": at(58), "latestArrival": at(60), "latestTime": at(60)},
            {"idle": 0, "tolerance": 2, "eventTime": 0},
        ),
        # By an event whose own time is 1 s behind its arrival.
        (
            {"watermark": at(57), "latestArrival": at(60), "latestTime": at(59)},
            {"idle": 0, "tolerance": 2, "eventTime": 1},
        ),
        # Nothing has been heard of for 20 s.
        (
            {"watermark": at(35), "latestArrival": at(40), "latestTime": at(30)},
            {"idle": 20, "tolerance": 5, "eventTime": 0},
        ),
        # Events wait to be read.
        (
            {"watermark": at(25), "latestArrival": at(30), "latestTime": at(20), "backlog": 9},
            {"backlog": 30, "tolerance": 5, "eventTime": 0},
        ),
    ],
)
def test_the_causes_add_up_to_the_delay(one: dict[str, Any], causes: dict[str, float]) -> None:
    found = row(**one)
    nothing = {"blockedOutput": 0, "processing": 0}
    assert found["causes"] == {**nothing, **causes}
    assert sum(found["causes"].values()) == found["delaySeconds"]
    assert found["isBlocking"]


LAST = LastStep(compute_s=3, commit_s=1)


@pytest.mark.parametrize(
    ("arrival", "backlog", "causes"),
    [
        (60, 0, {"blockedOutput": 0, "processing": 0, "idle": 0}),
        (58, 0, {"blockedOutput": 1, "processing": 1, "idle": 0}),
        (40, 0, {"blockedOutput": 1, "processing": 3, "idle": 16}),
        (40, 9, {"blockedOutput": 1, "processing": 3, "backlog": 16}),
    ],
)
def test_what_has_arrived_waits_for_the_step_that_reads_it(arrival: int, backlog: int, causes: Any) -> None:
    found = row(LAST, watermark=at(30), latestArrival=at(arrival), latestTime=at(10), backlog=backlog)
    assert {name: found["causes"][name] for name in causes} == causes
    assert sum(found["causes"].values()) == found["delaySeconds"] == 30


@pytest.mark.parametrize(
    ("waits_for", "cause"),
    [
        ("output 'results' cannot be written since 2026-01-01T00:01:00Z: no", "blockedOutput"),
        ("input 'in' unreachable since 2026-01-01T00:01:00Z: no", "idle"),
        ("its present step has been running for 60 s", "processing"),
        (None, "processing"),
    ],
)
def test_a_job_that_says_nothing_is_held_up_by_what_it_waits_for(waits_for: str | None, cause: str) -> None:
    one = {"watermark": at(55), "latestArrival": at(60), "latestTime": at(10)}
    found = row(LastStep(0, 0, waits_for), later_s=20, **one)
    assert found["causes"][cause] == 20
    assert sum(found["causes"].values()) == found["delaySeconds"] == 25


def test_a_timeline_without_a_watermark_has_no_delay() -> None:
    assert row(watermark=None)["delaySeconds"] is None
    assert row(watermark="end")["delaySeconds"] is None
    assert watermark_rows(None, ORDERING, NOW) == []


@pytest.mark.parametrize(
    ("value", "text"), [(0.04, "0.0 s"), (59, "59.0 s"), (61, "1 min 1 s"), (3600, "1 h"), (90_000, "1 d 1 h")]
)
def test_durations_have_two_units_at_most(value: float, text: str) -> None:
    assert seconds(value) == text


def test_times_of_seven_decimals_are_read() -> None:
    assert parsed("2026-01-01T00:00:00.1234567Z") == datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
    assert parsed("end") is None
