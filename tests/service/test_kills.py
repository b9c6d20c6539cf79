"""A service that is killed again and again while ten jobs run: all come back, and every output has the same bytes.

`make soak` kills it more often.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.job.logs import travelling
from tests.job.run.test_run import write_job
from tests.patience import PATIENCE_S
from tests.profiles import scaled
from tidegate.job import load_job, run_job
from tidegate.job.config.definition import complete_content
from tidegate.service import JobDocument, Jobs, ServiceSettings
from tidegate.service.job_files import read_last_output

KILLS = scaled(1)
EVENTS = 750 + 150 * KILLS
"""Enough that the jobs are still busy when the last kill comes."""

STAMP = "SELECT System.Timestamp() AS ts"
FROM = "INTO o FROM i TIMESTAMP BY t"
QUERIES = (
    f"{STAMP}, k, COUNT(*) AS n, AVG(v) AS mean {FROM} GROUP BY k, TumblingWindow(second, 5)",
    f"{STAMP}, k, v {FROM} WHERE v > 50",
    f"{STAMP}, k, MAX(v) AS most {FROM} GROUP BY k, HoppingWindow(second, 10, 5)",
    f"{STAMP}, k, v, LAG(v) OVER (PARTITION BY k LIMIT DURATION(second, 20)) AS before {FROM}",
    f"{STAMP}, k, COUNT(*) AS n {FROM} GROUP BY k, SessionWindow(second, 2, 20)",
)
OUTPUTS = (
    '[outputs.o]\ntype = "file"\npath = "o.jsonl"\n',
    '[outputs.o]\ntype = "file"\nformat = "csv"\npath = "o.jsonl"\n',
)
ORDERING = "late_arrival_tolerance_s = 4\nearly_arrival_tolerance_s = 5"


def job_files(folder: Path) -> dict[str, Path]:
    """Ten jobs, each over a log of its own."""
    return {
        f"job-{query}-{output}": write_job(
            folder / f"job-{query}-{output}", EVENTS, text, ORDERING, sections, settings='compatibility_level = "1.2"'
        )
        for query, text in enumerate(QUERIES)
        for output, sections in enumerate(OUTPUTS)
    }


class Service:
    """A service in a process of its own, and the processes of its jobs."""

    def __init__(self, folder: Path, events_per_step: int = 2) -> None:
        command = [sys.executable, "-m", "tests.service.service_child", str(folder), str(events_per_step)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.workers: dict[str, int] = {}

    def read_workers(self) -> bool:
        """Wait until every job runs or has ended; return whether one runs."""
        assert self._process.stdout is not None
        self.workers = json.loads(self._process.stdout.readline())
        return bool(self.workers)

    def kill(self) -> None:
        """Kill the service, and wait until nothing is left of it."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        deadline = time.monotonic() + PATIENCE_S
        while any(map(is_alive, self.workers.values())):
            assert time.monotonic() < deadline, "a process of a job outlived the service"
            time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.crash
def test_ten_jobs_of_a_service_that_is_killed_write_the_same_bytes(tmp_path: Path) -> None:
    expected = {}
    for name, path in job_files(tmp_path / "whole").items():
        job = load_job(path)
        run_job(job, travelling(job))
        expected[name] = (path.parent / "o.jsonl").read_bytes()
    killed = job_files(tmp_path / "killed")
    with Jobs(tmp_path / "service", ServiceSettings(max_events_per_step=2)) as jobs:
        for name, path in killed.items():
            jobs.create(name, JobDocument(complete_content(path)))
            jobs.start(name)
    dice = random.Random(11)
    while_running = 0
    for life in range(KILLS):
        service = Service(tmp_path / "service")
        if life % 4 == 3:  # at any moment of its start
            time.sleep(dice.random() * 3)
            service.kill()
        else:
            while_running += service.read_workers()
            time.sleep(dice.random() * 0.5)
            service.kill()
    assert while_running == KILLS - KILLS // 4, "the jobs had ended before the last kill"
    service = Service(tmp_path / "service", events_per_step=1000)
    while service.read_workers():
        pass
    service.kill()
    found = {name: (path.parent / "o.jsonl").read_bytes() for name, path in killed.items()}
    assert len(found) == 10
    assert all(len(content) > 500 for content in expected.values())
    assert [name for name in found if found[name] != expected[name]] == []
    assert not [path for path in killed.values() if read_last_output(path.parent / "crash.state") is not None]
