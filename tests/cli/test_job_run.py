"""`tidegate job run` before and without Spark: what it reports first, how it waits and stops, and what it logs."""

from __future__ import annotations

import json
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.job.run.test_run import run_here, write_job
from tests.job.run.test_tracing import collector
from tests.patience import PATIENCE_S, PROMPTLY_S, eventually
from tests.spark.publishing import publish
from tidegate.cli import main
from tidegate.durable_files import DirectoryLock
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.job import StepReport, load_job, run_job
from tidegate.job.run.run_log import RunLog
from tidegate.log_format import JsonFormatter
from tidegate.server import BackgroundServer

HUB = """\
name = "j"
query = "SELECT * INTO out FROM tolls"
{settings}
[inputs.tolls]
type = "eventhub"
connection_string = "Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=n;SharedAccessKey=sEcReT;EntityPath=e;\
UseDevelopmentEmulator=true"
[outputs.out]
type = "file"
path = "out.jsonl"
"""


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test fail that starts Spark."""

    def start(*arguments: object, **options: object) -> Iterator[object]:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("tidegate.spark.run.spark_context", contextmanager(start))


def refused(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(["job", "run", str(path), "--placement", "spark", *options])
    assert left.value.code == 1
    return capsys.readouterr().err


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@pytest.mark.usefixtures("no_spark")
def test_what_can_be_known_before_spark_starts_is_reported_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_job(tmp_path, 20)
    text, state = path.read_text(), tmp_path / "crash.state"
    lock = DirectoryLock(state)
    assert "another process is running this job" in refused(capsys, path)
    lock.release()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"cannot serve metrics on 127.0.0.1:{port}" in refused(capsys, path, "--metrics-port", port)
    run_here(path)
    path.write_text(text.replace("v > 90", "v > 80"), encoding="utf-8")
    assert "has changed since" in refused(capsys, path)
    path.write_text(text, encoding="utf-8")
    journal = state / "journal.json"
    journal.write_text(re.sub(r'"steps": \d', '"steps": 9', journal.read_text()), encoding="utf-8")
    assert "journal.json is damaged: its checksum differs" in refused(capsys, path)
    journal.unlink()
    (tmp_path / "counted.jsonl").unlink()
    (tmp_path / "counted.jsonl").mkdir()
    assert "counted.jsonl" in refused(capsys, path)


@pytest.mark.usefixtures("no_spark")
def test_a_hub_that_stays_unreachable_ends_the_job_after_the_time_that_is_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.toml"
    port = free_port()
    path.write_text(HUB.format(port=port, settings="input_retry_s = 0"), encoding="utf-8")
    said = refused(capsys, path)
    assert f"127.0.0.1:{port}" in said
    assert "sEcReT" not in said
    assert "input 'tolls' has been unavailable for" in said
    assert "increase input_retry_s" in said


@pytest.mark.usefixtures("no_spark")
def test_a_query_that_cannot_run_shows_line_and_caret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        'name = "j"\nquery = """SELECT k\nFROM i GROUP BY k"""\n[inputs.i]\ntype = "recorded"\npath = "log.jsonl"\n',
        encoding="utf-8",
    )
    said = refused(capsys, path)
    assert "line 2" in said
    assert "^" in said


@pytest.mark.slow
def test_an_unreachable_hub_is_waited_for_and_ctrl_c_stops_the_wait(tmp_path: Path) -> None:
    """It is reported with the time since when; the exit code is that of an interrupt, and there is no Java yet."""
    path = tmp_path / "job.toml"
    path.write_text(HUB.format(port=free_port(), settings=""), encoding="utf-8")
    log = tmp_path / "log"
    command = [
        sys.executable,
        "-m",
        "tidegate",
        "job",
        "run",
        str(path),
        "--placement",
        "spark",
        "--log-format",
        "json",
    ]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file)
    try:
        eventually(lambda: process.poll() is not None or b"unreachable since" in log.read_bytes())
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        assert time.monotonic() - began < PROMPTLY_S
    finally:
        process.kill()
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    (waiting,) = [entry for entry in entries if "unreachable since" in entry["message"]]
    assert waiting["level"] == "WARNING"
    assert re.search(r"input 'tolls' unreachable since 20[0-9T:-]{17}Z: .*waiting, 10 min at most", waiting["message"])
    assert entries[-1]["ended"] == "stopped"
    assert not (tmp_path / "j.state" / "spark.log").exists()


@pytest.mark.slow
def test_a_hub_that_is_down_at_the_start_and_later_is_waited_for(tmp_path: Path) -> None:
    """The connection is gone in the middle of a run, between steps, and comes back."""
    port = free_port()
    job = tmp_path / "job.toml"
    notices: list[str] = []
    reports: list[StepReport] = []
    stop = threading.Event()

    def hub() -> BackgroundServer:
        config = NamespaceConfig(name="n", event_hubs=(EventHubConfig(name="e", partition_count=1),))
        return BackgroundServer(config, tmp_path / "data", amqp_port=port)

    def run() -> None:
        loaded = load_job(job)
        run_job(
            loaded,
            on_step=reports.append,
            notice=notices.append,
            should_stop=stop.is_set,
        )

    with hub() as up:
        string = up.connection_string
    text = HUB.format(port=port, settings="").splitlines()
    text = [f'connection_string = "{string};EntityPath=e"' if "Endpoint" in line else line for line in text]
    job.write_text("\n".join(text), encoding="utf-8")
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        eventually(lambda: any("unreachable since" in text for text in notices))
        with hub() as up:
            publish(up.connection_string, "e", [{"a": 1}], partition_id="0")
            eventually(lambda: (tmp_path / "out.jsonl").exists() and (tmp_path / "out.jsonl").read_bytes())
        eventually(lambda: sum("unreachable since" in text for text in notices) >= 2)
        with hub() as up:
            publish(up.connection_string, "e", [{"a": 2}], partition_id="0")
            eventually(lambda: (tmp_path / "out.jsonl").read_bytes().count(b"\n") == 2)
            stop.set()
            thread.join()
    finally:
        stop.set()
    assert sum("input 'tolls' is back after" in text for text in notices) >= 2
    assert sum(report.step.events for report in reports) == 2


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_steps_are_summed_up_every_few_seconds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_job(tmp_path, 300)
    clock = Clock()
    log = RunLog(load_job(path), clock)

    def on_step(report: StepReport) -> None:
        clock.now_s += 0.5
        log.step(report)

    with caplog.at_level(logging.INFO, "tidegate.job"):
        log.end(run_here(path, 10, on_step))
    records = [record for record in caplog.records if "steps" in getattr(record, "fields", {})]
    steps = [record.__dict__["fields"]["steps"] for record in records]
    assert steps == [1, *[10] * (len(steps) - 2), steps[-1]]
    assert 4 <= len(steps) <= 6
    assert sum(record.__dict__["fields"]["events"] for record in records) == 300
    assert re.match(r"10 steps: \d+ events, \d+ results; watermark 2026", records[1].getMessage())
    entry = json.loads(JsonFormatter().format(records[1]))
    assert (entry["level"], entry["logger"], entry["steps"]) == ("INFO", "tidegate.job", 10)
    ended = next(record for record in caplog.records if "ended" in getattr(record, "fields", {}))
    metrics = ended.__dict__["fields"]["metrics"]
    assert metrics["Input Sources Received"] == 300
    assert metrics["Input Events"] + metrics["Input Deserialization Errors"] == 300
    assert ended.getMessage().startswith(f"complete: Input Events {metrics['Input Events']}, ")


@pytest.mark.slow
def test_a_run_sends_its_traces_to_a_collector(tmp_path: Path, no_spark: None) -> None:
    path = write_job(tmp_path, 60)
    with collector() as (url, received), pytest.raises(SystemExit) as left:
        main(["job", "run", str(path), "--placement", "process", "--traces", url])
    assert left.value.code == 0
    assert {place for place, _ in received} == {"/v1/traces"}


@pytest.mark.usefixtures("no_spark")
def test_a_run_ends_with_what_it_could_not_use_by_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bodies = ['{"v": "6"}', '{"v": "x"}', '{"v": "y"}', '{"v": "9223372036854775807"}', "{"]
    arrivals = [{"arrival": f"2026-01-31T12:00:0{second}Z", "body": body} for second, body in enumerate(bodies)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, arrivals)), encoding="utf-8")
    path = tmp_path / "job.toml"
    path.write_text(
        'name = "j"\nquery = "SELECT CAST(v AS bigint) + 1 AS n INTO out FROM i"\n'
        '[inputs.i]\ntype = "recorded"\npath = "log.jsonl"\n[outputs.out]\ntype = "file"\npath = "out.jsonl"\n',
        encoding="utf-8",
    )
    with pytest.raises(SystemExit) as left:
        main(["job", "run", str(path), "--placement", "process"])
    assert left.value.code == 0
    said = caplog.text
    assert "4 events or results could not be used; samples are in" in said
    cast = "RuntimeError 2 (input i): a value cannot be converted to the type asked for; first: partition 0, event 1"
    assert f'{cast}: {{"v": "x"}}' in said
    assert "RuntimeError 1 (input i): a number is out of range; first: partition 0, event 3" in said
    assert "InputDeserializerError.InvalidData 1 (input i)" in said
    assert (tmp_path / "j.state" / "data-errors.jsonl").read_text(encoding="utf-8").count("DataErrorType") == 2
