"""Data errors by what is wrong: one group for what happened many times, with its span and its latest events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tidegate.service.error_groups import MOST_EXAMPLES, MOST_GROUPS, ErrorGroups


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


def write(path: Path, *records: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(one) + "\n" for one in records)


def test_errors_of_a_kind_are_one_group_with_their_count_and_their_first_and_last_time(tmp_path: Path) -> None:
    path = tmp_path / "data-errors.jsonl"
    groups = ErrorGroups()
    assert groups.of(path) == []
    write(path, record("LateInputEvent", 3, "10:00"), record("OutOfOrder", 1, "10:01"))
    write(path, record("LateInputEvent", 4, "10:02"))
    late, order = groups.of(path)
    assert (late.kind, late.source, late.count, late.message) == ("LateInputEvent", "tolls", 7, "LateInputEvent it is")
    assert (late.first, late.last) == ("10:00:00Z", "10:02:30Z")
    assert [one["body"] for one in late.examples] == ["body 3", "body 4"]
    assert (order.kind, order.count) == ("OutOfOrder", 1)


def test_a_group_keeps_its_latest_events_and_cuts_long_ones(tmp_path: Path) -> None:
    path = tmp_path / "data-errors.jsonl"
    write(path, *(record("A", number, "10:00") for number in range(1, 20)))
    write(path, record("B", 1, "10:00", ExampleEvents=[{"row": 5, "result": "x" * 100_000}]))
    cut, group = ErrorGroups().of(path)
    assert [one["body"] for one in group.examples] == [f"body {number}" for number in range(20 - MOST_EXAMPLES, 20)]
    assert len(cut.examples[0]["result"]) < 3000


def test_each_record_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "data-errors.jsonl"
    groups = ErrorGroups()
    write(path, record("A", 1, "10:00"))
    assert [one.count for one in groups.of(path)] == [1]
    whole = json.dumps(record("A", 2, "10:01"))
    with path.open("a", encoding="utf-8") as file:
        file.write(whole[:40])
    assert [one.count for one in groups.of(path)] == [1]
    # What was read is not looked at again: were it, it would no longer count.
    with path.open("r+b") as file:
        file.write(b" ")
    with path.open("a", encoding="utf-8") as file:
        file.write(whole[40:] + "\ncut off {\n")
    assert [one.count for one in groups.of(path)] == [3]


def test_after_a_file_has_been_moved_aside_both_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "data-errors.jsonl"
    groups = ErrorGroups()
    write(path, record("A", 1, "10:00"))
    groups.of(path)
    path.replace(tmp_path / "data-errors.jsonl.1")
    write(path, record("A", 2, "10:01"))
    assert [one.count for one in groups.of(path)] == [3]
    path.unlink()
    assert groups.of(path) == []


def test_the_number_of_groups_has_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "data-errors.jsonl"
    write(path, *(record("A", 1, "10:00", BriefMessage=str(number)) for number in range(MOST_GROUPS + 10)))
    found = ErrorGroups().of(path)
    assert (len(found), found[0].message) == (MOST_GROUPS, str(MOST_GROUPS + 9))
