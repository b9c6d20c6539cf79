"""Whether executors share the state folder with the driver."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidegate.job import JobError
from tidegate.spark.shared_folder import SharedFolder, check_shared


def test_a_folder_that_executors_see_has_no_problem(tmp_path: Path) -> None:
    folder = SharedFolder.of(tmp_path / "state")
    assert folder.problem_here() is None
    folder.remove()
    assert not list((tmp_path / "state").iterdir())


@pytest.mark.parametrize("how", ["another folder", "another content", "no folder"])
def test_a_folder_that_is_not_shared_says_where_and_what_to_do(tmp_path: Path, how: str) -> None:
    folder = SharedFolder.of(tmp_path / "state")
    match how:
        case "another folder":
            (folder.path / folder.proof).unlink()
        case "another content":
            (folder.path / folder.proof).write_text("something else", encoding="utf-8")
        case "no folder":
            shutil.rmtree(folder.path)
    said = folder.problem_here()
    assert said is not None
    assert str(folder.path) in said
    assert "state_dir" in said
    assert "\n" not in said


@pytest.mark.spark
def test_executors_are_asked(spark: SparkSession, tmp_path: Path) -> None:
    def call(function: Callable[[], Any]) -> Any:
        return function()

    folder = SharedFolder.of(tmp_path / "state")
    check_shared(spark, folder, call)
    gone = SharedFolder(tmp_path / "elsewhere", "proof", "mount it")
    with pytest.raises(JobError, match=r"elsewhere is not shared: an executor on .* No such file"):
        check_shared(spark, gone, call)
