"""Delta Lake and Iceberg: rows and mark in one commit, columns that are added, and who can read the tables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from tests.azurite import azurite, azurite_that_ends, container
from tests.checkpoints.postgres import postgres
from tests.connectors.outputs.kit import Destination, OutputContract
from tests.job.rows import result_columns, result_rows
from tests.s3_server import S3Server, s3_server
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs import Identity, Mark, Output, OutputOpening, OutputUnavailableError, open_output
from tidegate.connectors.outputs.shape import OutputColumn, Shape
from tidegate.connectors.outputs.tables.delta import DeltaLakeTable, DeltaOutput, _storage_options
from tidegate.connectors.outputs.tables.iceberg import IcebergOutput, IcebergTable
from tidegate.connectors.outputs.tables.lake_output import LakeOutput
from tidegate.engine.values.vectors import Datetime
from tidegate.ordering import parse_time
from tidegate.sql.plan.nodes import Type

IDENTITY = Identity("job", "out", "journal")
NOON = Datetime(parse_time("2026-03-01T12:00:00.1234567Z"))
KINDS = ("deltalake", "iceberg")
COLUMNS = {"n": "bigint"}


class Lake:
    """A place for the table `t`."""

    def __init__(self, kind: str, where: str, catalog: str | None = None) -> None:
        self.kind = kind
        self.where = where
        self.catalog = catalog

    def opened(
        self, mark: Mark | None = None, shape: Shape | None = None, *, drop: bool = False, **settings: Any
    ) -> LakeOutput:
        identity = settings.pop("identity", IDENTITY)
        given = {"columns": COLUMNS, **settings}
        if self.kind == "deltalake":
            definition: Any = DeltaOutput(type="deltalake", path=self.where, **given)
        else:
            definition = IcebergOutput(type="iceberg", path=self.where, table="a.t", catalog=self.catalog, **given)
        output = open_output(definition, OutputOpening(identity, mark, shape, drop))
        assert isinstance(output, LakeOutput)
        return output

    def open_at(self, mark: Mark | None) -> Output:
        return self.opened(mark)

    def table(self) -> Any:
        if self.kind == "deltalake":
            table = DeltaTable(self.where, storage_options=_storage_options(self.where, os.environ))
            return table.to_pyarrow_table()
        return self.iceberg().scan().to_arrow()

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table().sort_by("n").to_pylist()
        return rows

    def iceberg(self) -> Any:
        uri = self.catalog or f"sqlite:///{self.where}/catalog.db"
        uri = uri.replace("postgresql:", "postgresql+psycopg:")
        return load_catalog("default", type="sql", uri=uri, warehouse=f"file://{self.where}").load_table("a.t")

    def numbers(self) -> list[int]:
        return [row["n"] for row in self.rows()]


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, str(tmp_path / "lake"))


class TestLake(OutputContract):
    @pytest.fixture
    def destination(self, lake: Lake) -> Destination:
        return lake


SHAPE = (
    OutputColumn("n", Type.BIGINT),
    OutputColumn("v", Type.FLOAT),
    OutputColumn("s", Type.NVARCHAR),
    OutputColumn("t", Type.DATETIME),
    OutputColumn("b", Type.BIT),
    OutputColumn("r", Type.RECORD),
)
ROWS = {
    "n": [1, 2],
    "v": [1, None],
    "s": ["x", None],
    "t": [NOON, None],
    "b": [True, None],
    "r": [{"x": [1]}, None],
}


@pytest.mark.parametrize("partition", ["s", "n"])
def test_a_table_is_made_as_the_query_tells_and_others_read_it(lake: Lake, partition: str) -> None:
    output = lake.opened(shape=SHAPE, partition_by=(partition,))
    output.write(result_columns(ROWS))
    output.commit()
    first, second = lake.rows()
    assert first.pop("t").isoformat() == "2026-03-01T12:00:00.123456+00:00"
    assert first == {"n": 1, "v": 1.0, "s": "x", "b": True, "r": '{"x":[1]}'}
    assert [second[name] for name in "vstbr"] == [None] * 5
    if lake.kind == "deltalake":
        assert DeltaTable(lake.where).metadata().partition_columns == [partition]
        found = DeltaTable(lake.where).to_pyarrow_dataset()
        assert found.to_table().to_pandas()["n"].sort_values().tolist() == [1, 2]
    else:
        found = lake.iceberg().scan().to_arrow()
        assert len(lake.iceberg().spec().fields) == 1
        assert lake.iceberg().scan().to_pandas()["n"].sort_values().tolist() == [1, 2]
    assert duckdb.sql("SELECT n, v, s FROM found ORDER BY n").fetchall() == [(1, 1.0, "x"), (2, None, None)]


def test_times_partition_an_iceberg_table(tmp_path: Path) -> None:
    lake = Lake("iceberg", str(tmp_path))
    output = lake.opened(shape=SHAPE, partition_by=("day(t)", "b"))
    output.write(result_columns(ROWS))
    output.commit()
    assert [str(field.transform) for field in lake.iceberg().spec().fields] == ["day", "identity"]
    assert lake.numbers() == [1, 2]


def test_a_column_that_the_table_lacks_is_added_or_rejected(lake: Lake) -> None:
    output = lake.opened()
    output.write(result_rows([{"n": 1}]))
    output.write(result_rows([{"n": 2, "s": "new"}], first_time=1))
    mark = output.commit()
    output.close()
    assert lake.rows() == [{"n": 1, "s": None}, {"n": 2, "s": "new"}]
    output = lake.opened(mark, new_columns="reject", drop=True)
    output.write(result_rows([{"n": 3, "s": "x"}, {"n": 4, "other": 1}], first_time=2))
    mark = output.commit()
    (row,) = output.drain_rejected_rows()
    assert (row.kind, row.row, mark["dropped"]) == ("OutputDataConversionError.ColumnNameInvalid", 3, 1)
    assert lake.numbers() == [1, 2, 3]


def test_a_value_of_another_type_is_rejected_by_its_name(lake: Lake) -> None:
    output = lake.opened()
    with pytest.raises(OutputError, match=r"column 'n': .*TypeConversionError"):
        output.write(result_columns({"n": ["one"]}))
    output.close()
    output = lake.opened(drop=True)
    output.write(result_columns({"n": ["one", "two"]}))
    mark = output.commit()
    assert (mark["rows"], mark["dropped"]) == (2, 2)
    output.close()
    again = lake.opened(mark)
    assert again.commit() == mark
    again.write(result_columns({"n": [1]}))
    assert again.commit()["rows"] == 3
    assert lake.numbers() == [1]


def test_a_required_column_has_to_have_a_value(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("m", pa.int64())])
    DeltaTable.create(str(tmp_path), schema)
    lake = Lake("deltalake", str(tmp_path))
    with pytest.raises(OutputError, match="'n' does not accept NULL, and the query has no such column"):
        lake.opened(shape=(OutputColumn("m", Type.BIGINT),))
    output = lake.opened(drop=True)
    output.write(result_columns({"n": [None, 1], "m": [1, 2]}))
    assert output.commit()["dropped"] == 1
    (row,) = output.drain_rejected_rows()
    assert (row.kind, row.row) == ("OutputDataConversionError.RequiredColumnMissing", 0)


def test_a_table_that_does_not_fit_is_refused(lake: Lake) -> None:
    with pytest.raises(OutputError, match="does not determine the types of w: create the table, or set"):
        lake.opened(shape=(OutputColumn("w", Type.ANY),))
    with pytest.raises(OutputError, match="is partitioned by x, which is no column"):
        lake.opened(partition_by=("x",))
    lake.opened().close()
    with pytest.raises(OutputError, match="it has no column 'w', whose type the query does not determine"):
        lake.opened(shape=(OutputColumn("w", Type.ANY),))


def test_of_two_runs_at_once_one_ends(lake: Lake) -> None:
    one = lake.opened()
    mark = one.commit()
    other = lake.opened(mark)
    for output in (one, other):
        output.write(result_columns({"n": [1]}))
    one.commit()
    with pytest.raises(OutputError, match="was moved by another run"):
        other.commit()
    assert lake.numbers() == [1]


def test_other_writers_of_the_table_do_not_disturb(lake: Lake) -> None:
    output = lake.opened()
    output.write(result_columns({"n": [1]}))
    output.commit()
    rows = pa.table({"n": [7]})
    if lake.kind == "deltalake":
        write_deltalake(lake.where, rows, mode="append")
    else:
        lake.iceberg().append(rows)
    output.write(result_columns({"n": [2]}))
    assert output.commit()["rows"] == 2
    assert lake.numbers() == [1, 2, 7]


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_commit_whose_reply_was_lost_is_made_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, took_effect: bool
) -> None:
    output = lake.opened()
    output.write(result_columns({"n": [1]}))
    output.commit()
    kind = DeltaLakeTable if lake.kind == "deltalake" else IcebergTable
    append = kind.append

    def lost(self: Any, *arguments: Any) -> None:
        if took_effect:
            append(self, *arguments)
        raise OutputUnavailableError("the reply was lost")

    monkeypatch.setattr(kind, "append", lost)
    output.write(result_columns({"n": [2]}))
    with pytest.raises(OutputUnavailableError):
        output.commit()
    monkeypatch.setattr(kind, "append", append)
    assert output.commit()["rows"] == 2
    assert lake.numbers() == [1, 2]


@pytest.fixture(scope="module")
def account() -> Iterator[str]:
    with azurite() as connection_string:
        container(connection_string, "lake")
        yield connection_string


@pytest.mark.sdk
class TestDeltaInAzurite(OutputContract):
    @pytest.fixture
    def destination(self, account: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Destination:
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", account)
        return Lake("deltalake", f"az://lake/t{abs(hash(request.node.nodeid)):x}")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        server.create_bucket("lake")
        yield server


@pytest.fixture
def table_in_s3(server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Lake:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return Lake("deltalake", f"s3://lake/t{abs(hash(request.node.nodeid)):x}")


@pytest.mark.sdk
class TestDeltaInS3(OutputContract):
    @pytest.fixture
    def destination(self, table_in_s3: Lake) -> Destination:
        return table_in_s3


@pytest.mark.sdk
def test_a_table_in_s3_refuses_the_commit_of_a_second_run(table_in_s3: Lake) -> None:
    one = table_in_s3.opened()
    other = table_in_s3.opened(mark=one.commit())
    one.write(result_columns({"n": [1]}))
    other.write(result_columns({"n": [1]}))
    one.commit()
    with pytest.raises(OutputError, match="was moved by another run"):
        other.commit()
    assert table_in_s3.numbers() == [1]


@pytest.mark.sdk
def test_a_catalog_in_postgresql(tmp_path: Path) -> None:
    with postgres() as conninfo:
        lake = Lake("iceberg", str(tmp_path), conninfo)
        output = lake.opened()
        output.write(result_columns({"n": [1, 2]}))
        output.commit()
        output.close()
        assert lake.numbers() == [1, 2]


def test_old_snapshots_of_iceberg_expire_and_their_rows_stay(tmp_path: Path) -> None:
    lake = Lake("iceberg", str(tmp_path))
    output = lake.opened(snapshots_to_keep=2)
    for number in range(5):
        output.write(result_columns({"n": [number]}, first_time=number))
        output.commit()
    assert len(lake.iceberg().snapshots()) == 3
    assert lake.numbers() == [0, 1, 2, 3, 4]


@pytest.mark.sdk
def test_a_catalog_that_refuses_is_not_waited_for(tmp_path: Path) -> None:
    with postgres() as conninfo:
        nowhere = conninfo.replace("/postgres?", "/nowhere?")
        assert nowhere != conninfo
        with pytest.raises(OutputError, match='database "nowhere" does not exist') as raised:
            Lake("iceberg", str(tmp_path), nowhere).opened()
    assert not isinstance(raised.value, OutputUnavailableError)


def test_a_warehouse_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"the Iceberg table a\.t: ") as raised:
        Lake("iceberg", str(tmp_path / "file")).opened()
    assert not isinstance(raised.value, OutputUnavailableError)


def test_an_unreachable_catalog_is_said_without_its_password(tmp_path: Path) -> None:
    lake = Lake("iceberg", str(tmp_path), "postgresql://me:secret@127.0.0.1:1/db")
    with pytest.raises(OutputUnavailableError, match=r"the Iceberg table a\.t: ") as raised:
        lake.opened()
    assert "secret" not in str(raised.value)


@pytest.mark.sdk
def test_a_delta_table_waits_for_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package calls this "Failed to parse parquet", so a stopped store once ended the job."""
    with azurite_that_ends() as connection_string, container(connection_string, "lake"):
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string)
        output = Lake("deltalake", "az://lake/t").opened()
    output.write(result_columns({"n": [1]}))
    with pytest.raises(OutputUnavailableError, match=r"the Delta table az://lake/t: .* Error performing PUT http"):
        output.commit()


@pytest.mark.sdk
def test_a_delta_table_says_what_a_store_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting changes neither a wrong key nor a missing container."""
    with azurite() as connection_string, container(connection_string, "lake"):
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string)
        with pytest.raises(OutputError, match=r"the store answers 404 Not Found \(ContainerNotFound\)") as missing:
            Lake("deltalake", "az://other/t").opened()
        wrong = connection_string.replace("AccountKey=", "AccountKey=AAAA")
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", wrong)
        with pytest.raises(OutputError, match=r"the store answers 403 Forbidden \(AuthorizationFailure\)") as refused:
            Lake("deltalake", "az://lake/t").opened()
    assert not isinstance(missing.value, OutputUnavailableError)
    assert not isinstance(refused.value, OutputUnavailableError)


def test_a_delta_table_whose_folder_is_a_file_is_no_outage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"Not a directory") as raised:
        Lake("deltalake", str(tmp_path / "file")).opened()
    assert not isinstance(raised.value, OutputUnavailableError)
