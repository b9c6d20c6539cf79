"""The metrics of all jobs at one address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.service.launchers import FakeLauncher
from tests.source import ROOT
from tidegate.service import JobDocument, Jobs, JobsCollector
from tidegate.service.prometheus import NAMES

LABELS = {"job_name": "a", "input": "i", "partition": "0"}


def measured(job: str, watermark: float) -> dict[str, object]:
    """What a process sends: two families with one sample each."""
    labels = {**LABELS, "job_name": job}
    return {
        "families": [
            {
                "name": f"tidegate_job_watermark_{name}_seconds",
                "help": name,
                "type": "gauge",
                "samples": [[f"tidegate_job_watermark_{name}_seconds", labels, value]],
            }
            for name, value in (("timestamp", watermark), ("delay", 0.5))
        ]
    }


@pytest.fixture
def scrape(tmp_path: Path) -> Iterator[str]:
    launcher = FakeLauncher()
    with Jobs(tmp_path, launcher=lambda: launcher) as jobs:
        for name, watermark in (("a", 990.0), ("b", 980.0)):
            jobs.create(name, JobDocument())
            jobs.start(name)
            launcher.last.run(pid=0)
            launcher.last.events.measured(measured(name, watermark))
        registry = CollectorRegistry()
        registry.register(JobsCollector(jobs, now_s=lambda: 1000.0))
        yield generate_latest(registry).decode()


def test_each_family_is_there_once_with_the_samples_of_all_jobs(scrape: str) -> None:
    types = [line.split()[2] for line in scrape.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    for job, watermark in (("a", 990.0), ("b", 980.0)):
        sample = f'tidegate_job_watermark_timestamp_seconds{{input="i",job_name="{job}",partition="0"}} {watermark}'
        assert sample in scrape.splitlines()


def test_the_delay_grows_while_a_process_is_silent(scrape: str) -> None:
    assert 'tidegate_job_watermark_delay_seconds{input="i",job_name="b",partition="0"} 20.0' in scrape.splitlines()


def test_the_state_of_a_job_is_a_metric(scrape: str) -> None:
    lines = scrape.splitlines()
    assert 'tidegate_job_state{job_name="a",state="Running"} 1.0' in lines
    assert 'tidegate_job_state{job_name="a",state="Failed"} 0.0' in lines
    assert 'tidegate_job_restarts_total{job_name="a"} 0.0' in lines


def test_every_metric_is_documented() -> None:
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert not [name for name in NAMES if f"`{name}" not in text]
