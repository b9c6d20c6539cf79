"""Tables of Delta Lake and Iceberg that executors write: each row once, as if the driver had written it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.connectors.outputs.encoding import run_with_deaths
from tests.connectors.outputs.test_lake_output import ROWS, SHAPE, Lake
from tests.connectors.outputs.test_part_encoder import encoded
from tests.job.rows import result_columns
from tests.job.run.test_run import run_here, write_job
from tidegate.connectors.model.encoded_rows import EncodedRows
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs.shape import OutputColumn
from tidegate.connectors.outputs.tables import lake_output
from tidegate.connectors.outputs.tables.lake_output import LakeOutput
from tidegate.connectors.outputs.tables.table_output import EncodedRun
from tidegate.engine import ResultRows
from tidegate.sql.plan.nodes import Type

NUMBERS = (OutputColumn("n", Type.BIGINT),)


@pytest.fixture(params=["deltalake", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, str(tmp_path / "lake"))


@pytest.fixture
def always_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_output, "LEAST_BYTES", 0)


def executed(output: LakeOutput, *runs: ResultRows) -> list[bytes]:
    """What an executor returns for runs of rows; the encoder travels."""
    encoder: Any = pickle.loads(pickle.dumps(output.encoder()))
    contents: list[bytes] = encoder.encode_runs(list(enumerate(runs)))
    return contents


def sent(*contents: bytes) -> EncodedRows:
    return encoded(*contents, rows=sum(pickle.loads(content).rows for content in contents))


def numbers(*values: Any) -> ResultRows:
    return result_columns({"n": list(values)})


@pytest.mark.slow
@pytest.mark.usefixtures("always_files")
@pytest.mark.parametrize("partition", [(), ("s",), ("n", "b"), ("t",)])
def test_rows_of_executors_are_those_of_the_driver(lake: Lake, tmp_path: Path, partition: tuple[str, ...]) -> None:
    rows = {name: values * 2 for name, values in ROWS.items()} | {"n": [1, 2, 3, 4], "s": ["x", None, "a b/=%ä", "x"]}
    other = Lake(lake.kind, str(tmp_path / "other"))
    output = lake.opened(shape=SHAPE, partition_by=partition)
    contents = executed(output, result_columns(rows)) + executed(output, result_columns(rows | {"n": [5, 6, 7, 8]}))
    assert all(pickle.loads(content).changes for content in contents)
    output.write_encoded(sent(*contents))
    assert output.commit()["rows"] == 8
    plain = other.opened(shape=SHAPE, partition_by=partition)
    plain.write(result_columns(rows))
    plain.write(result_columns(rows | {"n": [5, 6, 7, 8]}))
    plain.commit()
    assert lake.rows() == other.rows()
    assert len(lake.rows()) == 8


@pytest.mark.slow
@pytest.mark.usefixtures("always_files")
def test_rows_of_executors_and_of_the_driver_are_one_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    output = lake.opened(shape=NUMBERS)
    first = executed(output, numbers(1), numbers(2))
    monkeypatch.setattr(lake_output, "LEAST_BYTES", 1 << 20)
    output.write_encoded(sent(*first, *executed(output, numbers(3), numbers(4))))
    output.commit()
    assert lake.numbers() == [1, 2, 3, 4]
    if lake.kind == "deltalake":
        assert DeltaTable(lake.where).version() == 1
    else:
        assert len(lake.iceberg().snapshots()) == 1
    output.write(numbers(5))
    assert output.commit()["rows"] == 5
    assert lake.numbers() == [1, 2, 3, 4, 5]


def test_few_rows_do_not_make_a_file_of_their_own(lake: Lake) -> None:
    output = lake.opened(shape=NUMBERS)
    first, second = (_run(content) for content in executed(output, numbers(1), numbers(2)))
    (table,) = first.changes
    assert table.column("n").to_pylist() == [1, 2]
    assert (second.rows, second.changes) == (1, ())


def _run(content: bytes) -> EncodedRun:
    run: EncodedRun = pickle.loads(content)
    return run


@pytest.mark.usefixtures("always_files")
def test_an_executor_that_cannot_write_returns_the_rows(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    output = lake.opened(shape=NUMBERS)
    encoder: Any = output.encoder()

    def fail(self: Any, rows: Any) -> None:
        raise OutputError("no space left")

    monkeypatch.setattr(type(encoder.writer), "write", fail)
    contents = encoder.encode_runs([(0, numbers(1)), (1, numbers(2))])
    monkeypatch.undo()
    output.write_encoded(sent(*contents))
    output.commit()
    assert lake.numbers() == [1, 2]


@pytest.mark.usefixtures("always_files")
def test_files_of_an_attempt_that_nobody_accepts_are_in_no_table(lake: Lake) -> None:
    output = lake.opened(shape=NUMBERS)
    executed(output, numbers(1))
    output.write_encoded(sent(*executed(output, numbers(1))))
    mark = output.commit()
    output.close()
    lake.opened(mark, shape=NUMBERS).close()
    assert lake.numbers() == [1]


@pytest.mark.usefixtures("always_files")
def test_rows_that_the_table_has_come_to_the_driver(lake: Lake) -> None:
    output = lake.opened(shape=NUMBERS)
    mark = output.commit()
    output.write_encoded(sent(*executed(output, numbers(1, 2, 3))))
    output.commit()
    output.close()
    again = lake.opened(mark, shape=NUMBERS)
    assert again.encoder() is None
    again.write(numbers(1, 2))
    assert again.encoder() is None
    again.write(numbers(3, 4))
    again.write_encoded(sent(*executed(again, numbers(5))))
    assert again.commit()["rows"] == 5
    assert lake.numbers() == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("always_files")
@pytest.mark.parametrize("drop", [False, True])
def test_a_row_that_the_table_cannot_hold_has_its_number(lake: Lake, drop: bool) -> None:
    output = lake.opened(shape=NUMBERS, drop=drop)
    contents = [*executed(output, numbers("x", 1)), *executed(output, numbers("y"), numbers(2, "z"))]
    if not drop:
        with pytest.raises(OutputError, match=r"column 'n': .*TypeConversionError"):
            output.write_encoded(sent(*contents))
        return
    output.write_encoded(sent(*contents))
    mark = output.commit()
    assert [row.row for row in output.drain_rejected_rows()] == [0, 2, 4]
    assert (mark["rows"], mark["dropped"]) == (5, 3)
    assert lake.numbers() == [1, 2]


@pytest.mark.usefixtures("always_files")
def test_files_that_the_driver_does_not_see_are_one_line(lake: Lake) -> None:
    output = lake.opened(shape=NUMBERS)
    contents = executed(output, numbers(1))
    for path in Path(lake.where).rglob("*.parquet"):
        path.unlink()
    output.write_encoded(sent(*contents))
    with pytest.raises(OutputError, match=r"is not shared: an executor has written .* object store$"):
        output.commit()


@pytest.mark.usefixtures("always_files")
def test_of_two_runs_at_once_one_ends(lake: Lake) -> None:
    one = lake.opened(shape=NUMBERS)
    mark = one.commit()
    other = lake.opened(mark, shape=NUMBERS)
    for output in (one, other):
        output.write_encoded(sent(*executed(output, numbers(1))))
    one.commit()
    with pytest.raises(OutputError, match="was moved by another run"):
        other.commit()
    assert lake.numbers() == [1]


def test_columns_that_the_table_lacks_come_to_the_driver_first(lake: Lake) -> None:
    lake.opened().close()
    output = lake.opened(shape=SHAPE, new_columns="add")
    assert output.encoder() is None
    output.write(result_columns(ROWS))
    output.commit()
    assert output.encoder() is not None


def test_a_table_with_constraints_is_left_to_the_package_that_checks_them(tmp_path: Path) -> None:
    lake = Lake("deltalake", str(tmp_path))
    lake.opened(shape=NUMBERS).close()
    assert lake.opened(shape=NUMBERS).encoder() is not None
    DeltaTable(lake.where).alter.add_constraint({"positive": "n > 0"})
    assert lake.opened(shape=NUMBERS).encoder() is None


SECTIONS = {
    "deltalake": """
[outputs.counted]
type = "deltalake"
path = "counted"
columns = { k = "nvarchar(max)" }
[outputs.large]
type = "deltalake"
path = "large"
partition_by = ["k"]
columns = { k = "nvarchar(max)", v = "float" }
""",
    "iceberg": """
[outputs.counted]
type = "iceberg"
path = "counted"
table = "a.t"
columns = { k = "nvarchar(max)" }
[outputs.large]
type = "iceberg"
path = "large"
table = "a.t"
partition_by = ["k"]
columns = { k = "nvarchar(max)", v = "float" }
""",
}


@pytest.mark.slow
@pytest.mark.usefixtures("always_files")
@pytest.mark.parametrize("kind", SECTIONS)
def test_a_job_that_dies_before_it_notes_its_commits_has_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    sections = SECTIONS[kind]
    found = []
    for name in ("whole", "killed"):
        path = write_job(tmp_path / name, 300, outputs=sections)
        if name == "whole":
            run_here(path, 90)
        else:
            run_with_deaths(path, monkeypatch, kind)
        tables = [Lake(kind, str(tmp_path / name / table)) for table in ("counted", "large")]
        found.append([sorted(repr(sorted(row.items())) for row in table.table().to_pylist()) for table in tables])
    assert found[0] == found[1]
    assert all(found[0])
