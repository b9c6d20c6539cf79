"""Requests that are nearly right: every one is answered in Azure's terms, and what is kept stays readable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.azure.management.conftest import GROUP, NAMESPACE, Api
from tests.profiles import example_count
from tests.service.launchers import FakeLauncher
from tidegate.azure.management import PrincipalRole
from tidegate.azure.management.access.requests import ArmError, parse_json, path_segments
from tidegate.azure.management.access.tokens import Caller
from tidegate.azure.management.deployments import Deployments
from tidegate.azure.management.event_hubs.provider import EventHubProvider
from tidegate.azure.management.manager.resource_groups import ResourceGroups
from tidegate.azure.management.manager.resource_manager import Question, ResourceManager, ResourceProvider
from tidegate.azure.management.manager.state import StateFile
from tidegate.azure.management.manager.subscriptions import Subscriptions
from tidegate.azure.management.stream_analytics.provider import StreamAnalyticsProvider
from tidegate.azure.management.stream_analytics.store import LocalHubs
from tidegate.server import Server
from tidegate.service import Jobs
from tidegate.service.supervision import Exit, ExitKind

VERSION = "2020-03-01"
SECRET = "dGhlLXNlY3JldA=="
JOB = f"{GROUP}/providers/Microsoft.StreamAnalytics/streamingjobs/hostile"
INPUT: dict[str, Any] = {
    "properties": {
        "type": "Stream",
        "datasource": {
            "type": "Microsoft.EventHub/EventHub",
            "properties": {
                "serviceBusNamespace": "emulatorNs1",
                "eventHubName": "eh1",
                "sharedAccessPolicyName": "p",
                "sharedAccessPolicyKey": SECRET,
                "consumerGroupName": "$Default",
            },
        },
        "serialization": {"type": "Json", "properties": {"encoding": "UTF8"}},
        "compression": {"type": "None"},
        "partitionKey": "k",
    }
}
OUTPUT: dict[str, Any] = {
    "properties": {
        "datasource": {
            "type": "Microsoft.ServiceBus/EventHub",
            "properties": {
                "serviceBusNamespace": "emulatorNs1",
                "eventHubName": "eh1",
                "sharedAccessPolicyName": "p",
                "sharedAccessPolicyKey": SECRET,
                "partitionKey": "k",
                "propertyColumns": ["k"],
            },
        },
        "serialization": {"type": "Json", "properties": {"encoding": "UTF8", "format": "LineSeparated"}},
        "timeWindow": "00:01:00",
        "sizeWindow": 100,
    }
}
FUNCTION: dict[str, Any] = {
    "properties": {
        "type": "Scalar",
        "properties": {
            "inputs": [{"dataType": "any", "isConfigurationParameter": None}],
            "output": {"dataType": "any"},
            "binding": {
                "type": "Microsoft.StreamAnalytics/JavascriptUdf",
                "properties": {"script": "function (a) { return a; }"},
            },
        },
    }
}
TRANSFORMATION: dict[str, Any] = {"properties": {"query": "SELECT a INTO o FROM i", "streamingUnits": 3}}
STREAMING_JOB: dict[str, Any] = {
    "location": "West Europe",
    "tags": {"a": "b"},
    "identity": {"type": "SystemAssigned"},
    "properties": {
        "sku": {"name": "Standard"},
        "eventsOutOfOrderPolicy": "Drop",
        "eventsOutOfOrderMaxDelayInSeconds": 3,
        "eventsLateArrivalMaxDelayInSeconds": 7,
        "outputErrorPolicy": "Stop",
        "dataLocale": "en-US",
        "compatibilityLevel": "1.2",
        "jobStorageAccount": {"accountName": "a", "accountKey": SECRET},
        "inputs": [{"name": "i", **INPUT}],
        "outputs": [{"name": "o", **OUTPUT}],
        "functions": [{"name": "f", **FUNCTION}],
        "transformation": {"name": "t", **TRANSFORMATION},
    },
}
CAPTURE = {"enabled": True, "encoding": "Avro", "intervalInSeconds": 60, "sizeLimitInBytes": 10485760}
EVENT_HUB = {
    "properties": {
        "partitionCount": 1,
        "messageRetentionInDays": 1,
        "retentionDescription": {"cleanupPolicy": "Delete", "retentionTimeInHours": 24},
        "status": "Active",
        "userMetadata": "m",
        "captureDescription": CAPTURE,
    }
}
TEMPLATE = {"resources": [{"type": "Microsoft.EventHub/namespaces/eventhubs", "apiVersion": "2024-01-01", "name": "x"}]}
REQUESTS: list[tuple[str, str, Any]] = [
    ("PUT", JOB, STREAMING_JOB),
    ("PATCH", JOB, STREAMING_JOB),
    ("PUT", f"{JOB}/inputs/i", INPUT),
    ("PATCH", f"{JOB}/inputs/i", INPUT),
    ("POST", f"{JOB}/inputs/i/test", INPUT),
    ("PUT", f"{JOB}/outputs/o", OUTPUT),
    ("PUT", f"{JOB}/functions/f", FUNCTION),
    ("PUT", f"{JOB}/transformations/t", TRANSFORMATION),
    ("POST", f"{JOB}/start", {"outputStartMode": "CustomTime", "outputStartTime": "2026-01-01T00:00:00Z"}),
    ("POST", f"{JOB}/scale", {"streamingUnits": 6}),
    ("PUT", f"{NAMESPACE}/eventhubs/hostile", EVENT_HUB),
    ("PUT", f"{NAMESPACE}/eventhubs/eh1/consumergroups/hostile", {"properties": {"userMetadata": "m"}}),
    ("PUT", f"{NAMESPACE}/authorizationRules/hostile", {"properties": {"rights": ["Listen"]}}),
    ("PUT", f"{GROUP}-hostile", {"location": "x", "tags": {"a": "b"}, "managedBy": "m"}),
    (
        "PUT",
        f"{GROUP}/providers/Microsoft.Resources/deployments/hostile",
        {"properties": {"mode": "Incremental", "template": TEMPLATE, "parameters": {"p": {"value": 1}}}},
    ),
]
READABLE = (
    f"{JOB}?$expand=inputs,outputs,functions,transformation,jobFile",
    f"{JOB}/inputs",
    f"{NAMESPACE}/eventhubs",
    f"{GROUP}/resources",
)


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


WRONG = st.sampled_from(
    [
        *(None, True, 0, -1, 0.5, 1 << 31, 1 << 63, 10**400, float("inf"), 1e308, "", " ", "0", "x", "\0", "é" * 300),
        *("x" * 70_000, "../../x", "a/b", "<b>", "{{{", "[concat(", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59"),
        *("9999-12-31T23:59:59-14:00", "2026-01-01", [], {}, [[]], [None], {"": ""}, nested(100), nested(400)),
    ]
)


def places_of(body: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every value in a body."""
    yield place
    parts = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for key, part in parts:
        yield from places_of(part, (*place, key))


def replaced(body: Any, place: tuple[Any, ...], value: Any) -> Any:
    """Return a body with another value at a place."""
    if not place:
        return value
    first, *others = place
    if isinstance(body, dict):
        return {**body, first: replaced(body[first], tuple(others), value)}
    return [replaced(part, tuple(others), value) if at == first else part for at, part in enumerate(body)]


CHANGED = st.sampled_from([(method, path, body, place) for method, path, body in REQUESTS for place in places_of(body)])


def strict(content: bytes) -> Any:
    """Read what any JSON parser can."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(content, parse_constant=refuse) if content else None


class Sent:
    """Asks a manager of the API what a server would ask it, without HTTP."""

    def __init__(self, manager: ResourceManager) -> None:
        self._manager = manager

    def ask(self, method: str, path: str, content: bytes = b"", **headers: str) -> tuple[int, Any]:
        """Return the status and the body of an answer; only refusals may be raised."""
        path, _, query = path.partition("?")
        asked = {"api-version": VERSION, **dict(part.split("=", 1) for part in query.split("&") if part)}
        named = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        question = Question(method, path_segments(path), asked, named, "https://localhost")
        try:
            found = self._manager.find(question)
            answer = self._manager.answer(found, question, Caller("someone", PrincipalRole.OWNER), parse_json(content))
        except ArmError as error:
            return error.status, {"error": error.body()}
        content = answer.content()
        assert SECRET.encode() not in content
        return answer.status, strict(content)


@pytest.fixture(scope="module")
def sent(arm_server: Server, arm_jobs: Jobs, tmp_path_factory: pytest.TempPathFactory) -> Sent:
    folder, namespace = tmp_path_factory.mktemp("hostile"), arm_server.namespace
    resource_groups = ResourceGroups(StateFile(folder))
    hubs = LocalHubs(namespace, arm_server.connection_string)
    providers: list[ResourceProvider] = [
        EventHubProvider(namespace, resource_groups, None, arm_server.connection_string),
        StreamAnalyticsProvider(arm_jobs, resource_groups, hubs, folder / "outputs"),
    ]
    deployments = Deployments(resource_groups)
    providers.append(deployments)
    operations = [operation for provider in providers for operation in provider.operations()]
    manager = ResourceManager([*operations, *Subscriptions(resource_groups, providers).operations()])
    deployments.perform = manager.perform
    return Sent(manager)


@pytest.mark.slow
@settings(deadline=None, max_examples=example_count(200))
@given(CHANGED, WRONG)
def test_a_body_with_one_wrong_value_is_answered(sent: Sent, changed: Any, wrong: Any) -> None:
    method, path, body, place = changed
    made, told = sent.ask("PUT", JOB, json.dumps(STREAMING_JOB).encode())
    assert made in (200, 201), told
    text = json.dumps(replaced(body, place, wrong)).replace("Infinity", "1e999")
    status, told = sent.ask(method, path, text.encode())
    assert status < 500, told
    if status >= 400:
        assert set(told["error"]) >= {"code", "message"}
        assert SECRET not in json.dumps(told)
    for readable in READABLE:
        status, told = sent.ask("GET", readable)
        assert status == 200, (readable, told)
    assert sent.ask("DELETE", JOB)[0] == 200


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_start_at_a_time_that_utc_has_not_is_refused(sent: Sent, time: str) -> None:
    """The job would start, and no list of jobs could be shown from then on."""
    sent.ask("PUT", JOB, json.dumps(STREAMING_JOB).encode())
    body = {"outputStartMode": "CustomTime", "outputStartTime": time}
    status, told = sent.ask("POST", f"{JOB}/start", json.dumps(body).encode())
    assert (status, told["error"]["code"]) == (400, "BadRequest")
    assert "out of range" in told["error"]["message"]
    assert sent.ask("GET", JOB)[0] == 200
    sent.ask("DELETE", JOB)


@pytest.mark.parametrize(
    "value", [b"1e999", b"-1e999", b"9" * 400, b'{"a":' * 200 + b"1" + b"}" * 200, b"[" * 200 + b"]" * 200]
)
def test_a_value_that_could_not_be_written_again_is_refused(sent: Sent, value: bytes) -> None:
    status, told = sent.ask("PUT", JOB, b'{"location": "x", "properties": {"sku": {"name": %b}}}' % value)
    assert (status, told["error"]["code"]) == (400, "InvalidRequestContent")


@pytest.mark.slow
def test_an_input_whose_host_has_an_impossible_name_cannot_be_reached(sent: Sent) -> None:
    sent.ask("PUT", JOB, json.dumps(STREAMING_JOB).encode())
    place = ("properties", "datasource", "properties", "serviceBusNamespace")
    body = json.dumps(replaced(INPUT, place, "é" * 300)).encode()
    status, told = sent.ask("POST", f"{JOB}/inputs/i/test", body)
    assert (status, told["status"]) == (200, "TestFailed")
    assert "cannot be the name of a host" in told["error"]["message"]
    sent.ask("DELETE", JOB)


def test_a_client_that_polls_late_learns_that_its_stop_is_done(api: Api, launcher: FakeLauncher) -> None:
    """Another client has started the job again; the first one must not wait for the end of that run."""
    made = api.call("PUT", JOB, STREAMING_JOB, version=VERSION)
    assert made.status == 201, made.content
    assert api.call("POST", f"{JOB}/start", {}, version=VERSION).status == 202
    launcher.last.run()
    launcher.last.obedient = False
    stopping = api.call("POST", f"{JOB}/stop", version=VERSION)
    status = stopping.headers["Azure-AsyncOperation"].removeprefix(api.base_url).partition("?")[0]
    assert api.ok("GET", status, version=VERSION)["status"] == "InProgress"
    launcher.last.events.ended(Exit(ExitKind.ASKED, ""))
    assert api.call("POST", f"{JOB}/start", {}, version=VERSION).status == 202
    launcher.last.run()
    assert api.ok("GET", status, version=VERSION)["status"] == "Succeeded"
    assert api.call("DELETE", JOB, version=VERSION).status == 200
    gone = api.call("GET", status, version=VERSION)
    assert (gone.status, gone.code) == (404, "ResourceNotFound")


@pytest.mark.slow
def test_what_many_clients_do_at_once_to_one_job_is_answered(sent: Sent) -> None:
    """Starts, stops, changes and deletions race; each is done or refused, and none fails."""
    body = json.dumps(STREAMING_JOB).encode()
    steps = [
        ("PUT", JOB, body),
        ("POST", f"{JOB}/start", b"{}"),
        ("POST", f"{JOB}/start", b"{}"),
        ("POST", f"{JOB}/stop", b""),
        ("PATCH", JOB, b'{"properties": {"outputErrorPolicy": "Drop"}}'),
        ("POST", f"{JOB}/scale", b'{"streamingUnits": 6}'),
        ("DELETE", f"{JOB}/inputs/i", b""),
        ("GET", f"{JOB}?$expand=inputs", b""),
        ("DELETE", JOB, b""),
    ]
    with ThreadPoolExecutor(len(steps)) as pool:
        answers = list(pool.map(lambda step: sent.ask(*step), steps * 20))
    assert {status for status, _ in answers} <= {200, 201, 202, 204, 400, 404, 409, 412}, answers
    sent.ask("DELETE", JOB)
    assert sent.ask("GET", JOB)[0] == 404
