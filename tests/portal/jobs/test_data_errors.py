"""Data errors on a page: one line for what happened many times, with its span and its latest events."""

from __future__ import annotations

from typing import Any

from tidegate.portal.jobs.descriptions import MOST_EXAMPLES, grouped


def record(kind: str, count: int, at: str, **more: Any) -> dict[str, Any]:
    example = {"partition": "1", "sequenceNumber": count, "body": f"body {count}"}
    return {
        "Source": "tolls",
        "DataErrorType": kind,
        "BriefMessage": f"{kind} it is",
        "ExampleEvents": [example],
        "FromTimestamp": f"{at}:00Z",
        "ToTimestamp": f"{at}:30Z",
        "EventCount": count,
        **more,
    }


def test_errors_of_a_kind_are_one_group_with_their_count_and_their_first_and_last_time() -> None:
    records = [
        record("LateInputEvent", 3, "10:00"),
        record("OutOfOrder", 1, "10:01"),
        record("LateInputEvent", 4, "10:02"),
    ]
    late, order = grouped(records, lambda name: None)
    assert (late["kind"], late["source"], late["count"], late["message"]) == (
        "LateInputEvent",
        "tolls",
        7,
        "LateInputEvent it is",
    )
    assert (late["first"], late["last"]) == ("10:00:00Z", "10:02:30Z")
    assert [one["text"] for one in late["examples"]] == ["body 3", "body 4"]
    assert (order["kind"], order["count"]) == ("OutOfOrder", 1)


def test_groups_keep_their_latest_events_and_results_have_no_link() -> None:
    records = [record("A", number, "10:00") for number in range(1, 20)]
    (group,) = grouped(records, lambda name: None)
    assert [one["text"] for one in group["examples"]] == [f"body {number}" for number in range(20 - MOST_EXAMPLES, 20)]
    (rejected,) = grouped([record("B", 2, "10:00", ExampleEvents=[{"row": 5, "result": "{}"}])], lambda name: None)
    assert rejected["examples"] == [{"place": "row 5", "text": "{}", "link": None}]


def test_a_line_that_is_no_record_is_left_out() -> None:
    assert grouped([{"time": None, "message": "cut"}], lambda name: None) == []
