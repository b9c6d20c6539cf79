"""A namespace moves from a data directory to a cluster, while its publishers go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.kafka.cluster import Cluster
from tests.patience import PATIENCE_S, eventually
from tests.server.conftest import entity
from tests.spark.publishing import publish
from tests.store.kafka.test_store import everything
from tidegate.azure.management import ArmSettings, arm_routes
from tidegate.checkpoints import SqliteCheckpointStore
from tidegate.cli import main
from tidegate.hub.access_rules import AccessRule, Right
from tidegate.hub.capture.journal import CaptureJournal, CaptureState
from tidegate.hub.config import NamespaceConfig
from tidegate.log import PartitionLog
from tidegate.schemas import SchemaFormat, SchemaText
from tidegate.server import BackgroundServer
from tidegate.store import KafkaLog, StoreCopy, read_settings
from tidegate.store.client.connection import Unreachable
from tidegate.store.kafka import copy

pytestmark = pytest.mark.sdk
PROCESSORS = ("localhost", "carried", "$Default")
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

        async def interrupted(self: StoreCopy, where: Any, encoded: bytes, offset: int) -> None:
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


def kafka(server: BackgroundServer, key: str = "") -> dict[str, object]:
    return {
        "bootstrap.servers": f"127.0.0.1:{server.server.kafka_port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": key or server.connection_string,
        "group.id": "readers",
    }


def committed(server: BackgroundServer, key: str = "") -> list[tuple[int, str | None]]:
    consumer = Consumer(kafka(server, key))
    places = [TopicPartition("carried", partition) for partition in range(2)]
    found = consumer.committed(places, timeout=PATIENCE_S)
    consumer.close()
    return [(place.offset, place.metadata) for place in found]


def test_groups_schemas_and_the_progress_of_capture_move_with_their_namespace(
    three_brokers: Cluster, make_config: Callable[..., NamespaceConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(entity("carried")).model_copy(update={"name": "carrying"})
    data, reads = tmp_path / "data", AccessRule("reads", frozenset({Right.LISTEN}), "first key", "second key")
    routes = [arm_routes(ArmSettings(data))]
    with BackgroundServer(config, data, further_routes=routes, http_port=0, kafka_port=0) as server:
        namespace = server.server.namespace
        for partition, count in (("0", 6), ("1", 4)):
            bodies = [f"event {number}" for number in range(count)]
            publish(server.connection_string, "carried", bodies, partition_id=partition)
        namespace.management.create_access_rule(reads, "carried")
        log = namespace.event_hub("carried").partition("0").log
        log.delete_before(2)
        first = log.begin_sequence_number
        consumer = Consumer(kafka(server))
        places = [TopicPartition("carried", 0, 5, metadata="noted"), TopicPartition("carried", 1, 3)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()
        for field in "abc":
            text = {"type": "record", "name": "R", "fields": [{"name": field, "type": "int", "default": 0}]}
            namespace.schema_registry.register("default", "s", SchemaText(SchemaFormat.AVRO, json.dumps(text)))
        versions = namespace.schema_registry.versions("default", "s")
        state = CaptureState(archive_id="a", next_sequence_number=4, window_start_ms=60_000)
        CaptureJournal(namespace.event_hub("carried").partition("1").log).write(state)

        checkpoints = SqliteCheckpointStore(str(tmp_path / "checkpoints.db"))
        place = dict(zip(("fully_qualified_namespace", "eventhub_name", "consumer_group"), PROCESSORS, strict=True))
        checkpoints.update_checkpoint({**place, "partition_id": "0", "offset": "20", "sequence_number": 5})
        moved = [(5 - first, str(5 - first))]

        # what is written last fails, and the next run finds what was written before
        check = StoreCopy._check

        async def failing(self: StoreCopy, where: object, content: object) -> None:
            raise Unreachable("cut off")

        with monkeypatch.context() as patch:
            patch.setattr(StoreCopy, "_check", failing)
            assert (
                run(data, three_brokers, "--finish", "--checkpoints", str(tmp_path / "checkpoints.db")).exit_code == 1
            )
        assert StoreCopy._check is check
        assert [(one["sequence_number"], one["offset"]) for one in checkpoints.list_checkpoints(*PROCESSORS)] == moved
        result = run(data, three_brokers, "--finish", "--checkpoints", str(tmp_path / "checkpoints.db"))
        assert result.exit_code == 0, result.output
        assert [(one["sequence_number"], one["offset"]) for one in checkpoints.list_checkpoints(*PROCESSORS)] == moved
        assert "2 groups, 3 entries of the schema registry and the progress of capture in 1 partition" in result.stdout

    store = read_settings(three_brokers.clients["a"])
    with BackgroundServer(config, tmp_path / "gateway", store=store, kafka_port=0) as gateway:
        namespace = gateway.server.namespace
        expected = [(5 - first, "noted"), (3, "")]
        narrow = gateway.server.connection_string(reads, hub="carried")
        for key in ("", narrow):
            assert [(offset, metadata or "") for offset, metadata in committed(gateway, key)] == expected
        assert namespace.schema_registry.versions("default", "s") == versions
        assert CaptureJournal(namespace.event_hub("carried").partition("1").log).read() == state


def test_damaged_events_are_named_and_can_be_left_out(
    three_brokers: Cluster, make_config: Callable[..., NamespaceConfig], tmp_path: Path
) -> None:
    config = make_config(entity("moved")).model_copy(update={"name": "damaged"})
    data = tmp_path / "data"
    with BackgroundServer(config, data, further_routes=[arm_routes(ArmSettings(data))], http_port=0) as server:
        for _ in range(3):
            send(server, "0", 5)
        log = log_of(server, "0")
        (path,) = log.directory.glob("*.log")
        content = bytearray(path.read_bytes())
        content[content.index(b"event 0")] ^= 1
        path.write_bytes(content)
        result = run(data, three_brokers)
        assert result.exit_code == 1
        assert f"moved/0: {path.name} is damaged" in result.stderr
        assert f"events 0 to 4 cannot be read; reading can continue at 5: restore {path} from a backup" in result.stderr
        log.delete_before(5)
        assert "delete the topic to begin anew" in run(data, three_brokers).stderr
        topic = f"damaged.{log.directory.parent.name}"
        admin = AdminClient({"bootstrap.servers": three_brokers.clients["a"], "log_level": 0})
        admin.delete_topics([topic])[topic].result(PATIENCE_S)
        eventually(lambda: topic not in admin.list_topics(timeout=PATIENCE_S).topics)
        result = run(data, three_brokers)
        assert result.exit_code == 0, result.output
        assert "moved: 10 events copied" in result.stdout


def test_a_hub_that_does_not_run_is_named(three_brokers: Cluster, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    result = run(tmp_path / "data", three_brokers)
    assert result.exit_code == 2
    assert "there is no namespace in it" in result.stderr
    assert run(tmp_path / "data", three_brokers, "--checkpoints", "az://c").exit_code == 2
