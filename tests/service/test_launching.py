"""Without the packages that jobs need, the service is as light as the hub, and says what is missing."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidegate.service import JobDocument, Jobs, JobState, JobsUnavailable

OF_THE_EXTRA = ("fastavro", "msgspec", "numpy", "opentelemetry", "py4j", "pyarrow", "pyspark", "regex")
PROGRAM = """
import sys
import tidegate.cli.up, tidegate.cli.job.managed, tidegate.cli.job.managed
import tidegate.cli.job.managed, tidegate.azure.management.stream_analytics.provider
from pathlib import Path
from tidegate.service import JobDocument, Jobs
with Jobs(Path(sys.argv[1])) as jobs:
    jobs.create("tolls", JobDocument({"query": "SELECT 1"}))
    jobs.list()
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.slow
def test_the_service_and_its_commands_load_nothing_that_only_jobs_need(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & set(OF_THE_EXTRA)


def test_a_job_cannot_be_started_without_the_extra_and_the_reason_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec

    def find_spec(name: str, *arguments: Any) -> Any:
        return None if name in ("numpy", "pyarrow") else find(name, *arguments)

    with Jobs(tmp_path) as jobs:
        jobs.create("tolls", JobDocument())
        monkeypatch.setattr(importlib.util, "find_spec", find_spec)
        with pytest.raises(JobsUnavailable, match=r'\(numpy, pyarrow\): pip install "tidegate\[spark\]"'):
            jobs.start("tolls")
        assert jobs.show("tolls").state is JobState.CREATED
