"""The alert rules and the dashboard that are shipped, in a real Prometheus that scrapes a hub with several jobs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.job.logs import travelling
from tests.job.run.test_run import write_job
from tests.patience import PATIENCE_S, eventually
from tests.server.process import free_port
from tests.service.launchers import FakeLauncher
from tests.source import ROOT
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.job import StepReport, load_job, run_job
from tidegate.server import BackgroundServer
from tidegate.service import JobDocument, Jobs, JobsCollector
from tidegate.service.supervision import Exit, ExitKind
from tidegate.service.worker.reporter import Reporter

ALERTS = ROOT / "packaging" / "alerts.yaml"
JOBS = ("tolls", "bridges")
FAILED = "fords"
# What a hub without trouble, capture and refusals has no series of.
EMPTY = {"tidegate_refusals_total", "tidegate_capture_waiting_events"}


def program(name: str) -> str:
    found = shutil.which(name)
    assert found, "Prometheus is needed for this test: `scripts/need prometheus` installs it"
    return found


def run_promtool(*arguments: str) -> str:
    done = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def measured(folder: Path, name: str) -> dict[str, Any]:
    """Run a job for some steps, and return what its process would have sent."""
    job = load_job(write_job(folder, 300))
    sent: list[dict[str, Any]] = []
    reporter = Reporter(name, sent.append, job.program, {"i": "orders"})
    steps: list[StepReport] = []
    run_job(
        job,
        travelling(job),
        observers=[reporter.see],
        max_events_per_step=50,
        on_step=steps.append,
        should_stop=lambda: len(steps) >= 4,
    )
    return {"families": reporter.families()}


@pytest.fixture(scope="module")
def hub_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a hub with two jobs that run and one that has failed."""
    folder, launcher = tmp_path_factory.mktemp("service"), FakeLauncher()
    config = NamespaceConfig(name="n", event_hubs=(EventHubConfig(name="orders", partition_count=2),))
    with (
        BackgroundServer(config, folder / "data", http_port=0) as running,
        Jobs(folder / "jobs", launcher=lambda: launcher) as jobs,
    ):
        running.server.metrics.collectors.append(JobsCollector(jobs))
        for name in (*JOBS, FAILED):
            jobs.create(name, JobDocument())
            jobs.start(name)
            launcher.last.run(pid=os.getpid())  # its memory and processor time can be read
            launcher.last.events.measured(measured(folder / name, name))
        launcher.last.events.ended(Exit(ExitKind.FATAL, "as the test wants"))
        yield running.server.web_url()


@pytest.fixture(scope="module")
def prometheus(hub_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a Prometheus as people configure it: a scrape job, which is its label `job` of every series."""
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    target = urllib.parse.urlsplit(hub_url).netloc
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: ['{ALERTS}']\n"
        f"scrape_configs: [{{job_name: tidegate, static_configs: [{{targets: ['{target}']}}]}}]\n",
        encoding="utf-8",
    )
    command = [program("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        # two scrapes: a rate needs as many
        eventually(lambda: len(asked(url, "up[1m]", missing=[])) == 1)
        eventually(lambda: int(asked(url, "count_over_time(up[1m])")[0]["value"][1]) >= 3)
        yield url
    finally:
        process.terminate()
        process.wait()


def asked(url: str, expression: str, missing: Any = None) -> Any:
    """Return the series of an expression."""
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=PATIENCE_S) as answer:
            return json.load(answer)["data"]["result"]
    except OSError:
        if missing is None:
            raise
        return missing


def test_the_rules_are_valid() -> None:
    assert "SUCCESS" in run_promtool("check", "rules", str(ALERTS))


def panels() -> list[tuple[str, str]]:
    dashboard = json.loads((ROOT / "packaging" / "grafana-dashboard.json").read_text(encoding="utf-8"))
    return [
        (f"{panel['title']}: {target['legendFormat']}", target["expr"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]


def test_every_panel_shows_each_job_and_hub_by_itself(prometheus: str) -> None:
    for title, expression in panels():
        filled = expression.replace("$__rate_interval", "1m").replace("$__range", "1m").replace("$job", ".*")
        found = asked(prometheus, filled)
        if "tidegate_job_" in expression:
            names = {one["metric"].get("job_name") for one in found}
            assert names >= set(JOBS), (title, filled, found)
        else:
            assert found or any(name in expression for name in EMPTY), (title, filled)


def test_the_hub_that_a_job_reads_is_a_label(prometheus: str) -> None:
    found = asked(prometheus, "sum by (job_name, event_hub) (tidegate_job_input_events_total)")
    assert {(one["metric"]["job_name"], one["metric"]["event_hub"]) for one in found} == {
        (name, "orders") for name in (*JOBS, FAILED)[:2]
    }


def test_an_alert_names_the_job(prometheus: str) -> None:
    eventually(lambda: asked(prometheus, 'ALERTS{alertname="TidegateJobFailed"}'))
    (alert,) = asked(prometheus, 'ALERTS{alertname="TidegateJobFailed"}')
    assert (alert["metric"]["job_name"], alert["metric"]["job"]) == (FAILED, "tidegate")


def text_of(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def test_the_rules_fire_for_the_job_and_disk_that_they_are_about(tmp_path: Path) -> None:
    at = 'instance="h:1",job="tidegate"'
    series = {
        f'tidegate_job_watermark_delay_seconds{{{at},job_name="a",input="i",partition="0"}}': "900x40",
        f'tidegate_job_watermark_delay_seconds{{{at},job_name="b",input="i",partition="0"}}': "1x40",
        f'tidegate_job_backlogged_input_events{{{at},job_name="a",input="i",partition="0"}}': "20000+1000x40",
        f'tidegate_job_backlogged_input_events{{{at},job_name="b",input="i",partition="0"}}': "20000-500x40",
        f"tidegate_storage_writable{{{at}}}": "0x40",
        f"tidegate_storage_free_bytes{{{at}}}": "5x40",
        f"tidegate_storage_size_bytes{{{at}}}": "100x40",
        f"tidegate_storage_last_durable_write_timestamp_seconds{{{at}}}": "0x40",
    }
    of_job = {"job_name": "a", "instance": "h:1", "severity": "warning"}
    of_hub = {"job": "tidegate", "instance": "h:1"}
    expected = {
        "TidegateJobBehind": of_job,
        "TidegateJobBacklogGrows": of_job,
        "TidegateStorageNotWritable": {**of_hub, "severity": "critical"},
        "TidegateStorageFills": {**of_hub, "severity": "warning"},
        "TidegateStorageStalls": {**of_hub, "severity": "critical"},
    }
    document = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": f'count by ({", ".join(labels)}) (ALERTS{{alertname="{name}",alertstate="firing"}})',
                        "eval_time": "35m",
                        "exp_samples": [{"labels": text_of(labels), "value": 1}],
                    }
                    for name, labels in expected.items()
                ],
            }
        ],
    }
    path = tmp_path / "rules.json"  # YAML is a superset of JSON
    path.write_text(json.dumps(document), encoding="utf-8")
    run_promtool("test", "rules", str(path))
