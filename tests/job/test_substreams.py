"""Substreams: the results of each leave on its own watermark, in one order, however the log is cut."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.job import logs as any_logs
from tests.job.logs import EPOCH, Cuts, RevealedLog, TravellingTasks, outputs_in_cuts, outputs_of_one_step, prepared
from tests.job.plain_logs import log_of, random_events
from tests.job.sharded import ShardsHere
from tests.ordering.oracle import Arrived, stamped
from tests.profiles import example_count
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.engine import CATALOG, Program, TableVersion
from tidegate.job.runtime.step import Progress, Stepper, StepSettings
from tidegate.job.runtime.watermark_blockers import watermark_report
from tidegate.ordering import TICKS_PER_SECOND, Policy, format_time
from tidegate.sql import compile_query

FROM = "FROM i TIMESTAMP BY t OVER k"


def some(examples: int) -> settings:
    """So many examples in the suite; `test_equality` tries more."""
    return settings(max_examples=example_count(examples))


QUERIES = {
    "projection": f"SELECT System.Timestamp() AS ts, k, t, v INTO out {FROM}",
    "filter": f"SELECT k, v INTO out {FROM} WHERE v > 1 OR k = 'b'",
    "tumbling": f"""SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, MAX(t) AS hi, COLLECT(v) AS c
                    INTO out {FROM} GROUP BY k, TumblingWindow(second, 3)""",
    "hopping": f"""SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, MIN(t) AS lo, COUNT(DISTINCT v) AS d,
                   SUM(TRY_CAST(v AS float)) AS s INTO out {FROM} GROUP BY k, HoppingWindow(second, 5, 2)""",
    "sliding": f"""SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, MAX(t) AS hi, SUM(TRY_CAST(v AS float)) AS s
                   INTO out {FROM} GROUP BY k, SlidingWindow(second, 3)""",
    "session": f"""SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, MIN(t) AS lo
                   INTO out {FROM} GROUP BY k, SessionWindow(second, 2, 5) OVER (PARTITION BY k)""",
    "snapshot": f"SELECT System.Timestamp() AS ts, k, COUNT(*) AS n INTO out {FROM} GROUP BY k, System.Timestamp()",
    "windows": f"""SELECT System.Window().Id AS w, System.Timestamp() AS ts, k, COUNT(*) AS n INTO out {FROM}
                   GROUP BY k, Windows(Window('s', SlidingWindow(second, 2)), Window('t', TumblingWindow(second, 4)),
                                       Window('h', HoppingWindow(second, 4, 3)))""",
    "rows before": f"""SELECT System.Timestamp() AS ts, k, v,
                       LAG(v, 2) OVER (PARTITION BY k LIMIT DURATION(second, 6)) AS b,
                       LAST(t) OVER (PARTITION BY k LIMIT DURATION(second, 4) WHEN v > 0) AS l,
                       ISFIRST(second, 3) OVER (PARTITION BY k) AS f,
                       SUM(TRY_CAST(v AS float)) OVER (PARTITION BY k LIMIT DURATION(second, 5)) AS s
                       INTO out {FROM} WHERE k <> 'c'""",
    "across": f"SELECT k, v, LAG(v) OVER (LIMIT DURATION(second, 6)) AS b INTO out {FROM}",
    "join": """SELECT System.Timestamp() AS ts, l.k, l.t, r.t AS u INTO out
               FROM i l TIMESTAMP BY t OVER k JOIN i r TIMESTAMP BY t OVER k
               ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN 1 AND 4""",
    "absence": """SELECT System.Timestamp() AS ts, l.t, l.v INTO out
                  FROM i l TIMESTAMP BY t OVER k LEFT JOIN i r TIMESTAMP BY t OVER k
                  ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN 1 AND 4 WHERE r.k IS NULL""",
    "steps": """WITH pairs AS (SELECT l.k, l.v, r.v AS w FROM i l TIMESTAMP BY t OVER k
                               LEFT JOIN i r TIMESTAMP BY t OVER k
                               ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN 0 AND 2),
                     both AS (SELECT k, v FROM pairs UNION SELECT k, v FROM i TIMESTAMP BY t OVER k),
                     counts AS (SELECT k, COUNT(*) AS n FROM both GROUP BY k, HoppingWindow(second, 4, 2))
                SELECT System.Timestamp() AS ts, k, n, LAG(n) OVER (PARTITION BY k LIMIT DURATION(second, 8)) AS b
                INTO out FROM counts
                SELECT System.Timestamp() AS ts, * INTO counted FROM both""",
    "delays": """SELECT k, t INTO everything FROM i TIMESTAMP BY t OVER k
                 SELECT l.k, l.t, r.v INTO next FROM i l TIMESTAMP BY t OVER k LEFT JOIN i r TIMESTAMP BY t OVER k
                 ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN 1 AND 2
                 SELECT k, COUNT(*) AS n INTO counted FROM i TIMESTAMP BY t OVER k
                 GROUP BY k, TumblingWindow(second, 3)""",
    "partitions": """SELECT System.Timestamp() AS ts, k, PartitionId, COUNT(*) AS n INTO out
                     FROM i TIMESTAMP BY t OVER k, PartitionId PARTITION BY PartitionId
                     GROUP BY k, PartitionId, SlidingWindow(second, 3)""",
}
TWO_INPUTS = {
    "union": """SELECT System.Timestamp() AS ts, k, COUNT(*) AS n INTO out
                FROM (SELECT k FROM i TIMESTAMP BY t OVER k UNION SELECT k FROM j TIMESTAMP BY t OVER k) both
                GROUP BY k, TumblingWindow(second, 4)""",
    "join": """SELECT System.Timestamp() AS ts, i.k, i.v, j.v AS w INTO out
               FROM i TIMESTAMP BY t OVER k LEFT JOIN j TIMESTAMP BY t OVER k
               ON i.k = j.k AND DATEDIFF(second, i, j) BETWEEN -1 AND 3""",
    "apart": """SELECT System.Timestamp() AS ts, k INTO one FROM i TIMESTAMP BY t OVER k
                SELECT System.Timestamp() AS ts, k, COUNT(*) AS n INTO other FROM j TIMESTAMP BY t OVER k
                GROUP BY k, TumblingWindow(second, 2)""",
}


@pytest.mark.parametrize("name", QUERIES)
@some(6)
@given(log=any_logs.logs(), policy=any_logs.policies, cuts=any_logs.cuts)
def test_cuts_restarts_and_tasks_change_nothing(name: str, log: RecordedLog, policy: Policy, cuts: Cuts) -> None:
    program = prepared(QUERIES[name])
    assert program.by_substream == (name != "across")
    assert outputs_in_cuts(program, policy, {"i": log}, cuts) == outputs_of_one_step(program, policy, {"i": log})


@pytest.mark.slow
@pytest.mark.parametrize("name", TWO_INPUTS)
@some(6)
@given(one=any_logs.logs(), other=any_logs.logs(), policy=any_logs.policies, cuts=any_logs.cuts)
def test_two_inputs(name: str, one: RecordedLog, other: RecordedLog, policy: Policy, cuts: Cuts) -> None:
    program = prepared(TWO_INPUTS[name])
    assert program.by_substream
    inputs = {"i": one, "j": other}
    assert outputs_in_cuts(program, policy, inputs, cuts) == outputs_of_one_step(program, policy, inputs)


WITH_REFERENCE = {
    "rows": """SELECT System.Timestamp() AS ts, i.k, i.v, r.site INTO out
               FROM i TIMESTAMP BY t OVER k LEFT JOIN r ON i.k = r.k""",
    "groups": """SELECT System.Timestamp() AS ts, i.k, r.site, COUNT(*) AS n INTO out
                 FROM i TIMESTAMP BY t OVER k JOIN r ON i.k = r.k
                 GROUP BY i.k, r.site, HoppingWindow(second, 5, 2)""",
    "steps": """WITH placed AS (SELECT i.k, i.v, r.site FROM i TIMESTAMP BY t OVER k JOIN r ON i.k = r.k)
                SELECT System.Timestamp() AS ts, p.k, p.site, LAG(p.v) OVER (PARTITION BY p.k LIMIT DURATION(second, 6))
                AS b INTO out FROM placed p JOIN i o TIMESTAMP BY t OVER k
                ON p.k = o.k AND DATEDIFF(second, p, o) BETWEEN 0 AND 2 LEFT JOIN r s ON p.site = s.site""",
}
SITES = [
    TableVersion((b'{"k": "a", "site": 1}', b'{"k": "b", "site": 1}')),
    TableVersion((b'{"k": "b", "site": 2}', b'{"k": "c", "site": 3}'), EPOCH + 4 * TICKS_PER_SECOND),
]


def with_sites(sql: str) -> Program:
    """A query, prepared, with `r` for the sites of keys."""
    return Program.prepare(compile_query(sql, catalog=CATALOG, reference_inputs=["r"]), {"r": SITES})


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_REFERENCE)
@some(6)
@given(log=any_logs.logs(), policy=any_logs.policies, cuts=any_logs.cuts)
def test_reference_data(name: str, log: RecordedLog, policy: Policy, cuts: Cuts) -> None:
    program = with_sites(WITH_REFERENCE[name])
    assert program.by_substream
    expected = outputs_of_one_step(program, policy, {"i": log})
    assert outputs_in_cuts(program, policy, {"i": log}, cuts) == expected
    assert outputs_in_cuts(program, policy, {"i": log}, cuts, lambda: ShardsHere(program, policy, 3, 1)) == expected


@some(25)
@given(seed=st.integers(0, 2**32), policy=any_logs.policies)
def test_a_row_is_joined_to_the_table_of_its_own_time(seed: int, policy: Policy) -> None:
    events = random_events(random.Random(seed))
    program = with_sites("SELECT i.p, i.n, r.site INTO out FROM i TIMESTAMP BY t OVER k LEFT JOIN r ON i.k = r.k")
    first = {"a": 1, "b": 1}
    expected = {
        (one.event.partition, one.event.number): (
            first if one.system_timestamp < EPOCH + 4 * TICKS_PER_SECOND else {"b": 2, "c": 3}
        ).get(one.event.key)
        for one in stamped(events, policy, sorted({one.partition for one in events}))
    }
    rows = map(json.loads, outputs_of_one_step(program, policy, {"i": log_of(events)}).get("out", b"").splitlines())
    assert {(row["p"], row["n"]): row["site"] for row in rows} == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
@some(6)
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


PROJECTION = "SELECT System.Timestamp() AS ts, k, p, n INTO out FROM i TIMESTAMP BY t OVER k"


@pytest.mark.parametrize("merged", [False, True], ids=["partitions", "merged"])
@some(25)
@given(seed=st.integers(0, 2**32), policy=any_logs.policies)
def test_rows_leave_when_the_oracle_says_and_in_its_order(merged: bool, seed: int, policy: Policy) -> None:
    dice = random.Random(seed)
    events, policy = random_events(dice), replace(policy, merged=merged)
    log = RevealedLog(log_of(events))
    program = prepared(PROJECTION)
    kept = stamped(events, policy, sorted({one.partition for one in events}))
    expected = sorted(
        kept,
        key=lambda one: (
            one.emission_arrival,
            one.system_timestamp,
            one.event.arrival,
            one.event.partition,
            one.event.number,
        ),
    )
    stepper = Stepper(
        program, policy, {"i": log}, TravellingTasks(program, policy), settings=StepSettings(dice.randint(1, 9))
    )
    left: list[list[int]] = []
    clock = EPOCH
    while clock < EPOCH + 60 * TICKS_PER_SECOND:
        clock += dice.choice([1, TICKS_PER_SECOND // 2, 7 * TICKS_PER_SECOND])
        log.clock = clock
        caught_up = False
        while not caught_up:
            step = stepper.step()
            caught_up = step.caught_up
            left += [[row["p"], row["n"]] for rows in step.rows for row in rows.to_dicts()]
        if events:
            due = [[one.event.partition, one.event.number] for one in expected if one.emission_arrival < clock]
            assert left == due
    log.complete = True
    while not (step := stepper.step()).complete:
        left += [[row["p"], row["n"]] for rows in step.rows for row in rows.to_dicts()]
    left += [[row["p"], row["n"]] for rows in step.rows for row in rows.to_dicts()]
    assert left == [[one.event.partition, one.event.number] for one in expected]


def test_tolerances_and_watermarks_are_exact_to_the_tick() -> None:
    """100 ns decide: an event at the watermark passes, one a tick before it is moved to it, and a row leaves a tick
    after its time and the late tolerance."""
    second = TICKS_PER_SECOND
    events = [
        Arrived(0, 0, EPOCH + 10 * second, EPOCH + 10 * second, "a"),
        Arrived(0, 1, EPOCH + 10 * second, EPOCH + 9 * second, "a"),
        Arrived(0, 2, EPOCH + 10 * second, EPOCH + 9 * second - 1, "a"),
        Arrived(0, 3, EPOCH + 10 * second, EPOCH + 5 * second, "b"),
        Arrived(0, 4, EPOCH + 10 * second, EPOCH + 5 * second - 1, "c"),
        Arrived(0, 5, EPOCH + 10 * second, EPOCH + 310 * second, "d"),
        Arrived(0, 6, EPOCH + 10 * second, EPOCH + 310 * second + 1, "e"),
    ]
    policy = Policy.seconds(late=5, out_of_order=1)
    program, log = prepared(PROJECTION), RevealedLog(log_of(events))
    stepper = Stepper(program, policy, {"i": log}, TravellingTasks(program, policy))

    def left_at(clock: int) -> list[tuple[int, str]]:
        log.clock = clock
        return [(row["n"], row["ts"][14:]) for rows in stepper.step().rows for row in rows.to_dicts()]

    assert left_at(EPOCH + 10 * second) == []
    # b and c are at the bound of the late rule, c because it was moved there by a tick.
    assert left_at(EPOCH + 10 * second + 1) == [
        (3, "00:05.0000000Z"),
        (4, "00:05.0000000Z"),
    ]
    assert left_at(EPOCH + 14 * second) == []
    assert left_at(EPOCH + 14 * second + 1) == [
        (1, "00:09.0000000Z"),
        (2, "00:09.0000000Z"),
    ]
    assert left_at(EPOCH + 15 * second) == []
    assert left_at(EPOCH + 15 * second + 1) == [(0, "00:10.0000000Z")]
    # e was a tick too early for the early rule.
    assert left_at(EPOCH + 315 * second) == []
    assert left_at(EPOCH + 315 * second + 1) == [(5, "05:10.0000000Z")]


def test_without_a_late_tolerance_a_silent_substream_waits_for_ever() -> None:
    policy = Policy.seconds(late=-1)
    events = [
        Arrived(0, 0, EPOCH, EPOCH, "a"),
        Arrived(0, 1, EPOCH, EPOCH, "b"),
        Arrived(0, 2, EPOCH + 1, EPOCH + 1, "b"),
    ]
    program, log = prepared(PROJECTION), RevealedLog(log_of(events))
    stepper = Stepper(program, policy, {"i": log}, TravellingTasks(program, policy))
    log.clock = EPOCH + 10**6 * TICKS_PER_SECOND
    step = stepper.step()
    assert [row["n"] for rows in step.rows for row in rows.to_dicts()] == [1]
    (timeline,) = watermark_report(step.timelines, program, policy).timelines
    assert "waits indefinitely" in timeline.unblocked_by
    assert "for ever" in policy.describe()
    log.complete = True
    assert [row["n"] for rows in stepper.step().rows for row in rows.to_dicts()] == [0, 2]


COUNTS = "SELECT System.Timestamp() AS ts, k, COUNT(*) AS n INTO counted FROM i TIMESTAMP BY t OVER k GROUP BY k, " + (
    "TumblingWindow(second, 60)"
)
TIMES = "SELECT System.Timestamp() AS ts, k, v INTO times FROM i TIMESTAMP BY t OVER k"
PAIRS = """SELECT l.k AS k, r.k AS rk, l.v AS v, r.v AS w INTO pairs FROM i l TIMESTAMP BY t OVER k
           JOIN i r TIMESTAMP BY t OVER k ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN 0 AND 5"""


def keyed_log(*rows: tuple[int, int, object, int]) -> RecordedLog:
    """Events: arrival and time in seconds, key, number."""
    return RecordedLog(
        RecordedEvent(
            "0",
            EPOCH + arrival * TICKS_PER_SECOND,
            json.dumps({"t": format_time(EPOCH + time * TICKS_PER_SECOND), "k": key, "v": number}).encode(),
        )
        for arrival, time, key, number in rows
    )


@pytest.mark.parametrize("keys", [("a", "A"), (1, 1.0), (True, 1), ({"x": 1, "y": 2}, {"y": 2, "x": 1})])
@pytest.mark.parametrize("most", [1, 3, 10])
def test_the_spellings_of_a_key_share_a_timeline(keys: tuple[object, object], most: int) -> None:
    one, other = keys
    # The second event and the fourth are out of order.
    log = keyed_log((10, 10, one, 1), (11, 8, other, 2), (12, 12, one, 3), (13, 9, other, 4))
    policy = Policy.seconds(late=20, out_of_order=0)
    cuts = Cuts([], max_events_per_step=most, batch_events=2, parallelism=1, restart_after=frozenset())
    found = outputs_in_cuts(prepared(COUNTS + " " + TIMES), policy, {"i": log}, cuts)
    times = {row["v"]: row["ts"][-11:-9] for row in map(json.loads, found["times"].splitlines())}
    assert times == {1: "10", 2: "10", 3: "12", 4: "12"}
    (row,) = map(json.loads, found["counted"].splitlines())
    assert (row["n"], repr(row["k"])) == (4, repr({"a": "A", "True": 1}.get(str(one), one)))


@pytest.mark.parametrize("keys", [(1, "1"), (True, "true")])
@pytest.mark.parametrize("most", [1, 2, 3, 10])
def test_what_a_join_finds_equal_has_timelines_of_its_own(keys: tuple[object, object], most: int) -> None:
    one, other = keys
    # The second event would be out of order if it shared the timeline of the first.
    log = keyed_log((10, 10, one, 1), (11, 8, other, 2), (12, 12, one, 3), (13, 9, other, 4))
    policy = Policy.seconds(late=20, out_of_order=0)

    def outputs(sql: str) -> dict[str, bytes]:
        cuts = Cuts([], max_events_per_step=most, batch_events=2, parallelism=1, restart_after=frozenset())
        return outputs_in_cuts(prepared(sql), policy, {"i": log}, cuts)

    alone, joined = outputs(COUNTS + " " + TIMES), outputs(COUNTS + " " + TIMES + " " + PAIRS)
    assert {name: joined[name] for name in alone} == alone
    assert [row["n"] for row in map(json.loads, alone["counted"].splitlines())] == [2, 2]
    times = {row["v"]: row["ts"][-11:-9] for row in map(json.loads, alone["times"].splitlines())}
    assert times == {1: "10", 2: "08", 3: "12", 4: "09"}
    # Equal keys of different timelines meet all the same, each pair once, in the order of time.
    pairs = [(row["v"], row["w"]) for row in map(json.loads, joined["pairs"].splitlines())]
    assert set(pairs) == {(2, 2), (2, 4), (2, 1), (2, 3), (4, 4), (4, 1), (4, 3), (1, 1), (1, 3), (3, 3)}
    later = [max(int(times[left]), int(times[right])) for left, right in pairs]
    assert (len(pairs), later) == (10, sorted(later))


def test_a_join_waits_for_a_timeline_that_nobody_has_seen() -> None:
    """The text '1' may still come, anywhere the late tolerance allows, and meet 1; other outputs wait for 1 alone."""
    policy, late = Policy.seconds(late=20, out_of_order=0), 20 * TICKS_PER_SECOND
    log = RevealedLog(keyed_log((10, 10, 1, 1), (40, 40, 1, 2), (41, 22, "1", 3)))
    program = prepared(TIMES + " " + PAIRS.replace("JOIN", "LEFT JOIN"))
    stepper = Stepper(program, policy, {"i": log}, TravellingTasks(program, policy))

    def emitted_at(clock: int) -> dict[str, list[int]]:
        log.clock = clock
        return {rows.output: [row["v"] for row in rows.to_dicts()] for rows in stepper.step().rows}

    second = TICKS_PER_SECOND
    assert emitted_at(EPOCH + 40 * second + 1) == {"times": [1], "pairs": [1]}
    assert emitted_at(EPOCH + 41 * second + 1) == {}
    assert emitted_at(EPOCH + 42 * second + 1) == {"times": [3]}
    assert emitted_at(EPOCH + 40 * second + late + 1)["times"] == [2]
