"""The namespace: policies and their keys on request, throughput units, publishers, and who is connected."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient

from tests.patience import PATIENCE_S, eventually
from tests.portal.conftest import KEY, Client
from tidegate.hub.access import sign
from tidegate.server import Server
from tidegate.server.context.metrics import hub_in

MakeHub = Callable[..., str]


def keys_of(client: Client, path: str) -> list[str]:
    return [one["key"] for one in client.post(f"{path}/keys").data["keys"]]


@pytest.mark.slow
def test_a_policy_is_made_its_keys_shown_on_request_and_regenerated(client: Client, server: Server) -> None:
    assert client.post("/namespace/policies", {"name": "made-here", "Send": True}).status == 200
    policy = "/namespace/policies/made-here"
    row = next(one for one in client.get("/namespace.json")["policies"] if one["name"] == "made-here")
    assert row == {"name": "made-here", "rights": ["Send"], "isRoot": False}
    before = keys_of(client, policy)
    page = client.page("/namespace").text
    assert KEY not in page
    assert not any(key in page for key in before)
    after = client.post(f"{policy}/regenerate", {"which": "primary"}).data["keys"]
    assert after[0]["key"] != before[0]
    assert after[1]["key"] == before[1]
    assert after[0]["key"] in after[0]["connectionString"]
    assert client.post(policy, {"Send": True, "Listen": True}).status == 200
    assert client.post(policy, {}).status == 400
    assert client.post(f"{policy}/delete").status == 200
    assert client.post(f"{policy}/keys").status == 404


def test_a_policy_of_a_hub_gives_access_to_that_hub(client: Client, server: Server, make_hub: MakeHub) -> None:
    hub = make_hub(1)
    assert client.post(f"/eventhubs/{hub}/policies", {"name": "own", "Send": True}).status == 200
    shown = client.post(f"/eventhubs/{hub}/policies/own/keys").data["keys"][0]["connectionString"]
    assert f"EntityPath={hub}" in shown
    with EventHubProducerClient.from_connection_string(shown) as producer:
        producer.send_event(EventData("x"), timeout=PATIENCE_S)
    assert client.get(f"/eventhubs/{hub}.json")["policies"][0]["name"] == "own"


def test_only_an_owner_has_the_keys_of_the_root_policy(client: Client, away: Client) -> None:
    client.post("/namespace/policies", {"name": "boss", "Manage": True})
    key = keys_of(client, "/namespace/policies/boss")[0]
    away.sign_in(key, "boss")
    root = "/namespace/policies/RootManageSharedAccessKey"
    away.page("/namespace")
    regenerated = (f"{root}/regenerate", {"which": "primary"})
    for path, body in ((f"{root}/keys", {}), regenerated, (f"{root}/delete", {}), (root, {"Listen": True})):
        assert away.post(path, body).status == 403, path
    assert keys_of(away, "/namespace/policies/boss")[0] == key


@pytest.mark.parametrize(("path", "body"), [("keys", {}), ("regenerate", {"which": "secondary"})])
def test_a_signature_of_the_root_key_gets_no_key(away: Client, server: Server, path: str, body: Any) -> None:
    """A signature ends within the hour, and a key that it got would not."""
    root = server.namespace.access.rule_table.root_rule
    token = sign("http://hub.example:5300/", root.name, root.primary_key, int(time.time()) + 60)
    answer = away.post(f"/namespace/policies/{root.name}/{path}", body, Authorization=token)
    assert answer.status == 403
    assert server.namespace.access.rule_table.root_rule == root


def test_a_revoked_publisher_is_refused_until_it_is_admitted_again(
    client: Client, server: Server, make_hub: MakeHub
) -> None:
    hub = make_hub(1)
    assert client.post(f"/eventhubs/{hub}/publishers/revoke", {"publisher": "Meter-7"}).status == 200
    assert client.get(f"/eventhubs/{hub}.json")["revokedPublishers"] == ["meter-7"]
    assert client.post(f"/eventhubs/{hub}/publishers/restore", {"publisher": "meter-7"}).status == 200
    assert client.get(f"/eventhubs/{hub}.json")["revokedPublishers"] == []
    assert client.post(f"/eventhubs/{hub}/publishers/revoke", {}).status == 400


def test_throughput_units_are_set_and_checked(client: Client) -> None:
    try:
        assert client.post("/namespace/limits", {"throughputUnits": 2, "autoInflateTo": 4}).status == 200
        shown = client.get("/namespace.json")
        assert (shown["throughputUnits"], shown["autoInflateTo"], shown["unitsNow"]) == (2, 4, 2)
        for wrong in ({"throughputUnits": 0}, {"autoInflateTo": 1}, {"throughputUnits": 5}, {"throughputUnits": None}):
            assert client.post("/namespace/limits", wrong).status == 400
        assert client.post("/namespace/limits", {"throughputUnits": 3}).status == 200
        shown = client.get("/namespace.json")
        assert (shown["throughputUnits"], shown["autoInflateTo"]) == (3, 4)
    finally:
        client.post("/namespace/limits", {"throughputUnits": None, "autoInflateTo": None})
    assert client.get("/namespace.json")["throughputUnits"] is None


def test_connected_clients_are_listed_by_name_with_what_they_use(
    client: Client, server: Server, make_hub: MakeHub
) -> None:
    hub = make_hub(1)
    consumer = EventHubConsumerClient.from_connection_string(
        server.connection_string(), consumer_group="$Default", eventhub_name=hub
    )
    thread = threading.Thread(target=lambda: consumer.receive(lambda *_: None, starting_position="-1"), daemon=True)
    thread.start()
    try:

        def reading() -> bool:
            return any(hub in use for one in client.get("/namespace.json")["clients"] for use in one["uses"])

        eventually(reading)
        row = next(one for one in client.get("/namespace.json")["clients"] if any(hub in use for use in one["uses"]))
        assert row["policies"] == ["RootManageSharedAccessKey"]
        assert row["name"]
        assert "azsdk-python" in row["product"] or "azure-eventhub" in row["product"]
        # without the host and the port, which this client writes too
        assert row["uses"] == [f"reads {hub}/ConsumerGroups/$Default/Partitions/0"]
        assert hub_in(server.namespace, f"amqps://localhost:1/{hub.upper()}/Partitions/0") == hub
    finally:
        consumer.close()
        thread.join(PATIENCE_S)


def test_a_reader_changes_nothing(client: Client, away: Client) -> None:
    client.post("/namespace/policies", {"name": "reader", "Listen": True})
    away.sign_in(keys_of(client, "/namespace/policies/reader")[0], "reader")
    away.page("/namespace")
    assert away.page("/namespace").status == 200
    for path in ("/namespace/policies", "/namespace/limits", "/namespace/policies/reader/keys"):
        assert away.post(path, {"name": "more", "Manage": True}).status == 403, path


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_a_policy_needs_a_name(client: Client, name: str) -> None:
    assert client.post("/namespace/policies", {"name": name, "Send": True}).status == 400
