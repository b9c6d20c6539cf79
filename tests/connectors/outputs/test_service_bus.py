"""A queue or topic of an AMQP 1.0 broker as an output, against ActiveMQ Artemis."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from tests.artemis import SUBSCRIPTIONS, TOPIC, artemis, messages_of
from tests.connectors.outputs.kit import Destination, OutputContract
from tests.job.rows import result_columns, result_rows
from tidegate.amqp.encoding.types import Timestamp
from tidegate.client.message_sender import MessageSender, Refusal
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs import Identity, Mark, Output, OutputOpening, OutputUnavailableError, open_output
from tidegate.connectors.outputs.messaging.service_bus import ServiceBusEntity, ServiceBusOutput
from tidegate.connectors.outputs.messaging.system_properties import OF_MESSAGES, system_sections
from tidegate.engine.values.vectors import Datetime
from tidegate.ordering import parse_time

_numbers = itertools.count(1)


class Queue:
    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name
        self.taken: list[int] = []

    def opened(self, mark: Mark | None = None, *, drop: bool = False, **settings: Any) -> ServiceBusEntity:
        named = {"queue": self.name} if "topic" not in settings else {}
        definition = ServiceBusOutput(
            type="servicebus",
            connection_string=self.url,
            duplicate_id_property="_AMQ_DUPL_ID",
            **named,
            **settings,
        )
        output = open_output(definition, OutputOpening(Identity("job", "out", "journal-" + self.name), mark, drop=drop))
        assert isinstance(output, ServiceBusEntity)
        return output

    def open_at(self, mark: Mark | None) -> Output:
        return self.opened(mark)

    def numbers(self) -> list[int]:
        self.taken += [json.loads(b"".join(one.body))["n"] for one in messages_of(self.url, self.name)]
        return sorted(self.taken)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with artemis() as url:
        yield url


@pytest.fixture
def queue(url: str) -> Queue:
    return Queue(url, f"q{next(_numbers)}")


def rows(first: int, count: int) -> Any:
    return result_columns({"n": list(range(first, first + count))})


class TestContract(OutputContract):
    knows_its_rows = False  # a queue cannot be asked

    @pytest.fixture
    def destination(self, queue: Queue) -> Destination:
        return queue


def test_columns_become_properties(queue: Queue) -> None:
    noon = Datetime(parse_time("2026-01-01T12:00:00.1234567Z"))
    output = queue.opened(
        property_columns=("p",),
        system_property_columns={"SessionId": "s", "Label": "l", "TimeToLive": "ttl", "MessageId": "id"},
    )
    output.write(result_rows([{"n": 1, "p": noon, "s": "a", "l": "x", "ttl": 3600, "id": 7}, {"n": 2, "s": None}]))
    output.commit()
    first, second = messages_of(queue.url, queue.name)
    assert (first.body, second.body) == ([b'{"n":1}'], [b'{"n":2}'])
    assert first.properties is not None
    assert (first.properties.group_id, first.properties.subject, first.properties.message_id) == ("a", "x", "7")
    assert first.properties.content_type == "application/json"
    assert first.application_properties == {"p": "2026-01-01T12:00:00.1234567Z", "_AMQ_DUPL_ID": "7"}
    assert first.header is not None
    assert (first.header.durable, first.header.ttl_ms) == (True, 3_600_000)
    assert second.properties is not None
    assert second.properties.group_id is None
    assert str(second.properties.message_id).endswith("-1")


def test_a_topic_has_messages_for_every_subscription(queue: Queue) -> None:
    output = queue.opened(topic=TOPIC)
    output.write(rows(0, 3))
    output.commit()
    for subscription in SUBSCRIPTIONS:
        found = messages_of(queue.url, f"{TOPIC}::{TOPIC}-{subscription}")
        assert [json.loads(one.body[0])["n"] for one in found] == [0, 1, 2]


def test_more_messages_than_the_broker_gives_credit_for_keep_their_order(queue: Queue) -> None:
    output = queue.opened()
    output.write(rows(0, 5_000))
    output.commit()
    assert [json.loads(one.body[0])["n"] for one in messages_of(queue.url, queue.name)] == list(range(5_000))


def test_a_connection_that_breaks_leaves_no_gap_and_no_repetition(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = queue.opened()
    output.write(rows(0, 10))
    send = MessageSender.send

    def send_half_and_break(self: MessageSender, messages: Any, accepted: set[int]) -> list[Refusal]:
        send(self, messages[:5], accepted)
        self._socket.close()
        return send(self, messages, accepted)

    with monkeypatch.context() as patch:
        patch.setattr(MessageSender, "send", send_half_and_break)
        with pytest.raises(OutputUnavailableError):
            output.commit()
    output.commit()
    assert queue.numbers() == list(range(10))


def test_a_connection_that_the_broker_has_closed_while_it_was_idle_is_replaced(queue: Queue) -> None:
    output = queue.opened()
    for first in (0, 3):
        output.write(rows(first, 3))
        output.commit()
        assert output._sender is not None
        output._sender._socket.shutdown(socket.SHUT_RDWR)
    assert queue.numbers() == list(range(6))


def test_rejections_of_the_broker_are_rows_dropped_or_the_end(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = iter(
        (
            [Refusal(1, "amqp:link:message-size-exceeded", "too big"), Refusal(2, "com.microsoft:server-busy", "")],
            [Refusal(2, "amqp:not-allowed", "no session id")],
        )
    )
    monkeypatch.setattr(MessageSender, "send", lambda self, messages, accepted: next(replies))
    output = queue.opened(drop=True)
    output.write(rows(0, 3))
    with pytest.raises(OutputUnavailableError, match="server-busy"):
        output.commit()
    assert output.commit()["dropped"] == 2
    kinds = [(row.kind.partition(".")[2], row.row) for row in output.drain_rejected_rows()]
    assert kinds == [("RecordExceededSizeLimit", 1), ("TypeConversionError", 2)]
    strict = queue.opened()
    strict.write(rows(0, 1))
    monkeypatch.setattr(MessageSender, "send", lambda *_: [Refusal(0, "amqp:not-allowed", "no session id")])
    with pytest.raises(OutputError, match=r"no session id \(amqp:not-allowed\)"):
        strict.commit()


def test_a_value_that_a_system_property_cannot_have(queue: Queue) -> None:
    output = queue.opened(drop=True, system_property_columns={"TimeToLive": "t"})
    output.write(result_rows([{"n": 1, "t": "soon"}, {"n": 2}]))
    output.commit()
    (row,) = output.drain_rejected_rows()
    assert "system property TimeToLive: expected a number of seconds" in row.message
    assert queue.numbers() == [2]


def test_a_broker_that_is_not_there_is_named_without_the_password() -> None:
    with pytest.raises(OutputUnavailableError, match=r"q at 127\.0\.0\.1:1") as caught:
        Queue("amqp://user:sEcReT@127.0.0.1:1", "q").opened()
    assert "sEcReT" not in str(caught.value)


def test_system_properties_are_where_service_bus_has_them() -> None:
    noon = parse_time("2026-01-01T12:00:00Z")
    sections = system_sections(
        {"ScheduledEnqueueTimeUtc": Datetime(noon), "partitionkey": 5, "TimeToLive": "1.00:00:01.5", "To": "a"}
    )
    at = sections.annotations.pop("x-opt-scheduled-enqueue-time")
    assert (at, type(at)) == (noon // 10_000, Timestamp)
    assert sections.annotations == {"x-opt-partition-key": "5"}
    assert sections.ttl_ms == 86_401_500
    assert sections.properties is not None
    assert sections.properties.to == "a"
    for name in OF_MESSAGES:
        system_sections({name: Datetime(noon) if "Time" in name and name != "TimeToLive" else 1})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"queue": "a", "topic": "b"}, "either 'queue' or 'topic'"),
        ({"queue": "a", "system_property_columns": {"Color": "c"}}, "there is no system property 'Color'"),
    ],
)
def test_settings_that_do_not_fit_together(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ServiceBusOutput(type="servicebus", connection_string="amqp://h", **given)


def test_the_service_s_own_connection_strings() -> None:
    text = "Endpoint=sb://space.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=c2VjcmV0"
    connection = ServiceBusOutput(type="servicebus", connection_string=text, queue="q").connection()
    assert (connection.host, connection.port, connection.tls, connection.entity_path) == (
        "space.servicebus.windows.net",
        5671,
        True,
        "q",
    )
    assert connection.audience == "sb://space.servicebus.windows.net/q"
