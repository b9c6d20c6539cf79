"""Sealed state on a cluster: a run continues from it, and again after an executor was killed with the state it had."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.job.run.test_seal_schedule import LAG_OF_A_DAY, START, write_job
from tests.patience import PATIENCE_S
from tests.source import SOURCE
from tidegate.ordering import TICKS_PER_SECOND

pytestmark = pytest.mark.spark

_HOUR = 3600 * TICKS_PER_SECOND
FATAL = f'''"""A function that kills its executor once it sees a late event, if it may."""
import os
import signal
import time
from pathlib import Path


def fatal(value):
    time.sleep(0.006)  # so that it pays not to read two thousand events again
    here = Path(__file__).parent
    if value > {START + 33 * _HOUR} and (here / "kills").exists() and not (here / "killed").exists():
        (here / "killed").touch()
        daemon = Path(f"/proc/{{os.getppid()}}/stat").read_text().rpartition(")")[2].split()
        os.kill(int(daemon[1]), signal.SIGKILL)
    return value
'''
FUNCTION = '[functions.fatal]\nmodule = "fatal.py"\n'


def job_in(folder: Path, seal: str) -> Path:
    path = write_job(folder, seal)
    text = path.read_text(encoding="utf-8").replace(
        LAG_OF_A_DAY, LAG_OF_A_DAY.replace("k, v,", "k, udf.fatal(v) AS v,")
    )
    path.write_text(text + FUNCTION, encoding="utf-8")
    (folder / "fatal.py").write_text(FATAL, encoding="utf-8")
    return path


def run(path: Path, *options: str) -> str:
    command = [sys.executable, "-m", "tidegate", "job", "run", str(path), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=8 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def counts(notice: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d(?= events|$)", notice)]


@pytest.mark.soak
def test_a_killed_executor_costs_what_was_read_since_the_seal(tmp_path: Path, cluster: str) -> None:
    expected, found = tmp_path / "here", tmp_path / "cluster"
    run(job_in(expected, "seal_every_s = 0"), "--placement", "process")
    path = job_in(found, "")
    on_cluster = ["--master", cluster, "--max-events-per-step", "400"]
    on_cluster += ["--spark-conf", f"spark.executorEnv.PYTHONPATH={SOURCE}"]
    # Sealed by three shards, it is taken over by a job that would have two.
    run(path, "--master", "local[3]", "--placement", "spark", *on_cluster[2:4], "--until", "2026-01-02T06:00:00Z")
    (found / "kills").touch()
    said = run(path, *on_cluster)
    assert (found / "killed").exists()
    notices = [line for line in said.splitlines() if "the state is the sealed one" in line]
    # When the run began, and after the loss.
    assert len(notices) == 2, said
    assert "is gone; it is computed again" in said
    for notice in notices:
        again, instead = counts(notice)
        assert again < 1_000 < 2_000 < instead
    assert (found / "lagged.jsonl").read_bytes() == (expected / "lagged.jsonl").read_bytes()
