"""A job of the service whose file names a Spark master runs there, and gives the same results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.job.run.test_run import outputs_of
from tests.patience import PATIENCE_S
from tests.service.test_processes import document
from tidegate.service import Jobs, JobState


@pytest.mark.spark
def test_a_job_with_a_master_runs_on_spark(tmp_path: Path) -> None:
    with Jobs(tmp_path / "service") as jobs:
        here, there = document(tmp_path / "here"), document(tmp_path / "there")
        jobs.create("here", replace(here, definition={**here.definition, "spark": {"placement": "process"}}))
        jobs.create("there", replace(there, definition={**there.definition, "spark": {"master": "local[2]"}}))
        for name in ("here", "there"):
            jobs.start(name)
        for name in ("here", "there"):
            ended = jobs.wait(name, {JobState.STOPPED, JobState.FAILED}, 3 * PATIENCE_S)
            assert (ended.state, ended.restarts) == (JobState.STOPPED, 0), ended.reason
        assert (jobs.state_folder("there") / "spark.log").exists()
        assert not (jobs.state_folder("here") / "spark.log").exists()
    assert outputs_of(tmp_path / "here") == outputs_of(tmp_path / "there")
    assert outputs_of(tmp_path / "here")[0]
