"""A job that uses too much of the machine harms neither the service nor the other jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.service.test_processes import endless, settled
from tidegate.service import JobDocument, Jobs, JobState, ResourceLimits, ServiceSettings

MEMORY = ServiceSettings(limits=ResourceLimits(memory_bytes_per_unit=200 << 20))


def calling(folder: Path, body: str) -> JobDocument:
    """A job whose query calls a function in Python with this body."""
    document = endless(folder)
    (folder / "runaway.py").write_text(f"held = []\n\n\ndef runaway(value):\n{body}\n    return value\n")
    definition = dict(document.definition)
    definition["query"] = str(definition["query"]).replace("k, v INTO large", "k, udf.runaway(v) AS v INTO large")
    definition["functions"] = {"runaway": {"module": str(folder / "runaway.py")}}
    return JobDocument(definition)


@pytest.mark.crash
def test_a_job_that_takes_too_much_memory_is_ended_with_that_reason(tmp_path: Path) -> None:
    body = "    import time\n    held.append(bytearray(20 << 20))\n    time.sleep(0.05)"
    with Jobs(tmp_path / "service", MEMORY) as jobs:
        jobs.create("modest", endless(tmp_path / "modest"))
        jobs.create("greedy", calling(tmp_path / "greedy", body))
        jobs.start("modest")
        modest = settled(jobs, "modest")
        jobs.start("greedy")
        greedy = jobs.wait("greedy", {JobState.DEGRADED, JobState.FAILED}, PATIENCE_S)
        assert greedy.state is JobState.DEGRADED
        assert "MiB of memory, and may use 200: scale the job, or shorten its windows" in str(greedy.reason)
        assert jobs.show("modest").process == modest.process
        assert jobs.show("modest").state is JobState.RUNNING


@pytest.mark.crash
def test_a_job_that_asks_for_far_too_much_memory_at_once_does_not_get_it(tmp_path: Path) -> None:
    with Jobs(tmp_path / "service", MEMORY) as jobs:
        jobs.create("greedy", calling(tmp_path / "greedy", "    held.append(bytearray(4 << 30))"))
        jobs.start("greedy")
        jobs.wait("greedy", {JobState.DEGRADED, JobState.RUNNING, JobState.FAILED}, PATIENCE_S)
        assert any("MemoryError" in str(error) for error in jobs.data_errors("greedy")) or "memory" in str(
            jobs.show("greedy").reason
        )


@pytest.mark.crash
def test_a_job_that_never_ends_its_step_can_be_stopped(tmp_path: Path) -> None:
    with Jobs(tmp_path / "service") as jobs:
        jobs.create("modest", endless(tmp_path / "modest"))
        jobs.create("busy", calling(tmp_path / "busy", "    while True:\n        pass"))
        jobs.start("busy")
        jobs.start("modest")
        assert settled(jobs, "modest").state is JobState.RUNNING
        assert jobs.show("busy").state is JobState.STARTING
        jobs.stop("busy")
        assert jobs.wait("busy", {JobState.STOPPED}, PATIENCE_S).state is JobState.STOPPED
