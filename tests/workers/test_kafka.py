"""Kafka's clients and several workers: any of them takes any request."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import eventually
from tests.server.kafka.client import KafkaClient, batch_of
from tests.workers.support import MANY, HubOfWorkers
from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.messages import Api

# A hub starts, in a process of its own or in several.
pytestmark = pytest.mark.slow

LATEST, EARLIEST = -1, -2


@pytest.fixture
def clients(hub: HubOfWorkers) -> Iterator[list[KafkaClient]]:
    made = [hub.kafka() for _ in range(MANY)]
    yield made
    for client in made:
        client.close()


def offset_of(client: KafkaClient, topic: str, timestamp: int, partition: int = 0) -> int:
    asked = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": -1}
    found = client.ask(Api.LIST_OFFSETS, {"replica_id": -1, "topics": [{"name": topic, "partitions": [asked]}]})
    (row,) = found.topics[0].partitions
    assert row.error_code == 0
    return int(row.offset)


def create(client: KafkaClient, topic: str, partitions: int = 1) -> None:
    fields = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
    (row,) = client.ask(Api.CREATE_TOPICS, {"topics": [fields], "timeout_ms": 1000}).topics
    assert row.error_code == 0, row


def delete(client: KafkaClient, topic: str) -> None:
    fields = {"topics": [{"name": topic, "topic_id": None}], "topic_names": [topic], "timeout_ms": 1000}
    (row,) = client.ask(Api.DELETE_TOPICS, fields, 5).responses
    assert row.error_code == 0, row


def test_a_change_is_there_for_all_as_soon_as_it_is_answered(clients: list[KafkaClient]) -> None:
    for number, client in enumerate(clients):
        topic = f"made-{number}"
        create(client, topic)
        for position, other in enumerate(clients):
            assert other.produce(topic, batch_of(b"x")).base_offset == position
            assert {offset_of(one, topic, LATEST) for one in clients} == {position + 1}
        cut = {"partition_index": 0, "offset": 3}
        client.ask(Api.DELETE_RECORDS, {"topics": [{"name": topic, "partitions": [cut]}], "timeout_ms": 1000})
        assert {offset_of(one, topic, EARLIEST) for one in clients} == {3}
        assert {one.fetch(topic, 3).records for one in clients} == {clients[0].fetch(topic, 3).records} != {b""}
        delete(client, topic)
        for other in clients:
            assert other.produce(topic, batch_of(b"x")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_setting_that_is_changed_is_changed_for_all(clients: list[KafkaClient]) -> None:
    create(clients[0], "settings")
    for number, client in enumerate(clients, 1):
        changed = {"name": "retention.ms", "value": str(number * 3_600_000), "config_operation": 0}
        resource = {"resource_type": 2, "resource_name": "settings", "configs": [changed]}
        (row,) = client.ask(Api.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource], "validate_only": False}).responses
        assert row.error_code == 0, row
        asked = {"resource_type": 2, "resource_name": "settings", "configuration_keys": ["retention.ms"]}
        for other in clients:
            (found,) = other.ask(Api.DESCRIBE_CONFIGS, {"resources": [asked]}).results
            assert [one.value for one in found.configs] == [str(number * 3_600_000)]
    delete(clients[0], "settings")


def test_what_one_worker_stored_every_other_finds_without_waiting(clients: list[KafkaClient]) -> None:
    begin = offset_of(clients[0], "eh1", LATEST, 2)
    for number, client in enumerate(clients):
        assert client.produce("eh1", batch_of(b"%d" % number), partition=2).base_offset == begin + number
        for other in clients:
            found = other.fetch("eh1", begin + number, partition=2, max_wait_ms=0)
            assert found.records
            assert found.high_watermark == begin + number + 1


def test_the_end_of_an_epoch_is_where_the_partition_ends(clients: list[KafkaClient]) -> None:
    asked = {"partition": 2, "current_leader_epoch": 0, "leader_epoch": 0}
    for client in clients:
        end = client.produce("eh1", batch_of(b"x"), partition=2).base_offset + 1
        fields = {"replica_id": -1, "topics": [{"topic": "eh1", "partitions": [asked]}]}
        found = {one.ask(Api.OFFSET_FOR_LEADER_EPOCH, fields).topics[0].partitions[0].end_offset for one in clients}
        assert found == {end}


def test_an_idempotent_producer_is_known_to_every_worker(clients: list[KafkaClient]) -> None:
    create(clients[0], "numbered")
    new = clients[0].ask(Api.INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout_ms": 0})

    def numbered(first: int, *values: bytes) -> bytes:
        return batch_of(*values, producer=(new.producer_id, new.producer_epoch, first))

    for number, client in enumerate(clients):
        batch = numbered(2 * number, b"a", b"b")
        assert client.produce("numbered", batch).base_offset == 2 * number
        for other in clients:
            again = other.produce("numbered", batch)
            assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 2 * number)
    gap = clients[0].produce("numbered", numbered(100, b"x"))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    old = clients[1].produce("numbered", numbered(0, b"a", b"b"))
    assert old.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert offset_of(clients[0], "numbered", LATEST) == 2 * MANY
    delete(clients[0], "numbered")


def join(client: KafkaClient, member: str = "") -> tuple[Api, int]:
    fields = {
        "group_id": "workers",
        "session_timeout_ms": 60_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"x"}],
    }
    return client.send(Api.JOIN_GROUP, fields)


def test_members_of_a_group_may_be_with_any_worker(clients: list[KafkaClient]) -> None:
    members = [client.receive(*join(client)).member_id for client in clients]
    sent = [join(client, member) for client, member in zip(clients, members, strict=True)]
    joined = [client.receive(*one) for client, one in zip(clients, sent, strict=True)]
    # those whose joins came after the first generation had begun join again with all others
    while len({one.generation_id for one in joined}) > 1 or len({one.leader for one in joined}) > 1:
        sent = [join(client, member) for client, member in zip(clients, members, strict=True)]
        joined = [client.receive(*one) for client, one in zip(clients, sent, strict=True)]
    generation = joined[0].generation_id
    (leader,) = {one.leader for one in joined}
    plan = [{"member_id": member, "assignment": member.encode()} for member in members]
    syncs = []
    for client, member in zip(clients, members, strict=True):
        fields: dict[str, Any] = {"group_id": "workers", "generation_id": generation, "member_id": member}
        syncs.append(client.send(Api.SYNC_GROUP, {**fields, "assignments": plan if member == leader else []}))
    for client, member, one in zip(clients, members, syncs, strict=True):
        assert client.receive(*one).assignment == member.encode()
    (described,) = clients[0].ask(Api.DESCRIBE_GROUPS, {"groups": ["workers"]}).groups
    assert {one.member_id for one in described.members} == set(members)
    for client, member in zip(clients, members, strict=True):
        left = client.ask(Api.LEAVE_GROUP, {"group_id": "workers", "members": [{"member_id": member}]})
        assert left.error_code == 0
    (gone,) = clients[1].ask(Api.DESCRIBE_GROUPS, {"groups": ["workers"]}).groups
    assert not gone.members


def test_a_committed_position_counts_in_every_worker(clients: list[KafkaClient]) -> None:
    group = {"group_id": "positions", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    for number, client in enumerate(clients):
        position = {
            "partition_index": 0,
            "committed_offset": number,
            "committed_leader_epoch": 0,
            "committed_metadata": "",
        }
        topics = [{"name": "eh1", "partitions": [position]}]
        answer = client.ask(Api.OFFSET_COMMIT, {**group, "topics": topics})
        assert answer.topics[0].partitions[0].error_code == 0
        wanted = [{"group_id": "positions", "topics": [{"name": "eh1", "partition_indexes": [0]}]}]
        for other in clients:
            found = other.ask(Api.OFFSET_FETCH, {"groups": wanted})
            assert found.groups[0].topics[0].partitions[0].committed_offset == number


def test_requests_of_both_kinds_are_answered_in_their_order(clients: list[KafkaClient]) -> None:
    client = clients[0]
    sent = []
    for number in range(20):
        sent.append(client.send(Api.LIST_GROUPS) if number % 2 else client.send(Api.METADATA, {"topics": None}))
    for one in sent:
        client.receive(*one)


def test_another_key_counts_for_what_is_passed_on(hub: HubOfWorkers) -> None:
    client = hub.kafka()
    assert client.ask(Api.LIST_GROUPS).error_code == 0
    client.log_in("Endpoint=sb://localhost;SharedAccessKeyName=none;SharedAccessKey=none")
    client.close()
    again = hub.kafka()
    create(again, "rights")
    again.log_in(hub.connection)
    delete(again, "rights")
    again.close()


def test_a_hub_that_is_killed_while_members_wait_logs_no_failed_request(tmp_path: Path) -> None:
    hub = HubOfWorkers(tmp_path / "data")
    hub.start(stderr=subprocess.PIPE)
    try:
        present, late = hub.kafka(), hub.kafka()
        member = present.receive(*join(present)).member_id
        assert present.receive(*join(present, member)).error_code == 0
        join(late, late.receive(*join(late)).member_id)  # waits until the other has joined again
        eventually(lambda: described_state(present) == "PreparingRebalance")
    finally:
        hub.kill()
    assert hub.process.stderr is not None
    assert [line for line in hub.process.stderr if "ERROR" in line or "Traceback" in line] == []


def described_state(client: KafkaClient) -> str:
    (found,) = client.ask(Api.DESCRIBE_GROUPS, {"groups": ["workers"]}).groups
    return str(found.group_state)


def test_members_are_listed_once_among_the_clients(hub: HubOfWorkers, clients: list[KafkaClient]) -> None:
    for client in clients:
        client.ask(Api.LIST_GROUPS)
    eventually(lambda: hub.metric("tidegate_connections_open") >= MANY)
