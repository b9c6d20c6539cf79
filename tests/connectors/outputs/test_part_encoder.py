"""Files whose rows executors write: each row once and in order, in every format, whatever happens to a step."""

from __future__ import annotations

import io
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from tests.connectors.outputs.encoding import run_with_deaths
from tests.connectors.outputs.test_files_output import files_in, numbers, opened
from tests.job.run.test_run import run_here, write_job
from tidegate.connectors.model.encoded_rows import EncodedPiece, EncodedRows, Encoder
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs.files.files_output import FilesOfResults
from tidegate.engine import ResultRows

HOUR = 36_000_000_000
READERS: dict[str, Callable[[bytes], list[Any]]] = {
    "json": lambda content: content.splitlines(),
    "csv": lambda content: content.splitlines()[1:],
    "avro": lambda content: list(fastavro.reader(io.BytesIO(content))),
    "parquet": lambda content: pq.read_table(io.BytesIO(content)).to_pylist(),
}


def executed(output: FilesOfResults, rows: ResultRows) -> bytes:
    """What an executor returns for rows; the encoder travels."""
    encoder: Encoder = pickle.loads(pickle.dumps(output.encoder()))
    return encoder(rows)


def encoded(*contents: bytes, rows: int, folder: Path | None = None) -> EncodedRows:
    if folder is None:
        return EncodedRows("out", rows, 0, tuple(EncodedPiece(len(content), content=content) for content in contents))
    path = folder / "answers.part"
    path.write_bytes(b"".join(contents))
    begins = [sum(map(len, contents[:number])) for number in range(len(contents))]
    pieces = [EncodedPiece(len(content), path, begin) for content, begin in zip(contents, begins, strict=True)]
    return EncodedRows("out", rows, 0, tuple(pieces))


def rows_in(folder: Path, format_: str) -> list[Any]:
    return [row for name in files_in(folder) for row in READERS[format_]((folder / name).read_bytes())]


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("format_", READERS)
def test_rows_of_executors_are_those_of_the_driver(tmp_path: Path, format_: str, inline: bool) -> None:
    pieces = [numbers(*range(first, first + 5), at=first * HOUR // 10) for first in range(0, 40, 5)]
    for name in ("here", "there"):
        output = opened(tmp_path / name / "{datetime:HH}", format=format_, minimum_rows=7)
        if name == "here":
            for piece in pieces:
                output.write(piece)
        else:
            contents = [executed(output, piece) for piece in pieces]
            output.write_encoded(encoded(*contents, rows=40, folder=None if inline else tmp_path))
        assert output.commit()["rows"] == 40
        output.close()
    assert rows_in(tmp_path / "there", format_) == rows_in(tmp_path / "here", format_)
    assert len(rows_in(tmp_path / "there", format_)) == 40
    assert files_in(tmp_path / "there") == files_in(tmp_path / "here")
    # Outputs share the files of a step; the placement deletes them.
    assert inline or (tmp_path / "answers.part").exists()


def test_an_attempt_that_nobody_accepts_leaves_nothing(tmp_path: Path) -> None:
    output = opened(tmp_path, minimum_rows=1)
    executed(output, numbers(1, 2))
    output.write_encoded(encoded(executed(output, numbers(1, 2)), rows=2))
    mark = output.commit()
    output._location.close()
    again = opened(tmp_path, mark, minimum_rows=1)
    again.close()
    assert rows_in(tmp_path, "json") == [b'{"n":1}', b'{"n":2}']
    assert not list((tmp_path / "_tidegate").glob("*/parts/*"))


def test_rows_that_the_output_has_come_to_the_driver(tmp_path: Path) -> None:
    """A step may begin before the last row that the output holds, and end after it."""
    output = opened(tmp_path, minimum_rows=1)
    mark = output.commit()
    output.write_encoded(encoded(executed(output, numbers(1, 2, 3)), rows=3))
    output.commit()
    output._location.close()
    again = opened(tmp_path, mark, minimum_rows=1)
    assert again.encoder() is None
    again.write(numbers(1, 2))
    assert again.encoder() is None
    again.write(numbers(3, 4))
    assert again.encoder() is not None
    again.write_encoded(encoded(executed(again, numbers(5)), rows=1))
    assert again.commit()["rows"] == 5
    again.close()
    assert rows_in(tmp_path, "json") == [b'{"n":%d}' % number for number in range(1, 6)]


@pytest.mark.parametrize("drop", [False, True])
def test_a_row_that_the_format_cannot_hold_has_its_number(tmp_path: Path, drop: bool) -> None:
    output = opened(tmp_path, drop=drop, format="parquet", columns={"n": "datetime"})
    contents = [executed(output, numbers(1)), executed(output, numbers(2, 3))]
    if not drop:
        with pytest.raises(OutputError, match=r"cannot hold the result .*TypeConversionError"):
            output.write_encoded(encoded(*contents, rows=3))
        return
    output.write_encoded(encoded(*contents, rows=3))
    assert [row.row for row in output.drain_rejected_rows()] == [0, 1, 2]
    mark = output.commit()
    assert (mark["rows"], mark["dropped"]) == (3, 3)


def test_a_folder_that_the_executor_does_not_share_is_one_line(tmp_path: Path) -> None:
    output = opened(tmp_path / "results")
    encoder = output.encoder()
    assert encoder is not None
    shutil.rmtree(tmp_path / "results" / "_tidegate")
    with pytest.raises(OutputError, match=r"results is not shared: an executor on .* object store$") as raised:
        encoder(numbers(1))
    assert "\n" not in str(raised.value)


# -- runs --------------------------------------------------------------------------------------------------------------


SECTIONS = """
[outputs.counted]
type = "files"
path = "counted/{datetime:mm-ss}"
minimum_rows = 9
FORMAT
[outputs.large]
type = "files"
path = "large/k={k}"
maximum_time_s = 0.02
FORMAT
"""


def by_folder(folder: Path, format_: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for name in ("counted", "large"):
        for path in files_in(folder / name):
            content = (folder / name / path).read_bytes()
            found.setdefault(f"{name}/{path.parent}", []).extend(READERS[format_](content))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("format_", READERS)
def test_a_job_that_dies_before_it_notes_its_commits_has_each_row_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    sections = SECTIONS.replace("FORMAT", f'format = "{format_}"')
    run_here(write_job(tmp_path / "whole", 300, outputs=sections), 90)
    expected = by_folder(tmp_path / "whole", format_)
    path = write_job(tmp_path / "killed", 300, outputs=sections)
    run_with_deaths(path, monkeypatch, format_)
    assert by_folder(tmp_path / "killed", format_) == expected
