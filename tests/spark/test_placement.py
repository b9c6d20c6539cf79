"""A job on Spark whose Python workers die, with early results of a query on two levels of shards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.job.run.test_run import run_here, write_job
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.spark

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


def test_early_results_on_two_levels_survive_a_killed_worker_with_the_same_bytes(tmp_path: Path) -> None:
    expected, found = tmp_path / "here", tmp_path / "spark"
    for folder in (expected, found):
        path = write_job(folder, 400, CHAIN, outputs=OUTPUTS)
        (folder / "once.py").write_text(ONCE, encoding="utf-8")
    run_here(expected / "job.toml", 90)
    (found / "kills").touch()
    command = [sys.executable, "-m", "tidegate", "job", "run", str(path), "--placement", "spark"]
    command += ["--max-events-per-step", "90", "--progress", str(found / "progress.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=8 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert (found / "killed").exists()
    assert "a Python worker died within a step on Spark" in done.stderr
    assert "Traceback" not in done.stderr
    for name in ("counted", "chained", "early"):
        content = (found / f"{name}.jsonl").read_bytes()
        assert content == (expected / f"{name}.jsonl").read_bytes() != b""
    reports = [json.loads(line) for line in (found / "progress.json").read_text().splitlines()]
    assert all(report["tidegate"]["placement"]["where"] == "spark" for report in reports)
    assert reports[-1]["tidegate"]["placement"]["losses"] == 1
    assert sum(report["numInputRows"] for report in reports) == 400
