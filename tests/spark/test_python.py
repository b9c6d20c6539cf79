"""Which Python Spark starts, where the one that runs is not the first on the PATH, and which PySpark that imports."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import py4j
import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.source import ROOT
from tidegate import spark_python

FIRST = "python3"


def python_in(folder: Path) -> Path:
    folder.mkdir()
    python = folder / FIRST
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    return python


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A virtual environment beside another Python, which is the first on the PATH."""
    own = python_in(tmp_path / "venv")
    python_in(tmp_path / "other")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'none'}{os.pathsep}{tmp_path / 'other'}")
    monkeypatch.setattr(sys, "executable", str(own))
    return tmp_path


def test_an_environment_that_is_not_activated_is_named(environment: Path) -> None:
    spark_python.set_default()
    assert os.environ["PYSPARK_PYTHON"] == str(environment / "venv" / FIRST)


def test_an_environment_that_is_activated_needs_nothing(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{environment / 'venv'}{os.pathsep}{os.environ['PATH']}")
    spark_python.set_default()
    assert "PYSPARK_PYTHON" not in os.environ


def test_what_is_set_stays(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "python3.13")
    spark_python.set_default()
    assert os.environ["PYSPARK_PYTHON"] == "python3.13"


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder of packages with an installed PySpark, and its archives."""
    packages = tmp_path / "site-packages"
    for name in ("pyspark", "py4j"):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").touch()
    (packages / "pyspark/python/lib").mkdir(parents=True)
    return packages


def archives_in(packages: Path) -> list[str]:
    return [str(packages / "pyspark/python/lib" / name) for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]


def test_installed_packages_are_preferred_to_archives_of_them(packages: Path) -> None:
    others = ["/project", "/project/python.zip", str(packages / "pyspark/python/lib")]
    path = [*archives_in(packages), *others, str(packages)]
    spark_python.drop_archives(path)
    assert path == [*others, str(packages)]


def test_a_folder_of_packages_may_have_two_names(packages: Path, tmp_path: Path) -> None:
    """As where the name of an environment is a link."""
    (tmp_path / "link").symlink_to(packages, target_is_directory=True)
    path = [*archives_in(tmp_path / "link"), str(packages)]
    spark_python.drop_archives(path)
    assert path == [str(packages)]


def test_archives_of_a_pyspark_that_is_not_on_the_path_stay(packages: Path, tmp_path: Path) -> None:
    path = [*archives_in(packages), str(tmp_path)]
    spark_python.drop_archives(path)
    assert path == [*archives_in(packages), str(tmp_path)]


def test_an_archive_of_a_package_that_is_not_installed_stays(packages: Path) -> None:
    (packages / "py4j/__init__.py").unlink()
    pyspark, py4j = archives_in(packages)
    path = [pyspark, py4j, str(packages)]
    spark_python.drop_archives(path)
    assert path == [py4j, str(packages)]


def test_a_worker_imports_the_installed_pyspark(spark: SparkSession) -> None:
    def found(number: int) -> tuple[str, str]:
        import py4j
        import pyspark

        return pyspark.__file__, py4j.__file__

    assert spark.sparkContext.range(1).map(found).collect() == [(pyspark.__file__, py4j.__file__)]


def test_the_wheel_installs_what_sets_it() -> None:
    """A `.pth` file beside the packages: each line that begins with import runs when Python starts."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if ".pth" in line]
    source, target = line.split(" = ")
    assert (ROOT / source.strip('"')).read_text() == f"import {spark_python.__name__}\n"
    assert "/" not in target
