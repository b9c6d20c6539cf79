"""Topics of a broker as a log: the contract of streams, transactions, several partitions and topics, and whole jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.connectors.inputs.kit import StreamContract, events_of
from tests.job.logs import TravellingTasks, prepared
from tests.kafka import kafka
from tests.patience import PATIENCE_S, eventually
from tidegate.connectors.inputs import kafka as log_module
from tidegate.connectors.inputs.kafka import KafkaInput
from tidegate.connectors.inputs.kinds import LogOpening
from tidegate.connectors.inputs.ticks import TickedLog, Ticks
from tidegate.connectors.model.errors import InputError, InputUnavailableError
from tidegate.connectors.model.events import InputLog, last_arrival
from tidegate.job.runtime.step import Stepper
from tidegate.ordering import TICKS_PER_MILLISECOND, Policy

START_MS = 1_767_225_600_000


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with kafka() as address:
        yield address


def a_topic(broker: str, name: str, partitions: int = 1, **config: str) -> str:
    """A new topic."""
    client = AdminClient({"bootstrap.servers": broker})
    client.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result()
    return name


def send(broker: str, topic: str, *messages: tuple[int, int, Any], **more: Any) -> None:
    """Send messages: partition, milliseconds after the start, content."""
    producer = Producer({"bootstrap.servers": broker})
    for partition, at_ms, content in messages:
        value = content if isinstance(content, bytes) else json.dumps(content).encode()
        producer.produce(topic, value, partition=partition, timestamp=START_MS + at_ms, **more)
    assert producer.flush(PATIENCE_S) == 0


def log_of(broker: str, topic: str, **more: Any) -> InputLog:
    return KafkaInput(type="kafka", bootstrap_servers=broker, topic=topic, **more).open_log(LogOpening())


class Topic:
    """A topic with five records."""

    def __init__(self, broker: str) -> None:
        self._broker = broker

    def open_log(self) -> InputLog:
        """Open it as the next process would."""
        return log_of(self._broker, "contract")


@pytest.fixture(scope="module")
def origin(broker: str) -> Topic:
    a_topic(broker, "contract")
    send(broker, "contract", *((0, at_ms, {"n": at_ms}) for at_ms in (0, 0, 10, 11, 500)))
    return Topic(broker)


class TestTheContract(StreamContract):
    """A topic behaves as every stream does."""


def test_transactions_leave_gaps_and_what_was_aborted_is_not_read(broker: str) -> None:
    a_topic(broker, "transactions")
    producer = Producer({"bootstrap.servers": broker, "transactional.id": "test"})
    producer.init_transactions(PATIENCE_S)
    for number, commit in enumerate((True, False, True)):
        producer.begin_transaction()
        for more in range(2):
            producer.produce("transactions", b"%d" % (10 * number + more), timestamp=START_MS + number)
        producer.flush(PATIENCE_S)
        (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)
    with closing(log_of(broker, "transactions")) as log:
        (end,) = log.ends().values()
        found = [(event.number, event.body) for event in events_of(log.range("0", end.begin, end.end), 1)]
        assert found == [(0, b"0"), (1, b"1"), (6, b"20"), (7, b"21")]
        assert end.end == 9
        assert last_arrival(log, "0", end.begin, end.end) == (START_MS + 2) * TICKS_PER_MILLISECOND
        clock = iter([(0.0, 0), (5.0, 0), (10.0, 0)])
        ticked = TickedLog(log, "t", Ticks(), KafkaInput.arrival_estimate(_settings(broker)), lambda: next(clock))
        ticked.ends()
        assert ticked.ends()["0"].arrival_lower_bound == (START_MS + 2 + 5_000) * TICKS_PER_MILLISECOND


def _settings(broker: str) -> KafkaInput:
    return KafkaInput(type="kafka", bootstrap_servers=broker, topic="t")


def test_a_job_reads_every_partition_of_every_topic(broker: str) -> None:
    a_topic(broker, "east", partitions=3)
    a_topic(broker, "west")
    later = [("east", 0), ("east", 1), ("east", 2), ("west", 0)]
    send(broker, "east", *((n % 3, 1000 * n, {"n": n}) for n in range(30)), headers={"from": "test"}, key=b"k")
    send(broker, "west", (0, 20_500, {"n": 100}))
    for topic, partition in later:
        send(broker, topic, (partition, 3_600_000, {"n": -1}))
    program = prepared(
        "SELECT n, PartitionId AS p, GetMetadataPropertyValue(i, '[User].[kafka.topic]') AS topic, "
        "GetMetadataPropertyValue(i, '[User].[from]') AS origin, "
        "GetMetadataPropertyValue(i, 'EventHub.PartitionKey') AS k INTO o FROM i"
    )
    policy = Policy.seconds(late=5)
    with closing(log_of(broker, "east, west")) as log:
        assert sorted(log.ends(), key=int) == ["0", "1", "2", "100000"]
        stepper = Stepper(program, policy, {"i": log}, TravellingTasks(program, policy))
        rows = [row for left in stepper.step().rows for row in left.to_dicts()]
    assert [row["n"] for row in rows] == [*range(21), 100, *range(21, 30)]
    assert {"n": 7, "p": 1, "topic": "east", "origin": "test", "k": "k"} in rows
    assert {"n": 100, "p": 100000, "topic": "west", "origin": None, "k": None} in rows


def test_records_in_avro_are_read_with_the_schemas_of_a_registry(broker: str) -> None:
    """See test_schema_registry; here it is only the way of a record through the log that counts."""
    a_topic(broker, "framed")
    send(broker, "framed", (0, 0, b"\0\0\0\0\x07" + b'{"a": 1}'))
    with closing(log_of(broker, "framed", schema_registry="http://127.0.0.1:1")) as log:
        (event,) = events_of(log.range("0", 0, 1), 10)
        assert event.body == b'{"a": 1}'


def test_removed_records_are_reported(broker: str) -> None:
    a_topic(broker, "short")
    send(broker, "short", (0, 0, 1), (0, 1, 2))
    place = TopicPartition("short", 0, 1)
    client = AdminClient({"bootstrap.servers": broker})
    client.delete_records([place])[place].result()
    with closing(log_of(broker, "short")) as log:
        (end,) = log.ends().values()
        assert (end.begin, end.end) == (1, 2)
        with pytest.raises(InputError, match="topic short, partition 0: record 0 no longer exists"):
            list(log.range("0", 0, 2).read_events(10))


def test_a_topic_that_was_made_again_is_another_log(broker: str) -> None:
    a_topic(broker, "again")
    with closing(log_of(broker, "again")) as log:
        (before,) = log.ends().values()
    with closing(log_of(broker, "again")) as log:
        assert log.ends()["0"].log_id == before.log_id is not None
    client = AdminClient({"bootstrap.servers": broker})
    client.delete_topics(["again"])["again"].result()
    eventually(lambda: "again" not in client.list_topics().topics)
    a_topic(broker, "again")
    with closing(log_of(broker, "again")) as log:
        assert log.ends()["0"].log_id not in (None, before.log_id)


def test_what_cannot_be_reached_is_unavailable_and_what_does_not_exist_is_an_error(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "_READY_WITHIN_S", 0.2)
    with pytest.raises(InputError, match=r"topic nothing: .*create it, or correct its name in `topic`"):
        log_of(broker, "nothing", options={"allow.auto.create.topics": False})
    monkeypatch.setattr(log_module, "_ANSWER_WITHIN_S", 1.0)
    with pytest.raises(InputUnavailableError, match=r"kafka at 127\.0\.0\.1:1: "):
        log_of("127.0.0.1:1", "t", options={"socket.connection.setup.timeout.ms": 1000})
    with pytest.raises(InputError, match="No such configuration property"):
        log_of(broker, "t", options={"no.such": 1})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "give either 'bootstrap_servers' or 'connection_string'"),
        ({"bootstrap_servers": "a", "security_protocol": "sasl_ssl"}, "sasl_ssl needs 'username' and 'password'"),
        (
            {"bootstrap_servers": "a", "schema_registry": "http://r", "format": "csv"},
            "for the formats avro, protobuf and json",
        ),
        ({"bootstrap_servers": "a", "topic": "a,,b"}, "a name is empty"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        KafkaInput.model_validate({"type": "kafka", "topic": "t", **settings})


def test_no_secret_is_shown() -> None:
    settings = KafkaInput(
        type="kafka", connection_string="Endpoint=sb://h;SharedAccessKeyName=a;SharedAccessKey=c2VjcmV0", topic="t"
    )
    assert dict(settings.cluster_settings())["bootstrap.servers"] == "h:9093"
