"""Tables of MySQL, on a real server, and of SQL Server, by the statements that it would be sent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pymssql
import pytest

from tests.connectors.outputs.kit import Destination, OutputContract
from tests.connectors.outputs.test_table_output import IDENTITY
from tests.connectors.outputs.test_table_output import Place as Database
from tests.job.rows import result_columns, result_rows
from tests.mariadb import mariadb
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs import Mark, Output, OutputOpening, OutputUnavailableError, open_output
from tidegate.connectors.outputs.shape import OutputColumn
from tidegate.connectors.outputs.tables.mysql import MysqlOutput
from tidegate.connectors.outputs.tables.relational_output import RelationalOutput
from tidegate.connectors.outputs.tables.sql_server import SqlServerOutput
from tidegate.engine import ResultRows
from tidegate.engine.values.vectors import Datetime
from tidegate.ordering import parse_time
from tidegate.outbound import AddressPolicy
from tidegate.sql.plan.nodes import Type

NOON = Datetime(parse_time("2026-01-01T12:00:00.1234567Z"))
NOON_IN_MICROSECONDS = datetime(2026, 1, 1, 12, 0, 0, 123456)
SHAPE = (OutputColumn("id", Type.BIGINT), OutputColumn("v", Type.FLOAT))
ERRORS = "OutputDataConversionError."


class Place(Database):
    """The table `t` of an empty database."""

    def __init__(self, address: str) -> None:
        super().__init__("mysql", address)
        self.run("DROP TABLE IF EXISTS t")
        self.run("DROP TABLE IF EXISTS tidegate_outputs")

    def open_at(self, mark: Mark | None) -> Output:
        return self.opened(mark, (OutputColumn("n", Type.BIGINT),))

    def numbers(self) -> list[int]:
        return [number for (number,) in self.run("SELECT n FROM t ORDER BY n")]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with mariadb("--max-allowed-packet=100000") as address:
        yield address


@pytest.fixture
def place(server: str) -> Place:
    return Place(server)


@pytest.mark.sdk
class TestMysql(OutputContract):
    @pytest.fixture
    def destination(self, place: Place) -> Destination:
        return place


@pytest.mark.sdk
def test_a_table_is_made_with_the_types_of_the_query(place: Place) -> None:
    kinds = (Type.BIGINT, Type.FLOAT, Type.NVARCHAR, Type.DATETIME, Type.BIT, Type.RECORD)
    shape = tuple(OutputColumn(name, type_) for name, type_ in zip("abcdef", kinds, strict=True))
    output = place.opened(shape=shape, key=("a", "c"), batch_rows=2)
    row = {"a": 1, "b": 2, "c": "100% é", "d": NOON, "e": True, "f": {"x": [1]}}
    output.write(result_rows([row, {**row, "a": 2}, {**row, "b": 0.5}]))
    output.commit()
    assert place.run("SELECT * FROM t ORDER BY a") == [
        (1, 0.5, "100% é", NOON_IN_MICROSECONDS, 1, '{"x":[1]}'),
        (2, 2.0, "100% é", NOON_IN_MICROSECONDS, 1, '{"x":[1]}'),
    ]


def write_and_commit(output: RelationalOutput, rows: ResultRows) -> Mark:
    output.write(rows)
    return output.commit()


@pytest.mark.sdk
@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("whole", "text", "TypeConversionError"),
        ("small", 2**20, "TypeConversionError"),
        ("time", "yesterday", "TypeConversionError"),
        ("nested", "no json", "TypeConversionError"),
        ("needed", None, "RequiredColumnMissing"),
        ("single", 1, "DuplicateKey"),
        ("short", "long", "RecordExceededSizeLimit"),
        ("any", "x" * 200_000, "RecordExceededSizeLimit"),
        ("any", "refused by the trigger", "TypeConversionError"),
        ("part", 7, "TypeConversionError"),
    ],
)
def test_what_a_table_cannot_hold_is_left_out_or_stops_the_job(
    place: Place, column: str, value: Any, kind: str
) -> None:
    place.run(
        "CREATE TABLE t (whole bigint, small smallint, time datetime, nested longtext CHECK (json_valid(nested)), "
        "needed integer NOT NULL, single integer, short varchar(3), any longtext, part integer, UNIQUE (single, part)) "
        "PARTITION BY LIST (part) (PARTITION one VALUES IN (1))"
    )
    place.run(
        "CREATE TRIGGER refusing BEFORE INSERT ON t FOR EACH ROW "
        "IF NEW.any = 'refused by the trigger' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF"
    )
    good = {"whole": 1, "small": 1, "time": NOON, "nested": {"x": 1}, "needed": 1, "single": 1, "short": "abc"}
    good |= {"any": "it", "part": 1}
    rows = result_rows([good, {**good, "single": 2, column: value}, {**good, "single": 3}])
    stopping = place.opened(shape=None)
    mark = stopping.commit()
    with pytest.raises(OutputError, match=kind):
        write_and_commit(stopping, rows)
    stopping.close()
    assert place.run("SELECT * FROM t") == []
    output = place.opened(mark, shape=None, drop=True)
    output.write(rows)
    assert output.commit() == {"type": "mysql", "rows": 3, "dropped": 1}
    assert place.run("SELECT single FROM t ORDER BY single") == [(1,), (3,)]
    assert place.run("SELECT time FROM t") == [(datetime(2026, 1, 1, 12),)] * 2
    (refused,) = output.drain_rejected_rows()
    assert (refused.kind, refused.row) == (ERRORS + kind, 1)


@pytest.mark.sdk
@pytest.mark.parametrize("key", [(), ("id",)])
def test_rows_that_are_together_too_long_for_a_statement_take_several(place: Place, key: tuple[str, ...]) -> None:
    """The server closed the connection, and the job waited for it, in each run again."""
    place.run("CREATE TABLE t (id bigint PRIMARY KEY, `100%s` longtext)")
    output = place.opened(shape=None, key=key)
    rows = [{"id": number, "100%s": f"{number}%s" + "é" * 15_000} for number in range(10)]
    output.write(result_rows(rows))
    assert output.commit() == {"type": "mysql", "rows": 10, "dropped": 0}
    assert place.run("SELECT id, `100%s` FROM t ORDER BY id") == [tuple(row.values()) for row in rows]


@pytest.mark.sdk
def test_of_two_runs_at_once_one_ends(place: Place) -> None:
    one = place.opened()
    other = place.opened(one.commit())
    for output in (one, other):
        output.write(result_columns({"id": [1], "v": [1.0]}))
    one.commit()
    with pytest.raises(OutputError, match="was moved by another run"):
        other.commit()
    assert place.run("SELECT id FROM t") == [(1,)]


@pytest.mark.sdk
def test_a_connection_that_breaks_is_made_anew(place: Place) -> None:
    output = place.opened()
    output.write(result_columns({"id": [1], "v": [1.0]}))
    (number,) = place.run(
        "SELECT ID FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND DB = 'results'"
    )
    place.run(f"KILL {number[0]}")
    with pytest.raises(OutputUnavailableError, match="MySQL"):
        output.commit()
    assert output.commit()["rows"] == 1
    assert place.run("SELECT id FROM t") == [(1,)]


@pytest.mark.sdk
def test_a_table_without_transactions_or_an_index_for_its_key_is_refused(place: Place) -> None:
    place.run("CREATE TABLE t (id bigint, v double) ENGINE = MyISAM")
    with pytest.raises(OutputError, match="has the engine MyISAM, which has no transactions"):
        place.opened()
    place.run("ALTER TABLE t ENGINE = InnoDB")
    with pytest.raises(OutputError, match="does not enforce unique id: create a unique index"):
        place.opened(key=("id",))


def test_a_database_that_cannot_be_reached_is_told_without_its_password() -> None:
    def opened(kind: Any, type_: str, address: str) -> None:
        section = kind(type=type_, connection_string=address, table="t")
        open_output(section, OutputOpening(IDENTITY, None, SHAPE))

    for kind, type_ in ((MysqlOutput, "mysql"), (SqlServerOutput, "sqlserver")):
        with pytest.raises(OutputError, match="connection_string is of another form than") as caught:
            opened(kind, type_, "sEcReT")
        assert "sEcReT" not in str(caught.value)
    with pytest.raises(OutputUnavailableError) as away:
        opened(MysqlOutput, "mysql", "mysql://me:sEcReT@127.0.0.1:1/nowhere")
    assert "sEcReT" not in str(away.value)


# SQL Server: there is no server that could be started here, so its part is played ------------------------------------


class PlayedServer:
    """Answers the statements that read the catalog and the mark, and keeps all others."""

    COLUMNS = (
        ("id", "bigint", 0, False, 0, False, False),
        ("At", "datetime2", 7, True, 0, False, False),
        ("old", "datetime", 3, True, 0, False, False),
        ("own", "int", 0, False, 0, True, False),
    )

    def __init__(self) -> None:
        self.statements: list[tuple[str, Any]] = []
        self.rejects: list[Any] = []
        self.rowcount = 1
        self._answer: list[Any] = []

    def cursor(self) -> PlayedServer:
        return self

    def commit(self) -> None:
        self.statements.append(("COMMIT", None))

    def close(self) -> None:
        self.statements.append(("CLOSE", None))

    def execute(self, statement: str, parameters: Any = None) -> None:
        self._answer = []
        if "sys.indexes" in statement:
            self._answer = [(1, "id")]
        elif "sys.columns" in statement:
            self._answer = list(self.COLUMNS)
        else:
            self.statements.append((statement, parameters))
            if statement.startswith("INSERT INTO [t]") and any(value in parameters for value in self.rejects):
                raise pymssql.IntegrityError(2627, b"Violation of PRIMARY KEY constraint")

    def executemany(self, statement: str, rows: Any) -> None:
        self.statements.append((statement, list(rows)))

    def fetchall(self) -> list[Any]:
        return self._answer

    def fetchone(self) -> Any:
        return None


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedServer:
    server = PlayedServer()
    monkeypatch.setattr(pymssql, "connect", lambda **settings: server)
    return server


def opened_on_sql_server(*, drop: bool = False, **settings: Any) -> Output:
    section = SqlServerOutput(type="sqlserver", connection_string="sqlserver://me:x@host/db", table="t", **settings)
    return open_output(section, OutputOpening(IDENTITY, None, None, drop))


def test_rows_and_mark_go_to_sql_server_in_one_transaction(played: PlayedServer) -> None:
    output = opened_on_sql_server(batch_rows=2)
    played.statements.clear()
    output.write(result_columns({"id": [1, 2, 3], "at": [NOON] * 3, "old": [NOON] * 3}))
    output.commit()
    time, old = "2026-01-01T12:00:00.1234567", "2026-01-01T12:00:00.123"
    values = "(%s, %s, %s)"
    assert played.statements == [
        ("SAVE TRANSACTION tidegate", None),
        (f"INSERT INTO [t] ([id], [At], [old]) VALUES {values}, {values}", (1, time, old, 2, time, old)),
        ("SAVE TRANSACTION tidegate", None),
        (f"INSERT INTO [t] ([id], [At], [old]) VALUES {values}", (3, time, old)),
        (
            "UPDATE [tidegate_outputs] SET [rows] = %s, dropped = %s WHERE job = %s AND output = %s AND journal = %s "
            "AND [rows] = %s",
            (3, 0, "job", "out", "journal", 0),
        ),
        ("COMMIT", None),
    ]


def test_a_row_that_sql_server_rejects_is_found_and_dropped(played: PlayedServer) -> None:
    output = opened_on_sql_server(drop=True)
    played.rejects = [2]
    output.write(result_columns({"id": [1, 2, 3, 4]}))
    assert output.commit()["dropped"] == 1
    (row,) = output.drain_rejected_rows()
    assert (row.kind, row.row) == (ERRORS + "DuplicateKey", 1)
    inserts = [parameters for statement, parameters in played.statements if statement.startswith("INSERT INTO [t]")]
    assert inserts == [(1, 2, 3, 4), (1, 2), (1,), (2,), (3, 4)]
    assert [statement for statement, _ in played.statements].count("ROLLBACK TRANSACTION tidegate") == 3


def test_a_key_replaces_rows_of_sql_server(played: PlayedServer) -> None:
    output = opened_on_sql_server(key=("id",))
    output.write(result_columns({"id": [1], "at": [None]}))
    output.commit()
    (merge,) = [statement for statement, _ in played.statements if statement.startswith("MERGE")]
    assert merge == (
        "MERGE INTO [t] WITH (HOLDLOCK) AS t USING (VALUES (%s, %s)) AS s ([id], [At]) ON t.[id] = s.[id] "
        "WHEN MATCHED THEN UPDATE SET t.[At] = s.[At] "
        "WHEN NOT MATCHED THEN INSERT ([id], [At]) VALUES (s.[id], s.[At]);"
    )


def test_of_two_runs_on_sql_server_one_ends(played: PlayedServer) -> None:
    output = opened_on_sql_server()
    played.rowcount = 0
    output.write(result_columns({"id": [1]}))
    with pytest.raises(OutputError, match="was moved by another run"):
        output.commit()
    assert played.statements[-1] == ("CLOSE", None)


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        (SqlServerOutput, "sqlserver://u:p@8.8.8.8/d?server=x&host=127.0.0.1"),
        (SqlServerOutput, "sqlserver://u:p@127.0.0.1\\instance/d"),
        (SqlServerOutput, "sqlserver://u:p@127.0.0.1%5Cinstance/d"),
        (MysqlOutput, "mysql://u:p@8.8.8.8/d?host=127.0.0.1"),
        (MysqlOutput, "mysql://u:p@8.8.8.8/d?unix_socket=/run/mysqld.sock"),
        (MysqlOutput, "mysql://u:p@8.8.8.8/d?read_default_file=/root/.my.cnf"),
    ],
)
def test_a_guarded_job_connects_to_no_database_of_this_machine(settings: Any, address: str) -> None:
    name = "sqlserver" if settings is SqlServerOutput else "mysql"
    table = settings(type=name, connection_string=address, table="t").database(drop=False)
    with AddressPolicy.guarded().in_force(), pytest.raises(OutputError, match="cannot reach the database"):
        table.connect()
