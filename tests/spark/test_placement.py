"""Jobs on Spark: early results of two levels of shards whose workers die, and files that executors write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from tests.engine.streams import program
from tests.job.run.test_run import run_here, write_job
from tidegate.connectors.model.errors import UnavailableError
from tidegate.job import StepReport, load_job
from tidegate.job.config.spark_settings import SparkSettings, WhereRun
from tidegate.ordering import Policy
from tidegate.spark import placement, run_job_on_spark
from tidegate.spark.calls import StepThread
from tidegate.spark.placement import FIRST_EVENTS, SMALL_EVENTS, PlacementSettings, SparkPlacement

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_spark")]

ON_SPARK = SparkSettings(master="local[2]", placement=WhereRun.SPARK)
CHAIN = """
WITH counts AS (SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, MAX(udf.once(v)) AS high FROM i TIMESTAMP BY t
                GROUP BY k, TumblingWindow(second, 60))
SELECT * INTO counted FROM counts
SELECT System.Timestamp() AS ts, n, COUNT(*) AS keys INTO chained FROM counts GROUP BY n, TumblingWindow(second, 120)
"""
OUTPUTS = """
[outputs.counted]
type = "file"
path = "counted.jsonl"
[outputs.chained]
type = "file"
path = "chained.jsonl"
[outputs.early]
type = "file"
path = "early.jsonl"
[early_results]
period_s = 20
outputs = { counted = "early" }
[functions.once]
module = "once.py"
"""
ONCE = '''"""A function whose first call on Spark kills its process."""
import os
import signal
from pathlib import Path


def once(value):
    marker = Path(__file__).parent / "killed"
    if marker.with_name("kills").exists() and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return value
'''


def test_early_results_on_two_levels_survive_a_killed_worker_with_the_same_bytes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    expected, found = tmp_path / "here", tmp_path / "spark"
    for folder in (expected, found):
        path = write_job(folder, 400, CHAIN, outputs=OUTPUTS)
        (folder / "once.py").write_text(ONCE, encoding="utf-8")
    run_here(expected / "job.toml", 90)
    (found / "kills").touch()
    notices: list[str] = []
    reports: list[Mapping[str, Any]] = []
    job = load_job(path)
    run_job_on_spark(job, spark=ON_SPARK, max_events_per_step=90, notice=notices.append, on_progress=reports.append)
    assert (found / "killed").exists()
    assert any("a Python worker died within a step on Spark" in notice for notice in notices)
    assert "Traceback" not in capfd.readouterr().err
    for name in ("counted", "chained", "early"):
        content = (found / f"{name}.jsonl").read_bytes()
        assert content == (expected / f"{name}.jsonl").read_bytes() != b""
    assert all(report["tidegate"]["placement"]["where"] == "spark" for report in reports)
    assert reports[-1]["tidegate"]["placement"]["losses"] == 1
    assert sum(report["numInputRows"] for report in reports) == 400


@pytest.mark.parametrize(
    ("events", "version", "first_events", "shape"),
    [
        (SMALL_EVENTS, 3, FIRST_EVENTS, "one task"),
        (SMALL_EVENTS + 1, 3, FIRST_EVENTS, "stages"),
        (FIRST_EVENTS, 0, FIRST_EVENTS, "one task"),
        (FIRST_EVENTS + 1, 0, FIRST_EVENTS, "stages"),
        (SMALL_EVENTS + 1, 0, SMALL_EVENTS, "stages"),
    ],
)
def test_a_job_that_moves_to_spark_does_not_wait_for_its_first_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: int, version: int, first_events: int, shape: str
) -> None:
    taken: list[str] = []

    def note(shape: str) -> list[Any]:
        taken.append(shape)
        return []

    monkeypatch.setattr(placement, "whole_step", lambda *given: note("one task"))
    monkeypatch.setattr(placement, "step", lambda *given: note("stages"))
    monkeypatch.setattr(placement, "anchor", lambda *given, **options: None)
    monkeypatch.setattr(placement, "configure", lambda *given: None)
    context = SimpleNamespace(master="local[2]", parallelize=lambda *given: object())
    encoders: Any = {"o": None}
    settings = PlacementSettings(2, tmp_path, encoders, first_events=first_events)
    of = program("SELECT k, COUNT(*) AS n INTO o FROM i GROUP BY k, TumblingWindow(second, 1)")
    spark: Any = SimpleNamespace(_sc=context, sparkContext=context)
    placed = SparkPlacement(spark, of, Policy.none(), settings, StepThread())
    placed._version, placed._rows = version, 0 if version else None
    order: Any = None
    placed._answers([], {}, order, events)
    assert taken == [shape]


def test_java_that_dies_before_the_anchor_is_spark_that_has_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*given: object) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(placement, "configure", die)
    of = program("SELECT k, COUNT(*) AS n INTO o FROM i GROUP BY k, TumblingWindow(second, 1)")
    spark: Any = SimpleNamespace(_sc=SimpleNamespace(master="spark://somewhere"))
    with pytest.raises(UnavailableError, match="Spark has stopped"):
        SparkPlacement(spark, of, Policy.none(), PlacementSettings(2, tmp_path), StepThread())


FILES = """
[outputs.large]
type = "files"
path = "large/k={k}"
format = "parquet"
minimum_rows = 50
columns = { v = "float" }
"""


def rows_by_folder(folder: Path) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for path in sorted(folder.glob("large/*/*.parquet")):
        found.setdefault(path.parent.name, []).extend(pq.ParquetFile(path).read().to_pylist())
    return found


def test_executors_write_partitioned_files_with_the_same_rows_in_the_same_order(tmp_path: Path) -> None:
    expected, found = tmp_path / "here", tmp_path / "spark"
    query = "SELECT System.Timestamp() AS ts, k, v INTO large FROM i TIMESTAMP BY t WHERE v >= 0"
    for folder in (expected, found):
        path = write_job(folder, 66_000, query, outputs=FILES)
    run_here(expected / "job.toml", 22_000)
    run_job_on_spark(load_job(path), spark=ON_SPARK, max_events_per_step=22_000)
    rows = rows_by_folder(found)
    assert rows == rows_by_folder(expected)
    assert sum(map(len, rows.values())) > 60_000
    # The driver writes a file for each step and folder, and executors one for each stretch of time of a step.
    files, files_of_driver = (len(list(folder.glob("large/*/*.parquet"))) for folder in (found, expected))
    assert files_of_driver == 3 * len(rows)
    assert files > 5 * len(rows)


def stages_after_steps(path: Path, most_events: int) -> list[int]:
    """Run a job on Spark, and return how many stages there had been after each of its steps."""
    stages: list[int] = []

    def count(report: StepReport) -> None:
        context = SparkContext._active_spark_context
        assert context is not None
        tracker = context.statusTracker()
        jobs = tracker.getJobIdsForGroup("tidegate crash")
        found = [tracker.getJobInfo(job) for job in jobs]
        stages.append(sum(len(one.stageIds) for one in found if one is not None))

    run_job_on_spark(
        load_job(path), spark=ON_SPARK, until_caught_up=True, max_events_per_step=most_events, on_step=count
    )
    return stages


def test_a_job_of_small_steps_asks_spark_for_one_stage_a_step(tmp_path: Path) -> None:
    """An anchor, an exchange or a second level would each be a stage of its own."""
    path = write_job(tmp_path, 60, CHAIN, outputs=OUTPUTS.split("[outputs.early]")[0])
    path.write_text(path.read_text().replace("udf.once(v)", "v"), encoding="utf-8")
    assert stages_after_steps(path, 20) == [1, 2, 3]


def test_early_results_leave_with_the_stage_of_their_step(tmp_path: Path) -> None:
    expected, found = tmp_path / "here", tmp_path / "spark"
    query = """SELECT System.Timestamp() AS ts, k, COUNT(*) AS n INTO counted FROM i TIMESTAMP BY t
               GROUP BY k, TumblingWindow(second, 60)"""
    outputs = OUTPUTS.replace('[outputs.chained]\ntype = "file"\npath = "chained.jsonl"\n', "")
    outputs = outputs.split("[functions.once]")[0]
    for folder in (expected, found):
        path = write_job(folder, 300, query, outputs=outputs)
    run_here(expected / "job.toml", 90)
    stages = stages_after_steps(path, 90)
    for name in ("counted", "early"):
        assert (found / f"{name}.jsonl").read_bytes() == (expected / f"{name}.jsonl").read_bytes()
    assert (found / "early.jsonl").read_bytes()
    assert stages == [*range(1, 1 + len(stages))]
    assert len(stages) > 3
