"""Entries that Kafka's clients wrote, as capture, jobs and readers of AMQP find them: as events, one log for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer

from tests.patience import PATIENCE_S, eventually
from tidegate.connectors.inputs.hub_log import HubLog
from tidegate.connectors.model.events import Events
from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer, Server

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIG = NamespaceConfig(name="ns", event_hubs=(EventHubConfig(name="eh", partition_count=1),))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archive")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> Iterator[Server]:
    """A hub with a batch of two records of each compression in its only partition."""
    capture = CaptureDescription(destination=str(archive)).model_copy(
        update={"interval_in_seconds": 1, "skip_empty_archives": True}
    )
    with BackgroundServer(CONFIG, tmp_path_factory.mktemp("data"), kafka_port=0, capture=capture) as running:
        for compression in COMPRESSIONS:
            producer = Producer(
                {
                    "bootstrap.servers": f"127.0.0.1:{running.server.kafka_port}",
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "PLAIN",
                    "sasl.username": "$ConnectionString",
                    "sasl.password": running.connection_string,
                    "compression.type": compression,
                    "linger.ms": 60_000,  # until the flush, so that each has one batch
                }
            )
            producer.list_topics("eh", PATIENCE_S)  # so that both records wait in one queue, and none for its partition
            for number in range(2):
                body = f'{{"compression": "{compression}", "number": {number}}}'
                producer.produce("eh", body, key=f"key {number}", headers=[("unit", b"km/h"), ("empty", b"")])
            assert producer.flush(PATIENCE_S) == 0
        yield running.server


BODIES = [
    f'{{"compression": "{compression}", "number": {number}}}'.encode()
    for compression in COMPRESSIONS
    for number in range(2)
]


def test_capture_writes_them_as_events(server: Server, archive: Path) -> None:
    def records() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for path in sorted(archive.rglob("*.avro")):
            with path.open("rb") as file:
                found += [record for record in fastavro.reader(file) if isinstance(record, dict)]
        return found

    eventually(lambda: len(records()) == len(BODIES))
    captured = records()
    assert [record["Body"] for record in captured] == BODIES
    assert [record["SequenceNumber"] for record in captured] == list(range(len(BODIES)))
    assert {record["SystemProperties"]["x-opt-partition-key"] for record in captured} == {"key 0", "key 1"}
    assert {record["Properties"]["unit"] for record in captured} == {b"km/h"}


@pytest.mark.parametrize("use_segments", [True, False], ids=["segments", "amqp"])
def test_jobs_read_them_as_events(server: Server, use_segments: bool) -> None:
    log = HubLog.connect(server.connection_string(hub="eh"), None, "$Default", use_segments=use_segments)
    try:
        end = log.ends()["0"]
        runs = [found for start in (0, 3) for found in log.range("0", start, end.end).read_events(4)]
    finally:
        log.close()
    assert [body for run in runs for body in run.bodies] == [*BODIES, *BODIES[3:]]
    assert [number for run in runs for number in run.sequence_numbers.tolist()] == [*range(10), *range(3, 10)]
    assert keys_of(runs[0])[:2] == ["key 0", "key 1"]
    assert runs[0].user_properties[0] == {"unit": "km/h", "empty": ""}
    assert len({int(arrival) for run in runs for arrival in run.arrivals}) <= len(COMPRESSIONS)


def keys_of(events: Events) -> list[str | None]:
    return events.partition_keys
