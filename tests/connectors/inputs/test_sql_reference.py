"""Reference data from a database: snapshots, changes, what a restart joins with, and what a database refuses."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints.postgres import postgres
from tidegate.blobs import BlobError
from tidegate.connectors.inputs.reference import References, reference_tables
from tidegate.connectors.inputs.sql_reference import SqlReferenceInput, SqlTables
from tidegate.connectors.model.errors import InputError
from tidegate.ordering import NO_TIME, TICKS_PER_SECOND, parse_time

START = parse_time("2026-01-01T00:00:00Z")
CHANGES = (
    "SELECT id, name, 1 AS _operation_ FROM zones WHERE since > @deltaStartTime AND since <= @deltaEndTime "
    "UNION ALL SELECT id, name, 2 FROM old WHERE until > @deltaStartTime AND until <= @deltaEndTime"
)


class Database:
    """Zones with the time since when they are so, and old ones with the time until when they were."""

    def __init__(self, address: str) -> None:
        self.address = address
        for table, column in (("zones", "since"), ("old", "until")):
            self.run(f"DROP TABLE IF EXISTS {table}")
            self.run(f"CREATE TABLE {table} (id int, name text, {column} {self.time_type})")

    @property
    def time_type(self) -> str:
        return "text" if self.address.startswith("sqlite") else "timestamptz"

    def run(self, statement: str) -> None:
        """Run a statement."""
        if self.address.startswith("sqlite"):
            with closing(sqlite3.connect(self.address.removeprefix("sqlite:///"))) as connection:
                connection.execute(statement)
                connection.commit()
            return
        import psycopg

        with psycopg.connect(self.address, autocommit=True) as connection_:
            connection_.execute(statement.encode())

    def put(self, number: int, name: str, second: int) -> None:
        """Give a zone a name from a second on."""
        at = f"2026-01-01T00:00:{second:02}.0000000Z"
        self.run(f"INSERT INTO old SELECT id, name, '{at}' FROM zones WHERE id = {number}")
        self.run(f"DELETE FROM zones WHERE id = {number}")
        self.run(f"INSERT INTO zones VALUES ({number}, '{name}', '{at}')")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as address:
        yield address


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.sdk)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        yield Database(f"sqlite:///{tmp_path / 'zones.db'}")
        return
    yield Database(request.getfixturevalue("server"))


def settings(database: Database, **more: Any) -> SqlReferenceInput:
    query = "SELECT id, name FROM zones ORDER BY id"
    return SqlReferenceInput.model_validate(
        {
            "type": "sql_reference",
            "connection_string": database.address,
            "snapshot_query": query,
            "refresh_s": 1e-9,
            **more,
        }
    )


def rows(tables: SqlTables) -> list[tuple[Any, ...]]:
    """The table that there is now."""
    ((blob, at),) = tables.find()
    assert at is None
    return [tuple(json.loads(line).values()) for line in tables.read_blob(blob).splitlines()]


def test_the_changes_lead_to_the_same_table_as_the_whole(database: Database) -> None:
    clock = iter(START + second * TICKS_PER_SECOND for second in range(5, 100, 10))
    times = list(clock)
    database.put(1, "a", 1)
    database.put(2, "b", 2)
    changed = SqlTables(settings(database, delta_query=CHANGES), iter(times).__next__)
    whole = SqlTables(settings(database), iter(times).__next__)
    assert rows(changed) == rows(whole) == [(1, "a"), (2, "b")]
    database.put(2, "B", 10)
    database.put(3, "c", 11)
    assert sorted(rows(changed)) == rows(whole) == [(1, "a"), (2, "B"), (3, "c")]
    assert sorted(rows(changed)) == rows(whole) == [(1, "a"), (2, "B"), (3, "c")]


def test_a_row_that_came_and_went_between_two_questions_is_not_in_the_table(tmp_path: Path) -> None:
    """Of two changes in one interval, a log of changes returns both; the row between them stayed beside the last."""
    database = Database(f"sqlite:///{tmp_path / 'zones.db'}")
    database.run("CREATE TABLE changes (id bigint, name text, operation bigint, at text)")
    log = "SELECT id, name, operation AS _operation_ FROM changes WHERE at BETWEEN @deltaStartTime AND @deltaEndTime"
    times = iter(START + second * TICKS_PER_SECOND for second in (5, 15, 25))
    database.put(1, "a", 1)
    tables = SqlTables(settings(database, delta_query=log), times.__next__)
    assert rows(tables) == [(1, "a")]
    for second, gone, came in ((10, "a", "b"), (11, "b", "c"), (20, "c", "d"), (21, "d", "c")):
        at = f"2026-01-01T00:00:{second:02}.0000000Z"
        database.run(f"INSERT INTO changes VALUES (1, '{gone}', 2, '{at}'), (1, '{came}', 1, '{at}')")
    assert rows(tables) == [(1, "c")]
    assert rows(tables) == [(1, "c")]


def test_the_same_answer_is_the_same_table(database: Database) -> None:
    database.put(1, "a", 1)
    tables = SqlTables(settings(database))
    ((first, _),) = tables.find()
    assert tables.find() == [(first, None)]
    database.put(1, "b", 2)
    assert tables.find() != [(first, None)]
    fixed = SqlTables(settings(database, refresh="never"))
    assert rows(fixed) == [(1, "b")]
    database.put(1, "c", 3)
    assert rows(fixed) == [(1, "b")]


def test_the_time_of_the_snapshot_is_a_parameter(database: Database) -> None:
    database.put(1, "a", 1)
    database.put(2, "b", 30)
    asked = SqlTables(
        settings(database, snapshot_query="SELECT id FROM zones WHERE since <= @SnapshotTime AND name LIKE '%'"),
        lambda: START + 10 * TICKS_PER_SECOND,
    )
    assert rows(asked) == [(1,)]


def test_a_restart_joins_with_the_snapshots_of_the_first_run(database: Database, tmp_path: Path) -> None:
    database.put(1, "a", 1)
    state = tmp_path / "state"
    state.mkdir()
    references = References({"Zones": settings(database)}, state)
    references.keep(state)
    (first,) = references.tables()["zones"]
    assert first.effective_ticks == NO_TIME
    database.put(1, "b", 2)
    assert references.refresh(not_before=START)
    before = references.tables()["zones"]
    assert [json.loads(one.bodies[0])["name"] for one in before] == ["a", "b"]
    assert before[1].effective_ticks > START
    database.run("DROP TABLE zones")
    assert not references.refresh(not_before=START)
    again = References({"Zones": settings(database)}, state).tables()["zones"]
    assert [(one.effective_ticks, one.bodies) for one in again] == [(one.effective_ticks, one.bodies) for one in before]


def test_what_the_database_refuses_is_said(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InputError, match=r"reference data 'Zones': .*(no such table|does not exist)"):
        References({"Zones": settings(database, snapshot_query="SELECT * FROM missing_zones")}, None)
    references = References({"Zones": settings(database)}, None)
    database.run("DROP TABLE zones")
    assert not references.refresh(not_before=START)
    assert "trying again" in caplog.text


def test_a_database_that_is_away_is_said_without_its_password() -> None:
    tables = SqlTables(
        SqlReferenceInput(
            type="sql_reference",
            connection_string="postgresql://me:pa55word@127.0.0.1:1/db",
            snapshot_query="SELECT 1",
        )
    )
    with pytest.raises(BlobError) as caught:
        tables.find()
    assert "pa55word" not in str(caught.value)


def test_another_kind_of_database_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected postgresql://… or sqlite:///…, got oracle:…"):
        SqlReferenceInput(type="sql_reference", connection_string="oracle://me:secret@h/x", snapshot_query="q")


def test_between_full_snapshots_only_changes_are_asked_for(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'zones.db'}")
    times = iter(START + second * TICKS_PER_SECOND for second in (5, 15, 25, 35))
    database.put(1, "a", 1)
    tables = SqlTables(settings(database, delta_query=CHANGES, full_refresh_s=30), times.__next__)
    assert rows(tables) == [(1, "a")]
    # A change that a slow transaction made visible after its time had been asked about.
    database.put(2, "b", 2)
    assert rows(tables) == [(1, "a")]
    assert rows(tables) == [(1, "a")]
    assert rows(tables) == [(1, "a"), (2, "b")]


def test_rows_in_another_order_are_the_same_table(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'zones.db'}")
    database.put(1, "a", 1)
    database.put(2, "b", 2)
    tables = SqlTables(settings(database, snapshot_query="SELECT id, name FROM zones"))
    first = tables.find()
    database.run("DELETE FROM zones WHERE id = 1")
    database.run("INSERT INTO zones VALUES (1, 'a', '2026-01-01T00:00:01.0000000Z')")
    assert tables.find() == first


def test_comments_and_texts_hold_no_parameters(database: Database) -> None:
    database.put(1, "a", 1)
    query = """-- as of @snapshotTime, or between @deltaStartTime and
    /* @deltaEndTime: 100 % */ SELECT id, '@snapshotTime -- %' AS name FROM zones WHERE since <= @snapshotTime;
    """
    tables = SqlTables(settings(database, snapshot_query=query), lambda: START + 10 * TICKS_PER_SECOND)
    assert rows(tables) == [(1, "@snapshotTime -- %")]


def test_a_table_that_is_never_refreshed_stays_over_restarts(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'zones.db'}")
    database.put(1, "a", 1)
    References({"Zones": settings(database, refresh="never")}, tmp_path).keep(tmp_path)
    database.put(1, "b", 2)
    again = References({"Zones": settings(database, refresh="never")}, tmp_path)
    assert not again.refresh(not_before=START)
    (table,) = again.tables()["zones"]
    assert json.loads(table.bodies[0])["name"] == "a"


def test_replaced_tables_are_kept_for_questions_about_earlier_rows(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'zones.db'}")
    zones = settings(database, keep_s=100)
    database.put(1, "a", 1)
    references = References({"Zones": zones}, tmp_path)
    references.keep(tmp_path)
    later = time.time_ns() // 100 + 1_000 * TICKS_PER_SECOND
    for number, name in enumerate("bcd"):
        database.put(1, name, 2 + number)
        since = later + 60 * number * TICKS_PER_SECOND
        assert references.refresh(not_before=since, needed_from=since)
        references = References({"Zones": zones}, tmp_path)
    names = {
        kind: [json.loads(one.bodies[0])["name"] for one in tables["zones"]]
        for kind, tables in (("needed", references.tables()), ("kept", reference_tables({"Zones": zones}, tmp_path)))
    }
    # The first one was replaced 120 seconds before the last time that a row could be joined.
    assert names == {"needed": ["d"], "kept": ["b", "c", "d"]}


@pytest.mark.sdk
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("array['2026-01-01T00:00:00Z'::timestamptz, NULL]", ["2026-01-01T00:00:00.0000000Z", None]),
        ("array[1.5::numeric]", [1.5]),
        ("array['40115936-f9fa-4071-9f09-4e4ea22526c2'::uuid]", ["40115936-f9fa-4071-9f09-4e4ea22526c2"]),
        ("'infinity'::timestamptz", "9999-12-31T23:59:59.9999999Z"),
        ("'-infinity'::timestamp", "0001-01-01T00:00:00.0000000Z"),
        ("'infinity'::date", "9999-12-31T23:59:59.9999999Z"),
        ("date '2026-01-02'", "2026-01-02"),
        ("'NaN'::float8", None),
        ("'NaN'::numeric", None),
        ("9223372036854775807::numeric", 9223372036854775807),
        ("9223372036854775808::numeric", 9223372036854775808.0),
    ],
)
def test_values_that_json_lacks_are_read(server: str, expression: str, expected: Any) -> None:
    """Arrays ended the job with a traceback, and a time without end made the database count as unavailable."""
    query = SqlReferenceInput.model_validate(
        {"type": "sql_reference", "connection_string": server, "snapshot_query": f"SELECT {expression} AS x"}
    )
    (found,) = References({"ref": query}, None).tables()["ref"]
    assert json.loads(found.bodies[0]) == {"x": expected}
    assert isinstance(json.loads(found.bodies[0])["x"], type(expected))


@pytest.mark.sdk
def test_an_infinite_number_is_no_traceback(server: str) -> None:
    query = SqlReferenceInput.model_validate(
        {"type": "sql_reference", "connection_string": server, "snapshot_query": "SELECT 'Infinity'::numeric AS x"}
    )
    with pytest.raises(InputError, match=r"row 1 .* cannot be used: .*Infinity"):
        References({"ref": query}, None)


def test_a_database_may_have_any_name_and_a_query_no_column_twice(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'zones#1 20%25?.db'}")
    database.run("INSERT INTO zones VALUES (1, 'a', '')")
    named = {"type": "sql_reference", "connection_string": database.address, "snapshot_query": "SELECT id FROM zones"}
    references = References({"ref": SqlReferenceInput.model_validate(named)}, None)
    assert [one.bodies for one in references.tables()["ref"]] == [(b'{"id": 1}',)]
    named["snapshot_query"] = "SELECT 1 AS id, 2 AS id"
    with pytest.raises(InputError, match="returns the column 'id' twice"):
        References({"ref": SqlReferenceInput.model_validate(named)}, None)
