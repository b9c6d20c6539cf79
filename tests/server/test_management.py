"""The management API, from outside: what it does, whom it refuses, and that its description is true."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import Route

from tests.patience import PATIENCE_S
from tests.server.conftest import RawClient
from tidegate.amqp import ACCEPTED, Detached
from tidegate.hub.access import sign
from tidegate.hub.config import NamespaceConfig
from tidegate.log import LogError
from tidegate.server import BackgroundServer, Server
from tidegate.server.http.application import application
from tidegate.server.http.routes.openapi import description

ROOT = "RootManageSharedAccessKey"


class Api:
    """A caller with a key."""

    def __init__(self, server: Any, key: str = "SAS_KEY_VALUE", rule: str = ROOT, scope: str = "") -> None:
        self.base = f"http://localhost:{server.http_port}"
        self.token = sign(f"sb://localhost/{scope}", rule, key, int(time.time()) + 60)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.base}/management/v1{path}", data=data, method=method)
        request.add_header("Authorization", headers.pop("authorization", self.token))
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                content = answer.read()
                return answer.status, json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            problem = json.loads(error.read())
            return error.code, problem | {"media": error.headers["content-type"]}

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.call(method, path, body)
        assert status in (200, 201, 204), answer
        return answer


@pytest.fixture
def api(server: Server) -> Any:
    return Api(server)


@pytest.fixture
def made(api: Any, request: Any) -> Iterator[Any]:
    """An event hub of this test's own, made by the API."""
    name = "m-" + re.sub(r"\W+", "-", request.node.name).strip("-")[:60]
    api.ok("PUT", f"/eventhubs/{name}", {"partitionCount": 2})
    yield name
    api.call("DELETE", f"/eventhubs/{name}")


def test_a_hub_from_beginning_to_end(api: Any) -> None:
    wanted = {"partitionCount": 3, "retentionTimeInHours": 24, "userMetadata": "ours"}
    status, created = api.call("PUT", "/eventhubs/Orders", wanted)
    assert status == 201
    assert wanted.items() <= created.items()
    assert created["partitionIds"] == ["0", "1", "2"]
    assert created["consumerGroups"] == ["$Default"]
    assert api.ok("GET", "/eventhubs/orders") == created
    assert created in api.ok("GET", "/eventhubs")["value"]
    changed = api.ok("PATCH", "/eventhubs/ORDERS", {"retentionTimeInHours": 1, "retentionSizeInBytes": 10_000_000})
    assert (changed["retentionTimeInHours"], changed["retentionSizeInBytes"]) == (1, 10_000_000)
    assert changed["userMetadata"] == "ours"
    assert api.ok("PATCH", "/eventhubs/orders", {"retentionTimeInHours": None})["retentionTimeInHours"] is None
    assert api.call("PUT", "/eventhubs/orders")[0] == 409
    status, problem = api.call("PATCH", "/eventhubs/orders", {"partitionCount": 4})
    assert status == 400
    assert "was created with 3 partitions, which cannot change" in problem["detail"]
    assert api.call("DELETE", "/eventhubs/orders") == (204, None)
    for method in ("GET", "DELETE", "PATCH"):
        status, problem = api.call(method, "/eventhubs/orders", {} if method == "PATCH" else None)
        assert (status, problem["condition"]) == (404, "amqp:not-found")


def test_consumer_groups(api: Any, made: Any) -> None:
    groups = f"/eventhubs/{made}/consumergroups"
    assert api.call("PUT", f"{groups}/Billing", {"userMetadata": "x"})[0] == 201
    assert api.call("PUT", f"{groups}/billing")[0] == 409
    assert api.ok("PATCH", f"{groups}/billing", {"userMetadata": "y"}) == {"name": "Billing", "userMetadata": "y"}
    assert [group["name"] for group in api.ok("GET", groups)["value"]] == ["$Default", "Billing"]
    assert api.call("DELETE", f"{groups}/$Default")[0] == 400
    assert api.call("DELETE", f"{groups}/billing")[0] == 204
    assert api.call("GET", f"{groups}/billing")[0] == 404


@pytest.mark.parametrize("level", ["", "/eventhubs/HUB"])
def test_authorization_rules_and_their_keys(api: Any, server: Server, made: Any, level: str) -> None:
    rules = level.replace("HUB", made) + "/authorizationrules"
    status, rule = api.call("PUT", f"{rules}/reader", {"rights": ["Listen"]})
    assert (status, rule) == (201, {"name": "reader", "rights": ["Listen"]})
    assert api.call("PUT", f"{rules}/READER", {"rights": ["Send"]})[0] == 409
    assert rule in api.ok("GET", rules)["value"]
    assert api.ok("PATCH", f"{rules}/reader", {"rights": ["Send", "Listen"]})["rights"] == ["Listen", "Send"]
    before = api.ok("GET", f"{rules}/reader/keys")
    path = f"EntityPath={made};" if level else ""
    assert before["primaryConnectionString"] == (
        f"Endpoint=sb://localhost:{server.amqp_port};SharedAccessKeyName=reader;"
        f"SharedAccessKey={before['primaryKey']};{path}UseDevelopmentEmulator=true;"
    )
    after = api.ok("POST", f"{rules}/reader/keys/renew", {"key": "primary"})
    assert after["primaryKey"] != before["primaryKey"]
    assert after["secondaryKey"] == before["secondaryKey"]
    assert api.ok("GET", f"{rules}/reader/keys") == after
    assert api.call("POST", f"{rules}/reader/keys/renew", {"key": "third"})[0] == 400
    assert api.call("DELETE", f"{rules}/reader")[0] == 204
    assert api.call("GET", f"{rules}/reader/keys")[0] == 404


def test_the_namespace_stays_manageable(api: Any) -> None:
    assert api.call("DELETE", f"/authorizationrules/{ROOT}")[0] == 400
    assert api.call("PATCH", f"/authorizationrules/{ROOT}", {"rights": ["Send"]})[0] == 400


def test_a_rolled_key_is_refused_at_once_and_the_other_goes_on(
    api: Any, server: Server, made: Any, sign_in: Callable[..., RawClient], refused: type[Exception]
) -> None:
    rules = f"/eventhubs/{made}/authorizationrules"
    api.ok("PUT", f"{rules}/both", {"rights": ["Send", "Listen"]})
    keys = api.ok("GET", f"{rules}/both/keys")
    client = sign_in(server, made, signed_in=False)
    expiry = int(time.time()) + 600
    assert client.put_token(sign(client.audience, "both", keys["primaryKey"], expiry)) == 202
    link = client.publisher(f"{made}/Partitions/0")
    renewed = api.ok("POST", f"{rules}/both/keys/renew", {"key": "primary"})
    client.publish(link, b"the link lives on until its token ends")
    with pytest.raises(refused, match="unauthorized-access"):
        client.publisher(f"{made}/Partitions/1")
    late = sign_in(server, made, signed_in=False)
    assert late.put_token(sign(late.audience, "both", keys["primaryKey"], expiry)) == 401
    for key in (renewed["primaryKey"], renewed["secondaryKey"]):
        assert late.put_token(sign(late.audience, "both", key, expiry)) == 202
    late.publisher(f"{made}/Partitions/1")


def test_links_that_rest_on_a_key_itself_end_when_it_is_rolled(
    api: Any, server: Server, made: Any, sign_in: Callable[..., RawClient]
) -> None:
    api.ok("PUT", "/authorizationrules/plain", {"rights": ["Send"]})
    keys = api.ok("GET", "/authorizationrules/plain/keys")
    response = f"\0plain\0{keys['secondaryKey']}".encode()
    options = {"sasl_mechanisms": ["PLAIN"], "sasl_response": response, "hostname": "localhost"}
    client = sign_in(server, made, signed_in=False, **options)
    link = client.publisher(made)
    api.ok("POST", "/authorizationrules/plain/keys/renew", {"key": "primary"})
    client.publish(link, b"x")
    api.ok("POST", "/authorizationrules/plain/keys/renew", {"key": "secondary"})
    assert detached(client, link).condition == "amqp:unauthorized-access"
    api.ok("DELETE", "/authorizationrules/plain")


def detached(client: Any, link: Any) -> Any:
    while True:
        for event in client.events:
            if isinstance(event, Detached) and event.link is link:
                client.events.remove(event)
                return event.error
        client.exchange()


def test_links_to_what_is_deleted_end_with_not_found(
    api: Any, server: Server, made: Any, sign_in: Callable[..., RawClient]
) -> None:
    api.ok("PUT", f"/eventhubs/{made}/consumergroups/gone")
    client = sign_in(server, made)
    publisher = client.publisher(f"{made}/Partitions/0")
    reader = client.reader(f"{made}/ConsumerGroups/$Default/Partitions/0", credit=10)
    in_group = client.reader(f"{made}/ConsumerGroups/gone/Partitions/0", credit=10)
    api.ok("DELETE", f"/eventhubs/{made}/consumergroups/gone")
    assert detached(client, in_group).condition == "amqp:not-found"
    client.publish(publisher, b"x")
    assert client.receive(reader, 1)[0].body == [b"x"]
    api.ok("DELETE", f"/eventhubs/{made}")
    for link in (publisher, reader):
        assert detached(client, link).condition == "amqp:not-found"


def test_publishers_are_revoked_and_restored(
    api: Any, server: Server, made: Any, sign_in: Callable[..., RawClient], refused: type[Exception]
) -> None:
    revoked = f"/eventhubs/{made}/revokedpublishers"
    client = sign_in(server, made)
    link = client.publisher(f"{made}/Publishers/gate-1")
    assert client.publish(link, b"x")[0].state == ACCEPTED
    assert api.ok("PUT", f"{revoked}/Gate-1") == {"name": "gate-1"}
    assert api.ok("GET", revoked)["value"] == [{"name": "gate-1"}]
    (answer,) = client.publish(link, b"y")
    assert answer.state.error.condition == "com.microsoft:publisher-revoked"
    with pytest.raises(refused, match="publisher-revoked"):
        client.publisher(f"{made}/Publishers/GATE-1")
    other = sign_in(server, made)
    other.publish(other.publisher(f"{made}/Publishers/gate-2"), b"x")
    api.ok("DELETE", f"{revoked}/gate-1")
    assert api.call("DELETE", f"{revoked}/gate-1")[0] == 404
    other.publish(other.publisher(f"{made}/Publishers/gate-1"), b"z")


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("/eventhubs", "", 401),
        ("/eventhubs", "Bearer x", 401),
        ("/eventhubs", ("wrong key", ROOT, ""), 401),
        ("/eventhubs", ("sender", "sender", ""), 401),
        ("/eventhubs", ("own", "own", "HUB"), 401),
        ("/authorizationrules", ("own", "own", "HUB"), 401),
        ("/eventhubs/wide", ("own", "own", "HUB"), 401),
        ("/eventhubs/HUB", ("own", "own", "HUB/consumergroups/$Default"), 401),
        ("/eventhubs/HUB", ("own", "own", "HUB"), 200),
        ("/eventhubs/HUB/authorizationrules/own/keys", ("own", "own", "HUB"), 200),
        ("/eventhubs/HUB/authorizationrules/own/keys", ("sender", "sender", "HUB"), 401),
    ],
)
def test_who_may_manage_what(api: Any, server: Server, made: Any, path: str, token: Any, status: int) -> None:
    api.ok("PUT", f"/eventhubs/{made}/authorizationrules/own", {"rights": ["Manage"]})
    api.call("PUT", "/authorizationrules/sender", {"rights": ["Send", "Listen"]})
    keys = {
        "own": api.ok("GET", f"/eventhubs/{made}/authorizationrules/own/keys")["primaryKey"],
        "sender": api.ok("GET", "/authorizationrules/sender/keys")["primaryKey"],
    }
    if isinstance(token, tuple):
        key, rule, scope = token
        token = Api(server, keys.get(key, key), rule, scope.replace("HUB", made)).token
    found, answer = api.call("GET", path.replace("HUB", made), authorization=token)
    assert found == status
    if status == 401:
        assert answer["condition"] == "amqp:unauthorized-access"
        assert not any(key in json.dumps(answer) for key in keys.values())


def test_a_name_may_be_as_long_as_the_service_allows(api: Any) -> None:
    name = "N" * 256
    assert api.ok("PUT", f"/eventhubs/{name}", {})["name"] == name
    api.ok("DELETE", f"/eventhubs/{name}")


def test_a_hub_that_cannot_be_stored_is_a_problem_with_its_reason(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise LogError("cannot open the log: no space left")

    monkeypatch.setattr("tidegate.hub.registry.open_partitions", full)
    status, problem = api.call("PUT", "/eventhubs/no-room", {})
    assert (status, problem["status"]) == (500, 500)
    assert "no space left" in problem["detail"]
    assert api.call("GET", "/eventhubs/no-room")[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/eventhubs/no spaces".replace(" ", "%20"), {}, 400),
        ("PUT", "/eventhubs/x", {"partitionCount": 101}, 400),
        ("PUT", "/eventhubs/x", {"partitionCount": "2"}, 400),
        ("PUT", "/eventhubs/x", {"retentionTimeInHours": 0.5}, 400),
        ("PUT", "/eventhubs/x", {"retentionTimeInHours": 2161}, 400),
        ("PUT", "/eventhubs/x", {"partitions": 2}, 400),
        ("PUT", "/eventhubs/x", [], 400),
        ("PUT", "/eventhubs/x", b"{", 400),
        ("PUT", "/eventhubs/x", b" " * 70_000, 413),
        ("PUT", "/eventhubs/nowhere/consumergroups/g", {}, 404),
        ("PUT", "/authorizationrules/r", {"rights": []}, 400),
        ("PUT", "/authorizationrules/r", {}, 400),
        ("PUT", "/authorizationrules/r", {"rights": ["Everything"]}, 400),
        ("PUT", "/authorizationrules/no%26", {"rights": ["Send"]}, 400),
        ("GET", "/eventhubs/..%2F..", None, 404),
        ("DELETE", "/eventhubs", None, 404),
        ("GET", "/nothing", None, 404),
    ],
)
def test_what_cannot_be_done_is_a_problem_with_its_reason(
    api: Any, method: str, path: Any, body: Any, status: int
) -> None:
    found, problem = api.call(method, path, body)
    assert found == problem["status"] == status
    assert problem["media"] == "application/problem+json"
    assert problem["title"]
    assert problem["detail"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.binary(max_size=200) | st.dictionaries(st.text(), st.integers() | st.text() | st.none()))
def test_any_body_is_taken_or_refused(api: Any, body: Any) -> None:
    status, _ = api.call("PATCH", "/eventhubs/wide", body)
    assert status in (200, 400)


def test_the_description_names_every_route_and_no_other(server: Server) -> None:
    with urllib.request.urlopen(f"http://localhost:{server.http_port}/openapi.json", timeout=PATIENCE_S) as answer:
        document = json.loads(answer.read())
    assert document == json.loads(json.dumps(description()))
    described = {(path, method.upper()) for path, item in document["paths"].items() for method in item}
    routes = application(server.context, server).routes
    served = {
        (route.path, method)
        for route in routes
        if isinstance(route, Route) and route.include_in_schema
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert described == served


def test_the_description_is_closed_and_its_names_differ(server: Server) -> None:
    document = description()
    text = json.dumps(document)
    references = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert references == set(document["components"]["schemas"])
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)
    for path, item in document["paths"].items():
        for operation in item.values():
            named = [parameter["name"] for parameter in operation.get("parameters", [])]
            assert named == re.findall(r"{(\w+)}", path)


def test_answers_have_the_shape_that_is_described(api: Any, made: Any) -> None:
    hub = api.ok("GET", f"/eventhubs/{made}")
    schema = description()["components"]["schemas"]["EventHubResource"]
    assert set(hub) == set(schema["properties"]) == set(schema["required"])


@pytest.fixture
def own(tmp_path: Path, make_config: Callable[..., NamespaceConfig]) -> Any:
    """A hub that this test may change and start again: its settings, and a way to start it."""

    def start(**limits: Any) -> BackgroundServer:
        config = make_config({"Name": "eh1", "PartitionCount": 1}).model_copy(update=limits)
        return BackgroundServer(config, tmp_path / "data", http_port=0)

    return start


UNLIMITED = {"throughputUnits": None, "isAutoInflateEnabled": False, "maximumThroughputUnits": None}


def test_the_namespace_s_limits_change_while_it_runs_and_stay(own: Any, sign_in: Callable[..., RawClient]) -> None:
    with own(throughput_units=2) as running:
        api = Api(running.server)
        shown = api.ok("GET", "/namespace")
        assert shown == {
            "name": "emulatorNs1",
            "tier": "standard",
            "maxMessageSizeInBytes": 1 << 20,
            "throughputUnits": 2,
            "isAutoInflateEnabled": False,
            "maximumThroughputUnits": None,
        }
        changed = api.ok("PATCH", "/namespace", {"tier": "basic", "throughputUnits": 1, "maximumThroughputUnits": 4})
        assert changed == shown | {
            "tier": "basic",
            "maxMessageSizeInBytes": 256 << 10,
            "throughputUnits": 1,
            "isAutoInflateEnabled": True,
            "maximumThroughputUnits": 4,
        }
        link = sign_in(running.server, "eh1").publisher("eh1")
        assert link.max_message_size == 256 << 10
        throughput = running.server.namespace.throughput
        while throughput.units == 1:
            throughput.ingress_wait_s(1, 100)
        assert api.ok("GET", "/namespace")["throughputUnits"] == 2
        with urllib.request.urlopen(f"{api.base}/metrics") as metrics:
            assert b"tidegate_throughput_units_added_total 1.0" in metrics.read()
    with own(throughput_units=2) as running:
        # the configuration says what it said then: what was changed since holds
        assert Api(running.server).ok("GET", "/namespace") == changed | {"throughputUnits": 2}
    with own(throughput_units=5) as running:
        api = Api(running.server)
        assert api.ok("GET", "/namespace") == shown | {"throughputUnits": 5}
        assert api.ok("PATCH", "/namespace", {"throughputUnits": None}) == shown | UNLIMITED
        assert api.ok("PATCH", "/namespace", {"throughputUnits": 7, "maximumThroughputUnits": 9})
        assert api.ok("PATCH", "/namespace", {"isAutoInflateEnabled": False})["maximumThroughputUnits"] is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"throughputUnits": 41}, "less than or equal to 40"),
        ({"throughputUnits": 0}, "greater than or equal to 1"),
        ({"maximumThroughputUnits": 4}, "auto-inflate starts from the throughput units"),
        ({"throughputUnits": 5, "maximumThroughputUnits": 4}, "auto-inflate starts"),
        ({"throughputUnits": 1, "isAutoInflateEnabled": True}, "needs maximumThroughputUnits"),
        ({"isAutoInflateEnabled": False, "maximumThroughputUnits": 4}, "contradict each other"),
        ({"tier": "gold"}, "tier"),
        ({"units": 1}, "units"),
    ],
)
def test_limits_that_cannot_be_are_refused_and_nothing_changes(api: Any, changes: dict[Any, Any], reason: str) -> None:
    before = api.ok("GET", "/namespace")
    status, problem = api.call("PATCH", "/namespace", changes)
    assert (status, reason in problem["detail"]) == (400, True), problem
    assert api.ok("GET", "/namespace") == before


def test_capture_is_changed_while_the_hub_runs_and_stays(
    own: Any, tmp_path: Path, eventually: Callable[[Callable[[], object]], None]
) -> None:
    names = "{Namespace}/{EventHub}/{PartitionId}/{Year}-{Month}-{Day}/{Hour}-{Minute}-{Second}"
    wanted = {
        "destination": str(tmp_path / "archive"),
        "intervalInSeconds": 60,
        "sizeLimitInBytes": 10_485_760,
        "skipEmptyArchives": True,
        "archiveNameFormat": names,
    }
    with own() as running:
        api = Api(running.server)
        assert api.ok("GET", "/eventhubs/eh1")["capture"] is None
        (partition,) = running.server.namespace.event_hub("eh1").partitions
        assert api.ok("PATCH", "/eventhubs/eh1", {"capture": wanted})["capture"] == {"enabled": True} | wanted
        eventually(lambda: partition.capture is not None)
        changed = api.ok("PATCH", "/eventhubs/eh1", {"capture": {"intervalInSeconds": 120}})["capture"]
        assert changed == {"enabled": True} | wanted | {"intervalInSeconds": 120}
        eventually(lambda: partition.capture and partition.capture.description.interval_in_seconds == 120)
        made = api.ok("PUT", "/eventhubs/clicks", {"capture": {"destination": str(tmp_path / "clicks")}})
        assert made["capture"]["intervalInSeconds"] == 300
        api.ok("PATCH", "/eventhubs/clicks", {"capture": {"enabled": False}})
    with own() as running:
        api = Api(running.server)
        (partition,) = running.server.namespace.event_hub("eh1").partitions
        assert api.ok("GET", "/eventhubs/eh1")["capture"] == changed
        assert partition.capture is not None
        assert api.ok("GET", "/eventhubs/clicks")["capture"] == made["capture"] | {"enabled": False}
        assert running.server.namespace.event_hub("clicks").partitions[0].capture is None
        api.ok("PATCH", "/eventhubs/eh1", {"capture": None})
        eventually(lambda: partition.capture is None)
        assert api.ok("GET", "/eventhubs/eh1")["capture"] is None


@pytest.mark.parametrize(
    ("capture", "reason"),
    [
        ({"intervalInSeconds": 60}, "capture: destination: Field required"),
        ({"destination": "x", "intervalInSeconds": 59}, "capture: intervalInSeconds"),
        ({"destination": "x", "archiveNameFormat": "{Year}"}, "all nine parts are needed"),
        ({"destination": "nowhere://x"}, "capture: destination"),
        ({"destination": "x", "every": 60}, "every"),
    ],
)
def test_a_capture_that_cannot_be_is_refused(api: Any, made: Any, capture: dict[Any, Any], reason: str) -> None:
    status, problem = api.call("PATCH", f"/eventhubs/{made}", {"capture": capture})
    assert (status, reason in problem["detail"]) == (400, True), problem
    assert api.ok("GET", f"/eventhubs/{made}")["capture"] is None


def test_a_folder_is_that_folder_wherever_the_hub_is_started_again(
    api: Any, made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"destination": "archive", "enabled": False}
    assert api.ok("PATCH", f"/eventhubs/{made}", {"capture": settings})["capture"]["destination"] == str(
        tmp_path / "archive"
    )


def test_where_the_server_writes_is_not_for_who_may_manage_one_hub(
    api: Any, made: Any, server: Server, tmp_path: Path
) -> None:
    api.ok("PUT", f"/eventhubs/{made}/authorizationrules/boss", {"rights": ["Manage"]})
    keys = api.ok("GET", f"/eventhubs/{made}/authorizationrules/boss/keys")
    boss = Api(server, keys["primaryKey"], "boss", made)
    assert boss.ok("PATCH", f"/eventhubs/{made}", {"userMetadata": "mine"})["userMetadata"] == "mine"
    for body in ({"capture": {"destination": str(tmp_path)}}, {"capture": {"enabled": False}}):
        assert boss.call("PATCH", f"/eventhubs/{made}", body)[0] == 401
    assert boss.call("GET", "/namespace")[0] == 401


def test_a_retention_that_was_changed_is_not_undone_by_the_configuration(
    tmp_path: Path, make_config: Callable[..., NamespaceConfig]
) -> None:
    def retention(hours: int, change_to: int | None = None) -> int | None:
        config = make_config({"Name": "eh1", "PartitionCount": 1, "RetentionTimeInHours": hours})
        with BackgroundServer(config, tmp_path / "data", http_port=0) as running:
            api = Api(running.server)
            found: int | None = api.ok("GET", "/eventhubs/eh1")["retentionTimeInHours"]
            if change_to is not None:
                api.ok("PATCH", "/eventhubs/eh1", {"retentionTimeInHours": change_to})
            return found

    assert retention(1, change_to=24) == 1
    assert retention(1) == 24
    assert retention(2) == 2
