"""Which Python Spark starts, where the one that runs is not the first on the PATH."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

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


def test_the_wheel_installs_what_sets_it() -> None:
    """A `.pth` file beside the packages: each line that begins with import runs when Python starts."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if ".pth" in line]
    source, target = line.split(" = ")
    assert (ROOT / source.strip('"')).read_text() == f"import {spark_python.__name__}\n"
    assert "/" not in target
