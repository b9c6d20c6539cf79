"""A topic of Kafka as an output, against Apache Kafka: where rows go, and that each is there once."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import confluent_kafka
import fastavro
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from pydantic import ValidationError

from tests.connectors.inputs.kit import events_of
from tests.connectors.outputs.kit import Destination, OutputContract
from tests.job.rows import result_columns, result_rows
from tests.kafka import PASSWORD, USER, Broker, kafka_broker, messages_of
from tests.patience import PATIENCE_S, eventually
from tidegate.connectors.inputs.kafka import KafkaInput
from tidegate.connectors.inputs.kinds import LogOpening
from tidegate.connectors.model.errors import InputError, InputUnavailableError, OutputError
from tidegate.connectors.outputs import Identity, Mark, Output, OutputOpening, OutputUnavailableError, open_output
from tidegate.connectors.outputs.messaging.kafka import KafkaOutput, KafkaTopic
from tidegate.hub.placement import partition_for_key

_numbers = itertools.count(1)


class Topic:
    def __init__(self, address: str, name: str, **settings: Any) -> None:
        self.address = address
        self.name = name
        self.settings = settings

    def opened(self, mark: Mark | None = None, *, drop: bool = False, **settings: Any) -> KafkaTopic:
        given = {"bootstrap_servers": self.address, **self.settings, **settings}
        opening = OutputOpening(Identity("job", "out", "journal-" + self.name), mark, drop=drop)
        output = open_output(KafkaOutput(type="kafka", topic=self.name, **given), opening)
        assert isinstance(output, KafkaTopic)
        return output

    def open_at(self, mark: Mark | None) -> Output:
        return self.opened(mark)

    def by_partition(self) -> list[list[int]]:
        return [[json.loads(one.value())["n"] for one in some] for some in messages_of(self.address, self.name)]

    def numbers(self) -> list[int]:
        return sorted(itertools.chain.from_iterable(self.by_partition()))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with kafka_broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def address(broker: Broker) -> str:
    return broker.address


@pytest.fixture
def topic(address: str) -> Topic:
    return Topic(address, f"t{next(_numbers)}")


def rows(first: int, count: int) -> Any:
    return result_columns({"n": list(range(first, first + count))})


class TestContract(OutputContract):
    knows_its_rows = False  # a topic holds messages of many producers

    @pytest.fixture
    def destination(self, topic: Topic) -> Destination:
        return topic


def test_rows_go_to_the_partitions_in_turn_and_by_key(topic: Topic) -> None:
    output = topic.opened(property_columns=("p",), partition_key="k")
    output.write(result_rows([{"n": 1, "k": "a", "p": 1.5}, {"n": 2, "k": None}, {"n": 3, "k": 7, "p": True}]))
    output.commit()
    output.close()
    found = {
        json.loads(one.value())["n"]: (one.partition(), one.key(), one.headers())
        for one in itertools.chain.from_iterable(messages_of(topic.address, topic.name))
    }
    assert found == {
        1: (partition_for_key("a", 3), b"a", [("p", b"1.5")]),
        2: (1, None, None),
        3: (partition_for_key("7", 3), b"7", [("p", b"true")]),
    }


def test_bodies_may_be_avro(topic: Topic) -> None:
    output = topic.opened(format="avro")
    output.write(rows(5, 1))
    output.commit()
    (message,) = itertools.chain.from_iterable(messages_of(topic.address, topic.name))
    assert list(fastavro.reader(io.BytesIO(message.value()))) == [{"n": 5}]


def test_a_transaction_whose_outcome_is_unknown_is_looked_up(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply to the commit is lost twice: once after it took effect, once before."""
    output = topic.opened()
    send, outcomes = output._send, iter((True, False))

    def lose_the_reply() -> None:
        if next(outcomes, None):
            send()
        output.close()
        raise OutputUnavailableError("no reply")

    output.write(rows(0, 4))
    with monkeypatch.context() as patch:
        patch.setattr(output, "_send", lose_the_reply)
        for _ in range(2):
            with pytest.raises(OutputUnavailableError):
                output.commit()
    assert output.commit()["rows"] == 4
    output.write(rows(4, 2))
    output.commit()
    assert topic.by_partition() == [[0, 3], [1, 4], [2, 5]]


def test_a_broker_that_has_just_taken_over_the_group_is_waited_for(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = topic.opened()
    output.write(rows(0, 3))
    mark = output.commit()
    output.close()
    refusals = [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS]

    class Moving(confluent_kafka.Consumer):
        def committed(self, *arguments: Any, **named: Any) -> Any:
            if refusals:
                raise KafkaException(KafkaError(refusals.pop()))
            return super().committed(*arguments, **named)

    monkeypatch.setattr(confluent_kafka, "Consumer", Moving)
    again = topic.opened(mark)
    again.write(rows(3, 1))
    assert again.commit()["rows"] == 4
    assert not refusals


def test_a_cluster_without_a_coordinator_of_transactions_says_what_to_set(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single broker with Kafka's own settings has none, and the library only says that it timed out."""

    class Alone(confluent_kafka.Producer):
        def init_transactions(self, *arguments: Any) -> None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(confluent_kafka, "Producer", Alone)
    with pytest.raises(OutputUnavailableError, match=r"coordinates transactions; .* set transactions = false"):
        topic.opened()


def test_an_earlier_run_is_shut_out(topic: Topic) -> None:
    earlier = topic.opened()
    mark = earlier.commit()
    earlier.write(rows(0, 3))
    later = topic.opened(mark)
    with pytest.raises(OutputError, match="another run of this job, on a copy of its state folder"):
        earlier.commit()
    later.write(rows(0, 3))
    later.commit()
    assert topic.by_partition() == [[0], [1], [2]]


def test_what_a_message_cannot_hold(topic: Topic) -> None:
    output = topic.opened(drop=True, property_columns=("p",))
    output.write(result_rows([{"n": "x" * 1_100_000}, {"n": 1, "p": [1]}, {"n": 2}]))
    assert output.commit()["dropped"] == 2
    kinds = [row.kind.partition(".")[2] for row in output.drain_rejected_rows()]
    assert kinds == ["RecordExceededSizeLimit", "TypeConversionError"]
    assert topic.numbers() == [2]


def test_rows_that_were_all_dropped_move_the_position(topic: Topic) -> None:
    output = topic.opened(drop=True, property_columns=("p",))
    output.write(result_rows([{"n": 1, "p": [1]}]))
    mark = output.commit()
    assert topic.opened(mark).commit() == mark == {"type": "kafka", "rows": 1, "dropped": 1}


def test_a_position_that_the_cluster_forgot(topic: Topic) -> None:
    output = topic.opened()
    output.write(rows(0, 3))
    mark = output.commit()
    output.close()
    admin = AdminClient({"bootstrap.servers": topic.address})
    (done,) = admin.delete_consumer_groups([output._id]).values()
    done.result(PATIENCE_S)
    with pytest.raises(OutputError, match=r"may have results after the 3 of the journal; set lost_position"):
        topic.opened(mark)
    again = topic.opened(mark, lost_position="journal")
    again.write(rows(3, 1))
    again.commit()
    assert topic.numbers() == [0, 1, 2, 3]


def test_a_position_before_the_journal_s(topic: Topic) -> None:
    output = topic.opened()
    output.write(rows(0, 1))
    mark = output.commit()
    with pytest.raises(OutputError, match="has 1 results of output 'out', but the journal committed 5"):
        topic.opened({**mark, "rows": 5})


def test_without_transactions_committed_rows_are_there(topic: Topic) -> None:
    output = topic.opened(transactions=False)
    output.write(rows(0, 3))
    mark = output.commit()
    output.write(rows(3, 1))
    output.close()
    again = topic.opened(mark, transactions=False)
    again.write(rows(3, 2))
    again.commit()
    assert topic.numbers() == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_named_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.connectors.outputs.messaging.kafka._ANSWER_WITHIN_S", 2.0)
    nobody = Topic("127.0.0.1:1", "t", username="u", password="sEcReT", security_protocol="sasl_plaintext")
    with pytest.raises(OutputUnavailableError, match=r"the topic t at 127\.0\.0\.1:1") as caught:
        nobody.opened()
    assert "sEcReT" not in str(caught.value)


def test_the_kafka_endpoint_of_event_hubs_is_a_connection_string() -> None:
    text = "Endpoint=sb://space.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=c2VjcmV0"
    configuration = KafkaOutput(type="kafka", topic="hub", connection_string=text).cluster_settings()
    assert configuration["bootstrap.servers"] == "space.servicebus.windows.net:9093"
    assert (configuration["security.protocol"], configuration["sasl.mechanism"]) == ("sasl_ssl", "PLAIN")
    assert (configuration["sasl.username"], configuration["sasl.password"]) == ("$ConnectionString", text)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "give either 'bootstrap_servers' or 'connection_string'"),
        ({"bootstrap_servers": "a", "connection_string": "b"}, "one of the two"),
        ({"bootstrap_servers": "a", "security_protocol": "sasl_ssl"}, "needs 'username' and 'password'"),
    ],
)
def test_settings_that_do_not_fit_together(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        KafkaOutput(type="kafka", topic="t", **given)


def test_a_password_is_asked_for_on_both_sides(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    address, signed = broker.address, broker.signed_address
    signs_in = {"security_protocol": "sasl_plaintext", "username": USER, "password": PASSWORD}
    output = Topic(signed, "signed", **signs_in).open_at(None)
    output.write(result_columns({"n": [1, 2, 3]}))
    assert output.commit()["rows"] == 3
    output.close()
    # A broker marks a transaction's partitions as committed after it has acknowledged the commit.
    eventually(lambda: sum(map(len, messages_of(address, "signed"))) == 3)
    source = KafkaInput(type="kafka", bootstrap_servers=signed, topic="signed", **signs_in)
    with closing(source.open_log(LogOpening())) as log:
        assert sum(one.end for one in log.ends().values()) >= 3
    monkeypatch.setattr("tidegate.connectors.outputs.messaging.kafka._ANSWER_WITHIN_S", 3.0)
    with pytest.raises(OutputError, match="the topic signed") as caught:
        Topic(signed, "signed", **{**signs_in, "password": "sEcReT"}).open_at(None)
    assert "sEcReT" not in str(caught.value)


def test_a_broker_is_reached_by_tls_with_a_certificate_and_scram(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion("ann", scram, b"sEcReT")
    client = AdminClient({"bootstrap.servers": broker.address})
    client.alter_user_scram_credentials([change])["ann"].result(PATIENCE_S)
    trusts = {"ssl.ca.location": str(broker.folder / "ca.pem")}
    options = {
        **trusts,
        "ssl.certificate.location": str(broker.folder / "client.pem"),
        "ssl.key.location": str(broker.folder / "client.key"),
    }
    signs_in = {
        "security_protocol": "sasl_ssl",
        "sasl_mechanism": "SCRAM-SHA-512",
        "username": "ann",
        "password": "sEcReT",
    }
    output = Topic(broker.sealed_address, "sealed", **signs_in, options=options).open_at(None)
    output.write(result_columns({"n": [1, 2, 3]}))
    assert output.commit()["rows"] == 3
    output.close()
    source = KafkaInput(
        type="kafka", bootstrap_servers=broker.sealed_address, topic="sealed", **signs_in, options=options
    )
    eventually(lambda: sum(map(len, messages_of(broker.address, "sealed"))) == 3)
    with closing(source.open_log(LogOpening())) as log:
        ends = log.ends()
        read = [events_of(log.range(name, one.begin, one.end), 10) for name, one in ends.items()]
        assert sorted(json.loads(event.body)["n"] for events in read for event in events) == [1, 2, 3]
    monkeypatch.setattr("tidegate.connectors.inputs.kafka._ANSWER_WITHIN_S", 3.0)
    wrong = source.model_copy(update={"password": "wRoNg"})
    with pytest.raises(InputError, match="uthentication") as caught:
        wrong.open_log(LogOpening())
    assert not isinstance(caught.value, InputUnavailableError)
    assert "wRoNg" not in str(caught.value)
    monkeypatch.setattr("tidegate.connectors.inputs.kafka._ANSWER_WITHIN_S", 1.0)
    for options in (trusts, {}):
        stranger = source.model_copy(update={"options": options})
        with pytest.raises(InputError, match="kafka at"):
            stranger.open_log(LogOpening())
