"""An executor that joins a job is warm before steps use it, and gets its share of the shards between two of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark import SparkContext

from tests.job.run.test_run import outputs_of, run_here, write_job
from tests.patience import eventually
from tests.spark.standalone import standalone
from tidegate.job import StepReport, load_job
from tidegate.job.config.spark_settings import SparkSettings
from tidegate.job.run import run as run_module
from tidegate.job.run.placement_policy import RebalancePolicy
from tidegate.spark import end_java, run_job_on_spark
from tidegate.spark.newcomers import balanced

EVENTS_A_STEP = 20


@pytest.mark.parametrize(
    ("places", "cores", "after"),
    [
        ("aa", {"a": 1, "b": 1}, "ab"),
        ("aaaa", {"a": 4, "b": 4}, "aabb"),
        # One of three that are as large gets a third, and the others keep what they have.
        ("abababab", {"a": 4, "b": 4, "c": 4}, "abababcc"),
        # Cores count, but an executor that has joined gets one shard in any case.
        ("aaaaaa", {"a": 2, "b": 4}, "aabbbb"),
        ("aa", {"a": 4, "b": 1}, "ab"),
        # What is spread evenly stays, and so does a single shard of each.
        ("abab", {"a": 2, "b": 2}, "abab"),
        ("ab", {"a": 1, "b": 1, "c": 1}, "ab"),
        # Shards of an executor that is gone may be anywhere.
        (["a", None, "x"], {"a": 2, "b": 2}, "aba"),
    ],
)
def test_few_shards_move(places: Sequence[str | None], cores: Mapping[str, int], after: str) -> None:
    assert "".join(balanced([*places], cores)) == after


@dataclass(slots=True)
class SparkJob:
    """A job of Spark in its event log: times in ms, and of its tasks when each began and ended, and where."""

    what: str
    began: int
    ended: int = 0
    succeeded: bool = False
    tasks: list[tuple[int, int, str]] = field(default_factory=list)


def spark_jobs(folder: Path) -> list[SparkJob]:
    """Read the event log of the only application."""
    (path,) = folder.iterdir()
    jobs: dict[int, SparkJob] = {}
    of_stage: dict[int, SparkJob] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        match event["Event"]:
            case "SparkListenerJobStart":
                what = event["Properties"].get("spark.job.description", "")
                job = jobs[event["Job ID"]] = SparkJob(what.removeprefix("crash: "), event["Submission Time"])
                for stage in event["Stage IDs"]:
                    of_stage.setdefault(stage, job)
            case "SparkListenerJobEnd":
                job = jobs[event["Job ID"]]
                job.ended, job.succeeded = event["Completion Time"], event["Job Result"]["Result"] == "JobSucceeded"
            case "SparkListenerTaskEnd":
                task = event["Task Info"]
                of_stage[event["Stage ID"]].tasks.append(
                    (task["Launch Time"], task["Finish Time"], task["Executor ID"])
                )
    return list(jobs.values())


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.usefixtures("no_spark")
def test_an_executor_that_joins_delays_no_step_and_gets_a_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        run_module, "RebalancePolicy", lambda: RebalancePolicy(steady_s=0, clock=itertools.count(0, 10).__next__)
    )
    events = 300 * EVENTS_A_STEP
    expected = write_job(tmp_path / "here", events)
    path = write_job(tmp_path / "there", events)
    (tmp_path / "log").mkdir()
    notices: list[str] = []
    steps_after = 0

    def join(report: StepReport) -> None:
        nonlocal steps_after
        if report.number == 3:
            cluster.start_worker()
            context = SparkContext._active_spark_context
            assert context is not None
            names = context._jsc.sc().getExecutorIds
            eventually(lambda: names().size() == 2)
        steps_after += any("have moved" in notice for notice in notices)

    with standalone(tmp_path, workers=1) as cluster:
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (tmp_path / "log").as_uri(),
        }
        try:
            run_job_on_spark(
                load_job(path),
                spark=SparkSettings(master=cluster.url, conf=conf),
                max_events_per_step=EVENTS_A_STEP,
                on_step=join,
                notice=notices.append,
                should_stop=lambda: steps_after > 2,
            )
        finally:
            # Java keeps its properties for the next context.
            end_java()
    run_here(expected)
    for found, wanted in zip(outputs_of(path.parent), outputs_of(expected.parent), strict=True):
        assert wanted.startswith(found)
        assert found
    jobs = spark_jobs(tmp_path / "log")
    steps = [job for job in jobs if job.what.startswith("step ")]
    (warm_up,) = (job for job in jobs if job.what == "warm-up of executors")
    assert warm_up.succeeded
    assert {executor for _, _, executor in warm_up.tasks} == {"1"}
    warm = min(ended for _, ended, _ in warm_up.tasks)
    assert all(began >= warm for step in steps for began, _, executor in step.tasks if executor == "1")
    assert any(warm_up.began < step.began and step.ended < warm for step in steps)
    (anchor,) = (job for job in jobs[1:] if job.what == "anchor of shards" and job.began > warm_up.began)
    (move,) = (job for job in jobs if job.what == "shards that move")
    before, after = next(
        (one, next_one) for one, next_one in pairwise(steps) if one.began < move.began < next_one.began
    )
    assert anchor.ended <= before.ended
    # Nobody waits for the deletion of what was left behind.
    between = [job.what for job in jobs if before.began < job.began < after.began]
    assert between == ["shards that move", "shards that have moved"]
    assert {executor for _, _, executor in after.tasks} == {"0", "1"}
