"""Throughput units end to end, with Microsoft's client: refused, then let in; slowed, and not cut."""

import time

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.eventhub.exceptions import EventHubError

from tidegate.server import BackgroundServer


@pytest.fixture(scope="module")
def limited(make_config, tmp_path_factory):
    config = make_config({"Name": "eh1", "PartitionCount": 1}).model_copy(update={"throughput_units": 1})
    with BackgroundServer(config, tmp_path_factory.mktemp("data"), http_port=0) as running:
        yield running.server


@pytest.mark.sdk
def test_a_publisher_over_its_units_is_told_and_may_try_again(limited, receive_from):
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
        assert len(receive_from(connection, "eh1", last, partition="0", timeout=20)) == last
    assert time.monotonic() - started > (2 * last * 0.9 - 2 * 2.1) / 2.1
