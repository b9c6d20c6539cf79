"""Files and reference data whose rows are read in Spark's workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from tests.patience import PATIENCE_S

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
    command = [sys.executable, "-m", "tests.spark.table_child", tmp_path / "job.toml", tmp_path / "ref.json", "2"]
    done = subprocess.run(command, input=table(2), capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)
    assert done.stdout == "complete\n", done.stderr
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    # What arrived in the first two seconds was joined with the first table before there was another.
    assert rows == [{"v": number, "version": 1 if number < 20 else 2} for number in range(40)]
