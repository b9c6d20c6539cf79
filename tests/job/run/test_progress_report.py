"""The report of a step has the fields of Spark's StreamingQueryProgress, and adds up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from tests.job.run.test_run import write_job
from tidegate.job import load_job
from tidegate.job.run.opening import open_run
from tidegate.job.run.run import RunHooks, RunSettings, in_this_process, run_steps

NOT_HERE = {"observedMetrics"}


def reports_of(path: Path, events: int, most: int = 1_000) -> list[dict[str, Any]]:
    reports: list[dict[str, Any]] = []
    with open_run(load_job(path)) as opened:
        hooks = RunHooks(progress=reports.append, should_stop=lambda: len(reports) >= most)
        run_steps(opened, in_this_process(opened.job.policy), RunSettings(max_events_per_step=events), hooks)
    return reports


def test_reports_add_up(tmp_path: Path) -> None:
    path = write_job(tmp_path, 400)
    reports = reports_of(path, 90)
    assert [report["batchId"] for report in reports] == list(range(len(reports)))
    assert sum(report["numInputRows"] for report in reports) == 400
    rows = sum(len((tmp_path / f"{name}.jsonl").read_text().splitlines()) for name in ("counted", "large"))
    assert sum(report["sink"]["numOutputRows"] for report in reports) == rows
    ends = {"0": 0, "1": 0, "2": 0}
    for report in reports:
        (source,) = report["sources"]
        assert source["startOffset"] == ends
        ends = source["endOffset"]
        duration = report["durationMs"]
        assert duration["triggerExecution"] - 1 <= duration["compute"] + duration["commit"] + 1
        assert report["tidegate"]["placement"]["where"] == "process"
    assert ends == reports[-1]["sources"][0]["latestOffset"]
    assert reports[-1]["tidegate"]["backlog"] == 0
    assert len({report["runId"] for report in reports}) == len({report["id"] for report in reports}) == 1
    assert reports[0]["timestamp"].endswith("Z")
    assert reports[0]["sink"]["description"] == "counted (file), large (file)"


def test_a_restart_keeps_the_id_and_not_the_run(tmp_path: Path) -> None:
    path = write_job(tmp_path, 100)
    first, second = reports_of(path, 30, 1), reports_of(path, 30)
    assert second[0]["id"] == first[0]["id"]
    assert second[0]["runId"] != first[0]["runId"]


def test_it_has_the_fields_that_spark_has(tmp_path: Path) -> None:
    (report, *_) = reports_of(write_job(tmp_path, 50), 50)
    theirs = {name for name in vars(StreamingQueryProgress) if isinstance(vars(StreamingQueryProgress)[name], property)}
    assert theirs - NOT_HERE - {"prettyJson", "json"} <= set(report)
