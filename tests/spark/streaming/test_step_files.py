"""A folder gets each step once, wherever the process ends; readers see whole files only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate.connectors.model.errors import OutputError
from tidegate.spark.streaming.step_files import LocalFolder, StepFiles

OWNER = "0123456789abcdef"


class Killed(Exception):
    """Stands for the end of the process."""


class DyingFolder(LocalFolder):
    """Ends the process at its n-th change, before or after it."""

    def __init__(self, path: Path, dies_at: int, *, after: bool) -> None:
        super().__init__(path)
        self.left = dies_at
        self.after = after

    def change(self, work: Callable[[], None]) -> None:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed
        work()
        if self.left == 0:
            raise Killed

    def write(self, path: str, text: str) -> None:
        self.change(lambda: super(DyingFolder, self).write(path, text))

    def move(self, source: str, target: str) -> None:
        self.change(lambda: super(DyingFolder, self).move(source, target))

    def delete(self, path: str) -> None:
        self.change(lambda: super(DyingFolder, self).delete(path))


def spark_writes(uri: str, *contents: str) -> None:
    """What Spark's file writers leave."""
    folder = Path(uri.removeprefix("file://"))
    folder.mkdir(parents=True)
    for number, content in enumerate(contents):
        (folder / f"day={number % 2}").mkdir(exist_ok=True)
        (folder / f"day={number % 2}" / f"part-{number:05d}-0a1b.c000.snappy.parquet").write_text(content)
        (folder / f"day={number % 2}" / f".part-{number:05d}-0a1b.c000.snappy.parquet.crc").write_text("crc")
    (folder / "_SUCCESS").write_text("")


def visible(path: Path) -> list[str]:
    """The content of the files that readers of the folder see."""
    names = [file.relative_to(path).parts for file in path.rglob("*") if file.is_file()]
    seen = [parts for parts in names if not any(part.startswith(("_", ".")) for part in parts)]
    return sorted(path.joinpath(*parts).read_text() for parts in seen)


def test_files_are_named_by_step_in_their_folders(tmp_path: Path) -> None:
    files = StepFiles(LocalFolder(tmp_path), OWNER)
    files.write(0, lambda uri: spark_writes(uri, "a", "b"))
    files.write(1, lambda uri: spark_writes(uri, "c"))
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.glob("day=*/*"))] == [
        "day=0/step-000000000-01234567-00000.snappy.parquet",
        "day=0/step-000000001-01234567-00000.snappy.parquet",
        "day=1/step-000000000-01234567-00001.snappy.parquet",
    ]
    assert [path.name for path in (tmp_path / "_tidegate" / OWNER).iterdir()] == ["000000000001.json"]


def test_a_step_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    files = StepFiles(LocalFolder(tmp_path), OWNER)
    files.write(0, lambda uri: spark_writes(uri, "a"))
    files.write(0, lambda uri: pytest.fail("written again"))
    assert visible(tmp_path) == ["a"]


def test_an_older_checkpoint_is_refused(tmp_path: Path) -> None:
    files = StepFiles(LocalFolder(tmp_path), OWNER)
    for step in range(3):
        files.write(step, lambda uri: spark_writes(uri, "a"))
    with pytest.raises(OutputError, match="has step 2 of this query, and its checkpoint resumes with step 1"):
        files.write(1, lambda uri: spark_writes(uri, "b"))


def test_queries_share_a_folder(tmp_path: Path) -> None:
    StepFiles(LocalFolder(tmp_path), OWNER).write(0, lambda uri: spark_writes(uri, "a"))
    StepFiles(LocalFolder(tmp_path), "fedcba9876543210").write(0, lambda uri: spark_writes(uri, "b"))
    assert visible(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 9))
def test_each_file_is_there_once_wherever_the_process_ends(tmp_path: Path, dies_at: int, after: bool) -> None:
    StepFiles(LocalFolder(tmp_path), OWNER).write(0, lambda uri: spark_writes(uri, "before"))
    dying = StepFiles(DyingFolder(tmp_path, dies_at, after=after), OWNER)
    try:
        dying.write(1, lambda uri: spark_writes(uri, "a", "b", "c"))
    except Killed:
        assert set(visible(tmp_path)) <= {"before", "a", "b", "c"}
    StepFiles(LocalFolder(tmp_path), OWNER).write(1, lambda uri: spark_writes(uri, "a", "b", "c"))
    assert visible(tmp_path) == ["a", "b", "before", "c"]
    assert len(list((tmp_path / "_tidegate" / OWNER).iterdir())) == 1


def test_a_process_that_ends_while_spark_writes_leaves_nothing_to_see(tmp_path: Path) -> None:
    def dies(uri: str) -> None:
        spark_writes(uri, "half")
        raise Killed

    files = StepFiles(LocalFolder(tmp_path), OWNER)
    with pytest.raises(Killed):
        files.write(0, dies)
    assert visible(tmp_path) == []
    files.write(0, lambda uri: spark_writes(uri, "whole"))
    assert visible(tmp_path) == ["whole"]
    assert len(list((tmp_path / "_tidegate" / OWNER).iterdir())) == 1
