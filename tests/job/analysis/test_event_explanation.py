"""The explanation of an event says what a whole run says of it, however far from the log's beginning it lies."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.job.logs import TravellingTasks, logs, policies, prepared
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.job import JobError, JobQueryError, Stepper
from tidegate.job.analysis.event_explanation import ExplainedEvent, explain_events, sample
from tidegate.job.analysis.replay_source import ReplaySource, open_replay_source
from tidegate.job.runtime.step import StepSettings
from tidegate.ordering import NO_TIME, Policy, format_time, parse_time

CASES = Path(__file__).parents[2] / "cases"
START = parse_time("2026-01-01T00:00:00Z")
SECOND = 10_000_000

PLAIN = "SELECT System.Timestamp() AS ts, k INTO out FROM i TIMESTAMP BY t"
OVER = "SELECT System.Timestamp() AS ts, k INTO out FROM i TIMESTAMP BY t OVER k"
WINDOWS = """WITH good AS (SELECT k, 10 / TRY_CAST(v AS bigint) AS part FROM i TIMESTAMP BY t WHERE k <> 'c')
SELECT k, COUNT(*) AS n INTO counted FROM good GROUP BY k, HoppingWindow(second, 4, 2)
SELECT k, part, LAG(part) OVER (LIMIT DURATION(second, 5)) AS before INTO parts FROM good WHERE part > 2"""
ARRIVAL = "SELECT System.Timestamp() AS ts, k INTO out FROM i"


def cases_that_run() -> Iterator[Path]:
    """The time cases whose query is supported; `tests/engine/test_cases.py` holds the list of those that are not."""
    for path in sorted(CASES.glob("tp*.json")):
        with contextlib.suppress(JobQueryError), open_replay_source(path):
            yield path


@pytest.mark.parametrize("path", list(cases_that_run()), ids=lambda path: path.stem)
def test_the_events_of_the_worked_tables_are_explained_as_the_tables_say(path: Path) -> None:
    case = json.loads(path.read_text())
    expected = {entry["event"]: entry for entry in case.get("trace") or []}
    seen: dict[tuple[str, str], int] = {}
    with open_replay_source(path) as source:
        for number, line in enumerate(case["inputs"], start=1):
            timeline = (line["input"], str(line["partition"]))
            sequence_number = seen.get(timeline, 0)
            seen[timeline] = sequence_number + 1
            (event,) = explain_events(source, source.timeline(*timeline), [sequence_number])
            if (wanted := expected.get(number)) is None:
                continue
            (row,) = event.as_json()["rows"]
            if "fate" in wanted:
                assert row["fate"] == wanted["fate"]
            if "system_timestamp" in wanted:
                assert row["systemTimestamp"] == wanted["system_timestamp"]
            if "watermark" in wanted:
                assert row["watermarkAfter"] == wanted["watermark"]


@given(log=logs(), policy=policies, sql=st.sampled_from([PLAIN, OVER, WINDOWS]))
def test_an_event_is_explained_alike_alone_and_among_others(log: RecordedLog, policy: Policy, sql: str) -> None:
    source = ReplaySource("random", prepared(sql), policy, {"i": log})
    for timeline, end in source.ends().items():
        together = explain_events(source, timeline, range(end.end))
        alone = [next(explain_events(source, timeline, [number])) for number in range(end.end)]
        assert [event.as_json() for event in together] == [event.as_json() for event in alone]


@given(log=logs(), policy=policies, sql=st.sampled_from([PLAIN, OVER, ARRIVAL]), data=st.data())
def test_an_explanation_agrees_with_a_run_over_the_whole_log(
    log: RecordedLog, policy: Policy, sql: str, data: st.DataObject
) -> None:
    program = prepared(sql)
    source = ReplaySource("random", program, policy, {"i": log})
    step = Stepper(
        program, policy, {"i": log}, TravellingTasks(program, policy), settings=StepSettings(trace=True)
    ).step()
    for trace in step.trace:
        if not len(trace.sequence_numbers):
            continue
        numbers = data.draw(st.sets(st.sampled_from(sorted(set(trace.sequence_numbers.tolist()))), min_size=1))
        explained = list(explain_events(source, ("i", trace.partition), sorted(numbers)))
        assert [event.sequence_number for event in explained] == sorted(numbers)
        for event in explained:
            rows = [i for i, number in enumerate(trace.sequence_numbers.tolist()) if number == event.sequence_number]
            assert len(rows) == len(event.rows)
            for i, row in zip(rows, event.rows, strict=True):
                told = row.explanation
                stamp = int(trace.stamps.system_timestamp[i])
                assert (told.fate, told.reasons) == (int(trace.stamps.fate[i]), int(trace.stamps.reasons[i]))
                assert told.system_timestamp == (None if stamp == NO_TIME else stamp)
                assert told.event_time == (None if trace.event_times[i] == NO_TIME else int(trace.event_times[i]))
                if not row.explanation.reasons & 16:  # an event without a key is on no substream's timeline
                    assert told.watermark_after == int(trace.stamps.watermark[i])


def subject_of(sql: str, bodies: list[Any], policy: Policy | None = None) -> ReplaySource:
    events = [
        RecordedEvent("0", START + n * SECOND, body if isinstance(body, bytes) else json.dumps(body).encode())
        for n, body in enumerate(bodies)
    ]
    return ReplaySource("here", prepared(sql), policy or Policy.seconds(), {"i": RecordedLog(events)})


def only(source: ReplaySource, number: int = 0) -> ExplainedEvent:
    (event,) = explain_events(source, ("i", "0"), [number])
    return event


def at(seconds: float) -> str:
    return format_time(START + int(seconds * SECOND))


def test_windows_are_named_with_start_and_end_and_an_event_at_the_end_is_inside() -> None:
    sql = "SELECT COUNT(*) AS n INTO out FROM i TIMESTAMP BY t GROUP BY HoppingWindow(second, 10, 5)"
    (row,) = only(subject_of(sql, [{"t": at(0)}])).as_json()["rows"]
    assert row["destinations"] == [
        {
            "outputs": ["out"],
            "windows": [{"start": at(-10), "end": at(0)}, {"start": at(-5), "end": at(5)}],
        }
    ]


def test_a_row_that_where_leaves_out_goes_nowhere_and_says_so() -> None:
    source = subject_of("SELECT t INTO out FROM i TIMESTAMP BY t WHERE v > 1", [{"t": at(0), "v": 1}])
    (row,) = only(source).rows
    assert row.destinations == ()
    assert "filters it out" in row.sentences[-1]


def test_a_row_for_which_an_expression_fails_says_which_way() -> None:
    source = subject_of("SELECT 1 / v AS x INTO out FROM i TIMESTAMP BY t", [{"t": at(0), "v": 0}])
    (row,) = only(source).rows
    assert row.destinations == ()
    assert "zero" in row.sentences[-1]


def test_a_body_that_is_not_json_is_lost_and_said_to_be() -> None:
    event = only(subject_of(PLAIN, [b"{broken"]))
    assert event.rows == ()
    assert "InputDeserializerError.InvalidData" in event.lost[0]


def test_a_sample_has_what_was_touched_and_what_was_lost_and_nothing_else() -> None:
    bodies = [{"t": at(0)}, {"t": at(-60)}, b"{broken", {"t": at(3)}, {"t": "never"}, {"t": at(900)}]
    source = subject_of(PLAIN, bodies)
    assert [event.sequence_number for event in sample(source, 10)] == [1, 2, 4, 5]
    assert len(list(sample(source, 2))) == 2
    assert [event.sequence_number for event in sample(source, 10, START + 4 * SECOND)] == [4, 5]
    assert not list(sample(subject_of(PLAIN, [{"t": at(0)}]), 10))


def test_an_event_that_is_not_there_is_an_error_that_says_what_is() -> None:
    with pytest.raises(JobError, match="no event 7; it has 0 to 0"):
        only(subject_of(PLAIN, [{"t": at(0)}]), 7)


def test_a_timeline_that_is_not_clear_is_asked_for() -> None:
    source = subject_of(PLAIN, [{"t": at(0)}])
    assert source.timeline(None, None) == source.timeline("I", "0") == ("i", "0")
    with pytest.raises(JobError, match="reads no input 'j'; it reads i"):
        source.timeline("j", None)
    with pytest.raises(JobError, match="no partition '3'"):
        source.timeline(None, "3")
