"""A namespace moves from a data directory to a cluster, while its publishers go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.kafka.cluster import Cluster
from tests.server.conftest import entity
from tests.spark.publishing import publish
from tests.store.kafka.test_store import everything
from tidegate.azure.management import ArmSettings, arm_routes
from tidegate.cli import main
from tidegate.hub.config import NamespaceConfig
from tidegate.log import PartitionLog
from tidegate.server import BackgroundServer
from tidegate.store import KafkaLog, StoreCopy, read_settings
from tidegate.store.client.cluster import TopicPartition
from tidegate.store.client.connection import Unreachable
from tidegate.store.kafka import copy

pytestmark = pytest.mark.sdk
Rows = list[tuple[int, int, bytes]]


def run(data: Path, brokers: Cluster, *options: str) -> Result:
    return CliRunner().invoke(
        main, ["store", "copy", "--data", str(data), "--store", f"kafka://{brokers.clients['a']}", *options]
    )


def log_of(server: BackgroundServer, partition: str) -> PartitionLog:
    log = server.server.namespace.event_hub("moved").partition(partition).log
    assert isinstance(log, PartitionLog)
    return log


def rows_of(log: PartitionLog) -> Rows:
    found: Rows = []
    while batches := log.read_batches(found[-1][0] + 1 if found else 0):
        for batch in batches:
            first = batch.base_sequence_number
            found += [(first + index, batch.enqueued_time_ms, bytes(event)) for index, event in enumerate(batch.events)]
    return found


def send(server: BackgroundServer, partition: str, count: int) -> None:
    publish(server.connection_string, "moved", [f"event {number}" for number in range(count)], partition_id=partition)


def test_a_namespace_moves_with_its_numbers_and_times(
    three_brokers: Cluster, make_config: Callable[..., NamespaceConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy, "_BATCH_EVENTS", 40)
    config = make_config(entity("moved")).model_copy(update={"name": "moving"})
    data = tmp_path / "data"
    with BackgroundServer(config, data, further_routes=[arm_routes(ArmSettings(data))], http_port=0) as server:
        log_of(server, "0").segment_bytes = 3000
        for _ in range(4):
            send(server, "0", 50)
        send(server, "1", 30)
        log_of(server, "0").delete_before(100)
        first = log_of(server, "0").begin_sequence_number
        assert first > 0

        # the second append is cut off; the next run continues behind what was stored
        append, appends = StoreCopy._append, 0

        async def interrupted(self: StoreCopy, where: TopicPartition, encoded: bytes, offset: int) -> None:
            nonlocal appends
            appends += 1
            if appends == 2:
                raise Unreachable("cut off")
            await append(self, where, encoded, offset)

        with monkeypatch.context() as patch:
            patch.setattr(StoreCopy, "_append", interrupted)
            result = run(data, three_brokers)
        assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, "tidegate: cut off")
        left = 200 - first - 40 + 30
        result = run(data, three_brokers)
        assert result.exit_code == 0, result.output
        assert f"moved: {left} events copied" in result.stdout

        send(server, "1", 20)
        result = run(data, three_brokers, "--finish")
        assert result.exit_code == 0, result.output
        assert "moved: 20 events copied" in result.stdout
        assert "moved/1: 50 events, checksum " in result.stdout
        before = {partition: rows_of(log_of(server, partition)) for partition in "01"}
        again = run(data, three_brokers, "--finish")
        assert again.exit_code == 1
        assert "has the namespace moving already" in again.stderr

    store = read_settings(three_brokers.clients["a"])
    with BackgroundServer(config, tmp_path / "gateway", store=store) as gateway:
        for partition, shift in (("0", first), ("1", 0)):
            log = gateway.server.namespace.event_hub("moved").partition(partition).log
            assert isinstance(log, KafkaLog)
            assert everything(log) == [(number - shift, time_ms, event) for number, time_ms, event in before[partition]]
        send(gateway, "1", 1)
        rows = everything(log)
        assert len(rows) == 51
        assert rows[-1][1] >= rows[-2][1]


def test_a_hub_that_does_not_run_is_named(three_brokers: Cluster, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    result = run(tmp_path / "data", three_brokers)
    assert result.exit_code == 2
    assert "there is no namespace in it" in result.stderr
    assert run(tmp_path / "data", three_brokers, "--checkpoints", "az://c").exit_code == 2
