"""Single files whose text executors write: the bytes are those that the driver would have written."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.outputs.encoding import run_with_deaths
from tests.job.rows import result_columns, result_rows
from tests.job.run.test_run import run_here, write_job
from tidegate.connectors.model.encoded_rows import EncodedPiece, EncodedRows, Encoder
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs import Identity, Output, OutputOpening, OutputUnavailableError
from tidegate.connectors.outputs.files.result_file import FileOutput, ResultFile
from tidegate.connectors.outputs.shape import OutputColumn
from tidegate.sql.plan.nodes import Type

SETTINGS: dict[str, dict[str, Any]] = {
    "lines": {},
    "array": {"json_format": "array"},
    "csv": {"format": "csv"},
    "semicolons": {"format": "csv", "csv_delimiter": "semicolon"},
}
RUNS = [
    {"n": [1, 2], "Text": ['a"b', "c;d,e"], "x": [None, 1.5]},
    {"n": [3], "Text": [None], "x": [True]},
    {"n": [4, 5, 6], "Text": ["", "é\r\n", "z"], "x": [{"a": [1]}, "9", 2.0]},
]
SHAPE = tuple(OutputColumn(name, Type.ANY) for name in ("n", "Text", "x"))


def opened(path: Path, *, known: bool = True, drop: bool = False, mark: Any = None, **settings: Any) -> ResultFile:
    opening = OutputOpening(Identity("job", "out", "journal"), mark, SHAPE if known else None, drop)
    output: Output = FileOutput(type="file", path=path, **settings).open_at(opening)
    assert isinstance(output, ResultFile)
    return output


def pieces(output: ResultFile, folder: Path, runs: list[Any], *, inline: bool) -> EncodedRows:
    encoder: Encoder = pickle.loads(pickle.dumps(output.encoder()))
    contents = [encoder(run) for run in runs]
    found = []
    for number, content in enumerate(contents):
        path = folder / f"{number}.part"
        path.write_bytes(b"before" + content)
        found.append(EncodedPiece(len(content), content=content) if inline else EncodedPiece(len(content), path, 6))
    return EncodedRows("out", sum(map(len, runs)), 0, tuple(found))


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("kind", SETTINGS)
def test_steps_of_the_driver_and_of_executors_follow_each_other(tmp_path: Path, kind: str, inline: bool) -> None:
    runs = [result_columns(run) for run in RUNS]
    whole = opened(tmp_path / "whole", **SETTINGS[kind])
    for run in runs * 2:
        whole.write(run)
    expected = whole.commit()
    mark = None
    for executors_begin in (False, True):
        path = tmp_path / f"mixed-{executors_begin}"
        for place in range(2):
            mixed = opened(path, mark=mark if place else None, **SETTINGS[kind])
            if (place == 0) == executors_begin:
                mixed.write_encoded(pieces(mixed, tmp_path, runs, inline=inline))
            else:
                for run in runs:
                    mixed.write(run)
            mark = mixed.commit()
            mixed.close()
        assert path.read_bytes() == (tmp_path / "whole").read_bytes()
        assert mark == expected
    whole.close()


def test_the_header_of_a_select_star_waits_for_a_row_that_the_driver_has(tmp_path: Path) -> None:
    output = opened(tmp_path / "results.csv", known=False, format="csv", drop=True)
    assert output.encoder() is None
    output.write(result_rows([{"n": 1}]))
    encoded = pieces(output, tmp_path, [result_rows([{"n": 2}, {"N": 3}, {"m": 4}, {"n": 5}])], inline=False)
    output.write_encoded(encoded)
    (rejected,) = output.drain_rejected_rows()
    assert (rejected.row, rejected.message) == (3, "the column 'm' is not in the header")
    mark = output.commit()
    assert (mark["rows"], mark["dropped"], mark["columns"]) == (5, 1, ["n"])
    output.close()
    assert (tmp_path / "results.csv").read_bytes() == b"n\r\n1\r\n2\r\n3\r\n5\r\n"


def test_a_row_that_the_header_does_not_have_ends_a_job_that_keeps_every_row(tmp_path: Path) -> None:
    output = opened(tmp_path / "results.csv", known=False, format="csv")
    output.write(result_rows([{"n": 1}]))
    with pytest.raises(OutputError, match=r"the column 'm' is not in the header \(.*ColumnNameInvalid\)"):
        output.write_encoded(pieces(output, tmp_path, [result_rows([{"m": 4}])], inline=True))
    output.close()


def test_a_part_that_is_gone_counts_for_nothing(tmp_path: Path) -> None:
    output = opened(tmp_path / "results.jsonl")
    encoded = pieces(output, tmp_path, [result_columns(run) for run in RUNS], inline=False)
    path = encoded.pieces[-1].path
    assert path is not None
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(OutputUnavailableError, match="cannot read what executors have written"):
        output.write_encoded(encoded)
    path.write_bytes(content)
    output.write_encoded(encoded)
    assert output.commit()["rows"] == 6
    output.close()


SECTIONS = """
[outputs.counted]
type = "file"
path = "counted"
FORMAT
[outputs.large]
type = "file"
path = "large"
FORMAT
"""


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["", 'json_format = "array"', 'format = "csv"'], ids=["lines", "array", "csv"])
def test_a_job_that_dies_before_it_notes_its_commits_has_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str
) -> None:
    sections = SECTIONS.replace("FORMAT", settings)
    run_here(write_job(tmp_path / "whole", 300, outputs=sections), 90)
    path = write_job(tmp_path / "killed", 300, outputs=sections)
    run_with_deaths(path, monkeypatch, settings)
    for name in ("counted", "large"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
