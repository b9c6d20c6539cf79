"""What a run could not use is counted by reason, with a sample of each, however the run is cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.job.logs import TravellingTasks, prepared
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.job.runtime.data_error_tally import KINDS, DataErrorTally, undeclared
from tidegate.job.runtime.step import Stepper, StepSettings
from tidegate.ordering import Policy, parse_time

ARRIVAL = parse_time("2026-01-01T00:01:00Z")
CAST = "SELECT CAST(a AS bigint) AS a, b + 1 AS b INTO o FROM i TIMESTAMP BY t"
FINE = {"t": "2026-01-01T00:01:00Z", "a": "1", "b": 1}
LARGEST = 2**63 - 1


def tally_of(sql: str, *rows: dict[str, Any], policy: Policy | None = None, at_once: int = 100) -> DataErrorTally:
    policy = policy or Policy.none()
    log = RecordedLog([RecordedEvent("0", ARRIVAL + n, json.dumps(row).encode()) for n, row in enumerate(rows)])
    program = prepared(sql)
    stepper = Stepper(program, policy, {"i": log}, TravellingTasks(program, policy), settings=StepSettings(at_once))
    tally, complete = DataErrorTally(), False
    while not complete:
        step = stepper.step()
        tally.take(step)
        complete = step.complete
    return tally


@pytest.mark.parametrize("at_once", [1, 100])
def test_each_reason_has_its_count_and_the_first_event(at_once: int) -> None:
    wrong = [{**FINE, "t": "never"}, *[{**FINE, "a": "x", "n": n} for n in range(9)], {**FINE, "b": LARGEST}]
    tally = tally_of(CAST, FINE, *wrong, at_once=at_once)
    assert [(one.kind, one.count, one.first.sequence_number) for one in tally.counts()] == [
        ("InvalidInputTimeStamp", 1, 1),
        ("RuntimeError", 9, 2),
        ("RuntimeError", 1, 11),
    ]
    assert tally.by_kind() == {"InvalidInputTimeStamp": 1, "RuntimeError": 10}
    report = tally.report()
    assert report[0] == "11 events or rows could not be used:"
    assert "a number is out of range; first: partition 0, event 11" in report[3]


def test_a_row_of_several_events_that_fails_is_counted() -> None:
    sql = "SELECT MAX(b) + 1 AS b INTO o FROM i TIMESTAMP BY t GROUP BY TumblingWindow(second, 1)"
    (one,) = tally_of(sql, {**FINE, "b": LARGEST}).counts()
    assert (one.kind, one.input, one.count) == ("RuntimeError", "", 1)
    assert "a row of several events" in str(one)
    assert one.as_json()["first"] == {"timestamp": "2026-01-01T00:01:00.0000000Z"}


def test_what_the_policy_does_is_told_apart_and_is_no_error() -> None:
    late, early = {**FINE, "t": "2026-01-01T00:00:00Z"}, {**FINE, "t": "2026-01-01T00:09:00Z"}
    tally = tally_of(CAST, FINE, late, early, policy=Policy.seconds(late=5, early=60))
    told = {one.kind: one.first.message for one in tally.counts()}
    assert told["LateInputEvent"].endswith("; its time was adjusted")
    assert told["EarlyInputEvent"].endswith("; it was dropped")
    assert undeclared(tally.counts(), {}) == []
    assert tally.report()[0].endswith("the event-ordering policy applied:")


def test_declared_errors_are_exactly_those_there_are() -> None:
    counts = tally_of(CAST, FINE, {**FINE, "a": "x"}).counts()
    assert undeclared(counts, {"RuntimeError": 1}) == []
    (more,) = undeclared(counts, {"RuntimeError": 2})
    assert more.startswith("data errors: expected RuntimeError 2, got RuntimeError 1 (input i)")
    assert len(undeclared(counts, {})) == 1
    assert undeclared([], {"RuntimeError": 1}) == ["data errors: expected RuntimeError 1, got none"]
    assert {one.kind for one in counts} <= set(KINDS)


def test_samples_are_written_as_a_live_job_writes_them(tmp_path: Path) -> None:
    path = tally_of(CAST, *[{**FINE, "a": "x"}] * 9, {**FINE, "b": LARGEST}).write(tmp_path / "new")
    assert path == tmp_path / "new" / "data-errors.jsonl"
    (record,) = map(json.loads, path.read_text().splitlines())
    assert (record["DataErrorType"], record["EventCount"]) == ("RuntimeError", 10)
    assert [one["sequenceNumber"] for one in record["ExampleEvents"]] == [0, 9, 1, 2, 3]
    assert record["ExampleEvents"][1]["message"] == "a number is out of range"
    assert tally_of(CAST, FINE).write(path.parent) is None
    assert not path.exists()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, COUNT(*) AS n INTO o FROM i GROUP BY k, TumblingWindow(hour, 1)",
        "SELECT i.k, COUNT(*) AS n INTO o FROM i GROUP BY i.k, SessionWindow(hour, 1, 2) OVER (PARTITION BY I.K)",
        "SELECT COUNT(DISTINCT k) AS n INTO o FROM i GROUP BY SlidingWindow(hour, 1)",
        "SELECT LAG(n) OVER (PARTITION BY k LIMIT DURATION(hour, 1)) AS n INTO o FROM i",
        "SELECT * INTO o FROM i MATCH_RECOGNIZE (PARTITION BY k LIMIT DURATION(hour, 1) MEASURES LAST(A.n) AS n "
        "AFTER MATCH SKIP TO NEXT ROW PATTERN (A A) DEFINE A AS A.n > 0) AS m",
    ],
)
def test_a_group_that_is_split_by_type_is_told_and_is_no_error(sql: str) -> None:
    keys = [1, "1", 1.0, "01", "x", "A", "a", "2", None]
    tally = tally_of(sql, *({"k": key, "n": n} for n, key in enumerate(keys)))
    (one,) = tally.counts()
    assert (one.kind, one.input, one.count, one.first.sequence_number) == ("SplitGroup", "i", 2, 1)
    assert not one.is_error
    assert tally.report()[0] == "2 events in another group than numbers of the same value:"
    assert undeclared(tally.counts(), {}) == []


def test_groups_of_equal_numbers_and_keys_that_are_cast_are_not_split() -> None:
    rows = [{"k": key} for key in (1, 1.0, True, "1", "a", "A")]
    sql = "SELECT COUNT(*) AS n INTO o FROM i GROUP BY {}, TumblingWindow(hour, 1)"
    assert tally_of(sql.format("CAST(k AS nvarchar(max))"), *rows).counts() == []
    assert tally_of(sql.format("k"), *rows[:3], *rows[4:]).counts() == []
