"""Tables whose rows executors write: each row once, whatever happens to an attempt, a step or the job's process."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints.postgres import postgres
from tests.connectors.outputs.encoding import run_with_deaths
from tests.connectors.outputs.test_table_output import ANY, IDENTITY, Place
from tests.job.rows import result_columns
from tests.job.run.test_run import run_here, write_job
from tests.mariadb import mariadb
from tidegate.connectors.model.encoded_rows import EncodedPiece, EncodedRows, RunsEncoder
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs import Output, OutputOpening, OutputUnavailableError, open_output
from tidegate.connectors.outputs.shape import OutputColumn
from tidegate.connectors.outputs.tables import relational_output, relational_table
from tidegate.connectors.outputs.tables.postgresql import PostgresqlOutput
from tidegate.connectors.outputs.tables.relational_output import RelationalOutput
from tidegate.connectors.outputs.tables.sqlite import SqliteOutput
from tidegate.engine import ResultRows
from tidegate.sql.plan.nodes import Type

pytestmark = pytest.mark.sdk
NAMED = (OutputColumn("id", Type.BIGINT), OutputColumn("v", Type.NVARCHAR))
STAGED = "SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'tidegate_staged%'"
STAGES = {
    "postgresql": "tidegate.connectors.outputs.tables.postgresql.PostgresqlTable.stage",
    "mysql": "tidegate.connectors.outputs.tables.mysql.MysqlTable.stage",
}


@pytest.fixture(scope="module")
def postgresql_server() -> Iterator[str]:
    with postgres() as conninfo:
        yield conninfo


@pytest.fixture(scope="module")
def mysql_server() -> Iterator[str]:
    with mariadb() as address:
        yield address


@pytest.fixture(params=["postgresql", "mysql"])
def place(request: pytest.FixtureRequest) -> Place:
    found = Place(request.param, request.getfixturevalue(f"{request.param}_server"))
    for table in ("t", "tidegate_outputs"):
        found.run(f"DROP TABLE IF EXISTS {table}")
    return found


def ids(*numbers: int) -> ResultRows:
    return result_columns({"id": list(numbers), "v": [float(number) for number in numbers]})


def staged(output: RelationalOutput, *shares: list[tuple[int, ResultRows]]) -> EncodedRows:
    """What writers return for their stretches, in the order of these."""
    answers: dict[int, tuple[int, bytes]] = {}
    for share in shares:
        encoder = pickle.loads(pickle.dumps(output.encoder()))
        assert isinstance(encoder, RunsEncoder)
        contents = encoder.encode_runs(share)
        answers |= {number: (len(rows), content) for (number, rows), content in zip(share, contents, strict=True)}
    ordered = [answers[number] for number in sorted(answers)]
    pieces = tuple(EncodedPiece(len(content), content=content) for _, content in ordered)
    return EncodedRows("out", sum(count for count, _ in ordered), 0, pieces)


def mark_of(place: Place) -> tuple[int, int]:
    ((_, _, _, rows, dropped),) = place.run("SELECT * FROM tidegate_outputs")
    return rows, dropped


def test_rows_of_writers_and_the_mark_are_one_transaction(place: Place) -> None:
    output = place.opened()
    output.write_encoded(staged(output, [(0, ids(1, 2)), (2, ids(4))], [(1, ids(3))]))
    assert place.run("SELECT * FROM t") == []
    assert output.commit() == {"type": place.kind, "rows": 4, "dropped": 0}
    assert place.run("SELECT id, v FROM t ORDER BY id") == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    assert mark_of(place) == (4, 0)
    assert place.run(STAGED) == []
    output.close()


def test_an_attempt_that_no_answer_names_has_no_effect(place: Place) -> None:
    output = place.opened()
    for _ in range(2):
        staged(output, [(0, ids(1, 2))])
    output.write_encoded(staged(output, [(0, ids(1, 2))]))
    output.commit()
    assert place.run("SELECT id FROM t ORDER BY id") == [(1,), (2,)]
    assert len(place.run(STAGED)) == 2
    output.close()
    assert place.run(STAGED) == []


def test_a_run_that_ends_before_it_commits_leaves_nothing(place: Place) -> None:
    output = place.opened()
    output.write_encoded(staged(output, [(0, ids(1))]))
    mark = output.commit()
    output.write_encoded(staged(output, [(0, ids(2, 3))]))
    # It is killed here: nothing is closed.
    again = place.opened(mark)
    assert place.run(STAGED) == []
    again.write_encoded(staged(again, [(0, ids(2, 3))]))
    again.commit()
    assert place.run("SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,)]
    with pytest.raises(OutputError, match="another run of this job"):
        output.commit()
    assert place.run("SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,)]
    again.close()
    output.close()


def test_a_staging_table_that_is_being_written_is_left_for_a_later_run(place: Place) -> None:
    output = place.opened()
    staged(output, [(0, ids(1))])
    ((name,),) = place.run(STAGED)
    with place.connected() as connection:
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT * FROM {name}")
        output.close()
        assert place.run(STAGED) == [(name,)]
    place.opened().close()
    assert place.run(STAGED) == []


def test_rows_that_the_table_has_come_through_the_driver(place: Place) -> None:
    output = place.opened()
    before = output.commit()
    output.write_encoded(staged(output, [(0, ids(1, 2, 3))]))
    output.commit()
    output.close()
    again = place.opened(before)
    assert again.encoder() is None
    again.write(ids(1, 2))
    assert again.encoder() is None
    again.write(ids(3, 4))
    again.write_encoded(staged(again, [(0, ids(5))]))
    again.commit()
    again.close()
    assert place.run("SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,), (4,), (5,)]


def test_of_one_key_the_last_row_stays_whoever_wrote_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    output = place.opened(key=("id",))

    def rows(*pairs: tuple[int, float]) -> ResultRows:
        return result_columns({"id": [one for one, _ in pairs], "v": [value for _, value in pairs]})

    first = staged(output, [(0, rows((1, 1.0), (2, 1.0))), (2, rows((1, 3.0)))], [(1, rows((1, 2.0), (1, 2.5)))])
    output.write_encoded(first)
    monkeypatch.setattr(STAGES[place.kind], unreachable)
    later = staged(output, [(0, rows((2, 4.0)))])
    monkeypatch.undo()
    last = staged(output, [(1, rows((2, 5.0), (3, 5.0)))])
    output.write_encoded(EncodedRows("out", 3, 0, later.pieces + last.pieces))
    assert output.commit()["rows"] == 8
    assert place.run("SELECT id, v FROM t ORDER BY id") == [(1, 3.0), (2, 5.0), (3, 5.0)]
    output.close()


def unreachable(*_: Any) -> Any:
    raise OutputUnavailableError("no route to host")


def test_an_executor_that_cannot_reach_the_database_returns_the_rows(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = place.opened()
    with monkeypatch.context() as patch:
        patch.setattr(STAGES[place.kind], unreachable)
        output.write_encoded(staged(output, [(0, ids(1, 2))]))
    assert output.encoder() is None
    monkeypatch.setattr(relational_output, "_PAUSE_S", 0)
    output._not_before = 0.0
    output.write_encoded(staged(output, [(0, ids(3))]))
    assert output.commit()["rows"] == 3
    assert place.run("SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,)]
    output.close()


def test_a_connection_that_the_database_has_closed_is_made_again(place: Place) -> None:
    output = place.opened()
    output.write_encoded(staged(output, [(0, ids(1))]))
    output.commit()
    if place.kind == "postgresql":
        place.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    else:
        for (number,) in place.run("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()"):
            place.run(f"KILL {number}")
    output.write_encoded(staged(output, [(0, ids(2))]))
    assert output.encoder() is not None
    with pytest.raises(OutputUnavailableError):
        output.commit()
    output.commit()
    assert place.run("SELECT id FROM t ORDER BY id") == [(1,), (2,)]
    output.close()


@pytest.mark.parametrize("drop", [False, True])
def test_rows_that_the_database_rejects_have_their_numbers(place: Place, drop: bool) -> None:
    """The columns' types reject rows as they are staged, other demands as they are moved."""
    place.run("CREATE TABLE t (id bigint CHECK (id <> 4), v varchar(3))")

    def rows(*pairs: tuple[int, str]) -> ResultRows:
        return result_columns({"id": [one for one, _ in pairs], "v": [value for _, value in pairs]})

    output = place.opened(shape=NAMED, drop=drop)
    output.write(rows((0, "a")))
    encoded = staged(output, [(0, rows((1, "a"), (2, "long"))), (3, rows((5, "b")))], [(1, rows((3, "c"), (4, "d")))])
    if not drop:
        with pytest.raises(OutputError, match=r'cannot hold the result .*RecordExceededSizeLimit.*"long"'):
            output.write_encoded(encoded)
        other = place.opened(shape=NAMED)
        other.write_encoded(staged(other, [(0, rows((4, "d"), (5, "e")))]))
        with pytest.raises(OutputError, match=r'cannot hold the result .*TypeConversionError.*"d"'):
            other.commit()
        assert place.run("SELECT * FROM t") == []
        return
    output.write_encoded(encoded)
    mark = output.commit()
    assert (mark["rows"], mark["dropped"]) == (6, 2)
    assert [(row.row, row.kind.rpartition(".")[2]) for row in output.drain_rejected_rows()] == [
        (2, "RecordExceededSizeLimit"),
        (4, "TypeConversionError"),
    ]
    assert place.run("SELECT id FROM t ORDER BY id") == [(0,), (1,), (3,), (5,)]
    assert mark_of(place) == (6, 2)
    output.close()


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_a_row_that_a_trigger_or_an_index_refuses_is_left_out(place: Place) -> None:
    """One such row ended the job, with output_error_policy = "drop" too."""
    place.run("CREATE TABLE t (id bigint, v text); CREATE INDEX ON t (v)")
    place.run(
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF NEW.id = 2 THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NEW; END $$"
    )
    place.run("CREATE TRIGGER refusing BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION refuse()")
    incompressible = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(4000))
    output = place.opened(shape=NAMED, drop=True)
    output.write(result_columns({"id": [1, 2, 3, 4], "v": ["a", "b", incompressible, "d"]}))
    output.commit()
    assert place.run("SELECT id FROM t ORDER BY id") == [(1,), (4,)]
    assert [(row.row, row.kind.rpartition(".")[2], row.message) for row in output.drain_rejected_rows()] == [
        (1, "TypeConversionError", "not this one"),
        (2, "RecordExceededSizeLimit", "index row requires 12016 bytes, maximum size is 8191"),
    ]
    output.close()


def test_a_table_that_another_session_has_locked_is_unavailable(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job waited for the lock without a word, in MySQL for up to a year."""
    monkeypatch.setattr(relational_table, "LOCK_WAIT_S", 1)
    place.opened().close()
    output = place.opened()
    output.write(ids(1))
    with place.connected() as connection:
        connection.cursor().execute("BEGIN; LOCK TABLE t" if place.kind == "postgresql" else "LOCK TABLES t WRITE")
        with pytest.raises(OutputUnavailableError, match=r"(?i)lock"):
            output.commit()
    output.commit()
    assert place.run("SELECT id FROM t") == [(1,)]
    output.close()


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_a_user_who_may_not_create_tables_writes_through_the_driver(place: Place) -> None:
    place.opened().close()
    place.run("DROP ROLE IF EXISTS plain; CREATE ROLE plain LOGIN")
    place.run("GRANT ALL ON t, tidegate_outputs TO plain; REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    section = PostgresqlOutput(type="postgresql", connection_string=re.sub("//.*@", "//plain@", place.where), table="t")
    output: Output = open_output(section, OutputOpening(IDENTITY, None, ANY))
    assert isinstance(output, RelationalOutput)
    assert output.encoder() is None
    output.close()


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    ("there", "wrong", "reason"),
    [
        ("//.*@", "//nobody@", 'role "nobody" does not exist'),
        (r"/postgres\?", "/nowhere?", 'database "nowhere" does not exist'),
    ],
)
def test_a_server_that_refuses_the_connection_is_not_waited_for(
    place: Place, there: str, wrong: str, reason: str
) -> None:
    where = re.sub(there, wrong, place.where)
    section = PostgresqlOutput(type="postgresql", connection_string=where, table="t")
    with pytest.raises(OutputError, match=reason) as refused:
        open_output(section, OutputOpening(IDENTITY, None, ANY))
    assert not isinstance(refused.value, OutputUnavailableError)


def test_a_database_file_below_a_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    section = SqliteOutput(type="sqlite", path=tmp_path / "taken" / "results.db", table="t")
    with pytest.raises(OutputError, match="SQLite database") as refused:
        open_output(section, OutputOpening(IDENTITY, None, ANY))
    assert not isinstance(refused.value, OutputUnavailableError)


def test_a_table_with_a_column_of_the_name_of_a_staging_tables_is_written_through_the_driver(place: Place) -> None:
    place.run("CREATE TABLE t (id bigint, v varchar(9), tidegate_row bigint)")
    output = place.opened(shape=NAMED)
    assert output.encoder() is None
    assert place.run(STAGED) == []
    output.close()


def test_what_travels_shows_no_connection_string(place: Place) -> None:
    output = place.opened()
    assert place.where not in repr(output.encoder())
    output.close()


SECTIONS = """
[outputs.counted]
type = "{kind}"
connection_string = "{conninfo}"
table = "{schema}.counted"
columns = { k = "nvarchar(max)" }
[outputs.large]
type = "{kind}"
connection_string = "{conninfo}"
table = "{schema}.large"
columns = { k = "nvarchar(max)", v = "float" }
key = ["ts", "k"]
"""


def test_a_job_that_dies_before_it_notes_its_commits_has_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    for schema in ("whole", "killed"):
        place.run(f"DROP SCHEMA IF EXISTS {schema}{' CASCADE' if place.kind == 'postgresql' else ''}")
        place.run(f"CREATE SCHEMA {schema}")
    whole = SECTIONS.replace("{kind}", place.kind).replace("{conninfo}", place.where)
    sections = {schema: whole.replace("{schema}", schema) for schema in ("whole", "killed")}
    run_here(write_job(tmp_path / "whole", 300, outputs=sections["whole"]), 90)
    path = write_job(tmp_path / "killed", 300, outputs=sections["killed"])
    run_with_deaths(path, monkeypatch, "tables")
    for name in ("counted", "large"):
        expected, found = (place.run(f"SELECT * FROM {schema}.{name} ORDER BY 1, 2, 3") for schema in sections)
        assert expected
        assert found == expected
    assert place.run(STAGED) == []
