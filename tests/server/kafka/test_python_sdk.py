"""confluent-kafka, aiokafka and kafka-python, unmodified, through the same steps; and AMQP reads what they write."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import aiokafka
import pytest
from azure.eventhub import EventData, EventHubProducerClient
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from tests.patience import PATIENCE_S, eventually
from tests.server.conftest import receive_events
from tidegate.hub.access_rules import AccessRule, Right
from tidegate.server import Server

pytestmark = pytest.mark.sdk

Row = tuple[str | None, bytes, list[tuple[str, bytes]]]
Found = tuple[int, bytes | None, bytes, list[tuple[str, bytes]]]
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class Client(Protocol):
    """What the steps need of a client."""

    compressions: Sequence[str]

    def produce(self, topic: str, rows: Sequence[Row], compression: str) -> list[int]:
        """Send rows to partition 0, and return their offsets."""

    def read(
        self, topic: str, group: str, count: int
    ) -> list[tuple[int, bytes | None, bytes, list[tuple[str, bytes]]]]:
        """Read as the only member of a group from its position or the beginning, commit, and leave."""

    def first_at(self, topic: str, time_ms: int) -> int | None:
        """Return the first offset of partition 0 at a time or after it."""


class ConfluentKafka:
    """librdkafka."""

    compressions = COMPRESSIONS

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    def produce(self, topic: str, rows: Sequence[Row], compression: str) -> list[int]:
        offsets: list[int] = []
        producer = Producer({**self.settings, "compression.type": compression, "enable.idempotence": True})
        for key, value, headers in rows:
            producer.produce(
                topic, value, key, 0, headers=headers, on_delivery=lambda error, sent: offsets.append(sent.offset())
            )
        assert producer.flush(PATIENCE_S) == 0
        return offsets

    def read(self, topic: str, group: str, count: int) -> list[Any]:
        consumer = Consumer(
            {**self.settings, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        consumer.subscribe([topic])
        found: list[Any] = []

        def enough() -> bool:
            for message in consumer.consume(100, 0.2):
                assert message.error() is None
                found.append((message.offset(), message.key(), message.value(), message.headers() or []))
            return len(found) >= count

        eventually(enough)
        consumer.commit(asynchronous=False)
        consumer.close()
        return found

    def first_at(self, topic: str, time_ms: int) -> int | None:
        consumer = Consumer({**self.settings, "group.id": "unused"})
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, time_ms)], PATIENCE_S)
        consumer.close()
        return None if found.offset == -1 else int(found.offset)


class KafkaPython:
    """kafka-python."""

    compressions = ("none", "gzip")  # the others need packages of their own

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = {
            "bootstrap_servers": settings["bootstrap.servers"],
            "security_protocol": settings["security.protocol"],
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": settings["sasl.username"],
            "sasl_plain_password": settings["sasl.password"],
        }

    def produce(self, topic: str, rows: Sequence[Row], compression: str) -> list[int]:
        producer = KafkaProducer(**self.settings, compression_type=None if compression == "none" else compression)
        sent = [
            producer.send(topic, value, None if key is None else key.encode(), list(headers), 0)
            for key, value, headers in rows
        ]
        producer.flush(PATIENCE_S)
        producer.close()
        return [one.get(PATIENCE_S).offset for one in sent]

    def read(self, topic: str, group: str, count: int) -> list[Any]:
        consumer = KafkaConsumer(
            topic, **self.settings, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        )
        found: list[Any] = []

        def enough() -> bool:
            # It waits for events only. A wait that ends while the consumer joins its group loses what it is assigned:
            # kafka-python 3.0.12 takes no notice of the answer to SyncGroup then.
            for messages in consumer.poll(1000 * PATIENCE_S).values():
                found.extend((one.offset, one.key, one.value, list(one.headers)) for one in messages)
            return len(found) >= count

        eventually(enough)
        consumer.commit()
        consumer.close()
        return found

    def first_at(self, topic: str, time_ms: int) -> int | None:
        consumer = KafkaConsumer(**self.settings)
        place = KafkaPythonPartition(topic, 0)
        found = consumer.offsets_for_times({place: time_ms})[place]
        consumer.close()
        return None if found is None else int(found.offset)


class AioKafka:
    """aiokafka."""

    compressions = ("none", "gzip", "snappy", "lz4", "zstd")

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = {
            "bootstrap_servers": settings["bootstrap.servers"],
            "security_protocol": settings["security.protocol"],
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": settings["sasl.username"],
            "sasl_plain_password": settings["sasl.password"],
        }

    def produce(self, topic: str, rows: Sequence[Row], compression: str) -> list[int]:
        async def produce() -> list[int]:
            kind = None if compression == "none" else compression
            async with aiokafka.AIOKafkaProducer(
                **self.settings, compression_type=kind, enable_idempotence=True
            ) as producer:
                sent = [
                    await producer.send(topic, value, None if key is None else key.encode(), 0, headers=headers)
                    for key, value, headers in rows
                ]
                return [(await one).offset for one in sent]

        return asyncio.run(asyncio.wait_for(produce(), PATIENCE_S))

    def read(self, topic: str, group: str, count: int) -> list[Any]:
        async def read() -> list[Any]:
            found: list[Any] = []
            async with aiokafka.AIOKafkaConsumer(
                topic, **self.settings, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
            ) as consumer:
                while len(found) < count:
                    for messages in (await consumer.getmany(timeout_ms=200)).values():
                        found.extend((one.offset, one.key, one.value, list(one.headers)) for one in messages)
                await consumer.commit()
            return found

        return asyncio.run(asyncio.wait_for(read(), PATIENCE_S))

    def first_at(self, topic: str, time_ms: int) -> int | None:
        async def ask() -> int | None:
            async with aiokafka.AIOKafkaConsumer(**self.settings) as consumer:
                place = aiokafka.TopicPartition(topic, 0)
                found = (await consumer.offsets_for_times({place: time_ms}))[place]
                return None if found is None else int(found.offset)

        return asyncio.run(asyncio.wait_for(ask(), PATIENCE_S))


CLIENTS: dict[str, Callable[[dict[str, Any]], Client]] = {
    "confluent-kafka": ConfluentKafka,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
}


@pytest.fixture
def settings(server: Server) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"127.0.0.1:{server.kafka_port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": server.connection_string(),
    }


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, settings: dict[str, Any]) -> Client:
    return CLIENTS[request.param](settings)


def test_produce_consume_commit_restart_and_seek_by_time(client: Client, hub: str) -> None:
    rows: list[Row] = [
        ("device 1", b"one" * 50, [("colour", b"red"), ("empty", b"")]),
        (None, b"two", []),
        ("\u00e9", b"", [("colour", b"blue")]),
    ]
    sent = 0
    for compression in client.compressions:
        assert client.produce(hub, rows, compression) == list(range(sent, sent + 3))
        sent += 3
    found = client.read(hub, "g1", sent)
    assert [offset for offset, *_ in found] == list(range(sent))
    expected = [(None if key is None else key.encode(), value, headers) for key, value, headers in rows]
    assert [tuple(rest) for _, *rest in found] == expected * len(client.compressions)
    before_ms = round(time.time() * 1000) + 1
    eventually(lambda: time.time() * 1000 > before_ms + 1)
    client.produce(hub, [(None, b"later", [])], "none")
    assert client.first_at(hub, before_ms) == sent
    assert client.first_at(hub, 0) == 0
    assert client.first_at(hub, before_ms + 3_600_000) is None
    again = client.read(hub, "g1", 1)  # goes on where the group was
    assert [(offset, value) for offset, _, value, _ in again] == [(sent, b"later")]


@pytest.fixture
def consumers(settings: dict[str, Any]) -> Iterator[Callable[..., Consumer]]:
    opened: list[Consumer] = []

    def open_one(hub: str, group: str, **options: Any) -> Consumer:
        given = {"auto.offset.reset": "earliest", "session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
        chosen = {**settings, **given, "group.id": group, **options}
        consumer = Consumer({name: value for name, value in chosen.items() if value is not None})
        consumer.subscribe([hub])
        opened.append(consumer)
        return consumer

    yield open_one
    for consumer in opened:
        consumer.close()


@pytest.mark.parametrize("strategy", [pytest.param("range", marks=pytest.mark.soak), "cooperative-sticky"])
def test_two_members_share_the_partitions_and_take_over_from_one_another(
    consumers: Callable[..., Consumer], hub: str, strategy: str
) -> None:
    options = {"partition.assignment.strategy": strategy}

    def divided(*members: Consumer) -> list[list[int]]:
        for member in members:
            member.poll(0.05)
        return sorted(sorted(one.partition for one in member.assignment()) for member in members)

    first = consumers(hub, f"{strategy} of {hub}", **options)
    eventually(lambda: divided(first) == [[0, 1]])
    second = consumers(hub, f"{strategy} of {hub}", **options)
    eventually(lambda: divided(first, second) == [[0], [1]])
    first.unsubscribe()
    # A member that leaves gives its partitions back as it is polled.
    eventually(lambda: divided(first, second) == [[], [0, 1]])


def test_a_static_member_comes_back_to_its_partitions(consumers: Callable[..., Consumer], hub: str) -> None:
    first = consumers(hub, "static", **{"group.instance.id": "a"})
    eventually(lambda: first.poll(0.05) is None and len(first.assignment()) == 2)
    first.close()
    again = consumers(hub, "static", **{"group.instance.id": "a"})
    eventually(lambda: again.poll(0.05) is None and len(again.assignment()) == 2)


def test_a_member_of_the_consumer_protocol_is_told_that_there_is_none(
    consumers: Callable[..., Consumer], hub: str
) -> None:
    given = {"group.protocol": "consumer", "session.timeout.ms": None, "heartbeat.interval.ms": None}
    member = consumers(hub, "of KIP-848", **given)
    found = []

    def fails() -> bool:
        message = member.poll(0.1)
        if message is not None:
            found.append(message.error())
        return bool(found)

    eventually(fails)
    assert found[0].code() == KafkaError._FATAL
    assert "ConsumerGroupHeartbeat" in str(found[0])


def test_readers_begin_where_they_ask(
    settings: dict[str, Any], consumers: Callable[..., Consumer], server: Server, hub: str
) -> None:
    client = ConfluentKafka(settings)
    client.produce(hub, [(None, b"%d" % number, []) for number in range(3)], "none")

    def first(group: str, **options: Any) -> tuple[int | None, bytes | None]:
        consumer = consumers(hub, f"{group} of {hub}", **{"enable.auto.commit": False, **options})
        found: list[Any] = []

        def comes() -> bool:
            message = consumer.poll(0.1)
            if message is not None:
                error = message.error()
                found.append((message.offset(), message.value()) if error is None else (error.code(), None))
            return bool(found)

        eventually(comes)
        return tuple(found[0])

    assert first("committed", **{"isolation.level": "read_committed"}) == (0, b"0")
    code, _ = first("none", **{"auto.offset.reset": "error"})
    assert code == KafkaError._AUTO_OFFSET_RESET
    reader = Consumer({**settings, "group.id": f"assigned of {hub}", "auto.offset.reset": "latest"})
    reader.assign([TopicPartition(hub, 0, 1)])
    assert (reader.poll(PATIENCE_S) or pytest.fail("nothing came")).offset() == 1
    admin = AdminClient(settings)
    place = TopicPartition(hub, 0)

    def offset(specification: OffsetSpec, **options: Any) -> int:
        return int(admin.list_offsets({place: specification}, **options)[place].result(PATIENCE_S).offset)

    assert (offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())) == (0, 3)
    assert offset(OffsetSpec.latest(), isolation_level=IsolationLevel.READ_COMMITTED) == 3
    assert (offset(OffsetSpec.max_timestamp()), offset(OffsetSpec.for_timestamp(1))) == (2, 0)
    admin.delete_records([TopicPartition(hub, 0, 2)])[place].result(PATIENCE_S)
    assert first("after a deletion") == (2, b"2")
    reader.seek(TopicPartition(hub, 0, 99))  # no record has that offset, so the client begins at the end

    def later() -> bytes | None:
        client.produce(hub, [(None, b"later", [])], "none")
        message = reader.poll(0.2)
        return None if message is None else message.value()

    eventually(lambda: later() == b"later")
    reader.close()


def test_clients_get_the_protocol_s_errors(
    settings: dict[str, Any], consumers: Callable[..., Consumer], server: Server, hub: str
) -> None:
    def produced(value: bytes = b"x", topic: str = hub, **options: Any) -> int | None:
        errors: list[int | None] = []
        given = {"log_level": 0, "message.max.bytes": 8_000_000, "message.timeout.ms": 5000}
        producer = Producer({**settings, **given, **options})
        producer.produce(
            topic, value, on_delivery=lambda error, sent: errors.append(None if error is None else error.code())
        )
        assert producer.flush(PATIENCE_S) == 0
        return errors[0]

    def with_right(right: Right) -> dict[str, Any]:
        rule = AccessRule.create(f"only {right}", (right,))
        server.namespace.management.set_access_rule(rule)
        return {"sasl.password": server.connection_string(rule)}

    assert [produced(acks=acks) for acks in (0, 1, "all")] == [None] * 3
    assert produced(b"x" * 900_000) is None
    assert produced(b"x" * 2_000_000) == KafkaError.MSG_SIZE_TOO_LARGE
    assert produced(**with_right(Right.LISTEN)) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert produced(**with_right(Right.SEND)) is None
    member = consumers(hub, "may not", **with_right(Right.SEND))
    missing = consumers("nowhere", "reads nothing")
    for reader, code in (
        (member, KafkaError.GROUP_AUTHORIZATION_FAILED),
        (missing, KafkaError.UNKNOWN_TOPIC_OR_PART),
    ):
        found: list[int] = []

        def fails(reader: Consumer = reader, found: list[int] = found) -> bool:
            message = reader.poll(0.1)
            error = None if message is None else message.error()
            if error is not None:
                found.append(error.code())
            return bool(found)

        eventually(fails)
        assert found[0] == code
    wrong: list[int] = []
    password = settings["sasl.password"].replace("SharedAccessKey=", "SharedAccessKey=x")
    given = {"sasl.password": password, "log_level": 0, "error_cb": lambda error: wrong.append(error.code())}
    stranger = Producer({**settings, **given})
    eventually(lambda: stranger.poll(0.1) == 0 and KafkaError._AUTHENTICATION in wrong)
    with pytest.raises(KafkaException) as refused:
        Producer({**settings, "transactional.id": "t", "log_level": 0}).init_transactions(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_topics_partitions_configs_groups_and_records_are_administered(
    settings: dict[str, Any], server: Server, hub: str
) -> None:
    admin = AdminClient(settings)
    config = {"retention.ms": "3600000"}
    admin.create_topics([NewTopic("made", 2, 1, config=config)])["made"].result(PATIENCE_S)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic("made", 2, 1)])["made"].result(PATIENCE_S)
    admin.create_partitions([NewPartitions("made", 3)])["made"].result(PATIENCE_S)
    assert len(server.namespace.event_hub("made").partitions) == 3
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        admin.create_partitions([NewPartitions("made", 2)])["made"].result(PATIENCE_S)
    producer = Producer(settings)
    for partition in range(3):
        producer.produce("made", b"x", partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    assert server.namespace.event_hub("made").config.retention_ms == 3_600_000
    entry = ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "made", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    assert admin.describe_configs([resource])[resource].result(PATIENCE_S)["retention.ms"].value == "7200000"
    found = ConfluentKafka(settings).read("made", "group of made", 3)
    assert len(found) == 3
    described = admin.describe_consumer_groups(["group of made"])["group of made"].result(PATIENCE_S)
    assert described.state.name == "EMPTY"
    assert "group of made" in [one.group_id for one in admin.list_consumer_groups().result(PATIENCE_S).valid]
    admin.delete_consumer_groups(["group of made"])["group of made"].result(PATIENCE_S)
    deleted = admin.delete_records([TopicPartition("made", 0, 1)])
    assert [future.result(PATIENCE_S).low_watermark for future in deleted.values()] == [1]
    admin.delete_topics(["made"])["made"].result(PATIENCE_S)
    assert "made" not in server.namespace.event_hubs
    assert admin.describe_cluster().result(PATIENCE_S).cluster_id == server.namespace.name


def test_kafka_writes_and_amqp_reads(settings: dict[str, Any], connection: str, hub: str) -> None:
    rows: list[Row] = [("device 1", b"body", [("colour", b"red")]), (None, b"plain", [])]
    for compression in ("none", "zstd"):
        ConfluentKafka(settings).produce(hub, rows, compression)
    events = receive_events(connection, hub, 4, partition="0")
    assert [event.body_as_str() for event in events] == ["body", "plain"] * 2
    assert [event.partition_key for event in events] == [b"device 1", None] * 2
    assert [event.properties for event in events] == [{b"colour": b"red"}, {}] * 2
    assert [event.sequence_number for event in events] == [0, 1, 2, 3]


def test_amqp_writes_and_kafka_reads(settings: dict[str, Any], producer: EventHubProducerClient, hub: str) -> None:
    batch = producer.create_batch(partition_key="device 1")
    event = EventData("body")
    event.properties = {"colour": "red"}
    batch.add(event)
    producer.send_batch(batch)
    ((_, key, value, headers),) = ConfluentKafka(settings).read(hub, "g", 1)
    assert (key, value, headers) == (b"device 1", b"body", [("colour", b"\xa1\x03red")])


def test_groups_of_both_protocols_do_not_disturb_each_other(
    settings: dict[str, Any], connection: str, hub: str
) -> None:
    ConfluentKafka(settings).produce(hub, [(None, b"x", [])], "none")
    ConfluentKafka(settings).read(hub, "cg1", 1)
    assert len(receive_events(connection, hub, 1, group="cg1", partition="0")) == 1


def test_clients_connect_over_tls(settings: dict[str, Any], server: Server, hub: str) -> None:
    assert server.certificate is not None
    secure = {
        **settings,
        "bootstrap.servers": f"localhost:{server.kafka_tls_port}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(server.certificate.authority_file),
    }
    ConfluentKafka(secure).produce(hub, [(None, b"x", [])], "none")
    ((_, _, value, _),) = ConfluentKafka(secure).read(hub, "g", 1)
    assert value == b"x"
