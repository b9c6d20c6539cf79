"""Throughput units end to end, with Microsoft's client: refused, then let in; slowed, and not cut."""

from __future__ import annotations

import http.client
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.eventhub.exceptions import EventHubError

from tests.log.support import append_all
from tests.patience import PATIENCE_S
from tests.server.conftest import RawClient, Receive
from tidegate.amqp import ACCEPTED, BATCH_FORMAT, Closed, Detached, Message, Transfer, encode_message
from tidegate.hub.access import sign
from tidegate.hub.config import NamespaceConfig
from tidegate.hub.throughput import EGRESS_BYTES, EGRESS_EVENTS, INGRESS_EVENTS
from tidegate.server import BackgroundServer


@pytest.fixture(scope="module")
def limited(make_config: Callable[..., NamespaceConfig], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    config = make_config({"Name": "eh1", "PartitionCount": 1}).model_copy(update={"throughput_units": 1})
    with BackgroundServer(config, tmp_path_factory.mktemp("data"), http_port=0) as running:
        yield running.server


@pytest.mark.sdk
def test_a_publisher_over_its_units_is_told_and_may_try_again(limited: Any, receive_from: Receive) -> None:
    connection = limited.connection_string()
    refused, stored = [], 0
    started = time.monotonic()
    with EventHubProducerClient.from_connection_string(connection, eventhub_name="eh1", retry_total=0) as producer:
        while stored < 5:
            try:
                producer.send_event(EventData("x" * 900_000))
                stored += 1
            except EventHubError as error:
                refused.append(str(error))
                time.sleep(0.2)
    # a second's worth at once, the last into debt, and 1 MB/s between
    assert time.monotonic() - started > (5 * 0.9 - 2 * 1.05) / 1.05
    assert all("throughput units (1) are used up" in words and "server-busy" in words for words in refused)
    assert refused
    last = limited.namespace.event_hub("eh1").partition("0").log.next_sequence_number
    # more than two seconds' worth at 2 MB/s: all of it comes, over the same link
    started = time.monotonic()
    for _ in range(2):
        assert len(receive_from(connection, "eh1", last, partition="0")) == last
    assert time.monotonic() - started > (2 * last * 0.9 - 2 * 2.1) / 2.1


def event(size: int = 0) -> bytes:
    return encode_message(Message(body_kind="data", body=[b"x" * size]))


@pytest.fixture
def fresh(make_config: Callable[..., NamespaceConfig], tmp_path: Path) -> Iterator[Any]:
    """One throughput unit, of which nothing is used."""
    config = make_config({"Name": "eh1", "PartitionCount": 1}).model_copy(update={"throughput_units": 1})
    with BackgroundServer(config, tmp_path / "data", http_port=0) as running:
        yield running.server


@pytest.mark.slow
def test_over_amqp_a_unit_takes_a_thousand_events_a_second_and_says_busy_to_the_rest(
    fresh: Any, sign_in: Callable[..., RawClient]
) -> None:
    client = sign_in(fresh, "eh1")
    link = client.publisher("eh1")
    batch = encode_message(Message(body_kind="data", body=[event()] * 100))
    taken = 0
    refused: list[Any] = []
    start = time.monotonic()
    # until a second's worth has come after the one that is there at once
    while taken < 2 * INGRESS_EVENTS or not refused:
        ids = link.send_deliveries([batch], settled=False, message_format=BATCH_FORMAT)
        assert len(ids) == 1
        answer = client.until(lambda found: getattr(found, "state", None) is not None).state
        if answer == ACCEPTED:
            taken += 100
        else:
            refused.append(answer)
            time.sleep(0.01)
        # the rate, and the last into debt
        assert taken <= (1 + time.monotonic() - start) * INGRESS_EVENTS + 200
        assert time.monotonic() - start < PATIENCE_S
    assert {answer.condition for answer in refused} == {"com.microsoft:server-busy"}
    assert fresh.namespace.event_hub("eh1").partition("0").log.next_sequence_number == taken


@pytest.mark.slow
def test_over_https_the_same_is_503_until_there_is_room_again(fresh: Any, key: str) -> None:
    token = sign("http://localhost/eh1", "RootManageSharedAccessKey", key, int(time.time()) + 60)
    connection = http.client.HTTPConnection("localhost", fresh.http_port, timeout=PATIENCE_S)

    def publish() -> tuple[int, bytes]:
        connection.request("POST", "/eh1/messages", b"x" * 500_000, {"Authorization": token})
        answer = connection.getresponse()
        return answer.status, answer.read()

    answers = [publish()]
    # full, busy, and full again
    while [status for status, _ in itertools.groupby(status for status, _ in answers)] != [201, 503, 201]:
        assert answers[-1][0] == 201 or answers[-1][1].startswith(
            b"<Error><Code>503</Code><Detail>the namespace's throughput units (1) are used up"
        )
        assert len(answers) < 1000
        time.sleep(0.02 if answers[-1][0] == 503 else 0)
        answers.append(publish())
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize(("size", "rate"), [(0, EGRESS_EVENTS), (20_000, EGRESS_BYTES / 20_000)])
def test_a_reader_gets_so_many_events_or_bytes_a_second_and_is_never_cut(
    fresh: Any, sign_in: Callable[..., RawClient], size: int, rate: Any
) -> None:
    log = fresh.namespace.event_hub("eh1").partition("0").log
    count = int(rate * 3) // 10 * 10
    append_all(log, [[event(size)] * (count // 10)] * 10)
    client = sign_in(fresh, "eh1")
    link = client.reader("eh1/ConsumerGroups/$Default/Partitions/0", credit=count)
    found = 0
    start = time.monotonic()
    while found < count:
        client.exchange()
        assert not any(isinstance(seen, Detached | Closed) and seen.error for seen in client.events)
        found += sum(isinstance(seen, Transfer) and seen.link is link for seen in client.events)
        client.events.clear()
        # a second's worth at once, then the rate; a turn may go into debt
        assert found <= (time.monotonic() - start + 1.3) * rate
    assert link.is_attached
