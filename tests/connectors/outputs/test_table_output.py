"""Tables: columns and types, rows and mark in one transaction, and what a table cannot hold."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.checkpoints.postgres import postgres
from tests.connectors.outputs.kit import Destination, OutputContract
from tests.job.logs import prepared
from tests.job.rows import result_columns, result_rows
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs import (
    Identity,
    Mark,
    Output,
    OutputOpening,
    OutputUnavailableError,
    open_output,
    shape_of,
)
from tidegate.connectors.outputs.shape import OutputColumn, Shape
from tidegate.connectors.outputs.tables.mysql import MysqlOutput
from tidegate.connectors.outputs.tables.postgresql import PostgresqlOutput
from tidegate.connectors.outputs.tables.relational_output import RelationalOutput
from tidegate.connectors.outputs.tables.sqlite import SqliteOutput
from tidegate.engine import ResultRows
from tidegate.engine.values.vectors import Datetime
from tidegate.ordering import parse_time
from tidegate.sql.plan.nodes import Type

IDENTITY = Identity("job", "out", "journal")
NOON = Datetime(parse_time("2026-01-01T12:00:00.1234567Z"))
ANY = (OutputColumn("id", Type.BIGINT), OutputColumn("v", Type.FLOAT))
KINDS = ("sqlite", pytest.param("postgresql", marks=pytest.mark.sdk))


class Place:
    """A database with nothing in it, and the table `t` that the outputs of a test write to."""

    def __init__(self, kind: str, where: str) -> None:
        self.kind = kind
        self.where = where

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        if self.kind == "sqlite":
            connection = sqlite3.connect(self.where, isolation_level=None)
            try:
                return connection.execute(statement).fetchall()
            finally:
                connection.close()
        with self.connected() as connection_:
            cursor = connection_.cursor()
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def connected(self) -> Any:
        """A connection to a server."""
        if self.kind == "mysql":
            import pymysql

            socket = parse_qs(urlsplit(self.where).query)["unix_socket"][0]
            return pymysql.connect(user="root", unix_socket=socket, database="results", autocommit=True)
        import psycopg

        return psycopg.connect(self.where, autocommit=True)

    def opened(
        self, mark: Mark | None = None, shape: Shape | None = ANY, *, drop: bool = False, **settings: Any
    ) -> RelationalOutput:
        identity = settings.pop("identity", IDENTITY)
        if self.kind == "sqlite":
            definition: Any = SqliteOutput(type="sqlite", path=Path(self.where), table="t", **settings)
        elif self.kind == "mysql":
            definition = MysqlOutput(type="mysql", connection_string=self.where, table="t", **settings)
        else:
            definition = PostgresqlOutput(type="postgresql", connection_string=self.where, table="t", **settings)
        output = open_output(definition, OutputOpening(identity, mark, shape, drop))
        assert isinstance(output, RelationalOutput)
        return output


@pytest.fixture(scope="module")
def server() -> Iterator[Callable[[], str]]:
    """Gives the connection string of one PostgreSQL, which is started when it is first asked for."""
    with contextlib.ExitStack() as stack:
        started: list[str] = []

        def conninfo() -> str:
            if not started:
                started.append(stack.enter_context(postgres()))
            return started[0]

        yield conninfo


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, server: Callable[[], str]) -> Place:
    if request.param == "sqlite":
        return Place("sqlite", str(tmp_path / "results.db"))
    found = Place("postgresql", server())
    found.run("DROP TABLE IF EXISTS t; DROP TABLE IF EXISTS tidegate_outputs")
    return found


def test_a_table_is_made_as_the_query_tells_and_filled(place: Place) -> None:
    output = place.opened()
    output.write(result_columns({"id": [1, 2], "v": [0.5, None]}))
    assert place.run("SELECT * FROM t") == []
    mark = output.commit()
    assert mark == {"type": place.kind, "rows": 2, "dropped": 0}
    assert place.run("SELECT id, v FROM t ORDER BY id") == [(1, 0.5), (2, None)]
    assert place.run("SELECT job, output, journal, rows, dropped FROM tidegate_outputs") == [
        ("job", "out", "journal", 2, 0)
    ]


def test_rows_that_the_database_has_are_passed_over(place: Place) -> None:
    output = place.opened()
    before = output.commit()
    output.write(result_columns({"id": [1, 2, 3], "v": [1.0, 1.0, 1.0]}))
    output.commit()
    output.close()
    again = place.opened(before)
    again.write(result_columns({"id": [1, 2], "v": [1.0, 1.0]}))
    assert again.commit()["rows"] == 2
    again.write(result_columns({"id": [3, 4], "v": [1.0, 1.0]}))
    assert again.commit()["rows"] == 4
    assert place.run("SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,), (4,)]


def test_marks_that_do_not_go_together_are_told(place: Place) -> None:
    output = place.opened()
    output.write(result_columns({"id": [1, 2], "v": [1.0, 1.0]}))
    mark = output.commit()
    output.close()
    with pytest.raises(OutputError, match="has 2 results of output 'out' of job 'job' that no journal"):
        place.opened(None)
    with pytest.raises(OutputError, match=r"has 2 results .* but the journal committed 5"):
        place.opened({**mark, "rows": 5})
    with pytest.raises(OutputError, match="belongs to another journal"):
        place.opened(mark, identity=Identity("job", "out", "copied"))
    place.run("DELETE FROM tidegate_outputs")
    with pytest.raises(OutputError, match=r"mark .* is gone"):
        place.opened(mark)


def test_of_two_runs_at_once_one_ends(place: Place) -> None:
    one = place.opened()
    mark = one.commit()
    other = place.opened(mark)
    rows = result_columns({"id": [1], "v": [1.0]})
    one.write(rows)
    other.write(rows)
    one.commit()
    with pytest.raises(OutputError, match="was moved by another run"):
        other.commit()
    assert place.run("SELECT id FROM t") == [(1,)]


def test_a_later_row_takes_the_place_of_one_with_the_same_key(place: Place) -> None:
    output = place.opened(key=("ID",))
    output.write(result_columns({"id": [1, 2, 1], "v": [1.0, 2.0, 3.0]}))
    output.commit()
    output.write(result_columns({"id": [2], "v": [4.0]}))
    output.commit()
    assert place.run("SELECT id, v FROM t ORDER BY id") == [(1, 3.0), (2, 4.0)]


def test_a_key_needs_an_index_that_holds_rows_to_it(place: Place) -> None:
    place.run("CREATE TABLE t (id integer, v float)")
    with pytest.raises(OutputError, match="does not enforce unique id: create a unique index"):
        place.opened(key=("id",))
    place.run("CREATE UNIQUE INDEX one_id ON t (id)")
    output = place.opened(key=("id",))
    output.write(result_columns({"id": [1, 1], "v": [1.0, 2.0]}))
    output.commit()
    assert place.run("SELECT v FROM t") == [(2.0,)]
    place.run("DROP INDEX one_id")


def test_every_misfit_of_a_table_is_told_at_once(place: Place) -> None:
    place.run("CREATE TABLE t (id timestamp, other integer NOT NULL)")
    with pytest.raises(OutputError) as caught:
        place.opened(key=("k",))
    message = str(caught.value)
    assert "its column 'id' of type timestamp" in message
    assert "holds no bigint" in message
    assert "it has no column 'v'" in message
    assert "column 'other' does not accept NULL" in message
    assert "no column 'k' for the key" in message


def test_columns_of_a_table_there_is_match_without_case(place: Place) -> None:
    place.run('CREATE TABLE t ("Id" integer, v float, more integer DEFAULT 7)')
    output = place.opened()
    output.write(result_columns({"ID": [1], "V": [2.0]}))
    output.commit()
    assert place.run("SELECT * FROM t") == [(1, 2.0, 7)]


def test_rows_of_unknown_shape_go_to_the_columns_they_have(place: Place) -> None:
    with pytest.raises(OutputError, match=r"SELECT \* does not determine its columns"):
        place.opened(shape=None)
    output = place.opened(shape=None, columns={"a": "bigint", "b": "nvarchar(max)"}, drop=True)
    output.write(result_rows([{"a": 1}, {"b": "x", "a": 2}, {"c": 1}, {"B": "y"}]))
    mark = output.commit()
    assert (mark["rows"], mark["dropped"]) == (4, 1)
    assert place.run("SELECT a, b FROM t ORDER BY a IS NULL, a") == [(1, None), (2, "x"), (None, "y")]
    (refusal,) = output.drain_rejected_rows()
    assert refusal.kind == "OutputDataConversionError.ColumnNameInvalid"
    assert "no column 'c'" in refusal.message


def write_and_commit(output: RelationalOutput, rows: ResultRows) -> Mark:
    output.write(rows)
    return output.commit()


CONVERSION = "OutputDataConversionError.TypeConversionError"


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("whole", "text", CONVERSION),
        ("whole", 1.5, CONVERSION),
        ("small", 2**20, CONVERSION),
        ("number", "1.5", CONVERSION),
        ("truth", 2, CONVERSION),
        ("time", "yesterday", CONVERSION),
        ("needed", None, "OutputDataConversionError.RequiredColumnMissing"),
        ("single", 1, "OutputDataConversionError.DuplicateKey"),
    ],
)
def test_what_a_table_cannot_hold_is_left_out_or_stops_the_job(
    place: Place, column: str, value: Any, kind: str
) -> None:
    if place.kind == "sqlite" and column == "small":
        value = 2.5
    place.run(
        "CREATE TABLE t (whole bigint, small smallint, number float, truth boolean, time timestamp, "
        "needed integer NOT NULL, single integer UNIQUE)"
    )
    good = {"whole": 1, "small": 1, "number": 1.0, "truth": True, "time": NOON, "needed": 1, "single": 1}
    bad = {**good, "single": 2, column: value}
    rows = result_rows([good, bad, {**good, "single": 3}])
    stopping = place.opened(shape=None)
    mark = stopping.commit()
    with pytest.raises(OutputError, match=kind):
        write_and_commit(stopping, rows)
    stopping.close()
    assert place.run("SELECT * FROM t") == []
    output = place.opened(mark, shape=None, drop=True)
    output.write(rows)
    assert output.commit() == {"type": place.kind, "rows": 3, "dropped": 1}
    assert place.run("SELECT single FROM t ORDER BY single") == [(1,), (3,)]
    (refusal,) = output.drain_rejected_rows()
    assert (refusal.kind, refusal.row) == (kind, 1)
    output.close()
    # Rows that the database itself refused are known after a crash, too.
    again = place.opened(mark, shape=None, drop=True)
    again.write(rows)
    assert again.commit()["dropped"] == 1


@pytest.mark.sdk
def test_a_text_longer_than_its_column_exceeds_the_size(server: Callable[[], str]) -> None:
    place = Place("postgresql", server())
    place.run("DROP TABLE IF EXISTS t; DROP TABLE IF EXISTS tidegate_outputs; CREATE TABLE t (a varchar(3))")
    output = place.opened(shape=None, drop=True)
    output.write(result_rows([{"a": "long"}, {"a": "no\0"}, {"a": "fit"}]))
    assert output.commit()["dropped"] == 2
    kinds = [refusal.kind.partition(".")[2] for refusal in output.drain_rejected_rows()]
    assert kinds == ["RecordExceededSizeLimit", "TypeConversionError"]


def test_each_type_goes_into_each_column_that_can_hold_it(place: Place) -> None:
    place.run(
        "CREATE TABLE t (whole bigint, number float, texts text, texts2 text, texts3 text, truth boolean, "
        "time timestamp, words timestamp, nested json)"
    )
    output = place.opened(shape=None)
    output.write(
        result_rows(
            [
                {
                    "whole": 8.0,
                    "number": 7,
                    "texts": NOON,
                    "texts2": {"a": [1, NOON, None]},
                    "texts3": True,
                    "truth": 1,
                    "time": NOON,
                    "words": "2026-01-01T13:00:00+01:00",
                    "nested": [1, {"a": True}],
                }
            ]
        )
    )
    output.commit()
    (row,) = place.run("SELECT * FROM t")
    noon = "2026-01-01T12:00:00.1234567Z"
    assert row[:5] == (8, 7.0, noon, f'{{"a":[1,"{noon}",null]}}', "true")
    if place.kind == "sqlite":
        assert row[5:] == (1, noon, "2026-01-01T12:00:00.0000000Z", '[1,{"a":true}]')
    else:
        assert row[5:] == (True, datetime(2026, 1, 1, 12, 0, 0, 123456), datetime(2026, 1, 1, 12), [1, {"a": True}])


@pytest.mark.sdk
def test_postgresql_wants_to_know_the_types_of_a_table_it_makes(server: Callable[[], str]) -> None:
    place = Place("postgresql", server())
    place.run("DROP TABLE IF EXISTS t; DROP TABLE IF EXISTS tidegate_outputs")
    shape = (OutputColumn("k", Type.ANY), OutputColumn("Ts", Type.DATETIME))
    with pytest.raises(
        OutputError, match=r'does not determine the types of k: .*columns = \{ k = "nvarchar\(max\)" \}'
    ):
        place.opened(shape=shape)
    output = place.opened(shape=shape, columns={"K": "nvarchar(max)"})
    output.write(result_columns({"k": ["a"], "Ts": [NOON]}))
    output.commit()
    assert place.run("SELECT k, ts FROM t") == [("a", datetime(2026, 1, 1, 12, 0, 0, 123456, UTC))]


@pytest.mark.sdk
def test_a_connection_that_breaks_is_made_anew(server: Callable[[], str]) -> None:
    place = Place("postgresql", server())
    place.run("DROP TABLE IF EXISTS t; DROP TABLE IF EXISTS tidegate_outputs")
    output = place.opened()
    output.write(result_columns({"id": [1], "v": [1.0]}))
    others = "pid <> pg_backend_pid() AND datname IS NOT NULL"
    place.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
    with pytest.raises(OutputUnavailableError, match="PostgreSQL"):
        output.commit()
    assert output.commit()["rows"] == 1
    assert place.run("SELECT id FROM t") == [(1,)]


@pytest.mark.sdk
def test_a_database_that_is_not_there_is_told_without_the_password() -> None:
    with pytest.raises(OutputError) as caught:
        Place("postgresql", "postgresql://me:sEcReT@127.0.0.1:1/nowhere").opened()
    assert "sEcReT" not in str(caught.value)
    with pytest.raises(OutputError, match="is not one that PostgreSQL reads") as caught:
        Place("postgresql", "password sEcReT").opened()
    assert "sEcReT" not in str(caught.value)


def test_an_attempt_whose_answer_was_lost_is_not_made_twice(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    output = place.opened()
    database = output._database
    write = database.write

    def write_and_lose_the_answer(*arguments: Any) -> Any:
        write(*arguments)
        raise OutputUnavailableError("gone")

    monkeypatch.setattr(database, "write", write_and_lose_the_answer)
    output.write(result_columns({"id": [1], "v": [1.0]}))
    with pytest.raises(OutputUnavailableError):
        output.commit()
    monkeypatch.setattr(database, "write", write)
    assert output.commit()["rows"] == 1
    output.write(result_columns({"id": [2], "v": [1.0]}))
    output.commit()
    assert place.run("SELECT id FROM t ORDER BY id") == [(1,), (2,)]


def test_a_locked_database_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.connectors.outputs.tables.sqlite._WAIT_FOR_WRITERS_S", 0.02)
    place = Place("sqlite", str(tmp_path / "results.db"))
    output = place.opened()
    output.write(result_columns({"id": [1], "v": [1.0]}))
    other = sqlite3.connect(place.where, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(OutputUnavailableError, match="locked"):
        output.commit()
    threading.Timer(0.05, other.execute, ["COMMIT"]).start()
    while True:
        try:
            output.commit()
            break
        except OutputUnavailableError:
            time.sleep(0.01)
    assert place.run("SELECT id FROM t") == [(1,)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * INTO out FROM i", None),
        ("SELECT a, CAST(b AS float) AS b INTO out FROM i", [("a", Type.ANY), ("b", Type.FLOAT)]),
        (
            "SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, AVG(v) AS mean, MAX(v) AS top INTO out "
            "FROM i TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 5) HAVING COUNT(*) > 1",
            [
                ("ts", Type.DATETIME),
                ("k", Type.ANY),
                ("n", Type.BIGINT),
                ("mean", Type.FLOAT),
                ("top", Type.ANY),
            ],
        ),
        (
            "WITH s AS (SELECT CAST(a AS bigint) AS a, b FROM i) SELECT A, UPPER(b) AS u, 'x' AS c, b INTO out FROM s",
            [("A", Type.BIGINT), ("u", Type.NVARCHAR), ("c", Type.NVARCHAR), ("b", Type.ANY)],
        ),
    ],
)
def test_what_a_query_tells_of_its_columns(query: str, expected: list[tuple[str, Type]] | None) -> None:
    shape = shape_of(prepared(query).query.outputs[0].relation)
    assert (None if shape is None else [(column.name, column.type) for column in shape]) == expected


class _Table:
    def __init__(self, place: Place) -> None:
        self._place = place

    def open_at(self, mark: Mark | None) -> Output:
        return self._place.opened(mark, (OutputColumn("n", Type.BIGINT),))

    def numbers(self) -> list[int]:
        return [number for (number,) in self._place.run("SELECT n FROM t ORDER BY n")]


class TestContract(OutputContract):
    @pytest.fixture
    def destination(self, place: Place) -> Destination:
        return _Table(place)
