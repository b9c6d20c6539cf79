"""Limits of Kafka's clients: throughput units with the protocol's throttle time, and thousands of connections."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S, eventually
from tests.server.kafka.client import KafkaClient, fetch_fields, produce_fields
from tests.server.process import Hub, free_port
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.messages import Api
from tidegate.kafka.records import encode
from tidegate.server import BackgroundServer, Server

CONNECTIONS = 10_000
MOST_MB = 1_500


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    hubs = (EventHubConfig(name="eh", partition_count=2),)
    config = NamespaceConfig(name="ns", event_hubs=hubs, throughput_units=1)
    with BackgroundServer(config, tmp_path / "data", kafka_port=0) as running:
        yield running.server


@pytest.mark.slow
def test_throughput_units_delay_clients_and_tell_them_so(server: Server) -> None:
    """A unit lets in 1,000 events a second; what is above waits, and is stored all the same."""
    batch = encode([b"x"] * 1000, timestamps_ms=[0] * 1000)
    client = KafkaClient(server.kafka_port or 0)
    client.log_in(server.connection_string())
    throttles = []
    for number in range(4):
        answer = client.ask(Api.PRODUCE, produce_fields("eh", batch))
        part = answer.responses[0].partition_responses[0]
        assert (part.error_code, part.base_offset) == (ErrorCode.NONE, 1000 * number)
        throttles.append(answer.throttle_time_ms)
    assert throttles[0] == 0
    assert max(throttles) > 0
    # 4,096 events a second may leave
    told = [client.ask(Api.FETCH, fetch_fields({("eh", 0): 0}, max_wait_ms=0), 12).throttle_time_ms for _ in range(4)]
    assert told[0] == 0
    assert max(told) > 0
    server.namespace.management.update_limits(throughput_units=None)
    assert client.ask(Api.PRODUCE, produce_fields("eh", batch)).throttle_time_ms == 0
    client.close()


@pytest.mark.soak
def test_ten_thousand_clients_leave_room_for_one_more(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, CONNECTIONS + 2_000), hard))
    hub, port = Hub(tmp_path / "data"), free_port()
    clients: list[KafkaClient] = []
    try:
        hub.start("--kafka-port", str(port))
        for _ in range(CONNECTIONS):
            clients.append(KafkaClient(port))
            assert clients[-1].log_in(hub.connection).error_code == ErrorCode.NONE
        waiting = [client.send(Api.FETCH, fetch_fields({("eh1", 0): 0}, max_wait_ms=60_000), 12) for client in clients]
        began_s = time.monotonic()
        answer = KafkaClient(port)
        answer.log_in(hub.connection)
        stored = answer.produce("eh1", encode([b"x"], timestamps_ms=[0]))
        assert stored.error_code == ErrorCode.NONE
        for client, asked in zip(clients, waiting, strict=True):  # the event ends every wait
            found = client.receive(*asked).responses[0].partitions[0]
            assert (found.error_code, bool(found.records)) == (ErrorCode.NONE, True)
        took_s = time.monotonic() - began_s
        lines = Path(f"/proc/{hub.process.pid}/status").read_text().splitlines()
        peak_mb = next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))
        print(f"{CONNECTIONS:,} clients were told of an event within {took_s:.1f} s; the hub took {peak_mb} MB")
        assert peak_mb < MOST_MB
        for client in clients:
            client.close()
        eventually(lambda: answer.produce("eh1", encode([b"y"], timestamps_ms=[0])).base_offset >= 1, PATIENCE_S)
        answer.close()
    finally:
        hub.kill()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
