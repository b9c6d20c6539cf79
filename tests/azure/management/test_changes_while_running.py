"""Changes through the management API while clients are connected, and what is left of them after a restart."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.azure.management.conftest import NAMESPACE, Api
from tests.patience import eventually
from tests.server.conftest import RawClient, Refused
from tidegate.amqp import ACCEPTED, Detached
from tidegate.azure.management import ArmSettings, arm_routes
from tidegate.hub import EventHubConfig, NamespaceConfig
from tidegate.hub.access import sign
from tidegate.hub.config import MS_PER_HOUR
from tidegate.log import LogError
from tidegate.server import BackgroundServer, Server

HUB = f"{NAMESPACE}/eventhubs/changing"
HOUR_RETENTION = "retentionDescription"


@pytest.fixture
def made(api: Api) -> Iterator[str]:
    """The path of an event hub of this test's own."""
    api.ok("PUT", HUB, {"properties": {"partitionCount": 2}})
    yield HUB
    api.call("DELETE", HUB)


@pytest.fixture
def sign_in(arm_server: Server) -> Iterator[Callable[..., RawClient]]:
    clients: list[RawClient] = []

    def make(**options: Any) -> RawClient:
        clients.append(RawClient(arm_server, "changing", **options))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def detached(client: Any, link: Any) -> Any:
    while True:
        for event in client.events:
            if isinstance(event, Detached) and event.link is link:
                client.events.remove(event)
                return event.error
        client.exchange()


def roll(api: Api, rule: str, which: str) -> Any:
    return api.ok("POST", f"{rule}/regenerateKeys", {"keyType": f"{which}Key"})


def test_a_rolled_key_ends_its_links_at_once_and_the_other_goes_on(
    api: Api, made: str, sign_in: Callable[..., RawClient]
) -> None:
    rule = f"{made}/authorizationRules/both"
    api.ok("PUT", rule, {"properties": {"rights": ["Send", "Listen"]}})
    keys = api.ok("POST", f"{rule}/listKeys")
    client = sign_in(signed_in=False)
    expiry = int(time.time()) + 600
    assert client.put_token(sign(client.audience, "both", keys["primaryKey"], expiry)) == 202
    link = client.publisher("changing/Partitions/0")
    renewed = roll(api, rule, "Primary")
    assert detached(client, link).condition == "amqp:unauthorized-access"
    with pytest.raises(Refused, match="unauthorized-access"):
        client.publisher("changing/Partitions/1")
    late = sign_in(signed_in=False)
    assert late.put_token(sign(late.audience, "both", keys["primaryKey"], expiry)) == 401
    for key in (renewed["primaryKey"], renewed["secondaryKey"]):
        assert late.put_token(sign(late.audience, "both", key, expiry)) == 202
    late.publisher("changing/Partitions/1")


@pytest.mark.parametrize("level", [NAMESPACE, HUB])
@pytest.mark.parametrize("is_direct", [False, True])
def test_links_end_with_the_rule_or_the_right_that_they_rest_on(
    api: Api, arm_server: Server, made: str, sign_in: Callable[..., RawClient], level: str, is_direct: bool
) -> None:
    """A token may be valid for ten years."""
    rule = f"{level}/authorizationRules/ending"
    api.ok("PUT", rule, {"properties": {"rights": ["Send", "Listen"]}})
    key = api.ok("POST", f"{rule}/listKeys")["primaryKey"]
    client = sign_in(signed_in=False)
    assert client.put_token(sign(client.audience, "ending", key, int(time.time()) + 10 * 365 * 86_400)) == 202
    publisher = client.publisher("changing/Partitions/0")
    reader = client.reader("changing/ConsumerGroups/$Default/Partitions/0", credit=10)
    other = sign_in()
    steady = other.publisher("changing/Partitions/0")
    api.ok("PUT", rule, {"properties": {"rights": ["Listen"]}})
    assert detached(client, publisher).condition == "amqp:unauthorized-access"
    other.publish(steady, b"x")
    assert client.receive(reader, 1)[0].body == [b"x"]
    if is_direct:  # the change need not come through the API
        arm_server.namespace.management.delete_access_rule("ending", "" if level == NAMESPACE else "changing")
    else:
        api.ok("DELETE", rule)
    assert detached(client, reader).condition == "amqp:unauthorized-access"
    other.publish(steady, b"y")


def test_links_that_rest_on_a_key_itself_end_when_it_is_rolled(
    api: Api, made: str, sign_in: Callable[..., RawClient]
) -> None:
    rule = f"{NAMESPACE}/authorizationRules/plain"
    api.ok("PUT", rule, {"properties": {"rights": ["Send"]}})
    keys = api.ok("POST", f"{rule}/listKeys")
    response = f"\0plain\0{keys['secondaryKey']}".encode()
    client = sign_in(signed_in=False, sasl_mechanisms=["PLAIN"], sasl_response=response, hostname="localhost")
    link = client.publisher("changing")
    roll(api, rule, "Primary")
    client.publish(link, b"x")
    roll(api, rule, "Secondary")
    assert detached(client, link).condition == "amqp:unauthorized-access"
    api.ok("DELETE", rule)


def test_links_to_what_is_deleted_end_with_not_found(api: Api, made: str, sign_in: Callable[..., RawClient]) -> None:
    api.ok("PUT", f"{made}/consumergroups/gone", {})
    client = sign_in()
    publisher = client.publisher("changing/Partitions/0")
    reader = client.reader("changing/ConsumerGroups/$Default/Partitions/0", credit=10)
    in_group = client.reader("changing/ConsumerGroups/gone/Partitions/0", credit=10)
    api.ok("DELETE", f"{made}/consumergroups/gone")
    assert detached(client, in_group).condition == "amqp:not-found"
    client.publish(publisher, b"x")
    assert client.receive(reader, 1)[0].body == [b"x"]
    api.ok("DELETE", made)
    for link in (publisher, reader):
        assert detached(client, link).condition == "amqp:not-found"


@pytest.mark.slow
def test_publishers_are_revoked_and_restored(api: Api, made: str, sign_in: Callable[..., RawClient]) -> None:
    revoked = f"{made}/revokedPublishers/gate-1"
    client = sign_in()
    link = client.publisher("changing/Publishers/gate-1")
    assert client.publish(link, b"x")[0].state == ACCEPTED
    api.ok("PUT", revoked)
    (answer,) = client.publish(link, b"y")
    assert answer.state is not None
    assert answer.state.error.condition == "com.microsoft:publisher-revoked"
    with pytest.raises(Refused, match="publisher-revoked"):
        client.publisher("changing/Publishers/GATE-1")
    assert detached(client, link).condition == "com.microsoft:publisher-revoked"
    other = sign_in()
    other.publish(other.publisher("changing/Publishers/gate-2"), b"x")
    api.ok("DELETE", revoked)
    other.publish(other.publisher("changing/Publishers/gate-1"), b"z")


def test_the_namespace_stays_manageable(api: Api) -> None:
    root = f"{NAMESPACE}/authorizationRules/RootManageSharedAccessKey"
    assert api.call("DELETE", root).status == 400
    assert api.call("PUT", root, {"properties": {"rights": ["Send"]}}).status == 400


def test_a_name_may_be_as_long_as_the_service_allows(api: Api) -> None:
    name = "N" * 256
    assert api.ok("PUT", f"{NAMESPACE}/eventhubs/{name}", {})["name"] == name
    api.ok("DELETE", f"{NAMESPACE}/eventhubs/{name}")


def test_a_hub_that_cannot_be_stored_is_refused_with_the_reason(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise LogError("cannot open the log: no space left")

    monkeypatch.setattr("tidegate.hub.backend.open_partitions", full)
    answer = api.call("PUT", f"{NAMESPACE}/eventhubs/no-room", {})
    assert (answer.status, answer.code) == (500, "InternalError")
    assert "no space left" in answer.json["error"]["message"]
    assert api.call("GET", f"{NAMESPACE}/eventhubs/no-room").status == 404


@pytest.mark.parametrize(
    ("path", "properties", "status"),
    [
        ("/eventhubs/no%20spaces", {}, 400),
        ("/eventhubs/x", {"partitionCount": 101}, 400),
        ("/eventhubs/x", {"messageRetentionInDays": 91}, 400),
        ("/eventhubs/x", {"retentionDescription": {"cleanupPolicy": "Compact"}}, 400),
        ("/eventhubs/nowhere/consumergroups/g", {}, 404),
        ("/authorizationRules/r", {"rights": []}, 400),
        ("/authorizationRules/r", {}, 400),
        ("/authorizationRules/r", {"rights": ["Everything"]}, 400),
        ("/authorizationRules/no%26", {"rights": ["Send"]}, 400),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason(api: Api, path: str, properties: Any, status: int) -> None:
    answer = api.call("PUT", f"{NAMESPACE}{path}", {"properties": properties})
    assert (answer.status, bool(answer.json["error"]["message"])) == (status, True)


@pytest.fixture
def own(tmp_path: Path) -> Any:
    """A hub that this test may change and start again: its settings, and a way to start it."""

    def start(retention_hours: int | None = None, **limits: Any) -> BackgroundServer:
        kept = None if retention_hours is None else retention_hours * MS_PER_HOUR
        hub = EventHubConfig(name="eh1", partition_count=1, retention_ms=kept)
        config = NamespaceConfig(name="emulatorNs1", event_hubs=(hub,)).model_copy(update=limits)
        data = tmp_path / "data"
        return BackgroundServer(config, data, None, [arm_routes(ArmSettings(data))], http_port=0, https_port=0)

    return start


def limits_of(api: Api) -> tuple[Any, ...]:
    found = api.ok("GET", NAMESPACE)
    properties = found["properties"]
    figures = (found["sku"].get("capacity"), properties["maximumThroughputUnits"], properties["maxMessageSizeInBytes"])
    return (found["sku"]["name"], *figures)


@pytest.mark.slow
def test_the_namespace_s_limits_change_while_it_runs_and_stay(own: Any) -> None:
    with own(throughput_units=2) as running:
        api = Api(running.server)
        assert limits_of(api) == ("Standard", 2, 0, 1 << 20)
        inflating = {"isAutoInflateEnabled": True, "maximumThroughputUnits": 4}
        api.ok("PATCH", NAMESPACE, {"sku": {"name": "Basic", "capacity": 1}, "properties": inflating})
        assert limits_of(api) == ("Basic", 1, 4, 256 << 10)
        client = RawClient(running.server, "eh1")
        assert client.publisher("eh1").max_message_size == 256 << 10
        client.close()
        throughput = running.server.namespace.throughput
        while throughput.units == 1:
            throughput.ingress_wait_s(1, 100)
        assert limits_of(api)[1] == 2
        with urllib.request.urlopen(f"http://localhost:{running.server.http_port}/metrics") as metrics:
            assert b"tidegate_throughput_units_added_total 1.0" in metrics.read()
    with own(throughput_units=2) as running:
        # the configuration says what it said then: what was changed since holds
        assert limits_of(Api(running.server)) == ("Basic", 2, 4, 256 << 10)
    with own(throughput_units=5) as running:
        api = Api(running.server)
        assert limits_of(api) == ("Standard", 5, 0, 1 << 20)
        api.ok("PATCH", NAMESPACE, {"sku": {"capacity": 7}, "properties": {**inflating, "maximumThroughputUnits": 9}})
        refused = api.call("PATCH", NAMESPACE, {"sku": {"capacity": -1}, "properties": inflating})
        assert "is for namespaces with throughput units" in refused.json["error"]["message"]
        assert limits_of(api)[1:3] == (7, 9)
        api.ok("PATCH", NAMESPACE, {"sku": {"capacity": -1}})
        assert limits_of(api)[1:3] == (None, 0)


@pytest.mark.parametrize(
    ("sku", "properties", "reason"),
    [
        ({"capacity": 41}, {}, "less than or equal to 40"),
        ({"capacity": -2}, {}, "greater than or equal to -1"),
        ({}, {"isAutoInflateEnabled": True, "maximumThroughputUnits": 4}, "auto-inflate starts from the throughput"),
        (
            {"capacity": 5},
            {"isAutoInflateEnabled": True, "maximumThroughputUnits": 4},
            "ends at 4 throughput units, and there are 5",
        ),
        ({"name": "gold"}, {}, "sku.name"),
    ],
)
def test_limits_that_cannot_be_are_refused_and_nothing_changes(
    api: Api, sku: Any, properties: Any, reason: str
) -> None:
    before = limits_of(api)
    refused = api.call("PATCH", NAMESPACE, {"sku": sku, "properties": properties})
    assert (refused.status, reason in refused.json["error"]["message"]) == (400, True), refused.content
    assert limits_of(api) == before


@pytest.mark.parametrize(
    ("name", "value", "is_taken"),
    [
        ("disableLocalAuth", False, True),
        ("disableLocalAuth", True, False),
        ("publicNetworkAccess", "Enabled", True),
        ("publicNetworkAccess", "Disabled", False),
        ("publicNetworkAccess", "SecuredByPerimeter", False),
        ("minimumTlsVersion", "1.2", True),
        ("minimumTlsVersion", "1.3", False),
    ],
)
def test_who_may_connect_is_not_restricted_in_name_only(api: Api, name: str, value: Any, is_taken: bool) -> None:
    answer = api.call("PATCH", NAMESPACE, {"properties": {name: value}})
    assert answer.status == (200 if is_taken else 400)
    assert name in answer.content.decode()


def capture_of(folder: Path | str, **settings: Any) -> dict[str, Any]:
    destination = {"name": "Tidegate.Folder", "properties": {"folder": str(folder)}}
    return {"properties": {"captureDescription": {"enabled": True, "destination": destination, **settings}}}


@pytest.mark.slow
def test_capture_is_changed_while_the_hub_runs_and_stays(own: Any, tmp_path: Path) -> None:
    path = f"{NAMESPACE}/eventhubs/eh1"
    with own() as running:
        api = Api(running.server)
        assert "captureDescription" not in api.ok("GET", path)["properties"]
        (partition,) = running.server.namespace.event_hub("eh1").partitions
        api.ok("PUT", path, capture_of(tmp_path / "archive", intervalInSeconds=60, skipEmptyArchives=True))
        eventually(lambda: partition.capture is not None)
        changed = api.ok(
            "PUT", path, {"properties": {"captureDescription": {"enabled": True, "intervalInSeconds": 120}}}
        )
        eventually(lambda: partition.capture and partition.capture.description.interval_in_seconds == 120)
        assert changed["properties"]["captureDescription"]["skipEmptyArchives"] is True
        api.ok("PUT", f"{NAMESPACE}/eventhubs/clicks", capture_of(tmp_path / "clicks"))
        api.ok("PUT", f"{NAMESPACE}/eventhubs/clicks", {"properties": {"captureDescription": {"enabled": False}}})
    with own() as running:
        api = Api(running.server)
        (partition,) = running.server.namespace.event_hub("eh1").partitions
        assert api.ok("GET", path)["properties"] == changed["properties"]
        assert partition.capture is not None
        clicks = api.ok("GET", f"{NAMESPACE}/eventhubs/clicks")["properties"]["captureDescription"]
        assert (clicks["enabled"], clicks["intervalInSeconds"]) == (False, 300)
        assert running.server.namespace.event_hub("clicks").partitions[0].capture is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"properties": {"captureDescription": {"enabled": True}}}, "captureDescription: destination: Field required"),
        (capture_of("x", intervalInSeconds=59), "captureDescription: intervalInSeconds"),
        (capture_of("nowhere://x"), "captureDescription.destination"),
        (capture_of("x", encoding="AvroDeflate"), "AvroDeflate is not supported"),
    ],
)
def test_a_capture_that_cannot_be_is_refused(api: Api, made: str, body: Any, reason: str) -> None:
    refused = api.call("PUT", made, body)
    assert (refused.status, reason in refused.json["error"]["message"]) == (400, True), refused.content
    assert "captureDescription" not in api.ok("GET", made)["properties"]


def test_a_folder_is_that_folder_wherever_the_hub_is_started_again(
    api: Api, made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = api.ok("PUT", made, capture_of("archive", enabled=False))["properties"]["captureDescription"]
    assert found["destination"]["properties"]["folder"] == str(tmp_path / "archive")


@pytest.mark.slow
def test_a_retention_that_was_changed_is_not_undone_by_the_configuration(own: Any) -> None:
    def retention(hours: int, change_to: int | None = None) -> int:
        with own(retention_hours=hours) as running:
            api = Api(running.server)
            path = f"{NAMESPACE}/eventhubs/eh1"
            found: int = api.ok("GET", path)["properties"][HOUR_RETENTION]["retentionTimeInHours"]
            if change_to is not None:
                api.ok("PUT", path, {"properties": {HOUR_RETENTION: {"retentionTimeInHours": change_to}}})
            return found

    assert retention(1, change_to=24) == 1
    assert retention(1) == 24
    assert retention(2) == 2
