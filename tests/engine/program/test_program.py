"""A program's output is a function of the events: any cut into batches, any order of taking up, any steps of release,
any start."""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.streams import SECOND, START, Events, program, run, run_log, task
from tidegate.engine import KeyedSide, Program, TaskSide, UnsupportedQuery
from tidegate.ordering import END_OF_TIME, NO_TIME, Policy
from tidegate.sql import QueryError

QUERIES = [
    "SELECT *, System.Timestamp() AS at INTO out FROM a",
    "SELECT k, v + 1 AS w INTO out FROM a WHERE k <> 'y'",
    "SELECT System.Timestamp() AS e, k, COUNT(*) AS n, SUM(v) AS s, AVG(v) AS m INTO out FROM a "
    "GROUP BY k, TumblingWindow(second, 3)",
    "SELECT k, MIN(v) AS low, MAX(k) AS high, COUNT(DISTINCT v) AS d, STDEV(v) AS sd, VARP(v) AS vp INTO out FROM a "
    "GROUP BY k, HoppingWindow(second, 6, 2)",
    "SELECT k, v, COUNT(*) AS n, MAX(CAST(v AS nvarchar(max))) AS high, COUNT(DISTINCT v) AS d, "
    "SUM(DISTINCT TRY_CAST(v AS float)) AS s INTO out FROM a GROUP BY k, v, HoppingWindow(second, 3, 1)",
    "SELECT MIN(v) AS low, MAX(v) AS high, SUM(DISTINCT TRY_CAST(k AS bigint)) AS s, COUNT(DISTINCT k) AS d INTO out "
    "FROM a WHERE v <> 'x' GROUP BY HoppingWindow(second, 4, 1)",
    "SELECT COUNT(*) AS n, TopOne() OVER (ORDER BY v DESC) AS top, Collect() AS every INTO out FROM a "
    "GROUP BY TumblingWindow(second, 5) HAVING COUNT(*) > 1",
    "SELECT System.Window().Id AS w, COUNT(*) AS n INTO out FROM a GROUP BY "
    "Windows(Window('short', TumblingWindow(second, 2)), Window('long', HoppingWindow(second, 8, 4)))",
    "SELECT k, SUM(v) AS s INTO out FROM a GROUP BY k, System.Timestamp()",
    "WITH u AS (SELECT k, v FROM a UNION SELECT k, v FROM b), "
    "f AS (SELECT k, COUNT(*) AS n FROM u GROUP BY k, TumblingWindow(second, 2)) "
    "SELECT System.Timestamp() AS e, SUM(n) AS n, MAX(k) AS k INTO out FROM f GROUP BY TumblingWindow(second, 6) "
    "SELECT * INTO other FROM f WHERE n > 1",
    "SELECT a.k, x.ArrayValue AS v INTO out FROM a CROSS APPLY GetArrayElements(a.l) AS x",
    "SELECT a.k, x.ArrayValue AS v INTO out FROM a OUTER APPLY GetArrayElements(a.l) AS x UNION SELECT k, v FROM a",
    "SELECT System.Timestamp() AS e, k, COUNT(*) AS n, SUM(v) AS s, MIN(v) AS low, COUNT(DISTINCT v) AS d, "
    "TopOne() OVER (ORDER BY v) AS top INTO out FROM a GROUP BY k, SlidingWindow(second, 3)",
    "SELECT System.Timestamp() AS e, k, COUNT(*) AS n, SUM(v) AS s INTO out FROM a GROUP BY k, "
    "SessionWindow(second, 2, 5)",
    "SELECT System.Timestamp() AS e, k, COUNT(*) AS n, MAX(v) AS high INTO out FROM a GROUP BY k, "
    "SessionWindow(second, 2, 4) OVER (PARTITION BY k)",
    "SELECT System.Window().Id AS w, COUNT(*) AS n INTO out FROM a GROUP BY Windows("
    "Window('t', TumblingWindow(second, 2)), Window('l', SlidingWindow(second, 2)), Window('e', "
    "SessionWindow(second, 1, 3)))",
    "SELECT System.Timestamp() AS t, k, v, LAG(v, 1, 0) OVER (PARTITION BY k LIMIT DURATION(second, 4)) AS p, "
    "LAG(v, 2) OVER (PARTITION BY k LIMIT DURATION(second, 9)) AS pp, "
    "LAST(v) OVER (LIMIT DURATION(second, 3) WHEN k = 'x') AS l, ISFIRST(second, 2) AS f, "
    "ISFIRST(second, 5) OVER (PARTITION BY k WHEN v > 0) AS g INTO out FROM a WHERE k <> 'y'",
    "SELECT System.Timestamp() AS t, k, SUM(v) OVER (PARTITION BY k LIMIT DURATION(second, 4)) AS s, "
    "COUNT(*) OVER (LIMIT DURATION(second, 3) WHEN v > 0) AS n, MAX(v) OVER (LIMIT DURATION(second, 2)) AS m, "
    "Collect() OVER (PARTITION BY k LIMIT DURATION(second, 2)) AS c INTO out FROM a",
    "SELECT System.Timestamp() AS t, l.k, l.v AS one, r.v AS other INTO out FROM a AS l JOIN a AS r "
    "ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN 1 AND 3 AND l.v <= r.v",
    "SELECT System.Timestamp() AS t, l.k, l.v AS one, r.v AS other, r.* INTO out FROM a AS l LEFT JOIN b AS r "
    "ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN -1 AND 2 AND r.v > 0 "
    "SELECT System.Timestamp() AS t, k INTO other FROM a",
    "WITH m AS (SELECT l.k, l.v, r.v AS w FROM a AS l LEFT JOIN b AS r ON l.k = r.k AND "
    "DATEDIFF(second, l, r) BETWEEN 0 AND 1), "
    "u AS (SELECT k, v FROM a UNION SELECT k, w AS v FROM m), "
    "c AS (SELECT k, COUNT(*) AS n, SUM(v) AS v FROM u GROUP BY k, TumblingWindow(second, 2)) "
    "SELECT System.Timestamp() AS t, k, n, v, LAG(n) OVER (PARTITION BY k LIMIT DURATION(second, 6)) AS p "
    "INTO out FROM c SELECT System.Timestamp() AS t, * INTO other FROM u",
    "SELECT x.k, x.v, y.v AS yv, z.v AS zv, System.Timestamp() AS t INTO out FROM a x "
    "LEFT JOIN b y ON x.k = y.k AND DATEDIFF(second, x, y) BETWEEN 0 AND 1 "
    "LEFT JOIN a z ON x.k = z.k AND DATEDIFF(second, x, z) BETWEEN -1 AND 0 AND DATEDIFF(second, y, z) <= 1",
    "SELECT *, System.Timestamp() AS t INTO out FROM a MATCH_RECOGNIZE (LIMIT DURATION(second, 4) PARTITION BY k "
    "MEASURES First(A.v) AS a, Max(B.v) AS b, Classifier() AS c PATTERN (A+ (B | .)? A*) "
    "DEFINE A AS A.v > 0, B AS B.v > Last(A.v)) AS m "
    "SELECT n, COUNT(*) AS c INTO other FROM a MATCH_RECOGNIZE (LIMIT DURATION(second, 3) MEASURES Last(v) AS n "
    "PATTERN (X Y) DEFINE X AS v > 0) AS m GROUP BY n, TumblingWindow(second, 2)",
    "SELECT AnomalyDetection_SpikeAndDip(v, 70, 5, 'spikesanddips') OVER (LIMIT DURATION(second, 5)) AS s, "
    "AnomalyDetection_ChangePoint(v, 20, 8) OVER (PARTITION BY k LIMIT DURATION(second, 9) WHEN v < 9) AS c "
    "INTO out FROM a",
]

VALUES = (
    st.none()
    | st.integers(-(2**62), 2**62)
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["7", "x", "X", "2026-01-01", True, 2.0])
)
# Spellings of few keys.
EVENTS = st.fixed_dictionaries(
    {"k": st.sampled_from(["x", "X", "y", None, 1, 1.0, True]), "v": VALUES},
    optional={"l": st.lists(st.integers(0, 3), max_size=2)},
)
GAPS = st.integers(0, 4).map(lambda halves: halves * SECOND // 2)
PARTITION = st.lists(st.tuples(GAPS, EVENTS), max_size=14)


def partition_of(rows: list[tuple[int, Any]]) -> Events:
    arrivals, now = [], START
    for gap, _ in rows:
        now += gap
        arrivals.append(now)
    return Events.of([row for _, row in rows], arrivals)


class Steps:
    """A run taken in steps by chance."""

    def __init__(self, of: Program, log: dict[tuple[str, str], Events], random: Random) -> None:
        self.of, self.log, self.random = of, log, random

    def run(self, start: int = NO_TIME) -> dict[str, bytes]:
        keyed = KeyedSide(self.of)
        done = dict.fromkeys(self.log, 0)
        carries = {place: self.of.new_carry(place[0]) for place in self.log}
        released, output = start, dict.fromkeys(self.of.output_names, b"")
        while True:
            partials = []
            for place, events in self.log.items():
                upto = done[place] + self.random.randint(0, 6)
                while done[place] < min(upto, len(events)):
                    stop = min(done[place] + self.random.randint(1, 4), len(events))
                    partial, carries[place] = task(
                        self.of, *place, events.part(done[place], stop), Policy.none(), carries[place]
                    )
                    partials.append(partial)
                    done[place] = stop
            keyed.absorb(self.random.sample(partials, len(partials)))
            finished = all(done[place] == len(events) for place, events in self.log.items())
            watermark = self.of.complete_before(END_OF_TIME if finished else self.watermark(done))
            if watermark > released:
                for result in keyed.emit(released, watermark):
                    output[result.output] += result.to_json_lines()
                released = watermark
            keyed.state = pickle.loads(pickle.dumps(keyed.state))
            if finished:
                return output

    def watermark(self, done: dict[tuple[str, str], int]) -> int:
        """What every partition has passed: arrivals are the times here, and do not decrease."""
        marks = [END_OF_TIME]
        for place, events in self.log.items():
            if done[place] < len(events):
                marks.append(int(events.arrivals[done[place] - 1]) if done[place] else NO_TIME)
        return min(marks)


@pytest.mark.parametrize("sql", QUERIES)
@settings(max_examples=settings().max_examples // 4)
@given(
    seed=st.integers(0, 2**32),
    parts=st.lists(PARTITION, min_size=2, max_size=2),
    other=PARTITION,
    halves=st.integers(0, 20),
)
def test_any_cut_gives_the_same_bytes(
    sql: str, seed: int, parts: list[list[tuple[int, Any]]], other: list[tuple[int, Any]], halves: int
) -> None:
    random = Random(seed)
    of = program(sql)
    log = {("a", "0"): partition_of(parts[0]), ("a", "1"): partition_of(parts[1])}
    if "b" in of.input_names:
        log["b", "0"] = partition_of(other)
    keyed = KeyedSide(of)
    whole = [task(of, *place, events, Policy.none(), of.new_carry(place[0]))[0] for place, events in log.items()]
    keyed.absorb(whole)
    expected = dict.fromkeys(of.output_names, b"")
    for result in keyed.emit(NO_TIME, END_OF_TIME):
        expected[result.output] += result.to_json_lines()
    assert Steps(of, log, random).run() == expected

    start = START + halves * SECOND // 2
    late = {place: from_arrival(events, start - of.lookback_ticks) for place, events in log.items()}
    keyed = KeyedSide(of)
    keyed.absorb([task(of, *place, events, Policy.none(), of.new_carry(place[0]))[0] for place, events in log.items()])
    later = dict.fromkeys(of.output_names, b"")
    for result in keyed.emit(start, END_OF_TIME):
        later[result.output] += result.to_json_lines()
    assert Steps(of, late, random).run(start) == later
    assert all(expected[name].endswith(lines) for name, lines in later.items())


def from_arrival(events: Events, arrival: int) -> Events:
    kept = int((events.arrivals < arrival).sum())
    return events.part(kept, len(events))


@pytest.mark.parametrize("keys", [(1, 1.0, True), ("a", "A"), ({"x": 1, "y": 2}, {"Y": 2.0, "x": 1}), (2**53, 2.0**53)])
def test_the_spellings_of_a_key_share_a_timeline(keys: tuple[Any, ...]) -> None:
    of = program("SELECT * INTO out FROM a TIMESTAMP BY t OVER k, j")
    found = []
    for cut in (keys, keys[:1], keys[1:]):
        events = Events.of([{"t": "2026-01-01T00:00:00Z", "k": key, "j": 1} for key in cut])
        batch = TaskSide(of).decode("a", "0", events)
        assert batch.substreams is not None
        found += batch.substreams.keys.to_list()
    assert found == [found[0]] * 3


def test_a_program_travels() -> None:
    of = program(QUERIES[2])
    again = pickle.loads(pickle.dumps(of))
    assert run(again, [{"k": "x", "v": 1}]) == run(of, [{"k": "x", "v": 1}])


@pytest.mark.slow
def test_a_partial_is_small_whatever_it_was_made_of() -> None:
    of = program("SELECT k, AVG(v) AS m INTO out FROM a GROUP BY k, TumblingWindow(day, 7)")
    sizes = []
    for count in (1_000, 100_000):
        events = Events.of([{"k": f"k{place % 10}", "v": 1.5} for place in range(count)], [START] * count)
        partial, _ = task(of, "a", "0", events, Policy.none(), of.new_carry("a"))
        sizes.append(len(pickle.dumps(partial)))
    assert sizes[1] < sizes[0] + 200


def test_rows_leave_in_order_of_time_partition_and_number() -> None:
    of = program("SELECT k INTO out FROM a")
    log = {
        ("a", "10"): Events.of([{"k": "late partition"}, {"k": "last"}], [START, START + 1]),
        ("a", "9"): Events.of([[{"k": "first"}, {"k": "second"}], {"k": "third"}], [START, START]),
    }
    rows = run_log(of, log, Policy.none())["out"]
    assert [row["k"] for _, row in rows] == ["first", "second", "third", "late partition", "last"]


TIED = "FROM a TIMESTAMP BY DATEADD(second, 0, '2026-01-01T00:00:30Z')"
"""All events have one time; what tells them apart is their arrival."""


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("v", [1, 2, 3, 4]),
        ("LAG(v) OVER (LIMIT DURATION(minute, 1)) AS v", [None, 1, 2, 3]),
        ("LAST(v) OVER (LIMIT DURATION(minute, 1) WHEN v <> 3) AS v", [1, 2, 2, 4]),
        ("ISFIRST(minute, 1) AS v", [1, 0, 0, 0]),
        ("SUM(v) OVER (LIMIT DURATION(minute, 1)) AS v", [1, 3, 6, 10]),
        ("COLLECT(v) OVER (LIMIT DURATION(minute, 1)) AS v", [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]),
    ],
)
def test_rows_of_one_time_are_in_the_order_of_their_arrival(select: str, expected: list[Any]) -> None:
    of = program(f"SELECT {select} INTO out {TIED}")
    assert [row["v"] for _, row in run_log(of, TIED_LOG, Policy.none())["out"]] == expected


@pytest.mark.parametrize("window", ["TumblingWindow", "SlidingWindow", "HoppingWindow", "SessionWindow"])
def test_aggregates_take_rows_of_one_time_in_the_order_of_their_arrival(window: str) -> None:
    sizes = {"HoppingWindow": "2, 1", "SessionWindow": "1, 2"}.get(window, "1")
    of = program(
        f"WITH s AS (SELECT v, 0 AS same {TIED}) SELECT COLLECT(v) AS c, TopOne() OVER (ORDER BY same) AS t, "
        f"CollectTop(2) OVER (ORDER BY same DESC) AS u INTO out FROM s GROUP BY {window}(minute, {sizes})"
    )
    for _, row in run_log(of, TIED_LOG, Policy.none())["out"]:
        assert (row["c"], row["t"]["v"], [one["value"]["v"] for one in row["u"]]) == ([1, 2, 3, 4], 1, [1, 2])


def test_patterns_and_unions_go_by_the_order_of_arrival() -> None:
    match = program(
        f"SELECT v INTO out {TIED} MATCH_RECOGNIZE (LIMIT DURATION(minute, 1) MEASURES First(A.v) AS v "
        "PATTERN (A B) DEFINE A AS A.v > 0, B AS B.v = 1 + First(A.v)) AS m"
    )
    assert [row["v"] for _, row in run_log(match, TIED_LOG, Policy.none())["out"]] == [1, 2, 3]
    union = program(
        f"WITH before AS (SELECT v, LAG(v) OVER (LIMIT DURATION(minute, 1)) AS b {TIED}), "
        f"plain AS (SELECT v, -1 AS b {TIED}), both AS (SELECT v, b FROM before UNION SELECT v, b FROM plain) "
        "SELECT v, LAG(v) OVER (LIMIT DURATION(minute, 1)) AS l INTO out FROM both"
    )
    rows = [(row["v"], row["l"]) for _, row in run_log(union, TIED_LOG, Policy.none())["out"]]
    assert rows == [(1, None), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3), (4, 3), (4, 4)]


TIED_LOG = {
    ("a", "0"): Events.of([{"v": 2}, {"v": 4}], [START + 1, START + 2]),
    ("a", "1"): Events.of([{"v": 1}, {"v": 3}], [START, START + 1]),
}
"""By arrival, then by partition: 1 on partition 1, 2 on partition 0, 3 on partition 1, 4 on partition 0."""


def test_branches_with_and_without_elements_are_collected_together() -> None:
    of = program(
        "WITH u AS (SELECT v FROM a UNION SELECT x.ArrayValue AS v FROM a CROSS APPLY GetArrayElements(l) AS x) "
        "SELECT COLLECT(v) AS c INTO out FROM u GROUP BY TumblingWindow(minute, 1)"
    )
    log = {
        ("a", "0"): Events.of([{"v": 1}], [START + 1]),
        ("a", "1"): Events.of([{"v": 2, "l": [5, 6]}], [START + 2]),
    }
    for order in (log, dict(reversed(log.items()))):
        assert [row for _, row in run_log(of, order, Policy.none())["out"]] == [{"c": [1, 2, 5, 6]}]


def test_sums_are_of_the_type_of_their_values() -> None:
    sql = "SELECT SUM(v) AS s, AVG(v) AS m INTO out FROM a GROUP BY TumblingWindow(minute, 1)"
    assert repr(run(sql, [{"v": 1}, {"v": 2}])) == "[{'s': 3, 'm': 1.5}]"
    assert repr(run(sql, [{"v": 1}, {"v": 2.0}])) == "[{'s': 3.0, 'm': 1.5}]"
    assert run(sql, [{"v": None}]) == [{"s": None, "m": None}]
    # A sum that overflows is lost, and nothing else is.
    assert run(sql, [{"v": 2**63 - 1}, {"v": 1}]) == []
    assert run(sql, [{"v": 2**63 - 1}, {"v": 1}, {"v": -1}])[0]["s"] == 2**63 - 1


def test_stars_and_nested_names() -> None:
    event = {"Id": 7, "r": {"x": 1, "Y": {"z": "deep"}}, "id2": None}
    assert run("SELECT r.y.Z AS z, i.R.*, * INTO out FROM a AS i", [event]) == [
        {"z": "deep", "x": 1, "Y": {"z": "deep"}, "Id": 7, "r": event["r"], "id2": None}
    ]
    assert run("WITH s AS (SELECT 1 AS ID, * FROM a) SELECT id, iD2, * INTO out FROM s", [event]) == [
        {"id": 1, "iD2": None, "r": event["r"]}
    ]


def test_level_1_0_makes_times_of_the_text_of_events() -> None:
    event = {
        "t": "2026-01-01T12:00:00+02:00",
        "d": "2026-01-01",
        "s": "at 2026-01-01T12:00:00Z",
        "r": {"u": ["2026-01-01T12:00:00.5"]},
    }
    sql = "SELECT GetType(t) AS t, t AS at, GetType(d) AS d, GetType(s) AS s, r.u AS u INTO out FROM a"
    assert run(sql, [event], compatibility_level="1.0") == [
        {
            "t": "datetime",
            "at": "2026-01-01T10:00:00.0000000Z",
            "d": "nvarchar(max)",
            "s": "nvarchar(max)",
            "u": ["2026-01-01T12:00:00.5000000Z"],
        }
    ]
    kept = {"t": "nvarchar(max)", "at": event["t"], "d": "nvarchar(max)", "s": "nvarchar(max)", "u": event["r"]["u"]}
    assert run(sql, [event], compatibility_level="1.1") == [kept]
    declared = "CREATE TABLE a (t nvarchar(max)); SELECT t AS at INTO out FROM a"
    assert run(declared, [event], compatibility_level="1.0")[0]["at"] == event["t"]
    whole = run("SELECT * INTO out FROM a", [event], compatibility_level="1.0")
    assert whole == [{**event, "t": "2026-01-01T10:00:00.0000000Z", "r": {"u": ["2026-01-01T12:00:00.5000000Z"]}}]


def test_level_1_0_knows_no_bits_and_no_capitals() -> None:
    assert run("SELECT * INTO out FROM a", [{"Ab": True, "c": {"D": 1}}], compatibility_level="1.0") == [
        {"ab": 1, "c": {"d": 1}}
    ]


def test_metadata() -> None:
    sql = (
        "SELECT GetMetadataPropertyValue(a, '[EventHub].[SequenceNumber]') AS n, PartitionId, EventEnqueuedUtcTime, "
        "GetMetadataPropertyValue(a, '[EventHub].[Publisher]') AS p, GetMetadataPropertyValue(a, 'EventId') AS id "
        "INTO out FROM a"
    )
    first, second = run(sql, [{}, {"partitionid": "own"}])
    assert (first["n"], first["PartitionId"], first["p"]) == (0, 0, None)
    assert first["EventEnqueuedUtcTime"] == "2026-01-01T00:00:01.0000000Z"
    assert (second["n"], second["PartitionId"]) == (1, "own")
    assert first["id"] != second["id"]
    assert run(sql, [{}])[0]["id"] == first["id"]


def test_an_input_read_with_two_times_is_two_inputs() -> None:
    sql = (
        "WITH x AS (SELECT k FROM a TIMESTAMP BY t), y AS (SELECT k FROM a TIMESTAMP BY S), z AS (SELECT k FROM a) "
        "SELECT k, System.Timestamp() AS at INTO out FROM x UNION SELECT k, System.Timestamp() AS at FROM y "
        "SELECT k, System.Timestamp() AS at INTO other FROM z SELECT COUNT(*) AS n INTO counted "
        "FROM a TIMESTAMP BY s GROUP BY TumblingWindow(minute, 1)"
    )
    of = program(sql)
    assert of.input_names == ("a", "a TIMESTAMP BY S", "a without TIMESTAMP BY")
    assert [of.source_of(name) for name in of.input_names] == ["a", "a", "a"]
    assert [of.has_event_time(name) for name in of.input_names] == [True, True, False]
    events = Events.of([{"k": 1, "t": "2026-01-01T00:00:09Z", "s": "2026-01-01T00:00:04Z"}])
    rows = run_log(of, {(name, "0"): events for name in of.input_names}, Policy.none())
    at = "2026-01-01T00:00:{}.0000000Z"
    assert [row for _, row in rows["out"]] == [{"k": 1, "at": at.format("04")}, {"k": 1, "at": at.format("09")}]
    assert [row for _, row in rows["other"]] == [{"k": 1, "at": at.format("01")}]
    assert [row for _, row in rows["counted"]] == [{"n": 1}]


def test_registered_functions() -> None:
    def half(value: Any) -> Any:
        return value / 2

    functions = {"udf.Half": half, "udf.answer": lambda: 42, "udf.bad": lambda value: object()}
    sql = "SELECT udf.half(v) AS h, udf.answer() AS a INTO out FROM a"
    of = program(sql, functions=functions)
    # NULL is None, which cannot be halved: that row is lost, and no other.
    assert run(of, [{"v": 3}, {"v": None}, {"v": "x"}, {"v": 5.0}]) == [{"h": 1.5, "a": 42}, {"h": 2.5, "a": 42}]
    assert run(program("SELECT udf.bad(v) AS b INTO out FROM a", functions=functions), [{"v": 1}]) == []
    with pytest.raises(UnsupportedQuery, match=r"udf\.other"):
        program("SELECT udf.other(v) AS o INTO out FROM a", functions=functions)


def test_what_groups_the_rows_of_a_partitioned_source_has_its_key() -> None:
    sql = "SELECT COUNT(*) AS n INTO out FROM a PARTITION BY PartitionId GROUP BY {}TumblingWindow(second, 3)"
    assert run(sql.format("partitionid, "), [{}]) == [{"n": 1}]
    with pytest.raises(QueryError, match="PartitionId"):
        program(sql.format(""))


def test_the_rows_before_are_those_of_the_own_partition_of_a_partitioned_source() -> None:
    of = program("SELECT v, LAG(v) OVER (LIMIT DURATION(second, 3)) AS b INTO out FROM a PARTITION BY PartitionId")
    logs = {
        partition: Events.of([{"v": v} for v in values]) for partition, values in {"0": (1, 2), "1": (3, 4)}.items()
    }
    keyed = KeyedSide(of)
    keyed.absorb(
        [task(of, "a", partition, log, Policy.none(), of.new_carry("a"))[0] for partition, log in logs.items()]
    )
    (result,) = keyed.emit(NO_TIME, of.complete_before(END_OF_TIME))
    assert sorted((row["v"], row["b"]) for row in result.to_dicts()) == [(1, None), (2, 1), (3, None), (4, 3)]


def test_a_partial_says_nothing_of_places_once_it_has_left_its_task() -> None:
    of = program("SELECT CAST(v AS bigint) AS v INTO out FROM a")
    partial, _ = task(of, "a", "0", Events.of([{"v": "x"}]), Policy.none(), of.new_carry("a"))
    assert [error.message for error in partial.errors] == ["a value cannot be converted to the type asked for"]
    assert pickle.loads(pickle.dumps(partial)).errors == []
