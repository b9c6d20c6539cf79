"""Files and reference data whose rows are read in Spark's workers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from tidegate.job import StepReport, load_job
from tidegate.spark import run_job_on_spark

pytestmark = pytest.mark.usefixtures("no_spark")

JOB = """
name = "files"
query = "SELECT i.v, r.version INTO o FROM i JOIN r ON i.k = r.k"
[inputs.i]
type = "files"
path = "in/*.parquet"
format = "parquet"
watch = false
[inputs.r]
type = "reference"
path = "ref.json"
refresh_s = 1e-9
settle_s = 0
[outputs.o]
type = "file"
path = "o.jsonl"
"""


def table(version: int) -> str:
    return "\n".join(json.dumps({"k": key, "version": version}) for key in "ab")


def test_a_table_that_changes_reaches_the_workers(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(4):
        path = tmp_path / "in" / f"{number}.parquet"
        rows_of_file = pa.table({"k": ["a", "b"] * 5, "v": range(10 * number, 10 * number + 10)})
        pyarrow.parquet.write_table(rows_of_file, path)
        os.utime(path, (number, number))
    (tmp_path / "ref.json").write_text(table(1))
    (tmp_path / "job.toml").write_text(JOB)

    def replace_table(report: StepReport) -> None:
        if report.number == 2:
            (tmp_path / "ref.json").write_text(table(2))
            os.utime(tmp_path / "ref.json", (1, 1))

    job = load_job(tmp_path / "job.toml")
    assert run_job_on_spark(job, master="local[2]", max_events_per_step=10, on_step=replace_table).why == "complete"
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    # What arrived in the first two seconds was joined with the first table before there was another.
    assert rows == [{"v": number, "version": 1 if number < 20 else 2} for number in range(40)]
