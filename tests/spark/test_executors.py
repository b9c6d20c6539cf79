"""Executors that have another Tidegate or none say so, and a job without executors says that it waits for them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyspark
import pytest
from pyspark import SparkContext, cloudpickle

import tidegate
from tests.job.run.test_run import run_here, write_job
from tests.patience import PATIENCE_S, eventually
from tests.source import ROOT
from tests.spark.standalone import standalone
from tidegate.connectors.model.retry_policy import WaitingNotice, WaitOver
from tidegate.spark.calls import StepThread
from tidegate.spark.executors import ExecutorWatch, _problem_here, shards_for
from tidegate.spark.options import Options
from tidegate.spark.source_reader import EventHubsReader
from tidegate.spark.stages import TaskStage
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
    content = cloudpickle.dumps(_of_tasks(TaskStage(None, [], {})))
    folders = [] if version is None else [other_version(tmp_path)]
    code, said = elsewhere(content, *folders)
    assert code != 0
    assert "has no Tidegate" in said if version is None else "has Tidegate 0.0.1" in said
    assert f"install tidegate[spark]=={tidegate.__version__}" in said


# -- waiting for executors ---------------------------------------------------------------------------------------------


class Cluster:
    """A Spark context, as far as a watch sees it, whose executors come and go."""

    master = "spark://somewhere:7077"

    def __init__(self) -> None:
        self.executors = 0
        self._jsc = self

    def __getattr__(self, name: str) -> Callable[[], Any]:
        return {
            "sc": lambda: self,
            "statusTracker": lambda: self,
            "getExecutorInfos": lambda: [None] * (1 + self.executors),
            "getConf": lambda: {"spark.executor.memory": "3g"},
        }[name]


def watched() -> tuple[Cluster, list[str], Callable[[float], None]]:
    cluster, said = Cluster(), list[str]()
    clock = [0.0]
    watch = ExecutorWatch(cast(SparkContext, cluster), said.append, lambda: clock[0])

    def look(at_s: float) -> None:
        clock[0] = at_s
        watch.look()

    return cluster, said, look


def test_a_wait_for_executors_is_said_after_a_few_seconds_and_from_time_to_time() -> None:
    cluster, said, look = watched()
    for second in range(70):
        look(second)
    assert [text.partition(" for this job for ")[2].partition(" s;")[0] for text in said] == ["5", "35", "65"]
    assert all(isinstance(text, WaitingNotice) for text in said)
    assert said[0] == (
        "waiting for executors: spark://somewhere:7077 has had none free for this job for 5 s; the job continues when "
        "it gets one: start a worker with 3g of free memory (spark.executor.memory), or end other applications"
    )
    cluster.executors = 2
    look(71)
    assert isinstance(said[-1], WaitOver)
    assert said[-1] == "spark://somewhere:7077 has executors for this job after 71 s"


def test_a_short_wait_is_not_worth_a_word() -> None:
    cluster, said, look = watched()
    for second in range(40):
        cluster.executors = second % 4 // 3
        look(second)
    assert said == []


def test_a_call_is_watched_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.spark.calls._LOOK_EVERY_S", 0.01)
    looks: list[None] = []

    class Counting:
        def look(self) -> None:
            looks.append(None)

    thread = StepThread(Counting())
    thread.call(lambda: eventually(lambda: len(looks) > 2))
    assert thread.call(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 / 0)


@pytest.mark.soak
@pytest.mark.spark
def test_a_job_on_a_cluster_without_workers_says_so_and_begins_when_one_joins(tmp_path: Path) -> None:
    path = write_job(tmp_path / "there", 300)
    expected = write_job(tmp_path / "here", 300)
    run_here(expected)
    folder = path.parent / "crash.state"
    with standalone(tmp_path, workers=0) as cluster, (tmp_path / "log").open("w") as log:
        command = [sys.executable, "-m", "tidegate", "job", "run", str(path), "--master", cluster.url]
        with subprocess.Popen(command, stderr=log) as process:
            try:
                eventually(lambda: (folder / "status.json").exists() or process.poll() is not None)
                status = json.loads((folder / "status.json").read_text(encoding="utf-8"))
                assert status["waiting"].startswith(f"waiting for executors: {cluster.url} has had none free")
                asked = subprocess.run(
                    [sys.executable, "-m", "tidegate", "job", "blockers", str(path)], capture_output=True, text=True
                )
                assert status["waiting"] in asked.stdout
                cluster.start_worker()
                assert process.wait(2 * PATIENCE_S) == 0
            finally:
                process.kill()
    said = (tmp_path / "log").read_text(encoding="utf-8")
    assert f"WARNING {status['waiting']}" in said
    assert f"{cluster.url} has executors for this job after" in said
    assert json.loads((folder / "status.json").read_text(encoding="utf-8"))["waiting"] is None
    for name in ("counted.jsonl", "large.jsonl"):
        assert (path.parent / name).read_bytes() == (expected.parent / name).read_bytes() != b""


@pytest.mark.parametrize(("cores", "shards"), [(0, 1), (2, 2), (64, 64), (100, 64), (400, 80), (1600, 160)])
def test_a_job_on_many_cores_has_fewer_shards_than_cores(cores: int, shards: int) -> None:
    assert shards_for(cores) == shards
