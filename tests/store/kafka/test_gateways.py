"""Gateways of one namespace share definitions, keys and readers; a lost cluster ends the links of owners."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.kafka.cluster import Cluster
from tests.patience import PATIENCE_S, eventually
from tests.server.conftest import KEY, RULE, RawClient, Refused, entity, receive_events
from tests.server.kafka.client import FETCH_BY_NAME, KafkaClient, batch_of, fetch_fields
from tidegate.amqp import Detached, Transfer
from tidegate.client import BusyError, ConnectionString, HubClient
from tidegate.hub import cluster_groups
from tidegate.hub.access import sign
from tidegate.hub.access_rules import AccessRule, Right
from tidegate.hub.config import NamespaceConfig
from tidegate.hub.errors import NotFound, ServerBusy
from tidegate.hub.kafka_backend import ChangedElsewhere
from tidegate.hub.throughput import Throughput
from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.messages import Api
from tidegate.kafka.records import parse_batch
from tidegate.log import LogError
from tidegate.schemas import SchemaFormat, SchemaText
from tidegate.server import BackgroundServer, Server
from tidegate.store import KafkaLog, read_settings
from tidegate.store.client import cluster as store_cluster
from tidegate.store.client.cluster import Fetched
from tidegate.store.client.connection import BrokerError, KafkaError
from tidegate.store.kafka.shared_topic import SharedTopic

pytestmark = pytest.mark.sdk
EPOCH = "com.microsoft:epoch"


@contextmanager
def gateway(brokers: Cluster, client: str, config: NamespaceConfig, folder: Path) -> Iterator[Server]:
    settings = read_settings(brokers.clients[client])
    with BackgroundServer(config, folder, store=settings, http_port=0, kafka_port=0) as running:
        yield running.server


@pytest.fixture(scope="module")
def pair(
    three_brokers: Cluster,
    make_config: Callable[..., NamespaceConfig],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Server, Server]]:
    config = make_config(entity("shared")).model_copy(update={"name": "pair", "throughput_units": 20})
    with (
        pytest.MonkeyPatch.context() as patch,
        gateway(three_brokers, "a", config, tmp_path_factory.mktemp("a")) as a,
        gateway(three_brokers, "b", config, tmp_path_factory.mktemp("b")) as b,
    ):
        # Nobody is to wait for what groups have read at the other gateway.
        patch.setattr(cluster_groups, "REFRESH_S", 0.5)
        yield a, b


def hub_at(server: Server, name: str) -> bool:
    try:
        return bool(server.namespace.event_hub(name))
    except NotFound:
        return False


def test_what_is_sent_to_one_gateway_is_received_from_the_other(pair: tuple[Server, Server]) -> None:
    a, b = pair
    with EventHubProducerClient.from_connection_string(a.connection_string(), eventhub_name="shared") as producer:
        batch = producer.create_batch(partition_id="0")
        for number in range(100):
            batch.add(EventData(str(number)))
        producer.send_batch(batch)
    with EventHubConsumerClient.from_connection_string(b.connection_string(), "cg1", eventhub_name="shared") as client:
        assert client.get_partition_properties("0")["last_enqueued_sequence_number"] == 99
    found = receive_events(b.connection_string(), "shared", 100, partition="0")
    assert [event.body_as_str() for event in found] == [str(number) for number in range(100)]
    assert [event.sequence_number for event in found] == list(range(100))


def test_a_reader_goes_on_at_a_gateway_that_has_not_seen_where_the_partition_ends(
    pair: tuple[Server, Server], make_config: Callable[..., NamespaceConfig]
) -> None:
    a, b = pair
    (config,) = make_config(entity("behind", partitions=1)).event_hubs
    a.namespace.management.create_event_hub(config)
    eventually(lambda: hub_at(b, "behind"))
    log = a.namespace.event_hub("behind").partitions[0].log
    source = "behind/ConsumerGroups/cg1/Partitions/0"
    client = KafkaClient(b.kafka_port)
    client.log_in(b.connection_string())
    for number in range(5):
        done: Future[object] = Future()
        log.append([b"\0Su\xa0\1x"], done.set_result)
        done.result(PATIENCE_S)
        if number % 2:
            assert client.fetch("behind", number + 1).error_code == 0
        else:
            RawClient(b, "behind").reader(source, selector=f"amqp.annotation.x-opt-offset > '{number}'")
    assert client.fetch("behind", 99).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    part = {"partition_index": 0, "timestamp": -1}
    values = {"replica_id": -1, "topics": [{"name": "behind", "partitions": [part]}]}
    done = Future()
    log.append([b"\0Su\xa0\1x"], done.set_result)
    done.result(PATIENCE_S)
    assert client.ask(Api.LIST_OFFSETS, values).topics[0].partitions[0].offset == 6


def test_metrics_say_how_the_cluster_is(pair: tuple[Server, Server]) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{pair[0].http_port}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    found = {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("tidegate_")}
    assert found["tidegate_gateway_connected"] == 1
    assert found["tidegate_gateways"] == 2
    assert found["tidegate_gateway_silence_seconds"] < PATIENCE_S
    assert found["tidegate_store_under_replicated_partitions"] == found["tidegate_store_offline_partitions"] == 0


def test_health_names_the_cluster_where_it_takes_no_events(pair: tuple[Server, Server]) -> None:
    def health() -> str:
        log = pair[0].namespace.event_hub("shared").partition("0").log
        assert isinstance(log, KafkaLog)
        log.writer.note_failure(KafkaError("refused"))  # until the gateway finds it well again
        url = f"http://127.0.0.1:{pair[0].http_port}/health"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return str(error.read().decode())

    eventually(lambda: "`tidegate store check` may say more of the cluster of Kafka" in health())


def test_hubs_keys_and_publishers_change_everywhere(
    pair: tuple[Server, Server], make_config: Callable[..., NamespaceConfig]
) -> None:
    a, b = pair
    (config,) = make_config(entity("later")).event_hubs
    a.namespace.management.create_event_hub(config)
    eventually(lambda: hub_at(b, "later"))
    rule = a.namespace.access.rule_table.root_rule
    new = b.namespace.management.roll_key(rule.name, "secondary")
    eventually(lambda: a.namespace.access.rule_table.root_rule.secondary_key == new.secondary_key)
    b.namespace.management.revoke_publisher("later", "p1")
    eventually(lambda: a.namespace.event_hub("later").is_revoked("p1"))
    a.namespace.management.delete_event_hub("later")
    eventually(lambda: not hub_at(b, "later"))


def test_throughput_units_go_to_the_gateway_that_needs_them(pair: tuple[Server, Server]) -> None:
    a, b = (server.namespace.throughput for server in pair)

    def shares_while(busy: Throughput) -> tuple[float, float]:
        while busy.ingress_wait_s(1 << 20, 1) == 0:
            pass
        return a.shares[0], b.shares[0]

    eventually(lambda: shares_while(a) == pytest.approx((0.95, 0.05)))
    eventually(lambda: shares_while(b) == pytest.approx((0.05, 0.95)))


def test_schemas_are_registered_once_whichever_gateway_takes_them(pair: tuple[Server, Server]) -> None:
    def version(name: str) -> SchemaText:
        fields = [{"name": name, "type": "int", "default": 0}]
        text = json.dumps({"type": "record", "name": "R", "fields": fields, "doc": "x" * 100_000})
        return SchemaText(SchemaFormat.AVRO, text)

    def register(server: Server, names: str) -> None:
        for name in names:
            server.namespace.schema_registry.register("default", "s", version(name))

    orders = zip(pair, ("abcdefgh", "hgfedcba"), strict=True)
    threads = [threading.Thread(target=register, args=arguments) for arguments in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    a, b = (server.namespace.schema_registry for server in pair)
    eventually(lambda: a.versions("default", "s") == b.versions("default", "s"))
    found = a.versions("default", "s")
    assert [one.version for one in found] == [one.schema_id for one in found] == list(range(1, 9))
    assert len({one.own_id for one in found}) == 8


def test_a_schema_is_found_at_a_gateway_that_has_not_heard_of_it(
    pair: tuple[Server, Server], three_brokers: Cluster
) -> None:
    a, b = pair

    def call(server: Server, path: str, body: object = None) -> dict[str, Any]:
        token = sign(f"sb://localhost:{server.http_port}", RULE, KEY, 2**32)
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{server.http_port}/schema-registry/{path}"
        request = urllib.request.Request(url, data, {"Authorization": token})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return dict(json.load(answer))

    links = [three_brokers.to_broker["b", node] for node in three_brokers.nodes]
    for link in links:
        link.delay_s = 0.2
    try:
        unit = {"schema": json.dumps({"type": "fixed", "name": "Unit", "size": 4})}
        schema_id = call(a, "subjects/unit/versions", unit)["id"]
        assert call(b, f"schemas/ids/{schema_id}")["schema"] == unit["schema"]
        call(a, "subjects/later/versions", {"schema": json.dumps({"type": "fixed", "name": "Later", "size": 4})})
        fields = [{"name": "later", "type": "Later"}]
        text = json.dumps({"type": "record", "name": "Reading", "fields": fields})
        reading = {"schema": text, "references": [{"name": "Later", "subject": "later", "version": 1}]}
        assert call(b, "subjects/reading/versions", reading)["version"] == 1
        with pytest.raises(urllib.error.HTTPError, match="404"):
            call(b, "schemas/ids/999999")
    finally:
        for link in links:
            link.mend()


def kafka_settings(*servers: Server) -> dict[str, Any]:
    return {
        "bootstrap.servers": ",".join(f"127.0.0.1:{server.kafka_port}" for server in servers),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": servers[0].connection_string(),
    }


@contextmanager
def consumer(server: Server, group: str) -> Iterator[Consumer]:
    given = {"group.id": group, "auto.offset.reset": "earliest", "heartbeat.interval.ms": 200}
    opened = Consumer({**kafka_settings(server), **given, "session.timeout.ms": 6000, "enable.auto.commit": False})
    opened.subscribe(["grouped"])
    try:
        yield opened
    finally:
        opened.close()


def test_members_at_different_gateways_are_one_group_with_one_position(
    pair: tuple[Server, Server], make_config: Callable[..., NamespaceConfig]
) -> None:
    a, b = pair
    (config,) = make_config(entity("grouped", partitions=2)).event_hubs
    a.namespace.management.create_event_hub(config)
    eventually(lambda: hub_at(b, "grouped"))
    producer = Producer(kafka_settings(a))
    found: list[tuple[int, int]] = []

    def produce(first: int) -> None:
        for number in range(first, first + 10):
            for partition in range(2):
                producer.produce("grouped", str(number), partition=partition)
        assert producer.flush(PATIENCE_S) == 0

    def reads(*members: Consumer) -> list[list[int]]:
        for member in members:
            message = member.poll(0.05)
            if message is not None and message.error() is None:
                found.append((message.partition(), message.offset()))
                with suppress(KafkaException):  # a member that has to join again commits nothing, and reads it again
                    member.commit(message, asynchronous=False)
        return sorted(sorted(one.partition for one in member.assignment()) for member in members)

    produce(0)
    with consumer(a, "both") as first:
        with consumer(b, "both") as second:
            eventually(lambda: reads(first, second) == [[0], [1]])
            produce(10)
            eventually(lambda: reads(first, second) and len(set(found)) == 40)
        eventually(lambda: reads(first) == [[0, 1]])
    produce(20)
    before = len(found)
    with consumer(b, "both") as again:  # what was committed through either gateway counts at both
        eventually(lambda: reads(again) and len(set(found)) == 60)
    assert min(offset for _, offset in found[before:]) >= 10
    directory = a.namespace.event_hub("grouped").definition.directory
    for server in pair:
        offsets = server.namespace.group_offsets
        eventually(
            lambda offsets=offsets: (
                {number: position.offset for number, position in offsets.in_hub(directory).get("both", {}).items()}
                == {0: 30, 1: 30}
            )
        )
    rule = AccessRule("reader", frozenset({Right.LISTEN}), "first key", "second key")
    a.namespace.management.create_access_rule(rule, "grouped")
    eventually(lambda: b.namespace.access.rule_table.find("reader", "grouped") is not None)
    narrow = {"sasl.password": b.connection_string(rule, hub="grouped")}
    for given, seen in (({}, ["both"]), (narrow, [])):  # keys of different scope have groups of their own
        admin = AdminClient({**kafka_settings(b), **given})
        listed = admin.list_consumer_groups().result(PATIENCE_S)
        assert (sorted(one.group_id for one in listed.valid), listed.errors) == (seen, [])


def test_two_changes_at_once_both_count_or_are_refused(
    pair: tuple[Server, Server], make_config: Callable[..., NamespaceConfig]
) -> None:
    created: list[str] = []

    def create(server: Server, name: str) -> None:
        (config,) = make_config(entity(name, partitions=1)).event_hubs
        while True:
            try:
                server.namespace.management.create_event_hub(config)
                created.append(name)
                return
            except ChangedElsewhere:
                continue

    threads = [threading.Thread(target=create, args=(server, f"at-once-{index}")) for index, server in enumerate(pair)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(created) == ["at-once-0", "at-once-1"]
    for server in pair:
        eventually(lambda server=server: all(hub_at(server, name) for name in created))


def test_owner_levels_and_the_five_readers_count_over_all_gateways(pair: tuple[Server, Server]) -> None:
    a, b = (RawClient(server, "shared") for server in pair)
    source = "shared/ConsumerGroups/cg2/Partitions/1"
    for number in range(5):
        (a, b)[number % 2].reader(source)
    with pytest.raises(Refused, match="resource-limit"):
        RawClient(pair[1], "shared").reader(source)
    first = RawClient(pair[1], "shared")
    owner = first.reader(source, properties={EPOCH: 5})
    for _ in range(3):
        assert a.until(lambda event: isinstance(event, Detached)).error.condition == "amqp:link:stolen"
    with pytest.raises(Refused, match="stolen"):
        RawClient(pair[0], "shared").reader(source, properties={EPOCH: 4})
    RawClient(pair[0], "shared").reader(source, properties={EPOCH: 6})
    detached = first.until(lambda event: isinstance(event, Detached) and event.link is owner)
    assert detached.error.condition == "amqp:link:stolen"


def test_a_gateway_that_loses_its_cluster_gives_up_what_it_owns(
    three_brokers: Cluster, pair: tuple[Server, Server]
) -> None:
    a, b = pair
    source = "shared/ConsumerGroups/cg1/Partitions/0"
    cut_off = RawClient(b, "shared")
    owner = cut_off.reader(source, properties={EPOCH: 1})
    links = [three_brokers.to_broker["b", node] for node in three_brokers.nodes]
    for link in links:
        link.cut()
    try:
        detached = cut_off.until(lambda event: isinstance(event, Detached) and event.link is owner)
        assert detached.error.condition == "com.microsoft:server-busy"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"http://127.0.0.1:{b.http_port}/ready", timeout=PATIENCE_S)
        # the others declare it dead, and may own the partition with any level
        eventually(lambda: owned(a, source))
    finally:
        for link in links:
            link.mend()
    eventually(lambda: urllib.request.urlopen(f"http://127.0.0.1:{a.http_port}/ready").status == 200)
    eventually(lambda: b.not_ready is None)


def test_a_claim_that_is_lost_before_its_reader_is_attached_closes_it(
    pair: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    source = "shared/ConsumerGroups/cg2/Partitions/0"
    backend = b._backend
    assert backend is not None
    claim = backend.claim

    def evicted_at_once(resource: str, level: int | None, name: str) -> str:
        claim_id = claim(resource, level, name)
        RawClient(a, "shared").reader(source, properties={EPOCH: 8})
        eventually(lambda: not backend.shared.holds(resource, claim_id))
        return claim_id

    monkeypatch.setattr(backend, "claim", evicted_at_once)
    client = RawClient(b, "shared")
    owner = client.reader(source, properties={EPOCH: 7})
    detached = client.until(lambda event: isinstance(event, Detached) and event.link is owner)
    assert detached.error.condition == "com.microsoft:server-busy"


def test_an_owner_gets_nothing_while_others_may_own_its_partition(
    pair: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = RawClient(pair[0], "shared")
    owner = client.reader("shared/ConsumerGroups/cg2/Partitions/0", properties={EPOCH: 9})
    monkeypatch.setattr(SharedTopic, "may_own", False)
    owner.flow(1)
    detached = client.until(lambda event: isinstance(event, Detached | Transfer) and event.link is owner)
    assert detached.error.condition == "com.microsoft:server-busy"


def test_a_gateway_that_has_lost_its_cluster_makes_nobody_wait_for_it(
    pair: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(KafkaLog, "catch_up_soon", lambda self: asked.append("where a partition ends"))
    monkeypatch.setattr(store_cluster.Cluster, "init_producer_id", lambda self: asked.append("a producer's id"))
    monkeypatch.setattr(SharedTopic, "is_connected", False)
    source = "shared/ConsumerGroups/cg2/Partitions/1"
    with pytest.raises(Refused, match="server-busy"):
        RawClient(pair[0], "shared").reader(source, selector="amqp.annotation.x-opt-offset > '@latest'")
    with pytest.raises(ServerBusy, match="no connection"):
        pair[0].namespace.event_hub("shared").partition("1").producers.attach({})
    assert not asked


def test_a_producer_is_told_to_try_again_before_other_clients_have_waited_for_long(
    pair: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(self: store_cluster.Cluster) -> tuple[int, int]:
        await asyncio.sleep(PATIENCE_S)
        return 1, 0

    monkeypatch.setattr(store_cluster.Cluster, "init_producer_id", never)
    with pytest.raises(ServerBusy, match="did not answer within 5 s"):
        pair[0].namespace.event_hub("shared").partition("1").producers.attach({})


def test_a_client_that_asks_where_a_partition_ends_is_told_to_try_again(
    pair: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = HubClient(ConnectionString.parse(pair[0].connection_string(), "shared"))
    before = client.partition_properties("0")

    def fails(self: KafkaLog) -> None:
        raise LogError("the cluster did not answer")

    with monkeypatch.context() as patch:
        patch.setattr(KafkaLog, "catch_up", fails)
        with pytest.raises(BusyError, match="try again: the cluster did not answer"):
            client.partition_properties("0")
    assert client.partition_properties("0") == before, "the connection is still open"
    client.close()


def test_a_gateway_that_was_declared_dead_closes_all_its_readers(pair: tuple[Server, Server]) -> None:
    reads = RawClient(pair[1], "shared")
    link = reads.reader("shared/ConsumerGroups/cg1/Partitions/1")
    ours, dead = (server._backend for server in pair)
    assert ours is not None
    assert dead is not None
    key = f"silence/{dead.shared.gateway}/{ours.shared.gateway}"
    ours.store.wait(ours.shared._put(key, {"silent_since": 1 << 60}))
    detached = reads.until(lambda event: isinstance(event, Detached) and event.link is link)
    assert detached.error.condition == "com.microsoft:server-busy"
    eventually(lambda: dead.shared.gateway in ours.shared.state.gateways)


def test_a_gateway_that_could_not_say_that_it_begins_anew_says_it_with_its_next_sign_of_life(
    pair: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, dead = (server._backend for server in pair)
    assert ours is not None
    assert dead is not None
    monkeypatch.setattr(dead.shared, "_put_soon", lambda key, value: None)  # as if no broker took it for 20 s
    key = f"silence/{dead.shared.gateway}/{ours.shared.gateway}"
    ours.store.wait(ours.shared._put(key, {"silent_since": 1 << 60}))
    before = dead.shared._position
    eventually(lambda: dead.shared._position > before and dead.shared.gateway in dead.shared.state.gateways)
    eventually(lambda: pair[1].not_ready is None)


def test_a_gateway_reads_again_what_came_damaged_from_the_topic_that_gateways_share(
    pair: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = pair[1]._backend
    assert backend is not None
    take, damaged = SharedTopic._take, threading.Event()

    async def once_damaged(self: SharedTopic, fetched: Fetched) -> None:
        if self is backend.shared and not damaged.is_set():
            damaged.set()
            raise KafkaError("the topic is damaged at offset 7")
        await take(self, fetched)

    monkeypatch.setattr(SharedTopic, "_take", once_damaged)
    assert damaged.wait(PATIENCE_S)
    before = backend.shared._position
    eventually(lambda: backend.shared._position > before + 2)


def test_what_a_cluster_refuses_again_and_again_is_logged_once(
    pair: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    backend = pair[1]._backend
    assert backend is not None
    fetch = backend.store.cluster.fetch
    refused: list[str] = []

    async def refuse(*wanted: Any, purpose: str, **others: Any) -> Any:
        if purpose != "shared-follow" or len(refused) == 5:
            return await fetch(*wanted, purpose=purpose, **others)
        refused.append(purpose)
        return {backend.shared.where: BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "the topic")}

    monkeypatch.setattr(backend.store.cluster, "fetch", refuse)
    eventually(lambda: len(refused) == 5)
    before = backend.shared._position
    eventually(lambda: backend.shared._position > before)
    assert len([line for line in caplog.messages if "TOPIC_AUTHORIZATION_FAILED" in line]) == 1


def test_nobody_waits_for_what_another_client_of_kafka_has_fetched_from_the_cluster(
    pair: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = pair[0]
    clients = [KafkaClient(server.kafka_port) for _ in range(2)]
    for client in clients:
        client.log_in(server.connection_string())
    for number in range(3):  # without a reader, the gateway keeps none of them
        clients[0].produce("shared", batch_of(b"%d" % number), partition=1)
    asked, answers = threading.Event(), threading.Event()
    read = KafkaLog._read_some

    async def slow(self: KafkaLog, *arguments: Any) -> Any:
        asked.set()
        while not answers.is_set():
            await asyncio.sleep(0.01)
        return await read(self, *arguments)

    log = server.namespace.event_hub("shared").partition("1").log
    assert isinstance(log, KafkaLog)
    log._store.wait(log.locate())  # which forgets them
    monkeypatch.setattr(KafkaLog, "_read_some", slow)
    fetching = clients[0].send(Api.FETCH, fetch_fields({("shared", 1): log.next_sequence_number - 1}), FETCH_BY_NAME)
    assert asked.wait(PATIENCE_S)
    try:
        assert clients[1].ask(Api.METADATA, {"topics": [{"name": "shared"}]}).topics[0].name == "shared"
    finally:
        answers.set()
    assert parse_batch(clients[0].receive(*fetching).responses[0].partitions[0].records).count == 1


def test_a_gap_in_the_numbers_of_a_client_of_kafka_is_named_as_kafka_names_it(pair: tuple[Server, Server]) -> None:
    client = KafkaClient(pair[0].kafka_port)
    client.log_in(pair[0].connection_string())
    producer = client.ask(Api.INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout_ms": 1000})
    answers = [
        client.produce("shared", batch_of(b"x", producer=(producer.producer_id, epoch, number)))
        for epoch, number in ((1, 0), (1, 5), (0, 1), (1, 1))
    ]
    assert [answer.error_code for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.NONE,
    ]


def owned(server: Server, source: str) -> bool:
    try:
        RawClient(server, "shared").reader(source, properties={EPOCH: 0})
    except Refused:
        return False
    return True
