"""Files below a folder or in an object store: which rows are in which file, and that each is in one."""

from __future__ import annotations

import csv
import io
import json
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from tests.azurite import azurite, container
from tests.connectors.outputs.kit import Destination, OutputContract
from tests.job.rows import result_columns, result_rows
from tests.s3_server import S3Server, s3_server
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs import Identity, Mark, Output, OutputOpening, OutputUnavailableError, open_output
from tidegate.connectors.outputs.files.file_location import FolderLocation, StoreLocation, open_location
from tidegate.connectors.outputs.files.files_output import FilesOfResults, FilesOutput
from tidegate.connectors.outputs.shape import OutputColumn, Shape
from tidegate.engine.values.vectors import Datetime
from tidegate.ordering import TICKS_PER_SECOND, parse_time
from tidegate.sql.plan.nodes import Type

IDENTITY = Identity("job", "out", "journal")
NOON = parse_time("2026-03-01T12:00:00.1234567Z")
HOUR = 3600 * TICKS_PER_SECOND


def definition_of(path: Path | str, **settings: Any) -> FilesOutput:
    return FilesOutput(type="files", path=str(path), **settings)


def opened(
    path: Path | str, mark: Mark | None = None, *, shape: Shape | None = None, drop: bool = False, **settings: Any
) -> FilesOfResults:
    output = open_output(definition_of(path, **settings), OutputOpening(IDENTITY, mark, shape, drop))
    assert isinstance(output, FilesOfResults)
    return output


def numbers(*values: int, at: int = 0) -> Any:
    return result_columns({"n": list(values)}, first_time=at)


def files_in(folder: Path) -> list[Path]:
    """The files that a reader sees, in the order of their names."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if not any(part.startswith(("_", ".")) for part in path.parts))


def lines_in(folder: Path) -> list[Any]:
    return [json.loads(line) for name in files_in(folder) for line in (folder / name).read_bytes().splitlines()]


def test_a_file_is_written_when_there_are_enough_rows(tmp_path: Path) -> None:
    output = opened(tmp_path, minimum_rows=3)
    output.write(numbers(1, 2))
    assert output.commit()["rows"] == 2
    assert files_in(tmp_path) == []
    output.write(numbers(3))
    output.commit()
    (name,) = files_in(tmp_path)
    assert (tmp_path / name).read_bytes() == b'{"n":1}\n{"n":2}\n{"n":3}\n'
    assert name.name.startswith("000000000000-0000-")
    assert name.suffix == ".jsonl"
    output.write(numbers(4, 5, 6, 7))
    output.commit()
    assert [row["n"] for row in lines_in(tmp_path)] == [1, 2, 3, 4, 5, 6, 7]
    assert len(files_in(tmp_path)) == 2


def test_rows_that_wait_come_before_a_file_of_later_rows(tmp_path: Path) -> None:
    output = opened(tmp_path, minimum_rows=3)
    for values in ([1], [2, 3, 4], [5], [6], [7, 8, 9], [10]):
        output.write(numbers(*values))
        output.commit()
    output.close()
    assert [row["n"] for row in lines_in(tmp_path)] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def test_a_row_waits_no_longer_than_the_maximum_time(tmp_path: Path) -> None:
    now = [0.0]
    output = FilesOfResults(
        definition_of(tmp_path, maximum_time_s=60),
        OutputOpening(IDENTITY),
        FolderLocation(str(tmp_path)),
        lambda: now[0],
    )
    output.write(numbers(1))
    output.commit()
    assert files_in(tmp_path) == []
    now[0] = 1e12
    output.commit()
    assert lines_in(tmp_path) == [{"n": 1}]


def test_what_waits_at_the_end_becomes_a_file(tmp_path: Path) -> None:
    output = opened(tmp_path)
    output.write(numbers(1))
    output.commit()
    output.write(numbers(2))
    output.close()
    assert lines_in(tmp_path) == [{"n": 1}]


def test_what_cannot_become_a_file_at_the_end_is_logged_and_left_to_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    output = opened(tmp_path)
    output.write(numbers(1))
    mark = output.commit()

    def full(self: FolderLocation, files: Sequence[tuple[str, bytes]]) -> None:
        raise OutputUnavailableError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(FolderLocation, "put", full)
        output.close()
    assert "output 'out': No space left on device; results without a file are durable" in caplog.text
    assert lines_in(tmp_path) == []
    opened(tmp_path, mark).close()
    assert lines_in(tmp_path) == [{"n": 1}]


def test_what_waited_when_the_process_was_killed_is_in_a_later_file(tmp_path: Path) -> None:
    output = opened(tmp_path, minimum_rows=3)
    output.write(numbers(1, 2))
    mark = output.commit()
    output._location.close()
    again = opened(tmp_path, mark, minimum_rows=3)
    again.write(numbers(3))
    again.commit()
    assert len(files_in(tmp_path)) == 1
    assert [row["n"] for row in lines_in(tmp_path)] == [1, 2, 3]


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_moves_that_a_killed_process_did_not_make_are_made_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    output = opened(tmp_path / "{n}", minimum_rows=1)
    mark = output.commit()
    move = FolderLocation.move
    made: list[str] = []

    def killed(self: FolderLocation, moves: Sequence[tuple[str, str]]) -> None:
        for one in moves:
            if len(made) == moved:
                raise OutputUnavailableError("killed here")
            made.append(one[0])
            move(self, [one])

    monkeypatch.setattr(FolderLocation, "move", killed)
    output.write(numbers(1, 2))
    if moved < 2:
        with pytest.raises(OutputUnavailableError):
            output.commit()
    else:
        output.commit()
    output._location.close()
    monkeypatch.setattr(FolderLocation, "move", move)
    again = opened(tmp_path / "{n}", mark, minimum_rows=1)
    again.write(numbers(1, 2, 3))
    assert again.commit()["rows"] == 3
    again.close()
    assert [name.parent.name for name in files_in(tmp_path)] == ["1", "2", "3"]
    assert not list((tmp_path / "_tidegate" / "job.out" / "parts").iterdir())


def test_moves_in_a_store_that_fail_are_made_before_the_next_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    failures = [OutputUnavailableError("first"), OutputUnavailableError("second")]

    def move(self: StoreLocation, moves: Sequence[tuple[str, str]]) -> None:
        if failures:
            raise failures.pop(0)
        made.extend(target for _, target in moves)

    monkeypatch.setattr(StoreLocation, "_move_now", move)
    place = StoreLocation("az://results", {})
    place.move([("part", "file")])
    with pytest.raises(OutputUnavailableError, match="second"):
        place.settle()
    place.settle()
    place.settle()
    place.close()
    assert made == ["file"]


def test_a_commit_whose_reply_was_lost_is_not_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = opened(tmp_path, minimum_rows=1)
    replace = FolderLocation.replace_guarded

    def lost(self: FolderLocation, name: str, content: bytes, version: str) -> str:
        replace(self, name, content, version)
        raise OutputUnavailableError("the reply was lost")

    monkeypatch.setattr(FolderLocation, "replace_guarded", lost)
    output.write(numbers(1, 2))
    with pytest.raises(OutputUnavailableError):
        output.commit()
    monkeypatch.setattr(FolderLocation, "replace_guarded", replace)
    assert output.commit()["rows"] == 2
    output.write(numbers(3))
    output.commit()
    output.close()
    assert [row["n"] for row in lines_in(tmp_path)] == [1, 2, 3]


def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = opened(tmp_path, minimum_rows=1)
    put = FolderLocation.put

    def full(self: FolderLocation, files: Sequence[tuple[str, bytes]]) -> None:
        raise OutputUnavailableError("No space left on device")

    monkeypatch.setattr(FolderLocation, "put", full)
    output.write(numbers(1))
    with pytest.raises(OutputUnavailableError, match="No space left"):
        output.commit()
    monkeypatch.setattr(FolderLocation, "put", put)
    assert output.commit()["rows"] == 1
    assert lines_in(tmp_path) == [{"n": 1}]


def test_a_file_in_the_place_of_a_folder_is_named_and_not_waited_for(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_bytes(b"")
    with pytest.raises(OutputError, match=rf"File exists \({taken}\)") as raised:
        opened(taken / "tolls")
    assert not isinstance(raised.value, OutputUnavailableError)


def test_parts_of_an_attempt_that_was_not_committed_are_deleted(tmp_path: Path) -> None:
    output = opened(tmp_path)
    mark = output.commit()
    output._writer.write_parts(numbers(1), "000000000000")
    output._location.close()
    parts = tmp_path / "_tidegate" / "job.out" / "parts"
    assert len(list(parts.iterdir())) == 1
    opened(tmp_path, mark).close()
    assert not list(parts.iterdir())
    assert lines_in(tmp_path) == []


def test_parts_are_written_by_other_processes_and_committed_here(tmp_path: Path) -> None:
    path = tmp_path / "{datetime:HH}"
    output = opened(path, minimum_rows=2)
    writer = pickle.loads(pickle.dumps(output._writer))
    lost_attempt = writer.write_parts(numbers(1, 2, 3, at=NOON), "00000001-0000")
    parts = writer.write_parts(numbers(1, 2, 3, at=NOON), "00000001-0000")
    more = writer.write_parts(numbers(4, at=NOON + HOUR), "00000001-0001")
    assert [(part.folder, part.rows, part.whole) for part in (*parts, *more)] == [("12", 3, True), ("13", 1, False)]
    assert lost_attempt[0].name != parts[0].name
    assert lost_attempt[0].hash == parts[0].hash
    output.accept_parts([*parts, *more], rows=4)
    assert output.commit()["rows"] == 4
    output.close()
    assert [row["n"] for row in lines_in(tmp_path)] == [1, 2, 3, 4]


def test_a_second_run_is_locked_out_of_a_folder(tmp_path: Path) -> None:
    output = opened(tmp_path)
    with pytest.raises(OutputError, match="another run of the job writes to"):
        opened(tmp_path, output.commit())


def test_a_damaged_journal_and_a_lost_chunk_are_said(tmp_path: Path) -> None:
    output = opened(tmp_path)
    output.write(numbers(1))
    mark = output.commit()
    output._location.close()
    own = tmp_path / "_tidegate" / "job.out"
    (chunk,) = (own / "parts").iterdir()
    content = chunk.read_bytes()
    chunk.write_bytes(b"{}\n")
    again = opened(tmp_path, mark, minimum_rows=1)
    with pytest.raises(OutputError, match="holds 1 committed results, is damaged"):
        again.commit()
    again._location.close()
    chunk.write_bytes(content)
    journal = own / "journal.json"
    journal.write_bytes(journal.read_bytes().replace(b'"rows"', b'"rowz"'))
    with pytest.raises(OutputError, match="is damaged"):
        opened(tmp_path, mark)


# Paths ----------------------------------------------------------------------------------------------------------------


def test_folders_follow_the_time_and_the_values_of_a_row(tmp_path: Path) -> None:
    output = opened(tmp_path / "logs/{date}/b={Booth}/{time}", time_format="HH-mm", minimum_rows=1)
    rows = result_columns({"booth": ["east", "a/b", None, "east"], "n": [1, 2, 3, 4]}, first_time=NOON)
    output.write(rows)
    output.commit()
    output.close()
    assert [str(name.parent) for name in files_in(tmp_path)] == [
        "logs/2026/03/01/b=__HIVE_DEFAULT_PARTITION__/12-00",
        "logs/2026/03/01/b=a%2Fb/12-00",
        "logs/2026/03/01/b=east/12-00",
    ]
    assert [row["n"] for row in lines_in(tmp_path)] == [3, 2, 1, 4]


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("{datetime:yyyy}/{datetime:M}-{datetime:d}", "2026/3-1"),
        ("year={datetime:yyyy}/month={datetime:MM}/day={datetime:dd}", "year=2026/month=03/day=01"),
        ("{datetime:yyyy/MM/dd/HH/mm/ss}", "2026/03/01/12/00/00"),
        ("{partition}/x", "7/x"),
        ("{hidden}/{nothing}/v{hidden}", "%5Fx/null/v_x"),
        ("plain", "plain"),
    ],
)
def test_the_tokens_of_a_path(tmp_path: Path, path: str, folder: str) -> None:
    output = opened(tmp_path / path, minimum_rows=1)
    output.write(result_columns({"partitionid": [7], "hidden": ["_x"], "nothing": [None]}, first_time=NOON))
    output.commit()
    assert [str(name.parent) for name in files_in(tmp_path)] == [folder]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a/{datetime:xyz}", "is not a format of times"),
        ("a/{}", "names no column"),
        ("a/{date", "a brace without its counterpart"),
        ("az://{date}/a", "in the name of the container"),
    ],
)
def test_a_path_that_is_none_is_refused(path: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        definition_of(path)


def test_settings_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ValidationError, match='csv_delimiter is not for format = "json"'):
        definition_of("a", csv_delimiter="tab")
    with pytest.raises(ValidationError, match=r"needs \{date\}, \{time\} or"):
        definition_of("a/{booth}", write_mode="once")


def test_a_path_with_a_column_that_the_query_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="names the column booth, which the query does not have; it has n"):
        opened(tmp_path / "{booth}", shape=(OutputColumn("n", Type.BIGINT),))


def test_once_writes_a_period_when_it_is_complete(tmp_path: Path) -> None:
    output = opened(tmp_path / "{datetime:HH}", write_mode="once", minimum_rows=1)
    output.write(numbers(1, 2, at=NOON))
    output.commit()
    output.write(numbers(3, at=NOON))
    output.commit()
    assert files_in(tmp_path) == []
    output.write(numbers(4, at=NOON + HOUR))
    output.commit()
    output.close()
    assert [row["n"] for row in lines_in(tmp_path)] == [1, 2, 3]
    assert len(files_in(tmp_path)) == 1


def test_once_writes_the_last_period_when_no_rows_follow(tmp_path: Path) -> None:
    output = opened(tmp_path / "{datetime:HH}", write_mode="once")
    output.write(numbers(1, 2, at=NOON))
    mark = output.commit()
    output.close()
    assert files_in(tmp_path) == []
    again = opened(tmp_path / "{datetime:HH}", mark, write_mode="once")
    again.complete()
    again.commit()
    again.close()
    assert [row["n"] for row in lines_in(tmp_path)] == [1, 2]


# Formats --------------------------------------------------------------------------------------------------------------

MIXED = {
    "n": [1, 2, None],
    "v": [1, 2.5, None],
    "s": ['a "b", c', "line\nbreak", None],
    "t": [Datetime(NOON), None, Datetime(NOON)],
    "b": [True, False, None],
    "r": [{"x": 1}, [1, 2], None],
}
ISO = "2026-03-01T12:00:00.123456+00:00"


def _one_file(folder: Path, **settings: Any) -> bytes:
    output = opened(folder, minimum_rows=3, **settings)
    output.write(result_columns({name: column[:2] for name, column in MIXED.items()}))
    output.commit()
    output.write(result_columns({name: column[2:] for name, column in MIXED.items()}, first_time=2))
    output.commit()
    output.close()
    (name,) = files_in(folder)
    return (folder / name).read_bytes()


def test_json_is_lines_or_an_array(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in _one_file(tmp_path / "lines").splitlines()]
    assert lines[0]["t"] == "2026-03-01T12:00:00.1234567Z"
    assert lines == json.loads(_one_file(tmp_path / "array", json_format="array"))


def test_csv_has_one_header(tmp_path: Path) -> None:
    text = _one_file(tmp_path, format="csv", csv_delimiter="semicolon").decode()
    assert list(csv.reader(io.StringIO(text, newline=""), delimiter=";")) == [
        ["n", "v", "s", "t", "b", "r"],
        ["1", "1", 'a "b", c', "2026-03-01T12:00:00.1234567Z", "true", '{"x":1}'],
        ["2", "2.5", "line\nbreak", "", "false", "[1,2]"],
        ["", "", "", "2026-03-01T12:00:00.1234567Z", "", ""],
    ]


def test_other_columns_are_another_file_of_csv_and_are_quoted(tmp_path: Path) -> None:
    output = opened(tmp_path, format="csv", minimum_rows=3)
    output.write(result_columns({'a "quoted",\r\nname': [1, 2]}))
    output.commit()
    output.write(result_columns({"b": [3]}))
    output.commit()
    texts = [(tmp_path / name).read_bytes().decode() for name in files_in(tmp_path)]
    assert [list(csv.reader(io.StringIO(text, newline=""))) for text in texts] == [
        [['a "quoted",\r\nname'], ["1"], ["2"]],
        [["b"], ["3"]],
    ]


def test_parquet_has_types(tmp_path: Path) -> None:
    table = pq.read_table(io.BytesIO(_one_file(tmp_path, format="parquet")))
    assert {field.name: str(field.type) for field in table.schema} == {
        "n": "int64",
        "v": "double",
        "s": "string",
        "t": "timestamp[us, tz=UTC]",
        "b": "bool",
        "r": "string",
    }
    first, second, third = table.to_pylist()
    assert first["t"].isoformat() == ISO
    assert [first[name] for name in "nvsbr"] == [1, 1.0, 'a "b", c', True, '{"x":1}']
    assert [second[name] for name in "nvtbr"] == [2, 2.5, None, False, "[1,2]"]
    assert [third[name] for name in "nvsbr"] == [None] * 5


def test_avro_has_the_same_values(tmp_path: Path) -> None:
    records = list(fastavro.reader(io.BytesIO(_one_file(tmp_path / "avro", format="avro"))))
    table = pq.read_table(io.BytesIO(_one_file(tmp_path / "parquet", format="parquet")))
    assert records == table.to_pylist()


def test_avro_refuses_a_name_that_it_cannot_have(tmp_path: Path) -> None:
    output = opened(tmp_path, format="avro", minimum_rows=1)
    with pytest.raises(OutputError, match="Avro has no column 'a b'"):
        output.write(result_columns({"a b": [1]}))


def test_columns_that_have_no_type_in_common_are_in_files_of_their_own(tmp_path: Path) -> None:
    output = opened(tmp_path, format="parquet", minimum_rows=3)
    for row in ({"x": 1}, {"x": 2.5, "y": "more"}, {"x": "text"}):
        output.write(result_rows([row]))
        output.commit()
    tables = [pq.read_table(tmp_path / name) for name in files_in(tmp_path)]
    assert [table.to_pylist() for table in tables] == [
        [{"x": 1.0, "y": None}, {"x": 2.5, "y": "more"}],
        [{"x": "text"}],
    ]


SHAPE = (OutputColumn("id", Type.BIGINT), OutputColumn("v", Type.ANY))


def test_a_value_of_another_type_is_rejected_by_its_name(tmp_path: Path) -> None:
    settings: Any = {"format": "parquet", "columns": {"v": "float"}, "minimum_rows": 1}
    rows = result_columns({"id": [1, 2, 3], "v": [1.5, "fast", 2]})
    output = opened(tmp_path / "stop", shape=SHAPE, **settings)
    with pytest.raises(OutputError, match=r"column 'v': a nvarchar\(max\) does not go .*TypeConversionError"):
        output.write(rows)
    output.close()
    output = opened(tmp_path / "drop", shape=SHAPE, drop=True, **settings)
    output.write(rows)
    mark = output.commit()
    assert (mark["rows"], mark["dropped"]) == (3, 1)
    (rejected,) = output.drain_rejected_rows()
    assert (rejected.kind, rejected.row) == ("OutputDataConversionError.TypeConversionError", 1)
    (name,) = files_in(tmp_path / "drop")
    assert pq.read_table(tmp_path / "drop" / name).to_pylist() == [{"id": 1, "v": 1.5}, {"id": 3, "v": 2.0}]


# The contract ---------------------------------------------------------------------------------------------------------


class FolderDestination:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last: Output | None = None

    def open_at(self, mark: Mark | None) -> Output:
        return opened(self._folder, mark)

    def numbers(self) -> list[int]:
        return sorted(row["n"] for row in lines_in(self._folder))


class TestFolder(OutputContract):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Destination:
        return FolderDestination(tmp_path)


class StoreDestination:
    def __init__(self, url: str) -> None:
        self._url = url

    def open_at(self, mark: Mark | None) -> Output:
        return opened(self._url, mark)

    def numbers(self) -> list[int]:
        place = open_location(self._url)
        names = [name for name in place.names("") if "_tidegate" not in name]
        lines = b"".join(place.read(name) or b"" for name in names).splitlines()
        return sorted(json.loads(line)["n"] for line in lines)


@pytest.fixture(scope="module")
def account() -> Iterator[str]:
    with azurite() as connection_string:
        yield connection_string


@pytest.fixture
def blobs(account: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The URL of an empty folder in a new container."""
    name = f"c{abs(hash(request.node.nodeid)):x}"
    container(account, name)
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", account)
    return f"az://{name}/results"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        server.create_bucket("results")
        yield server


@pytest.fixture
def bucket(server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The URL of an empty folder in a bucket."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://results/f{abs(hash(request.node.nodeid)):x}"


STORES = [pytest.param(name, marks=pytest.mark.sdk) for name in ("blobs", "bucket")]


class TestStore(OutputContract):
    @pytest.fixture(params=STORES)
    def destination(self, request: pytest.FixtureRequest) -> Destination:
        return StoreDestination(request.getfixturevalue(request.param))


@pytest.mark.parametrize("store", STORES)
def test_a_store_refuses_the_commit_of_a_second_run(store: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(store)
    one = opened(url)
    other = opened(url, one.commit())
    one.write(numbers(1))
    other.write(numbers(1))
    one.commit()
    with pytest.raises(OutputError, match="was moved by another run"):
        other.commit()


@pytest.mark.parametrize("store", STORES)
def test_folders_of_a_store_have_the_names_of_their_values(store: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(store)
    output = opened(f"{url}/k={{k}}", minimum_rows=1)
    output.write(result_columns({"k": ["a/b", "é ü"]}))
    output.commit()
    output.close()
    names = StoreLocation(url).names("")
    assert sorted(name.split("/")[0] for name in names if "_tidegate" not in name) == ["k=a%2Fb", "k=é ü"]


@pytest.mark.sdk
@pytest.mark.parametrize(("store", "nowhere"), [("blobs", "az://nowhere"), ("bucket", "s3://nowhere")])
def test_a_container_that_does_not_exist_is_named(store: str, nowhere: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(store)
    with pytest.raises(OutputError, match=nowhere):
        opened(f"{nowhere}/x").commit()
