"""Outputs that are files: what lies beyond the committed mark is forgotten, and nothing else is touched."""

from __future__ import annotations

import csv
import errno
import json
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.outputs.kit import Destination, OutputContract
from tests.job.rows import result_rows
from tidegate.connectors.model.encoded_rows import EncodedPiece, EncodedRows
from tidegate.connectors.model.errors import JobError, OutputError
from tidegate.connectors.model.retry_policy import RetryPolicy
from tidegate.connectors.outputs import Identity, Mark, Output, OutputOpening, OutputUnavailableError, open_output
from tidegate.connectors.outputs.console import ConsoleOutput
from tidegate.connectors.outputs.files import result_file
from tidegate.connectors.outputs.files.result_file import FileOutput, encode_lines
from tidegate.connectors.outputs.kinds import shared_files
from tidegate.connectors.outputs.sinks import Sinks, SinkSettings
from tidegate.connectors.outputs.tables.sqlite import SqliteOutput

IDENTITY = Identity("job", "out", "journal")


def opened(path: Path, mark: Mark | None = None, *, drop: bool = False, **settings: Any) -> Output:
    definition = FileOutput(type="file", path=path, **settings)
    return open_output(definition, OutputOpening(IDENTITY, mark, drop=drop))


def numbers(*values: int) -> Any:
    return result_rows([{"n": value} for value in values])


def test_a_step_that_did_not_finish_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.jsonl"
    output = opened(path)
    output.write(numbers(1))
    mark = output.commit()
    assert mark == {"type": "file", "rows": 1, "dropped": 0, "bytes": 8}
    output.write(numbers(2, 3))
    output.commit()
    output.close()
    again = opened(path, mark)
    again.write(numbers(4))
    again.commit()
    again.close()
    assert path.read_bytes() == b'{"n":1}\n{"n":4}\n'


def test_what_was_not_committed_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    output = opened(path)
    output.write(numbers(1))
    output.close()
    assert path.read_bytes() == b""


def test_outputs_share_a_file_of_encoded_rows(tmp_path: Path) -> None:
    part = tmp_path / "executor.part"
    pieces = [encode_lines(numbers(number)) for number in (1, 2)]
    part.write_bytes(b"".join(pieces))
    outputs = {name: opened(tmp_path / name) for name in ("one", "two")}
    for place, (name, output) in enumerate(outputs.items()):
        piece = EncodedPiece(len(pieces[place]), part, place * len(pieces[0]))
        output.write_encoded(EncodedRows(name, 1, 0, (piece,)))
    for output in outputs.values():
        output.commit()
        output.close()
    assert [(tmp_path / name).read_bytes() for name in outputs] == [b'{"n":1}\n', b'{"n":2}\n']


def test_rows_of_another_run_are_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"precious\n")
    with pytest.raises(OutputError, match="no journal of this job accounts for"):
        opened(path)
    assert path.read_bytes() == b"precious\n"


def test_a_file_has_one_output_at_a_time(tmp_path: Path) -> None:
    """Two that began with an empty file, of a job or of two, wrote over each other's rows."""
    first = opened(tmp_path / "rows.jsonl")
    with pytest.raises(OutputError, match=r"rows\.jsonl is being written by another output or job; name another file"):
        opened(tmp_path / "rows.jsonl")
    first.write(numbers(1))
    mark = first.commit()
    first.close()
    opened(tmp_path / "rows.jsonl", mark).close()


def test_two_outputs_of_a_job_with_one_file_are_named(tmp_path: Path) -> None:
    names = {"first": "rows.jsonl", "other": "others.jsonl", "second": "folder/../rows.jsonl"}
    sections = {name: FileOutput(type="file", path=tmp_path / path) for name, path in names.items()}
    problem = "the output first writes .*rows.jsonl too; name another file"
    assert list(shared_files(sections)) == ["second"]
    settings = SinkSettings("job", "journal", sections, dict.fromkeys(names))
    with pytest.raises(JobError, match=f"output 'second': {problem}"):
        Sinks.open(settings, {}, RetryPolicy(0))
    assert list(tmp_path.iterdir()) == []


def test_a_file_shorter_than_its_mark_has_lost_results(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"short\n")
    with pytest.raises(OutputError, match="has 6 bytes, but the journal committed 10"):
        opened(path, {"type": "file", "rows": 2, "dropped": 0, "bytes": 10})


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write the output"):
        opened(tmp_path, {"type": "file", "rows": 0, "dropped": 0, "bytes": 0})


def test_a_file_that_never_can_be_written_is_not_waited_for(tmp_path: Path) -> None:
    """A job of the service waits for what comes back by itself, and fails where only a person can help."""
    (tmp_path / "taken").write_bytes(b"")
    for path in (tmp_path, tmp_path / "taken" / "results.jsonl"):
        with pytest.raises(OutputError, match="cannot write the output") as raised:
            opened(path, {"type": "file", "rows": 0, "dropped": 0, "bytes": 0})
        assert not isinstance(raised.value, OutputUnavailableError)


def test_an_array_is_one_after_every_commit(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    output = opened(path, json_format="array")
    output.commit()
    assert path.read_bytes() == b""
    output.write(numbers(1, 2))
    mark = output.commit()
    assert json.loads(path.read_bytes()) == [{"n": 1}, {"n": 2}]
    output.write(numbers(3))
    output.commit()
    assert json.loads(path.read_bytes()) == [{"n": 1}, {"n": 2}, {"n": 3}]
    output.close()
    again = opened(path, mark, json_format="array")
    assert json.loads(path.read_bytes()) == [{"n": 1}, {"n": 2}]
    again.write(numbers(4))
    again.write(numbers(5))
    again.commit()
    assert [row["n"] for row in json.loads(path.read_bytes())] == [1, 2, 4, 5]


def test_csv_has_a_header_and_quotes_what_needs_it(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    output = opened(path, format="csv", csv_delimiter="semicolon")
    output.write(result_rows([{"a": 'say "a;b"', "b": 8.0, "c": None, "d": {"x": [1, True]}}]))
    output.write(result_rows([{"a": "line\nbreak", "b": 2, "c": True, "d": None}]))
    mark = output.commit()
    output.close()
    assert path.read_bytes().startswith(b'a;b;c;d\r\n"say ""a;b""";8.0;;')
    with path.open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file, delimiter=";"))[1:] == [
            ['say "a;b"', "8.0", "", '{"x":[1,true]}'],
            ["line\nbreak", "2", "true", ""],
        ]
    assert mark["columns"] == ["a", "b", "c", "d"]
    again = opened(path, mark, format="csv", csv_delimiter="semicolon")
    again.write(result_rows([{"d": 1, "A": 2}]))
    again.commit()
    assert path.read_bytes().endswith(b"2;;;1\r\n")
    assert path.read_bytes().count(b"a;b;c;d\r\n") == 1


def test_a_column_that_the_header_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    rows = result_rows([{"a": 1}, {"a": 2, "b": 3}, {"a": 4}])
    stopping = opened(path, format="csv")
    with pytest.raises(OutputError, match=r"'b' is not in the header.*ColumnNameInvalid.*output_error_policy"):
        stopping.write(rows)
    stopping.close()
    output = opened(path, format="csv", drop=True)
    output.write(rows)
    mark = output.commit()
    assert (mark["rows"], mark["dropped"]) == (3, 1)
    assert path.read_bytes() == b"a\r\n1\r\n4\r\n"
    (refusal,) = output.drain_rejected_rows()
    assert (refusal.kind, refusal.row, refusal.time) == ("OutputDataConversionError.ColumnNameInvalid", 1, 1)
    assert refusal.example == '{"a":2,"b":3}'
    assert output.drain_rejected_rows() == []


def test_a_full_disk_is_waited_for_and_leaves_no_half_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.jsonl"
    output = opened(path)
    write_all = result_file._write_all

    def write_half(descriptor: int, data: bytes, at: int) -> None:
        write_all(descriptor, data[: len(data) // 2], at)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(result_file, "_write_all", write_half)
    output.write(numbers(1, 2))
    with pytest.raises(OutputUnavailableError, match="No space left on device"):
        output.commit()
    monkeypatch.setattr(result_file, "_write_all", write_all)
    assert output.commit()["rows"] == 2
    assert path.read_bytes() == b'{"n":1}\n{"n":2}\n'


def test_an_output_of_another_type_does_not_take_a_mark_over(tmp_path: Path) -> None:
    mark = {"type": "file", "rows": 3, "dropped": 0, "bytes": 24}
    definition = SqliteOutput(type="sqlite", path=tmp_path / "r.db", table="t")
    with pytest.raises(OutputError, match="was of type file and has 3 results"):
        open_output(definition, OutputOpening(IDENTITY, mark))
    # What went to a console is nowhere, so a file may begin.
    mark = open_output(ConsoleOutput(type="console"), OutputOpening(IDENTITY)).commit()
    assert open_output(FileOutput(type="file", path=tmp_path / "f"), OutputOpening(IDENTITY, mark)).commit()


def test_settings_of_the_other_format_are_refused() -> None:
    with pytest.raises(ValueError, match='csv_delimiter is not for format = "json"'):
        FileOutput(type="file", path=Path("f"), csv_delimiter="tab")
    with pytest.raises(ValueError, match='json_format is not for format = "csv"'):
        FileOutput(type="file", path=Path("f"), format="csv", json_format="array")


class _File:
    def __init__(self, path: Path, settings: dict[str, str]) -> None:
        self._path = path
        self._settings = settings

    def open_at(self, mark: Mark | None) -> Output:
        return opened(self._path, mark, **self._settings)

    def numbers(self) -> list[int]:
        text = self._path.read_text()
        if self._settings.get("format") == "csv":
            return [int(row["n"]) for row in csv.DictReader(text.splitlines())]
        rows = json.loads(text) if "json_format" in self._settings else map(json.loads, text.splitlines())
        return [row["n"] for row in rows]


@pytest.mark.parametrize("settings", [{}, {"json_format": "array"}, {"format": "csv"}])
class TestContract(OutputContract):
    @pytest.fixture
    def destination(self, tmp_path: Path, settings: dict[str, str]) -> Destination:
        return _File(tmp_path / "results", settings)
