"""What a Python without Tidegate, or with another version, says about an object or function that is sent to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark import cloudpickle

import tidegate
from tests.source import ROOT
from tidegate.spark.executors import _problem_here
from tidegate.spark.options import Options
from tidegate.spark.places import TaskPlace
from tidegate.spark.source import EventHubsReader
from tidegate.spark.step import _of_tasks

OPTIONS = {"connectionString": "Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=SECRET", "eventHub": "e"}
UNPICKLE = (
    "import pickle, sys; made = pickle.load(sys.stdin.buffer); print(made() if callable(made) else made._columns)"
)


def elsewhere(content: bytes, *folders: Path) -> tuple[int, str]:
    """Unpickle in a Python that has PySpark and those folders, but no Tidegate of its own."""
    path = [str(folder) for folder in (*folders, Path(pyspark.__file__).parent.parent)]
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {path!r}; {UNPICKLE}"]
    done = subprocess.run(command, input=content, capture_output=True)
    return done.returncode, (done.stdout + done.stderr).decode().strip().splitlines()[-1]


def pickled_reader() -> bytes:
    content: bytes = cloudpickle.dumps(EventHubsReader(Options.parse(OPTIONS, streaming=False), ("body",)))
    return content


def other_version(folder: Path) -> Path:
    (folder / "tidegate").mkdir()
    (folder / "tidegate" / "__init__.py").write_text('__version__ = "0.0.1"\n', encoding="utf-8")
    return folder


def test_a_python_without_tidegate_says_so() -> None:
    code, said = elsewhere(pickled_reader())
    assert code == 1
    assert "where an executor runs, has no Tidegate; install tidegate[spark]==" in said


def test_another_version_is_named(tmp_path: Path) -> None:
    code, said = elsewhere(pickled_reader(), other_version(tmp_path))
    assert code == 1
    assert f"has Tidegate 0.0.1, and the driver has {tidegate.__version__}" in said


def test_the_same_version_restores_the_object() -> None:
    assert elsewhere(pickled_reader(), ROOT / "src") == (0, "('body',)")


@pytest.mark.parametrize("there", [False, True])
def test_a_job_asks_before_its_first_step(there: bool) -> None:
    """The question travels by value."""
    content = cloudpickle.dumps(lambda: _problem_here("0.0.9"))
    _, said = elsewhere(content, *[ROOT / "src"] * there)
    assert (f"has Tidegate {tidegate.__version__}, and the driver has 0.0.9" if there else "has no Tidegate") in said
    assert "SECRET" not in said


@pytest.mark.parametrize("version", [None, "other"])
def test_an_executor_that_joins_later_is_asked_before_it_takes_part(tmp_path: Path, version: str | None) -> None:
    """A step's function carries the question with it."""
    content = cloudpickle.dumps(_of_tasks(TaskPlace(None, [], {})))
    folders = [] if version is None else [other_version(tmp_path)]
    code, said = elsewhere(content, *folders)
    assert code != 0
    assert "has no Tidegate" in said if version is None else "has Tidegate 0.0.1" in said
    assert f"install tidegate[spark]=={tidegate.__version__}" in said
