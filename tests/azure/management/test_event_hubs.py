"""Microsoft.EventHub: what a client creates is what the hub serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.azure.management.conftest import GROUP, NAMESPACE, Api
from tidegate.azure.management.event_hubs.payloads import FOR_EVER
from tidegate.hub.errors import NotFound
from tidegate.server import Server

HOUR_MS = 3_600_000


def hub_of(server: Server, name: str) -> Any:
    return server.namespace.event_hub(name).config


def test_an_event_hub_from_its_creation_to_its_end(api: Api, arm_server: Server) -> None:
    path = f"{NAMESPACE}/eventhubs/Orders"
    made = api.ok("PUT", path, {"properties": {"partitionCount": 3, "messageRetentionInDays": 1, "userMetadata": "x"}})
    assert made["id"] == path
    assert made["properties"]["partitionIds"] == ["0", "1", "2"]
    assert made["properties"]["retentionDescription"] == {"cleanupPolicy": "Delete", "retentionTimeInHours": 24}
    config = hub_of(arm_server, "orders")
    assert (config.partition_count, config.retention_ms, config.user_metadata) == (3, 24 * HOUR_MS, "x")
    changed = api.ok("PUT", path.lower(), {"properties": {"retentionDescription": {"retentionTimeInHours": 36}}})
    assert changed["name"] == "Orders"
    assert changed["properties"]["messageRetentionInDays"] == 2
    assert changed["properties"]["userMetadata"] == "x"
    refused = api.call("PUT", path, {"properties": {"partitionCount": 4}})
    assert (refused.status, refused.code) == (400, "BadRequest")
    assert "created with 3 partitions" in refused.json["error"]["message"]
    assert "Orders" in [hub["name"] for hub in api.ok("GET", f"{NAMESPACE}/eventhubs")["value"]]
    assert [hub["name"] for hub in api.ok("GET", f"{NAMESPACE}/eventhubs?$skip=0&$top=1")["value"]] == ["eh1"]
    assert api.call("DELETE", path).status == 200
    with pytest.raises(NotFound):
        arm_server.namespace.event_hub("orders")


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({}, 7 * 24 * HOUR_MS),
        ({"messageRetentionInDays": FOR_EVER}, None),
        ({"messageRetentionInDays": -1}, None),
        ({"retentionDescription": {"cleanupPolicy": "delete", "retentionTimeInHours": 5}}, 5 * HOUR_MS),
        ({"retentionDescription": {"retentionSizeInBytes": 10}}, 7 * 24 * HOUR_MS),
        ({"RetentionDescription": {"RETENTIONTIMEINHOURS": "5"}, "messageRetentionInDays": 3}, 5 * HOUR_MS),
    ],
)
def test_retention_as_the_service_says_it(
    api: Api, arm_server: Server, properties: Any, retention_ms: int | None
) -> None:
    path = f"{NAMESPACE}/eventhubs/kept"
    made = api.ok("PUT", path, {"properties": properties})
    try:
        assert hub_of(arm_server, "kept").retention_ms == retention_ms
        assert hub_of(arm_server, "kept").partition_count == 4
        assert made["properties"]["consumerGroups"] == ["$Default"]
        # what a client reads, it may write back
        assert api.ok("PUT", path, made) == made
        assert hub_of(arm_server, "kept").retention_ms == retention_ms
    finally:
        api.ok("DELETE", path)


def test_capture_to_a_folder_and_the_account_of_a_container(api: Api, arm_server: Server, tmp_path: Path) -> None:
    path = f"{NAMESPACE}/eventhubs/captured"
    destination = {"name": "Tidegate.Folder", "properties": {"folder": str(tmp_path)}}
    capture = {"enabled": True, "encoding": "Avro", "intervalInSeconds": 60, "destination": destination}
    made = api.ok("PUT", path, {"properties": {"captureDescription": capture}})
    found = made["properties"]["captureDescription"]
    assert found["destination"]["properties"]["folder"] == str(tmp_path)
    assert (found["intervalInSeconds"], found["sizeLimitInBytes"]) == (60, 314572800)
    account = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a"
    place = {"storageAccountResourceId": account, "blobContainer": "c"}
    capture = {"enabled": False, "destination": {"name": "EventHubArchive.AzureBlockBlob", "properties": place}}
    made = api.ok("PUT", path, {"properties": {"captureDescription": capture}})
    assert made["properties"]["captureDescription"]["destination"]["properties"]["storageAccountResourceId"] == account
    assert hub_of(arm_server, "captured").capture.destination == "az://c"
    for url in ("az://c/below", "s3://bucket"):
        capture = {"enabled": False, "destination": {"name": "Tidegate.Folder", "properties": {"folder": url}}}
        made = api.ok("PUT", path, {"properties": {"captureDescription": capture}})
        assert hub_of(arm_server, "captured").capture.destination == url
        again = api.ok("PUT", path, {"properties": {"captureDescription": made["properties"]["captureDescription"]}})
        assert again["properties"]["captureDescription"] == made["properties"]["captureDescription"]
    api.ok("DELETE", path)


def test_a_retention_by_size_is_apart_from_that_by_time(api: Api, arm_server: Server) -> None:
    path = f"{NAMESPACE}/eventhubs/sized"

    def put(**retention: int) -> tuple[int | None, int | None]:
        api.ok("PUT", path, {"properties": {"retentionDescription": retention}})
        config = hub_of(arm_server, "sized")
        return config.retention_ms, config.retention_bytes

    assert put(retentionTimeInHours=2, retentionSizeInBytes=1000) == (2 * HOUR_MS, 1000)
    assert put(retentionSizeInBytes=2000) == (2 * HOUR_MS, 2000)
    assert put(retentionTimeInHours=3) == (3 * HOUR_MS, 2000)
    assert api.ok("GET", path)["properties"]["retentionDescription"]["retentionSizeInBytes"] == 2000
    assert put(retentionSizeInBytes=-1) == (3 * HOUR_MS, None)
    refused = api.call("PUT", path, {"properties": {"retentionDescription": {"retentionSizeInBytes": 0}}})
    assert (refused.status, "1 or more" in refused.json["error"]["message"]) == (400, True)
    api.ok("DELETE", path)


@pytest.mark.slow
def test_revoked_publishers(api: Api, arm_server: Server) -> None:
    revoked = f"{NAMESPACE}/eventhubs/eh1/revokedPublishers"
    assert [api.call("PUT", f"{revoked}/Gate-1").status for _ in range(2)] == [201, 200]
    assert api.ok("GET", f"{revoked}/GATE-1")["id"] == f"{revoked}/gate-1"
    assert [one["name"] for one in api.ok("GET", revoked)["value"]] == ["gate-1"]
    assert arm_server.namespace.event_hub("eh1").is_revoked("gate-1")
    assert [api.call("DELETE", f"{revoked}/gate-1").status for _ in range(2)] == [200, 204]
    assert api.call("GET", f"{revoked}/gate-1").status == 404
    assert api.call("PUT", f"{revoked}/gate%252F1").status == 400
    assert api.call("PUT", f"{NAMESPACE}/eventhubs/none/revokedPublishers/x").status == 404


@pytest.mark.slow
def test_consumer_groups(api: Api) -> None:
    groups = f"{NAMESPACE}/eventhubs/eh1/consumergroups"
    made = api.ok("PUT", f"{groups}/billing", {"properties": {"userMetadata": "x"}})
    assert (made["id"], made["properties"]["userMetadata"]) == (f"{groups}/billing", "x")
    assert api.ok("PUT", f"{groups}/BILLING", {})["properties"].get("userMetadata") is None
    assert [group["name"] for group in api.ok("GET", groups)["value"]] == ["$Default", "billing"]
    assert api.ok("GET", f"{groups}/%24Default")["name"] == "$Default"
    assert api.call("DELETE", f"{groups}/$Default").status == 400
    assert [api.call("DELETE", f"{groups}/billing").status for _ in range(2)] == [200, 204]
    assert api.call("GET", f"{groups}/billing").status == 404
    assert api.call("DELETE", f"{NAMESPACE}/eventhubs/none/consumergroups/x").status == 204


@pytest.mark.slow
@pytest.mark.parametrize("level", [NAMESPACE, f"{NAMESPACE}/eventhubs/eh1"])
def test_authorization_rules_and_their_keys(api: Api, arm_server: Server, level: str) -> None:
    path = f"{level}/authorizationRules/Sender"
    made = api.ok("PUT", path, {"properties": {"rights": ["send"]}})
    assert (made["id"], made["properties"]) == (path, {"rights": ["Send"]})
    keys = api.ok("POST", f"{path}/listKeys")
    assert keys["keyName"] == "Sender"
    assert keys["primaryKey"] in keys["primaryConnectionString"]
    assert ("EntityPath=eh1" in keys["primaryConnectionString"]) == level.endswith("eh1")
    again = api.ok("POST", f"{path}/regenerateKeys", {"keyType": "PrimaryKey"})
    assert again["primaryKey"] != keys["primaryKey"]
    assert again["secondaryKey"] == keys["secondaryKey"]
    chosen = api.ok("POST", f"{path}/regenerateKeys", {"keyType": "SecondaryKey", "key": "a key of my own"})
    assert (chosen["primaryKey"], chosen["secondaryKey"]) == (again["primaryKey"], "a key of my own")
    more = api.ok("PUT", path, {"properties": {"rights": ["Listen", "Send"]}})
    assert more["properties"]["rights"] == ["Listen", "Send"]
    assert api.ok("POST", f"{path}/listKeys") == chosen
    assert "Sender" in [rule["name"] for rule in api.ok("GET", f"{level}/authorizationRules")["value"]]
    assert [api.call("DELETE", path).status for _ in range(2)] == [200, 204]


@pytest.mark.slow
def test_the_namespace_is_the_one_there_is(api: Api) -> None:
    assert [one["name"] for one in api.ok("GET", f"{GROUP}/providers/Microsoft.EventHub/namespaces")["value"]] == [
        "emulatorNs1"
    ]
    assert (
        api.call("PUT", NAMESPACE.replace("emulatorNs1", "other"), {"location": "x"}).code == "NamespaceQuotaExceeded"
    )
    assert api.call("DELETE", NAMESPACE).status == 409
    assert api.call("DELETE", NAMESPACE.replace("emulatorNs1", "other")).status == 204
    check = "/subscriptions/s/providers/Microsoft.EventHub/checkNameAvailability"
    reasons = [api.ok("POST", check, {"name": name})["reason"] for name in ("emulatorns1", "-", "another")]
    assert reasons == ["NameInUse", "InvalidName", "TooManyNamespaceInCurrentSubscription"]


def test_limits_tags_and_location_of_the_namespace(api: Api, arm_server: Server) -> None:
    former = arm_server.namespace.limits
    sku = {"name": "premium", "capacity": 2}
    properties = {"isAutoInflateEnabled": True, "maximumThroughputUnits": 4}
    body = {"location": "westeurope", "tags": {"team": "tolls"}, "sku": sku, "properties": properties}
    made = api.ok("PUT", NAMESPACE, body)
    try:
        assert made["sku"] == {"name": "Premium", "tier": "Premium", "capacity": 2}
        assert (made["location"], made["tags"]) == ("westeurope", {"team": "tolls"})
        assert made["properties"]["maximumThroughputUnits"] == 4
        assert api.ok("PATCH", NAMESPACE, {"tags": {}})["location"] == "westeurope"
        assert api.call("PATCH", NAMESPACE, {"tags": {str(n): "" for n in range(51)}}).code == "TooManyTags"
        off = api.ok("PATCH", NAMESPACE, {"properties": {"isAutoInflateEnabled": False}})
        assert off["properties"]["maximumThroughputUnits"] == 0
        refused = api.call("PATCH", NAMESPACE, {"properties": {"isAutoInflateEnabled": True}})
        assert "up to how many" in refused.json["error"]["message"]
    finally:
        arm_server.namespace.management.update_limits(**former.model_dump())
