"""A job's Prometheus metrics: every documented name, by input and partition, as the run counts it."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.job.logs import prepared, travelling
from tests.job.run.test_run import write_job
from tests.job.runtime.test_watermark_blockers import at, event, seen
from tests.patience import PATIENCE_S
from tests.source import ROOT
from tidegate.connectors.inputs.recorded import RecordedEvent
from tidegate.connectors.model.metrics import COUNTERS as JOB_COUNTERS
from tidegate.connectors.model.metrics import DATA_CONVERSION_ERRORS, OUTPUT_EVENTS
from tidegate.job import JobError, Stepper, load_job, run_job
from tidegate.job.run.prometheus import COUNTERS, NAMES, JobCollector, render, served
from tidegate.job.runtime.placement import DriverPlacement
from tidegate.job.runtime.step import StepSettings
from tidegate.ordering import Policy

Samples = dict[tuple[str, str, str], float]


def steady(text: bytes) -> list[bytes]:
    """Return the lines that two scrapes have in common: what the process uses changes all the time."""
    return [line for line in text.splitlines() if b"_process_" not in line]


def samples(text: str) -> Samples:
    """By name, input (or output) and partition."""
    return {
        (
            sample.name,
            sample.labels.get("input", sample.labels.get("output", "")),
            sample.labels.get("partition", ""),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counters_are_by_partition_and_sum_to_what_the_run_counts(tmp_path: Path) -> None:
    job = load_job(write_job(tmp_path, 500))
    collector = JobCollector("crash")
    summary = run_job(job, travelling(job), max_events_per_step=37, observers=[collector.see])
    told = samples(render(collector).decode())
    for metric, (name, _) in COUNTERS.items():
        of_metric = {key: value for key, value in told.items() if key[0] == f"{name}_total"}
        assert sum(of_metric.values()) == summary.totals[metric]
        assert {(key[1], key[2]) for key in of_metric} == {("i", "0"), ("i", "1"), ("i", "2")}
    out = sum(told["tidegate_job_output_events_total", name, ""] for name in ("counted", "large"))
    assert out == summary.totals[OUTPUT_EVENTS]
    assert set(COUNTERS) | {OUTPUT_EVENTS, DATA_CONVERSION_ERRORS} == set(JOB_COUNTERS)


def test_gauges_show_backlog_and_delay() -> None:
    events = [event("0", at(n), at(n)) for n in range(10)]
    source = seen("SELECT t INTO out FROM i TIMESTAMP BY t", Policy.seconds(late=60, out_of_order=2), events, at(9.5))
    stepper = Stepper(
        source.program,
        source.policy,
        source.logs,
        DriverPlacement(source.program, source.policy),
        settings=StepSettings(4),
    )
    collector = JobCollector("here", now_s=lambda: at(20) / 10**7)
    collector.see(stepper.step(), {}, {})
    told = samples(render(collector).decode())
    assert told["tidegate_job_backlogged_input_events", "i", "0"] == 6
    assert told["tidegate_job_watermark_timestamp_seconds", "i", "0"] == at(1) / 10**7
    assert told["tidegate_job_watermark_delay_seconds", "i", "0"] == pytest.approx(19)
    assert told["tidegate_job_steps_total", "", ""] == 1


def test_what_fails_after_a_window_is_of_no_partition() -> None:
    sql = "SELECT 1 / (COUNT(*) - 1) AS x INTO out FROM i TIMESTAMP BY t GROUP BY TumblingWindow(second, 5)"
    program, policy = prepared(sql), Policy.seconds(late=60)
    source = seen(sql, policy, [event("0", at(1), at(1)), RecordedEvent("0", at(90), json.dumps({}).encode())], at(99))
    collector = JobCollector("here")
    collector.see(Stepper(program, policy, source.logs, DriverPlacement(source.program, source.policy)).step(), {}, {})
    told = samples(render(collector).decode())
    assert told["tidegate_job_runtime_errors_total", "", ""] == 1
    assert told["tidegate_job_runtime_errors_total", "i", "0"] == 0
    assert told["tidegate_job_input_deserialization_errors_total", "i", "0"] == 1


def test_names_have_base_units_and_are_documented() -> None:
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert not [name for name in NAMES if f"`{name}`" not in text]
    told = render(JobCollector("here")).decode()
    assert not [name for name in NAMES if f"# TYPE {name} " not in told]
    assert all(re.fullmatch(r"tidegate_job_[a-z_]+", name) for name in NAMES)
    assert not [name for name in NAMES if re.search(r"_(ms|millis|kb|count)$", name)]


@pytest.mark.slow
def test_beside_the_metrics_a_page_is_told_how_things_stand() -> None:
    told = [{"watermark": "2026-01-01T00:00:00.0000000Z"}, None]
    with served(JobCollector("here"), "127.0.0.1", 0, lambda: told[0]) as address:
        for _ in range(2):
            with urllib.request.urlopen(address.replace("/metrics", "/status"), timeout=PATIENCE_S) as answer:
                assert answer.headers["Content-Type"] == "application/json"
                assert json.load(answer) == told[0]
            told.reverse()
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            assert steady(answer.read()) == steady(render(JobCollector("here")))


def test_scrapes_are_answered_while_the_job_runs_and_not_after() -> None:
    collector = JobCollector("here")
    with served(collector, "127.0.0.1", 0) as address:
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            assert steady(answer.read()) == steady(render(collector))
        port = int(address.rsplit(":", 1)[1].partition("/")[0])
        with (
            pytest.raises(JobError, match=f"cannot serve metrics on 127.0.0.1:{port}"),
            served(collector, "127.0.0.1", port),
        ):
            pass
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=PATIENCE_S)
