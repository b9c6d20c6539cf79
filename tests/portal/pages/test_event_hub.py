"""A hub's page: partitions, consumer groups with the lag of their readers, settings, and no secret in it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from azure.eventhub import EventHubConsumerClient

from tests.patience import PATIENCE_S
from tests.portal.conftest import KEY, Client
from tidegate.hub.group_offsets import GroupOffset, PartitionKey
from tidegate.portal.pages.hubs import without_credentials
from tidegate.server import Server

MakeHub = Callable[..., str]


@pytest.mark.slow
def test_partitions_are_shown_with_their_sequence_numbers_and_sizes(client: Client, make_hub: MakeHub) -> None:
    hub = make_hub(2)
    empty = client.get(f"/eventhubs/{hub}.json")
    assert [row["firstSequenceNumber"] for row in empty["partitionRows"]] == [None, None]
    client.post(f"/eventhubs/{hub}/send", {"body": "x", "partition": "1", "repeat": 120})
    page = client.get(f"/eventhubs/{hub}.json")
    first, second = page["partitionRows"]
    assert (first["events"], second["events"]) == (0, 120)
    assert (second["firstSequenceNumber"], second["lastSequenceNumber"]) == (0, 119)
    assert second["eventsPerSecond"] == 2.0
    assert second["bytes"] > 120
    assert page["events"] == 120
    assert sum(page["throughput"]["incomingEventsPerSecond"]) >= 0


@pytest.mark.slow
def test_the_lag_of_readers_is_shown_and_kept_when_they_leave(
    client: Client, server: Server, make_hub: MakeHub
) -> None:
    hub = make_hub(1)
    client.post(f"/eventhubs/{hub}/send", {"body": "x", "repeat": 5})
    consumer = EventHubConsumerClient.from_connection_string(
        server.connection_string(), consumer_group="$Default", eventhub_name=hub
    )
    received = threading.Event()
    with consumer:
        thread = threading.Thread(
            target=consumer.receive,
            kwargs={
                "on_event": lambda _, event: received.set() if event.sequence_number == 4 else None,
                "starting_position": "-1",
                "owner_level": 3,
            },
        )
        thread.start()
        assert received.wait(PATIENCE_S)
        (group,) = client.get(f"/eventhubs/{hub}.json")["consumerGroups"]
        assert (group["readers"], group["lag"]) == (1, 0)
        (reader,) = group["partitions"]
        assert (reader["isConnected"], reader["ownerLevel"], reader["nextSequenceNumber"]) == (True, 3, 5)
        assert sum(server.metrics.deliveries.series(hub, int(time.time()) // 5 * 5 - 300, 5, 61)) == 5
    thread.join()
    client.post(f"/eventhubs/{hub}/send", {"body": "x", "repeat": 7})
    deadline = time.monotonic() + PATIENCE_S
    while client.get(f"/eventhubs/{hub}.json")["readers"] and time.monotonic() < deadline:
        time.sleep(0.02)
    (group,) = client.get(f"/eventhubs/{hub}.json")["consumerGroups"]
    assert (group["readers"], group["lag"]) == (0, 7)
    assert not group["partitions"][0]["isConnected"]


def test_hubs_and_groups_are_created_changed_and_deleted(client: Client, make_hub: MakeHub) -> None:
    hub = make_hub(1)
    assert client.post(f"/eventhubs/{hub}/consumergroups", {"name": "cg2", "userMetadata": "for tests"}).status == 200
    assert client.post(f"/eventhubs/{hub}/update", {"retentionTimeInHours": 2, "userMetadata": "mine"}).status == 200
    page = client.get(f"/eventhubs/{hub}.json")
    assert [group["name"] for group in page["consumerGroups"]] == ["$Default", "cg2"]
    assert (page["retentionMs"], page["userMetadata"]) == (7_200_000, "mine")
    assert client.post(f"/eventhubs/{hub}/consumergroups/cg2/delete").status == 200
    assert client.post(f"/eventhubs/{hub}/consumergroups/%24Default/delete").status == 400
    assert client.post("/eventhubs", {"name": hub, "partitionCount": 1}).status == 400
    assert client.post("/eventhubs", {"name": "bad/name"}).status == 400
    assert client.post("/eventhubs", {"name": "a", "partitionCount": "many"}).status == 400
    assert client.post(f"/eventhubs/{hub}/delete", {"confirm": "other"}).status == 400
    assert client.post(f"/eventhubs/{hub}/delete", {"confirm": hub}).status == 200
    assert client.request("GET", f"/eventhubs/{hub}.json").status == 404


def test_a_hub_is_given_more_partitions_and_never_fewer(client: Client, make_hub: MakeHub) -> None:
    hub = make_hub(2)
    body = {"partitionCount": 5, "userMetadata": "more"}
    assert client.post(f"/eventhubs/{hub}/update", body).status == 200
    page = client.get(f"/eventhubs/{hub}.json")
    assert ([row["id"] for row in page["partitionRows"]], page["userMetadata"]) == (["0", "1", "2", "3", "4"], "more")
    assert client.post(f"/eventhubs/{hub}/send", {"body": "x", "partition": "4"}).status == 200
    assert client.post(f"/eventhubs/{hub}/update", body).status == 200
    assert client.post(f"/eventhubs/{hub}/update", {"partitionCount": 4}).status == 400
    assert client.post(f"/eventhubs/{hub}/update", {"partitionCount": 100_000}).status in (400, 403)
    assert len(client.get(f"/eventhubs/{hub}.json")["partitionRows"]) == 5


def test_the_key_is_in_no_page_and_only_given_to_visitors_who_ask(client: Client, away: Client, server: Server) -> None:
    for path in ("/eventhubs/eh1", "/eventhubs/eh1.json", "/", "/.json", "/eventhubs/eh1/explorer"):
        assert KEY not in client.page(path).text
    given = client.post("/eventhubs/eh1/connection-string").data
    assert given["connectionString"] == server.connection_string(hub="eh1")
    assert away.post("/eventhubs/eh1/connection-string").status == 401


def test_a_range_that_does_not_exist_is_refused(client: Client) -> None:
    assert client.request("GET", "/eventhubs/eh1/throughput.json?range=1y").status == 404


def test_credentials_in_a_destination_are_not_shown() -> None:
    assert without_credentials("az://user:key@container/folder?sig=secret") == "az://container/folder"
    assert without_credentials("s3://bucket/a@b") == "s3://bucket/a@b"
    assert without_credentials("/data/capture") == "/data/capture"


def test_groups_of_kafka_s_clients_are_shown_with_their_lag(client: Client, server: Server, make_hub: MakeHub) -> None:
    hub = make_hub(1)
    assert "Kafka groups" not in client.page(f"/eventhubs/{hub}").text
    client.post(f"/eventhubs/{hub}/send", {"body": "x", "repeat": 5})
    done: Future[object] = Future()
    key = PartitionKey(server.namespace.event_hub(hub).definition.directory, 0)
    position = GroupOffset(2, 0, None, round(time.time() * 1000))
    server.namespace.group_offsets.commit("<readers>", {key: position}, done.set_result)
    assert done.result(PATIENCE_S) is None
    (group,) = client.get(f"/eventhubs/{hub}.json")["kafkaGroups"]
    assert (group["name"], group["lag"], group["partitions"][0]["nextSequenceNumber"]) == ("<readers>", 3, 2)
    assert "&lt;readers&gt;" in client.page(f"/eventhubs/{hub}").text
