"""The server captures what clients publish."""

import threading
import time
from pathlib import Path

import fastavro
import pytest
from azure.eventhub import EventData, EventHubProducerClient

from tests.patience import PATIENCE_S, PROMPTLY_S, eventually
from tidegate.hub import capture_scheduler
from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer
from tidegate.server.context.metrics import render

CONFIG = NamespaceConfig(name="ns1", event_hubs=(EventHubConfig(name="tolls", partition_count=2),))


def wait_for_files(archive: Path, count: int) -> list[Path]:
    eventually(lambda: len(list(archive.rglob("*.avro"))) >= count)
    return sorted(archive.rglob("*.avro"))


def eventually_counted(server: BackgroundServer, name: str, value: int) -> None:
    def is_so() -> bool:
        text = render(server.server.metrics, server.server.namespace).decode()
        lines = [line for line in text.splitlines() if line.startswith(name)]
        return len(lines) == 2 and sum(float(line.rpartition(" ")[2]) for line in lines) == value

    eventually(is_so)


@pytest.mark.sdk
def test_what_clients_publish_is_in_files(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    # Shorter than a user's may be, so that the test need not wait a minute.
    short = CaptureDescription(destination=str(archive)).model_copy(
        update={"interval_in_seconds": 1, "skip_empty_archives": True}
    )
    with BackgroundServer(CONFIG, tmp_path / "data", capture=short) as server:
        with EventHubProducerClient.from_connection_string(server.connection_string, eventhub_name="tolls") as producer:
            batch = producer.create_batch(partition_key="gate-1")
            for number in range(100):
                event = EventData(f"car {number}")
                event.properties = {"number": number}
                batch.add(event)
            producer.send_batch(batch)
        (path,) = wait_for_files(archive, 1)
        eventually_counted(server, "tidegate_captured_events_total", 100)
        eventually_counted(server, "tidegate_capture_waiting_events", 0)
    with path.open("rb") as file:
        records = list(fastavro.reader(file))
    assert [record["Body"] for record in records] == [b"car %d" % number for number in range(100)]
    assert [record["Properties"] for record in records] == [{"number": number} for number in range(100)]
    assert {record["SystemProperties"]["x-opt-partition-key"] for record in records} == {"gate-1"}


@pytest.mark.slow
def test_a_fault_in_capture_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def step(_: capture_scheduler.CaptureScheduler, now_ms: int) -> bool:
        calls.append(now_ms)
        if len(calls) == 1:
            raise RuntimeError("a bug")
        return False

    monkeypatch.setattr(capture_scheduler.CaptureScheduler, "step", step)
    with BackgroundServer(CONFIG, tmp_path / "data"):
        eventually(lambda: len(calls) >= 2)
    assert "capture failed unexpectedly" in caplog.text


@pytest.mark.slow
def test_a_destination_that_hangs_does_not_hold_up_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work, let_go = threading.Event(), threading.Event()

    def step(_: capture_scheduler.CaptureScheduler, now_ms: int) -> bool:
        at_work.set()
        let_go.wait(PATIENCE_S)
        return False

    monkeypatch.setattr(capture_scheduler.CaptureScheduler, "step", step)
    with BackgroundServer(CONFIG, tmp_path / "data"):
        assert at_work.wait(PATIENCE_S)
        started = time.monotonic()
    took_s = time.monotonic() - started
    let_go.set()
    assert took_s < PROMPTLY_S
