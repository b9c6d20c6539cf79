"""The plan of a query as people and programs see it: what is read, what is kept, for whom and for how long."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType

import pytest

from tests.sql.compiling import compile_query
from tidegate.cli import main
from tidegate.connectors.outputs.shape import shape_of
from tidegate.engine import Program
from tidegate.job.analysis.query_plan import plan_of, spoken

STEPS = """
WITH counted AS (
  SELECT zone, COUNT(*) AS cars, System.Timestamp() AS t
  FROM Rides TIMESTAMP BY at
  WHERE note <> 'key 0'
  GROUP BY zone, HoppingWindow(minute, 10, 1)
  HAVING COUNT(*) > 2
)
SELECT zone, cars, LAG(cars) OVER (PARTITION BY zone LIMIT DURATION(hour, 5)) AS before INTO changes FROM counted
SELECT C.zone, Z.name INTO named FROM counted C JOIN Zones Z ON Z.zone = C.zone
"""


def test_a_plan_is_a_tree_with_what_is_read_and_kept() -> None:
    text = plan_of(compile_query(STEPS, reference_inputs=["Zones"])).text()
    assert (
        text
        == """\
compatibility level 1.2
looks back 5 h 10 min: a result depends on no event older than that, and a restart reads from there

output changes
└─ select zone = counted.zone, cars = counted.cars, before = lag(counted.cars)
   └─ over counted: lag(counted.cars) 1 back by counted.zone within 5 h
      │  runs in parallel by counted.zone
      │  keeps counted.cars of the last row of each counted.zone, for 5 h
      └─ step counted as counted
         └─ select zone = Rides.zone, cars = count(*), t = time
            └─ filter greater(count(*), 2)
               └─ group by Rides.zone in hopping(10 min, hop 1 min): count(*)
                  │  runs in parallel by Rides.zone
                  │  keeps a count for each Rides.zone and pane, 10 panes a window; rows are not kept
                  └─ filter not_equal(Rides.note, 'key 0')
                     └─ input Rides as Rides timestamp by at
                           reads at, zone, note

output named
└─ select zone = C.zone, name = Z.name
   └─ inner reference join on C.zone = Z.zone
      ├─ step counted as C (above)
      └─ reference Zones as Z
            reads name, zone
            keeps the whole table, and earlier ones while rows may still need them"""
    )


@pytest.mark.parametrize(
    ("sql", "kept"),
    [
        ("SELECT * INTO o FROM i", ["o: the rows, until the watermark passes"]),
        (
            "SELECT k, COUNT(*), SUM(v), AVG(v), MIN(v), STDEV(v) INTO o FROM i GROUP BY k, j, TumblingWindow(day, 7)",
            [
                "o: a count, an exact sum, the least value and two exact sums for each i.k and i.j and open window; "
                "rows are not kept"
            ],
        ),
        (
            "SELECT COUNT(DISTINCT v), Collect(v) INTO o FROM i GROUP BY TumblingWindow(day, 7)",
            ["o: the different values of i.v and all of i.v for each open window"],
        ),
        (
            "SELECT PERCENTILE_CONT(0.9) OVER (ORDER BY v) AS p INTO o FROM i GROUP BY k, HoppingWindow(minute, 60, 1)",
            [
                "o: the different values of i.v for each i.k and pane, 60 panes a window; each window merges its panes "
                "again"
            ],
        ),
        (
            "SELECT COUNT(DISTINCT v) AS n INTO o FROM i GROUP BY k, HoppingWindow(minute, 60, 1)",
            ["o: the different values of i.v for each i.k and pane, 60 panes a window"],
        ),
        (
            "SELECT COUNT(*) INTO o FROM i TIMESTAMP BY t GROUP BY SlidingWindow(second, 90)",
            ["o: the keys and arguments of the rows, for 90 s"],
        ),
        (
            "SELECT k, COUNT(*) INTO o FROM i TIMESTAMP BY t GROUP BY k, SessionWindow(second, 5, 60)",
            ["o: the keys and arguments of the rows of each i.k, for 2 min"],
        ),
        (
            "SELECT a.v INTO o FROM a TIMESTAMP BY t LEFT JOIN b TIMESTAMP BY t ON a.k = b.k "
            "AND DATEDIFF(second, a, b) BETWEEN 0 AND 29",
            [
                "o: the rows of its left side of each a.k, for 30 s",
                "o: the rows of its right side of each b.k, for 1 s",
            ],
        ),
        (
            "SELECT SUM(v) OVER (PARTITION BY k LIMIT DURATION(minute, 1) WHEN v > 0) AS s INTO o FROM i",
            ["o: i.v of the rows for which greater(i.v, 0), for sum of each i.k, for 1 min"],
        ),
        (
            "SELECT ISFIRST(minute, 5) OVER (PARTITION BY k) AS f INTO o FROM i",
            ["o: the time of the first row of each i.k, for 5 min"],
        ),
        (
            "SELECT k, COUNT(*) INTO o FROM i GROUP BY k, "
            "Windows(Window('a', TumblingWindow(minute, 5)), Window('b', HoppingWindow(minute, 5, 1)))",
            [
                "o: a count for each i.k and open window; rows are not kept",
                "o: a count for each i.k and pane, 5 panes a window; rows are not kept",
            ],
        ),
    ],
)
def test_what_a_query_keeps_is_said(sql: str, kept: list[str]) -> None:
    assert [line for line in plan_of(compile_query(sql)).kept() if "until the watermark" not in line or len(kept) == 1][
        : len(kept)
    ] == kept


@pytest.mark.parametrize(
    ("ticks", "text"),
    [
        (0, "0 s"),
        (864_000_000_000, "1 d"),
        (468_000_020_000, "13 h 2 ms"),
        (90_000_000, "9 s"),
        (600_000_001, "1 min 1 ticks"),
    ],
)
def test_durations_are_spoken_in_all_their_units(ticks: int, text: str) -> None:
    assert spoken(ticks) == text


def test_a_registered_aggregate_keeps_its_state_only_if_states_merge() -> None:
    class Merging:
        def merge(self, other: object) -> None:
            """Take up the other."""

    query = compile_query("SELECT uda.best(v) AS b INTO o FROM i GROUP BY TumblingWindow(day, 1)")
    assert plan_of(query, {"uda.Best": Merging}).kept()[0].startswith("o: the state of uda.best for each open window")
    assert plan_of(query).kept()[0].startswith("o: i.v for uda.best for each open window")


def test_as_json_it_says_where_each_step_is_computed() -> None:
    shown = plan_of(compile_query(STEPS, reference_inputs=["Zones"])).as_json()
    assert shown["lookbackSeconds"] == 5 * 3600 + 600
    changes, named = shown["outputs"]
    assert (changes["output"], changes["where"]) == ("changes", "shard")
    over = changes["sources"][0]
    (memory,) = over["keeps"]
    assert (memory["forEach"], memory["seconds"], memory["growsWith"]) == (["counted.zone"], 18000, "rows")
    assert named["sources"][0]["sources"][0]["repeated"] is True
    grouping = over["sources"][0]["sources"][0]["sources"][0]["sources"][0]
    assert grouping["step"].startswith("group by Rides.zone")
    assert (grouping["where"], grouping["sources"][0]["where"]) == ("shard", "task")
    assert grouping["sources"][0]["sources"][0]["reads"] == ["at", "zone", "note"]


def tidegate(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run the command here: its exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as left:
        main(["job", "explain-plan", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return left.value.code, out, err


def test_what_is_doubtful_is_said() -> None:
    shown = plan_of(compile_query("SELECT k FROM i WHERE k = NULL"))
    assert shown.text().endswith("doubtful:\n  line 1, column 23: a comparison with NULL is never true")
    assert [doubt["column"] for doubt in shown.as_json()["doubts"]] == [23]


def test_the_command_takes_a_query_or_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = tmp_path / "query.asaql"
    query.write_text(STEPS, encoding="utf-8-sig")
    code, out, _ = tidegate(capsys, "--query", query, "--reference", "Zones")
    assert (code, out.splitlines()[1].partition(":")[0]) == (0, "looks back 5 h 10 min")
    job = tmp_path / "job.toml"
    job.write_text(
        'name = "j"\nquery = "SELECT * INTO o FROM i"\n[inputs.i]\ntype = "recorded"\npath = "x"\n', encoding="utf-8"
    )
    code, out, _ = tidegate(capsys, job)
    assert (code, out.splitlines()[0][:3]) == (0, "j: ")
    code, out, _ = tidegate(capsys, job, "-o", "json")
    assert json.loads(out)["outputs"][0]["output"] == "o"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "give one of"),
        (["job.toml", "--query", "x"], 2, "give one of"),
        (["job.toml", "--reference", "x"], 2, "--reference is for --query"),
        (["--query", "nowhere.asaql"], 1, "No such file"),
    ],
)
def test_what_cannot_be_shown_is_said(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    left, _, err = tidegate(capsys, *arguments)
    assert (left, said in err) == (code, True), err


def test_a_query_that_is_wrong_is_shown_with_its_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = tmp_path / "query.asaql"
    query.write_text("SELECT COUNT(*) INTO o FROM i GROUP BY TumblingWindow(hour)")
    code, _, err = tidegate(capsys, "--query", query)
    assert code == 1
    assert "line 1" in err
    query.write_bytes(b"\xff\xfe")
    code, _, err = tidegate(capsys, "--query", query)
    assert (code, "not UTF-8" in err) == (1, True)


_DOUBLINGS = {
    "union": "SELECT a, b FROM s{0} UNION SELECT b AS a, a AS b FROM s{0}",
    "columns": "SELECT a, b FROM s{0} WHERE a > b",
    "join": "SELECT l.*, r.* FROM s{0} AS l LEFT JOIN s{0} r ON DATEDIFF(second, l, r) BETWEEN 0 AND 1 AND l.a = r.a",
    "windows": "SELECT a, MAX(b) AS b FROM s{0} GROUP BY a, TumblingWindow(second, 1) UNION SELECT a, b FROM s{0}",
    "earlier rows": "SELECT a, LAG(b) OVER (LIMIT DURATION(second, 1)) AS b FROM s{0} UNION SELECT a, b FROM s{0}",
}


@pytest.mark.parametrize("step", _DOUBLINGS.values(), ids=_DOUBLINGS)
def test_a_step_that_is_read_twice_is_planned_once(step: str) -> None:
    """The work for n steps, each of which reads the one before twice, grows with n and not with 2 ** n."""
    assert _calls_for(step, 8) < 6 * _calls_for(step, 4)


def _calls_for(step: str, steps: int) -> int:
    """Return how many functions are called to compile, plan and prepare a query."""
    made = [f"s{number + 1} AS ({step.format(number)})" for number in range(steps)]
    sql = f"WITH s0 AS (SELECT a, b FROM input), {', '.join(made)} SELECT a, b INTO output FROM s{steps}"
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        query = compile_query(sql)
        plan_of(query).as_json()
        Program.prepare(query)
        shape_of(query.outputs[0].relation)
    finally:
        sys.setprofile(None)
    return calls
