"""Reference data: each row meets the tables effective at its own time."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.streams import SECOND, START, Events, run_log
from tidegate.engine import CATALOG, Program, TableVersion, UnsupportedQuery
from tidegate.ordering import NO_TIME, Policy, format_time
from tidegate.sql import compile_query

JOINED = "SELECT a.k, r.name INTO out FROM a JOIN r ON a.k = r.k"


def prepared(sql: str, **tables: list[TableVersion]) -> Program:
    query = compile_query(sql, reference_inputs=list(tables), catalog=CATALOG)
    program: Program = pickle.loads(pickle.dumps(Program.prepare(query, tables)))
    return program


def table(rows: list[dict[str, Any]], effective_ticks: int = NO_TIME) -> TableVersion:
    return TableVersion(tuple(json.dumps(row).encode() for row in rows), effective_ticks)


def rows_of(of: Program, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for _, row in run_log(of, {("a", "0"): Events.of(bodies)}, Policy.none()).get("out", [])]


NAMES = [table([{"k": 1, "Name": "one"}, {"k": 1, "name": "first"}, {"k": "2", "name": "two"}, {"k": None}])]


def test_rows_meet_by_key_in_the_order_of_the_table() -> None:
    rows = rows_of(prepared(JOINED, r=NAMES), [{"k": 2}, {"k": 1}, {"k": 3}, {"k": None}, {}])
    assert rows == [{"k": 2, "name": "two"}, {"k": 1, "name": "one"}, {"k": 1, "name": "first"}]


def test_a_left_join_keeps_rows_without_a_partner_in_their_place() -> None:
    of = prepared(JOINED.replace("JOIN", "LEFT JOIN"), r=NAMES)
    assert rows_of(of, [{"k": 3}, {"k": 2}, {"k": None}]) == [
        {"k": 3, "name": None},
        {"k": 2, "name": "two"},
        {"k": None, "name": None},
    ]


def test_an_empty_table_meets_nothing() -> None:
    assert rows_of(prepared(JOINED, r=[table([])]), [{"k": 1}]) == []
    outer = JOINED.replace("r.name", "r.*").replace("JOIN", "LEFT JOIN")
    assert rows_of(prepared(outer, r=[table([])]), [{"k": 1}]) == [{"k": 1}]


def test_every_row_meets_every_row_where_on_is_always_true() -> None:
    of = prepared("SELECT a.k AS one, r.k AS other INTO out FROM a JOIN r ON 1 = 1", r=NAMES)
    assert [row["other"] for row in rows_of(of, [{"k": 7}])] == [1, 1, "2", None]


def test_the_rest_of_on_is_asked_of_each_pair() -> None:
    sql = "SELECT a.v, r.low INTO out FROM a JOIN r ON a.k = r.k AND a.v >= r.low"
    of = prepared(sql, r=[table([{"k": "x", "low": 3}, {"k": "x", "low": 5}, {"k": "x", "low": "low"}])])
    assert rows_of(of, [{"k": "X", "v": 4}]) == [{"v": 4, "low": 3}]


def test_a_table_may_be_joined_in_several_places() -> None:
    """Under one name, too: in another output, and again in the same."""
    of = prepared(
        JOINED
        + " SELECT a.k, r.name INTO other FROM a LEFT JOIN r ON a.k = r.k"
        + " SELECT b.k, r.name INTO third FROM (SELECT a.k FROM a JOIN r ON a.k = r.k WHERE r.name = 'one') AS b"
        + " JOIN r ON b.k = r.k",
        r=NAMES,
    )
    found = run_log(of, {("a", "0"): Events.of([{"k": 1}, {"k": 3}])}, Policy.none())
    names = {output: [row["name"] for _, row in rows] for output, rows in found.items()}
    assert names == {"out": ["one", "first"], "other": ["one", "first", None], "third": ["one", "first"]}


def test_steps_over_reference_data() -> None:
    sql = (
        "WITH active AS (SELECT k, name FROM r WHERE name <> 'one') "
        "SELECT a.k, s.name, t.name AS other INTO out FROM a JOIN active s ON a.k = s.k LEFT JOIN r t "
        "ON s.name = t.name"
    )
    assert rows_of(prepared(sql, r=NAMES), [{"k": 1}, {"k": 2}]) == [
        {"k": 1, "name": "first", "other": "first"},
        {"k": 2, "name": "two", "other": "two"},
    ]


def test_results_of_windows_meet_reference_data() -> None:
    sql = (
        "WITH c AS (SELECT k, COUNT(*) AS n FROM a GROUP BY k, TumblingWindow(second, 2)) "
        "SELECT r.name, n, System.Timestamp() AS t INTO out FROM c JOIN r ON c.k = r.k"
    )
    rows = rows_of(prepared(sql, r=NAMES), [{"k": 2}, {"k": 2}, {"k": 2}])
    assert [(row["name"], row["n"], row["t"]) for row in rows] == [
        ("two", 2, format_time(START + 2 * SECOND)),
        ("two", 1, format_time(START + 4 * SECOND)),
    ]


@given(st.lists(st.integers(0, 8), max_size=3, unique=True), st.lists(st.integers(0, 8), max_size=6))
def test_the_snapshot_is_that_of_the_rows_time(changes: list[int], seconds: list[int]) -> None:
    snapshots = [table([{"k": 1, "name": str(change)}], START + change * SECOND) for change in changes]
    of = prepared(JOINED.replace("JOIN", "LEFT JOIN"), r=snapshots)
    times = sorted(START + second * SECOND for second in seconds)
    rows = run_log(of, {("a", "0"): Events.of([{"k": 1}] * len(times), times)}, Policy.none()).get("out", [])
    expected = [max((change for change in changes if START + change * SECOND <= time), default=None) for time in times]
    assert [row["name"] for _, row in rows] == [None if change is None else str(change) for change in expected]


def test_declared_columns_are_asked_of_tables_too() -> None:
    sql = "CREATE TABLE r(k bigint, name nvarchar(max)); " + JOINED
    assert rows_of(prepared(sql, r=[table([{"k": 1}, {"k": 1, "name": "one"}])]), [{"k": 1}]) == [
        {"k": 1, "name": "one"}
    ]


def test_a_table_must_be_there() -> None:
    query = compile_query(JOINED, reference_inputs=["r"], catalog=CATALOG)
    with pytest.raises(UnsupportedQuery, match="the reference data r does not exist"):
        Program.prepare(query)
