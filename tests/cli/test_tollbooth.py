"""The simulated road has what the demo promises, and is the same every time."""

import json
from datetime import UTC, datetime

from tidegate.cli.tollbooth import CAMERAS, DAMAGES, traffic

OPENED = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def test_the_same_seed_gives_the_same_road() -> None:
    assert traffic(duration_s=20, seed=3) == traffic(duration_s=20, seed=3)
    assert traffic(duration_s=20, seed=3) != traffic(duration_s=20, seed=4)


def test_events_get_through_in_order_and_never_before_the_car_has_passed() -> None:
    road = traffic(duration_s=30)
    assert [p.sent_s for p in road] == sorted(p.sent_s for p in road)
    assert all(p.sent_s > p.passed_s for p in road)


def test_there_are_early_late_and_out_of_order_events_and_most_are_neither() -> None:
    road = [p for p in traffic(duration_s=30) if not p.damage]
    early = [p for p in road if p.camera_s - p.sent_s > 300]
    late = [p for p in road if p.camera_s < p.sent_s - 5]
    latest: dict[str, float] = {}
    out_of_order = []
    for crossing in road:
        if crossing in early:
            continue
        if crossing.camera_s < latest.get(crossing.booth, 0) - 1:
            out_of_order.append(crossing)
        latest[crossing.booth] = max(latest.get(crossing.booth, 0), crossing.camera_s)
    assert early
    assert late
    assert len(out_of_order) > len(late)
    assert len(early) + len(late) + len(out_of_order) < len(road) / 3


def test_a_body_is_what_the_query_reads_and_the_damaged_ones_are_not() -> None:
    road = traffic(duration_s=30)
    broken = [p for p in road if p.damage]
    assert sorted(p.damage for p in broken) == sorted(DAMAGES)
    for crossing in road:
        body = crossing.body(OPENED)
        if crossing.damage == "cut off":
            assert not body.endswith(b"}")
            continue
        event = json.loads(body)
        assert event["booth"] in {camera.booth for camera in CAMERAS}
        assert isinstance(event["speed"], float)
        if crossing.damage == "no time":
            assert "entry_time" not in event
        elif crossing.damage == "nonsense time":
            assert event["entry_time"] == "yesterday"
        else:
            assert event["entry_time"].endswith("Z")
            seconds = (datetime.fromisoformat(event["entry_time"]) - OPENED).total_seconds()
            assert abs(seconds - crossing.camera_s) < 1e-5
