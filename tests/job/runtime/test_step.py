"""Equality: output = f(log, query, policy, start), whatever the cuts, restarts, tasks and start times.

These are the tests the project stands on. They run without Spark, so that thousands of logs can be tried;
`tests/spark` holds the same property on real executors.
"""

from __future__ import annotations

import functools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.job import logs as any_logs
from tests.job.logs import EPOCH, Cuts, outputs_in_cuts, outputs_of_one_step, prepared
from tests.profiles import example_count
from tidegate.connectors.inputs.recorded import RecordedLog
from tidegate.job.runtime.step import Progress, Stepper, StepSettings
from tidegate.ordering import NO_TIME, TICKS_PER_SECOND, Policy, format_time, parse_time

QUERIES = {
    "projection": "SELECT System.Timestamp() AS ts, t, k, v INTO out FROM i TIMESTAMP BY t",
    "filter": "SELECT k, v INTO out FROM i TIMESTAMP BY t WHERE v > 1 OR k = 'b'",
    "arrival": "SELECT System.Timestamp() AS ts, k INTO out FROM i",
    "tumbling": """SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, COUNT(v) AS nv, MIN(k) AS lo, MAX(t) AS hi
                   INTO out FROM i TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 3)""",
    "sums": """SELECT System.Timestamp() AS ts, SUM(TRY_CAST(v AS float)) AS s, AVG(TRY_CAST(v AS float)) AS a
               INTO out FROM i TIMESTAMP BY t GROUP BY TumblingWindow(second, 5)""",
    "substreams": "SELECT System.Timestamp() AS ts, k, t INTO out FROM i TIMESTAMP BY t OVER k",
    "sliding": """SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, MAX(t) AS hi, COUNT(DISTINCT v) AS d
                  INTO out FROM i TIMESTAMP BY t GROUP BY k, SlidingWindow(second, 3)""",
    "session": """SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, MIN(t) AS lo
                  INTO out FROM i TIMESTAMP BY t GROUP BY k, SessionWindow(second, 2, 5) OVER (PARTITION BY k)""",
    "rows before": """SELECT System.Timestamp() AS ts, k, v,
                      LAG(v, 2) OVER (PARTITION BY k LIMIT DURATION(second, 6)) AS b,
                      LAST(t) OVER (LIMIT DURATION(second, 4) WHEN k = 'a') AS l,
                      ISFIRST(second, 3) OVER (PARTITION BY k) AS f,
                      SUM(TRY_CAST(v AS float)) OVER (PARTITION BY k LIMIT DURATION(second, 5)) AS s
                      INTO out FROM i TIMESTAMP BY t WHERE k <> 'c'""",
    "absence": """SELECT System.Timestamp() AS ts, l.t, l.v INTO out
                  FROM i l TIMESTAMP BY t LEFT JOIN i r TIMESTAMP BY t
                  ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN 1 AND 4 WHERE r.k IS NULL""",
    "steps": """WITH pairs AS (SELECT l.k, l.v, r.v AS w FROM i l TIMESTAMP BY t JOIN i r TIMESTAMP BY t
                               ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN 0 AND 2),
                     both AS (SELECT k, v FROM pairs UNION SELECT k, v FROM i TIMESTAMP BY t),
                     counts AS (SELECT k, COUNT(*) AS n FROM both GROUP BY k, HoppingWindow(second, 4, 2))
                SELECT System.Timestamp() AS ts, k, n, LAG(n) OVER (PARTITION BY k LIMIT DURATION(second, 8)) AS b
                INTO out FROM counts""",
    "two outputs": """SELECT * INTO everything FROM i TIMESTAMP BY t
                      SELECT COUNT(*) AS n INTO counted FROM i TIMESTAMP BY t GROUP BY TumblingWindow(second, 2)""",
    "outputs that wait differently": """SELECT t, k INTO everything FROM i TIMESTAMP BY t
        SELECT * INTO runs FROM i TIMESTAMP BY t MATCH_RECOGNIZE (LIMIT DURATION(second, 5) PARTITION BY k
            MEASURES First(A.t) AS t, Last(A.v) AS v PATTERN (A A+) DEFINE A AS v IS NOT NULL) AS m
        SELECT l.t, r.v INTO next FROM i l TIMESTAMP BY t LEFT JOIN i r TIMESTAMP BY t
            ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN 1 AND 2
        SELECT k, COUNT(*) AS n INTO counted FROM i TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 4)""",
}


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=example_count(30))
@given(log=any_logs.logs(), policy=any_logs.policies, cuts=any_logs.cuts)
def test_cuts_restarts_and_tasks_change_nothing(name: str, log: RecordedLog, policy: Policy, cuts: Cuts) -> None:
    program = prepared(QUERIES[name])
    assert outputs_in_cuts(program, policy, {"i": log}, cuts) == outputs_of_one_step(program, policy, {"i": log})


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=example_count(30))
@given(log=any_logs.logs(), policy=any_logs.policies, seconds=st.integers(-5, 40), ticks=st.integers(-1, 1))
def test_any_start_gives_the_suffix(name: str, log: RecordedLog, policy: Policy, seconds: int, ticks: int) -> None:
    program = prepared(QUERIES[name])
    start = EPOCH + seconds * TICKS_PER_SECOND + ticks
    whole = Stepper(program, policy, {"i": log}, any_logs.TravellingTasks(program, policy)).step()
    started = Stepper(program, policy, {"i": log}, any_logs.TravellingTasks(program, policy), Progress(start)).step()
    for rows in whole.rows:
        expected = [
            line
            for time, line in zip(rows.timestamps.tolist(), rows.to_json_lines().splitlines(), strict=True)
            if time >= start
        ]
        got = [other.to_json_lines().splitlines() for other in started.rows if other.output == rows.output]
        assert (got[0] if got else []) == expected


@settings(max_examples=example_count(25))
@given(log=any_logs.logs(), policy=any_logs.policies, cuts=any_logs.cuts)
def test_rows_leave_in_time_order(log: RecordedLog, policy: Policy, cuts: Cuts) -> None:
    lines = outputs_in_cuts(prepared(QUERIES["projection"]), policy, {"i": log}, cuts).get("out", b"").splitlines()
    times = [json.loads(line)["ts"] for line in lines]
    assert times == sorted(times)


@settings(max_examples=example_count(25))
@given(log=any_logs.logs(), policy=any_logs.policies, cuts=any_logs.cuts)
def test_counters_count_each_event_once_however_cut(log: RecordedLog, policy: Policy, cuts: Cuts) -> None:
    program = prepared(QUERIES["projection"])
    whole = Stepper(program, policy, {"i": log}, any_logs.TravellingTasks(program, policy)).step()
    stepper = Stepper(
        program,
        policy,
        {"i": log},
        any_logs.TravellingTasks(program, policy),
        settings=StepSettings(cuts.max_events_per_step, cuts.batch_events),
    )
    totals: dict[str, int] = {}
    complete = False
    while not complete:
        step = stepper.step()
        complete = step.complete
        for name, count in step.counters.items():
            totals[name] = totals.get(name, 0) + count if name != "Backlogged Input Events" else count
    assert totals == whole.counters


def test_nothing_leaves_before_every_partition_has_passed() -> None:
    lines = [
        {"partition": 0, "arrival": "2026-01-01T00:00:01Z", "body": {"t": "2026-01-01T00:00:01Z", "k": "a"}},
        {"partition": 1, "arrival": "2026-01-01T00:00:09Z", "body": {"t": "2026-01-01T00:00:09Z", "k": "b"}},
        {"partition": 0, "arrival": "2026-01-01T00:00:20Z", "body": {"t": "2026-01-01T00:00:20Z", "k": "c"}},
    ]
    log = RecordedLog(
        any_logs.RecordedEvent(
            str(line["partition"]), parse_time(str(line["arrival"])), json.dumps(line["body"]).encode()
        )
        for line in lines
    )
    revealed = any_logs.RevealedLog(log)
    program = prepared(QUERIES["projection"])
    policy = Policy.seconds(late=5)
    stepper = Stepper(program, policy, {"i": revealed}, any_logs.TravellingTasks(program, policy))

    def keys_at(clock: str) -> list[str]:
        revealed.clock = parse_time(clock)
        return [row["k"] for rows in stepper.step().rows for row in rows.to_dicts()]

    # The second partition has made no promise: its late tolerance holds the first event back.
    assert keys_at("2026-01-01T00:00:05Z") == []
    # The clock has passed the event by the late tolerance and a tick: no event of any partition can be before it now.
    assert keys_at("2026-01-01T00:00:06Z") == []
    assert keys_at("2026-01-01T00:00:06.0000001Z") == ["a"]
    assert keys_at("2026-01-01T00:00:15Z") == ["b"]
    assert stepper.released != NO_TIME


def test_an_output_waits_for_what_it_depends_on_alone() -> None:
    """What comes beside a pattern that may grow, or a left join, leaves with the watermark, and once."""
    program = prepared(QUERIES["outputs that wait differently"])
    log = RecordedLog(
        any_logs.RecordedEvent("0", at, json.dumps({"t": format_time(at), "k": "a", "v": 1}).encode())
        for at in (EPOCH + second * TICKS_PER_SECOND for second in (1, 2, 30))
    )
    revealed = any_logs.RevealedLog(log)
    policy = Policy.seconds(late=0)
    stepper = Stepper(program, policy, {"i": revealed}, any_logs.TravellingTasks(program, policy))

    def left_at(second: float) -> dict[str, int]:
        revealed.clock = EPOCH + round(second * TICKS_PER_SECOND)
        return {rows.output: len(rows.timestamps) for rows in stepper.step().rows}

    assert left_at(2.5) == {"everything": 2}
    # A restart continues where each output was.
    again = any_logs.TravellingTasks(program, policy)
    stepper = Stepper(program, policy, {"i": revealed}, again, stepper.progress)
    assert left_at(3) == {"next": 1}
    assert left_at(4.5) == {"counted": 1}
    assert left_at(5) == {"next": 1}
    assert left_at(8) == {"runs": 1}


FAILING = {
    "after a window": """SELECT System.Timestamp() AS ts, k, 12 / (COUNT(*) - 2) AS share INTO out
                         FROM i TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 3)""",
    "before a join that waits": """WITH counts AS (SELECT k, 12 / (COUNT(*) - 2) AS share FROM i TIMESTAMP BY t
                                                GROUP BY k, TumblingWindow(second, 3))
                                   SELECT l.k, l.share, r.k AS other INTO out FROM counts l LEFT JOIN i r TIMESTAMP BY t
                                   ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN 1 AND 4""",
    "by substream": """SELECT System.Timestamp() AS ts, k, 12 / (COUNT(*) - 2) AS share INTO out
                       FROM i TIMESTAMP BY t OVER k GROUP BY k, TumblingWindow(second, 3)""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAILING)
@settings(max_examples=example_count(25))
@given(
    log=any_logs.logs(), policy=any_logs.policies.filter(lambda policy: policy.late_ticks is not None), data=st.data()
)
def test_a_row_that_fails_is_counted_once_however_often_it_is_read_again(
    name: str, log: RecordedLog, policy: Policy, data: st.DataObject
) -> None:
    program = prepared(FAILING[name])
    placed = functools.partial(any_logs.TravellingTasks, program, policy)
    whole = Stepper(program, policy, {"i": log}, placed()).step().counters.get("Runtime Errors", 0)
    restarts = data.draw(st.sets(st.integers(1, 12)))
    stepper, counted, number, complete = (
        Stepper(program, policy, {"i": log}, placed(), settings=StepSettings(2)),
        0,
        0,
        False,
    )
    while not complete:
        step = stepper.step()
        complete, number = step.complete, number + 1
        counted += step.counters.get("Runtime Errors", 0)
        if number in restarts and not complete:
            stepper = Stepper(program, policy, {"i": log}, placed(), stepper.progress, StepSettings(2))
    assert counted == whole
