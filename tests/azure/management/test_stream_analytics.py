"""Microsoft.StreamAnalytics: what a client describes is the job that the service runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.azure.management.conftest import GROUP, KEY, Api
from tests.azure.management.test_routes import NAMED
from tests.patience import eventually
from tests.service.launchers import FakeLauncher
from tidegate.azure.management.stream_analytics.engine_questions import SHARED
from tidegate.azure.management.stream_analytics.store import error_policy_of
from tidegate.job.functions.javascript import JavaScriptAggregate, JavaScriptFunction
from tidegate.server import Server
from tidegate.service import JobDocument, Jobs
from tidegate.service.supervision import Exit, ExitKind

JOBS = f"{GROUP}/providers/Microsoft.StreamAnalytics/streamingjobs"
JOB = f"{JOBS}/tolls"
VERSION = "2020-03-01"
QUERY = "SELECT COUNT(*) AS n INTO results FROM tolls GROUP BY TumblingWindow(second, 5)"


def hub(name: str, **more: Any) -> dict[str, Any]:
    properties = {"serviceBusNamespace": "emulatorNs1", "eventHubName": name, "authenticationMode": "Msi", **more}
    return {"type": "Microsoft.EventHub/EventHub", "properties": properties}


JSON = {"type": "Json", "properties": {"encoding": "UTF8"}}
INPUT = {"properties": {"type": "Stream", "datasource": hub("eh1"), "serialization": JSON}}
OUTPUT = {"properties": {"datasource": hub("eh1"), "serialization": {"type": "Json", "properties": {}}}}


@pytest.fixture
def api(arm_server: Server) -> Iterator[Api]:
    api = Api(arm_server)
    call = api.call
    api.call = lambda *arguments, **options: call(*arguments, **{"version": VERSION, **options})
    yield api
    for job in api.ok("GET", "/subscriptions/s/providers/Microsoft.StreamAnalytics/streamingjobs")["value"]:
        api.ok("DELETE", job["id"])


@pytest.fixture
def job(api: Api) -> dict[str, Any]:
    """A job with an input, an output and a query."""
    properties = {
        "sku": {"name": "Standard"},
        "eventsOutOfOrderPolicy": "Drop",
        "eventsOutOfOrderMaxDelayInSeconds": 3,
        "eventsLateArrivalMaxDelayInSeconds": 7,
        "inputs": [{"name": "tolls", **INPUT}],
        "outputs": [{"name": "results", **OUTPUT}],
        "transformation": {"name": "main", "properties": {"query": QUERY, "streamingUnits": 3}},
    }
    made = api.call("PUT", JOB, {"location": "West Europe", "tags": {"a": "b"}, "properties": properties})
    assert made.status == 201, made.content
    return dict(made.json)


def definition_of(launcher: FakeLauncher, api: Api) -> Any:
    assert api.call("POST", f"{JOB}/start", {}).status == 202
    return launcher.last.order.content


def test_a_job_in_its_envelope(api: Api, job: dict[str, Any]) -> None:
    assert (job["id"], job["name"], job["type"]) == (JOB, "tolls", "Microsoft.StreamAnalytics/streamingjobs")
    assert (job["location"], job["tags"]) == ("West Europe", {"a": "b"})
    assert job["properties"]["jobState"] == "Created"
    assert "inputs" not in job["properties"]
    answer = api.call("GET", f"{JOB}?$expand=inputs,outputs,transformation,functions")
    assert answer.headers["ETag"] == f'"{job["properties"]["etag"]}"'
    expanded = answer.json["properties"]
    assert [one["id"] for one in expanded["inputs"]] == [f"{JOB}/inputs/tolls"]
    assert [one["name"] for one in expanded["outputs"]] == ["results"]
    assert expanded["functions"] == []
    assert expanded["transformation"]["properties"]["query"] == QUERY
    assert expanded["transformation"]["properties"]["streamingUnits"] == 3
    assert api.call("GET", f"{JOB}?$expand=everything").code == "InvalidExpand"


def test_the_job_file_that_it_means(
    api: Api, job: Any, launcher: FakeLauncher, arm_server: Server, arm_jobs: Jobs
) -> None:
    definition = definition_of(launcher, api)
    assert definition["query"] == QUERY
    assert definition["event_ordering"] == {
        "late_arrival_tolerance_s": 7,
        "out_of_order_tolerance_s": 3,
        "action": "drop",
    }
    assert definition["inputs"]["tolls"] == {
        "type": "eventhub",
        "connection_string": arm_server.connection_string(),
        "event_hub": "eh1",
        "format": "json",
    }
    assert definition["outputs"]["results"]["connection_string"] == arm_server.connection_string()
    assert arm_jobs.show("tolls").scale.streaming_units == 3


@pytest.mark.slow
def test_a_job_starts_and_stops_as_asynchronous_operations(
    api: Api, job: dict[str, Any], launcher: FakeLauncher
) -> None:
    started = api.call("POST", f"{JOB}/start", {"outputStartMode": "JobStartTime"})
    assert started.status == 202
    status = started.headers["Azure-AsyncOperation"].removeprefix(api.base_url).partition("?")[0]
    result = started.headers["Location"].removeprefix(api.base_url).partition("?")[0]
    assert api.ok("GET", status)["status"] == "InProgress"
    assert api.call("GET", result).status == 202
    assert api.call("POST", f"{JOB}/start").status == 409
    launcher.last.run()
    assert api.ok("GET", status)["status"] == "Succeeded"
    assert api.call("GET", result).status == 200
    shown = api.ok("GET", JOB)["properties"]
    assert (shown["jobState"], shown["outputStartMode"]) == ("Running", "JobStartTime")
    assert "outputStartTime" in shown
    launcher.last.obedient = False
    stopped = api.call("POST", f"{JOB}/stop")
    status = stopped.headers["Azure-AsyncOperation"].removeprefix(api.base_url).partition("?")[0]
    assert api.ok("GET", status)["status"] == "InProgress"
    launcher.last.events.ended(Exit(ExitKind.ASKED, ""))
    assert api.ok("GET", status)["status"] == "Succeeded"
    assert api.ok("GET", JOB)["properties"]["jobState"] == "Stopped"
    assert api.call("POST", f"{JOB}/stop").status == 200


@pytest.mark.slow
def test_a_job_without_a_key_of_its_own_goes_on_when_the_hubs_key_changes(
    api: Api, job: Any, launcher: FakeLauncher, arm_server: Server
) -> None:
    definition_of(launcher, api)
    former = launcher.last
    former.run()
    namespace = arm_server.namespace
    root = namespace.access.rule_table.root_rule
    namespace.management.set_access_rule(replace(root, primary_key="bmV3", secondary_key=root.primary_key))
    try:
        former.events.ended(Exit(ExitKind.FATAL, "401"))
        eventually(lambda: launcher.last is not former)
        sections = {**launcher.last.order.content["inputs"], **launcher.last.order.content["outputs"]}
        strings = [one["connection_string"] for one in sections.values() if one["type"] == "eventhub"]
        assert strings
        assert all(";SharedAccessKey=bmV3;" in one for one in strings)
        launcher.last.run()
        assert api.ok("GET", JOB)["properties"]["jobState"] == "Running"
    finally:
        namespace.management.set_access_rule(root)


def test_a_job_that_fails_says_why_where_the_client_waits(api: Api, job: Any, launcher: FakeLauncher) -> None:
    started = api.call("POST", f"{JOB}/start", {"outputStartMode": "jobStartTime"})
    status = started.headers["Azure-AsyncOperation"].removeprefix(api.base_url).partition("?")[0]
    launcher.last.events.ended(Exit(ExitKind.FATAL, "line 1: that is wrong"))
    failed = api.ok("GET", status)
    assert (failed["status"], failed["error"]["message"]) == ("Failed", "line 1: that is wrong")
    result = started.headers["Location"].removeprefix(api.base_url).partition("?")[0]
    assert api.call("GET", result).code == "JobFailed"
    assert api.call("GET", f"{JOB}/operationStatuses/start-other").status == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"outputStartMode": "CustomTime", "outputStartTime": "2026-01-01T00:00:00Z"}, 202),
        ({"outputStartMode": "CustomTime"}, 400),
        ({"outputStartMode": "CustomTime", "outputStartTime": "2026-01-01T00:00:00"}, 400),
        ({"outputStartMode": "JobStartTime", "outputStartTime": "2026-01-01T00:00:00Z"}, 400),
        ({"outputStartMode": "sometime"}, 400),
    ],
)
def test_where_the_output_starts(api: Api, job: Any, body: Any, status: int) -> None:
    assert api.call("POST", f"{JOB}/start", body).status == status


def test_scaling(api: Api, job: Any) -> None:
    assert api.call("POST", f"{JOB}/scale", {"streamingUnits": 6}).status == 200
    assert api.ok("GET", f"{JOB}/transformations/main")["properties"]["streamingUnits"] == 6
    quotas = "/subscriptions/s/providers/Microsoft.StreamAnalytics/locations/local/quotas"
    assert api.ok("GET", quotas)["value"][0]["properties"]["currentCount"] == 6
    assert api.call("POST", f"{JOB}/scale", {"streamingUnits": 0}).status == 400
    assert api.call("POST", f"{JOB}/scale", {"streamingUnits": 1000}).code == "InvalidJob"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("sku", 5, "an object"),
        ("cluster", ["c"], "an object"),
        ("jobType", {}, "text"),
        ("contentStoragePolicy", 1, "text"),
    ],
)
def test_a_property_of_another_kind_is_refused(api: Api, job: Any, name: str, value: Any, expected: str) -> None:
    """Clients that list jobs read it as what Azure's API says it is, and failed for every job there."""
    answer = api.call("PATCH", JOB, {"properties": {name: value}})
    assert (answer.status, answer.json["error"]["message"]) == (400, f"properties.{name}: expected {expected}")
    assert api.ok("GET", JOB)["properties"]["jobType"] == "Cloud"


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_units_that_a_client_changes_where_it_reads_them(api: Api, job: Any, method: str) -> None:
    """A job shows them itself, which Azure's API does not; a change there was accepted and had no effect."""
    changed = api.ok(method, JOB, {"properties": {"streamingUnits": 6}})
    assert changed["properties"]["streamingUnits"] == 6
    transformation = api.ok("GET", f"{JOB}/transformations/main")["properties"]
    assert (transformation["streamingUnits"], transformation["query"]) == (6, QUERY)
    body = {
        "properties": {"streamingUnits": 6, "transformation": {"name": "main", "properties": {"streamingUnits": 1}}}
    }
    assert api.ok("PATCH", JOB, body)["properties"]["streamingUnits"] == 1
    assert api.call(method, JOB, {"properties": {"streamingUnits": 0}}).code == "InvalidJob"
    assert api.call(method, JOB, {"properties": {"streamingUnits": "6"}}).status == 400


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "body"), [("inputs", INPUT), ("outputs", OUTPUT)])
def test_a_part_from_its_creation_to_its_end(api: Api, job: Any, kind: str, body: Any) -> None:
    path = f"{JOB}/{kind}/another"
    assert api.call("PATCH", path, body).status == 404
    made = api.call("PUT", path, body)
    assert (made.status, made.json["id"], made.json["type"]) == (
        201,
        path,
        f"Microsoft.StreamAnalytics/streamingjobs/{kind}",
    )
    etag = made.headers["ETag"]
    assert etag == f'"{made.json["properties"]["etag"]}"'
    assert api.call("PUT", path, body, If_None_Match="*").status == 412
    more = {"properties": {"datasource": {"properties": {"eventHubName": "other"}}}}
    changed = api.call("PATCH", path.upper(), more, If_Match=etag)
    assert changed.json["name"] == "another"
    assert changed.json["properties"]["datasource"]["properties"]["eventHubName"] == "other"
    assert changed.json["properties"]["datasource"]["properties"]["serviceBusNamespace"] == "emulatorNs1"
    assert api.call("PATCH", path, more, If_Match=etag).status == 412
    assert "another" in [one["name"] for one in api.ok("GET", f"{JOB}/{kind}")["value"]]
    assert [api.call("DELETE", path).status for _ in range(2)] == [200, 204]


def test_the_transformation(api: Api, job: Any) -> None:
    path = f"{JOB}/transformations/main"
    changed = api.ok("PATCH", path, {"properties": {"query": "SELECT 1 AS a INTO results FROM tolls"}})
    assert changed["properties"]["streamingUnits"] == 3
    assert api.ok("PUT", path, {"properties": {"query": QUERY}})["properties"]["query"] == QUERY
    assert api.call("PATCH", f"{JOB}/transformations/other", {}).status == 404
    assert api.call("GET", f"{JOB}/transformations/other").status == 404
    refused = api.call("PUT", f"{JOB}/transformations/other", {"properties": {"query": "SELECT 2 AS a FROM tolls"}})
    assert (refused.status, refused.code) == (400, "BadRequest")
    assert "'main'" in refused.json["error"]["message"]
    assert api.ok("GET", path)["properties"]["query"] == QUERY


def test_units_alone_name_no_transformation(api: Api) -> None:
    path = f"{JOB}-of-units"
    api.ok("PUT", path, {"properties": {"streamingUnits": 6}})
    api.ok("PUT", f"{path}/transformations/main", {"properties": {"query": "SELECT 2 AS a FROM tolls"}})
    assert api.ok("GET", f"{path}?$expand=transformation")["properties"]["transformation"]["name"] == "main"
    api.ok("DELETE", path)


def test_secrets_are_written_and_never_read(api: Api, job: Any, launcher: FakeLauncher, arm_server: Server) -> None:
    path = f"{JOB}/inputs/secret"
    secret = "an3xtremely+secret/key="
    source = hub("h", serviceBusNamespace="elsewhere", sharedAccessPolicyName="p", sharedAccessPolicyKey=secret)
    del source["properties"]["authenticationMode"]
    body = {"properties": {"type": "Stream", "datasource": source, "serialization": JSON}}
    answers = [api.call("PUT", path, body), api.call("GET", path), api.call("GET", f"{JOB}?$expand=inputs")]
    assert all(secret not in answer.content.decode() for answer in answers)
    read = answers[1].json
    assert "sharedAccessPolicyKey" not in read["properties"]["datasource"]["properties"]
    # what was read can be written back, and the secret stays
    api.ok("PUT", path, read)
    api.ok("PATCH", path, {"properties": {"datasource": {"properties": {"consumerGroupName": "g"}}}})
    section = definition_of(launcher, api)["inputs"]["secret"]
    assert section["connection_string"].endswith(f"SharedAccessKey={secret}")
    assert section["consumer_group"] == "g"
    folder = arm_server.data_dir
    assert not [one for one in folder.rglob("*") if one.is_file() and secret.encode() in one.read_bytes()]


@pytest.mark.slow
def test_a_storage_account_has_the_key_that_it_is_given(
    api: Api, job: Any, launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=here;AccountKey=b3RoZXI=")

    def put(name: str, account: str, key: str | None = None) -> Any:
        accounts = [{"accountName": account, "accountKey": key}]
        settings = {"storageAccounts": accounts, "container": "c", "pathPattern": "p"}
        source = {"type": "Microsoft.Storage/Blob", "properties": settings}
        body = {"properties": {"type": "Stream", "datasource": source, "serialization": JSON}}
        answer = api.call("PUT", f"{JOB}/inputs/{name}", body)
        assert answer.status in (200, 201), answer.content
        return api.ok("GET", f"{JOB}/inputs/{name}")

    assert "a2V5" not in json.dumps(put("own", "elsewhere", "a2V5"))
    put("own", "elsewhere")  # as it was read: the key stays
    put("named", "here", "a2V5")
    put("keyless", "elsewhere")
    inputs = definition_of(launcher, api)["inputs"]
    assert inputs["own"]["connection_string"] == (
        "DefaultEndpointsProtocol=https;AccountName=elsewhere;AccountKey=a2V5;EndpointSuffix=core.windows.net"
    )
    # The environment has the others.
    assert "connection_string" not in inputs["named"]
    assert "connection_string" not in inputs["keyless"]


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_secret_is_not_sent_to_another_place(api: Api, job: Any, method: str) -> None:
    path = f"{JOB}/inputs/secret"
    source = hub("h", serviceBusNamespace="elsewhere", sharedAccessPolicyName="p", sharedAccessPolicyKey="s" * 20)
    body = {"properties": {"type": "Stream", "datasource": source, "serialization": JSON}}
    api.ok("PUT", path, body)
    source["properties"]["serviceBusNamespace"] = "attackers"
    del source["properties"]["sharedAccessPolicyKey"]
    answer = api.call(method, path, body)
    assert answer.status == 400
    assert "its key is missing" in answer.json["error"]["message"]


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize(
    ("kind", "settings", "moved"),
    [
        (
            "Microsoft.AzureFunction",
            {"functionAppName": "ours", "functionName": "f", "apiKey": "s3cret"},
            {"functionAppName": "attacker.example.com"},
        ),
        (  # the first letter of a name is read in either case, and the last one counts
            "Microsoft.AzureFunction",
            {"functionAppName": "ours", "functionName": "f", "apiKey": "s3cret"},
            {"FunctionAppName": "attacker.example.com"},
        ),
        (
            "Microsoft.DBForPostgreSQL/servers/databases",
            {"server": "ours", "database": "d", "user": "u", "password": "s3cret", "table": "t"},
            {"Server": "attacker.example.com"},
        ),
    ],
)
def test_a_secret_stays_with_its_place_however_that_is_written(
    api: Api, job: Any, arm_jobs: Jobs, method: str, kind: str, settings: dict[str, Any], moved: dict[str, Any]
) -> None:
    def output(settings: dict[str, Any]) -> dict[str, Any]:
        return {"properties": {"datasource": {"type": kind, "properties": settings}}}

    def section() -> str:
        return json.dumps(arm_jobs.document("tolls").definition["outputs"]["secret"])

    path = f"{JOB}/outputs/secret"
    api.ok("PUT", path, output(settings))
    assert "s3cret" in section()
    without_secret = {name: value for name, value in settings.items() if value != "s3cret"}
    api.call(method, path, output({**without_secret, **moved} if method == "PUT" else moved))
    assert not ("attacker" in section() and "s3cret" in section())


@pytest.mark.parametrize(
    ("kind", "properties", "message"),
    [
        ("inputs", {"type": "Stream"}, "has no type"),
        ("inputs", {"type": "Other", "datasource": hub("h")}, "Stream or Reference"),
        ("inputs", {"type": "Stream", "datasource": {"type": "Microsoft.Nothing/Such"}}, "not supported here"),
        ("inputs", {"type": "Stream", "datasource": {"type": "Microsoft.Storage/Blob"}}, "key is missing"),
        ("outputs", {"datasource": {"type": 1}}, "has no type"),
        ("outputs", {"datasource": {"type": "x", "properties": []}}, "is no object"),
        ("outputs", [], "an object is expected"),
    ],
)
def test_a_part_that_is_wrong_is_refused(api: Api, job: Any, kind: str, properties: Any, message: str) -> None:
    answer = api.call("PUT", f"{JOB}/{kind}/x", {"properties": properties})
    assert answer.status == 400
    assert message in answer.json["error"]["message"]


def test_rows_of_an_output_without_a_counterpart_go_to_a_file(
    api: Api, job: Any, launcher: FakeLauncher, arm_server: Server
) -> None:
    api.ok("PUT", f"{JOB}/outputs/bi", {"properties": {"datasource": {"type": "PowerBI", "properties": {}}}})
    section = definition_of(launcher, api)["outputs"]["bi"]
    assert section == {"type": "file", "path": str(arm_server.data_dir.absolute() / "arm/outputs/tolls/bi.jsonl")}


@pytest.mark.parametrize("kind", ["inputs", "outputs", "functions"])
def test_what_does_not_exist_cannot_be_tried(api: Api, job: Any, kind: str) -> None:
    answer = api.call("POST", f"{JOB}/{kind}/unsaved/test")
    assert (answer.status, answer.code) == (404, "ResourceNotFound")
    assert f"streamingjobs/{kind}/unsaved" in str(answer.json)


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_misspelled_property_of_a_job_is_refused(api: Api, job: Any, method: str) -> None:
    answer = api.call(method, JOB, {"location": "here", "properties": {"eventsOutOfOrderPolcy": "Drop"}})
    assert answer.status == 400
    assert "did you mean eventsOutOfOrderPolicy?" in str(answer.json)
    # what a client has read, it may send back; and later versions of the API may have more
    read = api.ok("GET", f"{JOB}")["properties"]
    api.ok("PATCH", JOB, {"properties": {**read, "somethingNew": 1}})


@pytest.mark.slow
def test_whether_an_input_or_output_can_be_reached(api: Api, job: Any) -> None:
    assert api.ok("POST", f"{JOB}/inputs/tolls/test") == {"status": "TestSucceeded"}
    assert api.ok("POST", f"{JOB}/outputs/results/test") == {"status": "TestSucceeded"}
    other = {"properties": {"datasource": hub("no-such-hub")}}
    failed = api.ok("POST", f"{JOB}/inputs/tolls/test", other)
    assert failed["status"] == "TestFailed"
    assert "no-such-hub" in failed["error"]["message"]
    assert KEY not in str(failed)
    unknown = api.ok("POST", f"{JOB}/inputs/unsaved/test", INPUT)
    assert unknown == {"status": "TestSucceeded"}


@pytest.mark.slow
def test_functions_in_javascript_run_and_others_are_refused(api: Api, job: Any, launcher: FakeLauncher) -> None:
    def function(binding: str, kind: str = "Scalar", **properties: Any) -> Any:
        inner = {"inputs": [], "output": {"dataType": "any"}, "binding": {"type": binding, "properties": properties}}
        return {"properties": {"type": kind, "properties": inner}}

    script = "function main(a) { return a + 1; }"
    scalar = function("Microsoft.StreamAnalytics/JavascriptUdf", script=script)
    made = api.ok("PUT", f"{JOB}/functions/more", scalar)
    assert made["properties"]["properties"]["binding"]["properties"]["script"] == script
    aggregate = function("Microsoft.StreamAnalytics/JavascriptUda", "Aggregate", script=script)
    api.ok("PUT", f"{JOB}/functions/sums", aggregate)
    assert api.ok("POST", f"{JOB}/functions/more/test")["status"] == "TestSucceeded"
    other = function("Microsoft.MachineLearning/WebService", endpoint="https://x", apiKey="secret")
    assert "functions in JavaScript run here" in api.call("PUT", f"{JOB}/functions/ml", other).json["error"]["message"]
    assert api.ok("POST", f"{JOB}/functions/ml/test", other)["status"] == "TestFailed"
    api.ok("DELETE", f"{JOB}/functions/sums")
    assert definition_of(launcher, api)["functions"] == {"more": {"script": script}}


def test_what_others_change_is_what_clients_read(api: Api, job: Any, launcher: FakeLauncher, arm_jobs: Jobs) -> None:
    """The portal and the command line edit the job file."""

    def change(document: JobDocument) -> JobDocument:
        ordering = {**document.definition["event_ordering"], "late_arrival_tolerance_s": 60}
        definition = {**document.definition, "query": QUERY.replace("5", "9"), "event_ordering": ordering}
        definition["inputs"] = {**definition["inputs"], "more": {"type": "files", "path": "/x"}}
        return JobDocument(definition, document.arm, document.scale)

    arm_jobs.edit("tolls", change)
    assert api.ok("GET", f"{JOB}/transformations/main")["properties"]["query"] == QUERY.replace("5", "9")
    assert api.ok("GET", JOB)["properties"]["eventsLateArrivalMaxDelayInSeconds"] == 60
    api.ok("PATCH", JOB, {"tags": {"x": "y"}})
    definition = definition_of(launcher, api)
    assert definition["query"] == QUERY.replace("5", "9")
    assert definition["event_ordering"]["late_arrival_tolerance_s"] == 60
    assert definition["inputs"]["more"] == {"type": "files", "path": "/x"}


def test_a_job_of_a_job_file_is_shown_and_started_but_not_changed(api: Api, arm_jobs: Jobs) -> None:
    section = {"type": "eventhub", "connection_string": "Endpoint=sb://h;SharedAccessKey=k=", "event_hub": "e"}
    arm_jobs.create("tolls", JobDocument({"query": QUERY, "inputs": {"tolls": section}}))
    shown = api.ok("GET", f"{JOB}?$expand=inputs,transformation")
    assert shown["properties"]["transformation"]["properties"]["query"] == QUERY
    (one,) = shown["properties"]["inputs"]
    assert one["properties"]["datasource"] == {"type": "Tidegate/eventhub", "properties": {"event_hub": "e"}}
    assert api.call("PATCH", JOB, {"properties": {"outputErrorPolicy": "Drop"}}).code == "JobFile"
    assert api.call("POST", f"{JOB}/start").status == 202


@pytest.mark.slow
def test_groups_hold_what_was_created_in_them(api: Api, job: Any) -> None:
    own = GROUP.replace("g1", "explicit")
    api.ok("PUT", own, {"location": "north"})
    elsewhere = f"{own}/providers/Microsoft.StreamAnalytics/streamingjobs"
    assert api.call("GET", f"{elsewhere}/tolls").status == 404
    assert api.call("PUT", f"{elsewhere}/tolls", {}).status == 409
    assert api.ok("PUT", f"{elsewhere}/second", {})["location"] == "north"
    assert [one["name"] for one in api.ok("GET", elsewhere)["value"]] == ["second"]
    assert [one["name"] for one in api.ok("GET", JOBS)["value"]] == ["tolls"]
    everything = api.ok("GET", "/subscriptions/s/providers/Microsoft.StreamAnalytics/streamingjobs")["value"]
    assert [one["name"] for one in everything] == ["second", "tolls"]
    kinds = [one["type"] for one in api.ok("GET", f"{own}/resources")["value"]]
    assert "Microsoft.StreamAnalytics/streamingjobs" in kinds
    api.ok("DELETE", own)
    assert [one["name"] for one in api.ok("GET", JOBS.replace("g1", "any"))["value"]] == ["tolls"]


def test_deleting_a_job_frees_its_name(api: Api, job: Any) -> None:
    assert [api.call("DELETE", JOB).status for _ in range(2)] == [200, 204]
    assert api.call("GET", JOB).status == 404
    assert api.call("PUT", JOB, {"location": "x"}).status == 201


@pytest.mark.parametrize("name", ["-x", "a b", "x" * 129])
def test_a_job_s_name_has_rules(api: Api, name: str) -> None:
    assert api.call("PUT", f"{JOBS}/{name}", {"location": "x"}).code == "InvalidJob"


COMPILE = "/subscriptions/s/providers/Microsoft.StreamAnalytics/locations/local/compileQuery"


@pytest.mark.slow
def test_a_query_is_compiled_with_its_errors_in_place(api: Api) -> None:
    inputs = [{"name": "tolls", "type": "Stream"}]
    compiled = api.ok("POST", COMPILE, {"query": QUERY, "inputs": inputs, "jobType": "Cloud"})
    assert compiled == {"errors": [], "warnings": [], "inputs": ["tolls"], "outputs": ["results"], "functions": []}
    wrong = api.ok("POST", COMPILE, {"query": "SELECT a\nFROM nowhere WHERE", "inputs": inputs})
    assert wrong["errors"][0]["startLine"] == 2
    assert api.call("POST", COMPILE, {"query": QUERY, "compatibilityLevel": "9"}).status == 400
    assert api.call("POST", COMPILE, {"query": "x" * 200_000}).status == 400


@pytest.mark.slow
def test_a_query_is_compiled_in_a_process_of_its_own(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """What doubles with each step of a query would otherwise hold up every publisher of the hub."""
    monkeypatch.setattr("tidegate.sql.compile_query", _not_here)
    monkeypatch.setattr("tidegate.sql.compiler.compile_query", _not_here)
    steps = ", ".join(
        f"s{number + 1} AS (SELECT a FROM s{number} UNION SELECT a FROM s{number})" for number in range(40)
    )
    query = f"WITH s0 AS (SELECT a FROM tolls), {steps} SELECT a INTO results FROM s40"
    assert api.ok("POST", COMPILE, {"query": query})["errors"] == []
    process = SHARED.pid
    assert process not in (None, os.getpid())
    assert api.ok("POST", COMPILE, {"query": "SELECT 1"})["errors"]
    assert SHARED.pid == process


def _not_here(*_arguments: Any, **_options: Any) -> None:
    raise AssertionError("the hub's process compiles a query")


def function(script: str, kind: str = "Scalar", binding: str = "JavascriptUdf") -> dict[str, Any]:
    bound = {"type": f"Microsoft.StreamAnalytics/{binding}", "properties": {"script": script}}
    return {"properties": {"type": kind, "properties": {"inputs": [], "output": {"dataType": "Any"}, "binding": bound}}}


UDA = """function main() {
    this.init = function () {};
    this.accumulate = function (value, timestamp) {};
    this.computeResult = function () { return 1; };
}"""


@pytest.mark.parametrize(
    ("body", "section"),
    [
        (function("function (x, y) { return x + y; }"), {}),
        (function("// adds\n(x, y) => x + y"), {}),
        (function(UDA, "Aggregate"), {"aggregate": "main"}),
        (function(UDA.replace(" main", " "), "aggregate"), {"aggregate": "main"}),
        (function(UDA, "Scalar", "JavascriptUda"), {"aggregate": "main"}),
    ],
)
def test_functions_of_every_documented_form_can_start(api: Api, body: Any, section: dict[str, Any]) -> None:
    api.ok("PUT", JOB, {"location": "x"})
    api.ok("PUT", f"{JOB}/functions/f", body)
    assert api.ok("POST", f"{JOB}/functions/f/test") == {"status": "TestSucceeded"}
    made = api.ok("GET", f"{JOB}?$expand=jobFile")["properties"]["jobFile"]["functions"]["f"]
    assert {name: value for name, value in made.items() if name == "aggregate"} == section
    if section:
        assert JavaScriptAggregate(made["script"]).compute_groups([5], [0], [0, 1]) == [1]
    else:
        assert JavaScriptFunction(made["script"])(1, 2) == 3


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (function("function (x) { return "), "cannot use its script"),
        (function("var add = 1;"), "no function main"),
        (function("x", binding="CLRUdf"), "the binding 'Microsoft.StreamAnalytics/CLRUdf'"),
        (function("x", "Table"), "expected Scalar or Aggregate"),
        (function(" "), "binding.properties.script"),
    ],
)
def test_a_function_that_cannot_start_fails_its_test(api: Api, body: Any, problem: str) -> None:
    api.ok("PUT", JOB, {"location": "x"})
    tested = api.ok("POST", f"{JOB}/functions/f/test", body)
    assert tested["status"] == "TestFailed"
    assert problem in tested["error"]["message"]


def _endpoint(kind: str, **settings: Any) -> dict[str, Any]:
    return {"properties": {"datasource": {"type": kind, "properties": settings}, "serialization": JSON}}


SQL = {"server": "sales", "database": "db", "user": "me@sales", "table": "dbo.T"}


@pytest.mark.parametrize("kind", ["Microsoft.Sql/Server/Database", "Microsoft.Sql/Server/DataWarehouse"])
def test_a_database_is_written_with_its_own_password(api: Api, arm_jobs: Jobs, kind: str) -> None:
    api.ok("PUT", JOB, {"location": "x"})
    api.ok("PUT", f"{JOB}/outputs/o", _endpoint(kind, **SQL, password="p/w"))
    section = arm_jobs.document("tolls").definition["outputs"]["o"]
    address = "sqlserver://me%40sales:p%2Fw@sales.database.windows.net/db"
    assert {name: section[name] for name in ("type", "connection_string", "table")} == {
        "type": "sqlserver",
        "connection_string": address,
        "table": "dbo.T",
    }


@pytest.mark.parametrize(
    ("kind", "settings", "cause"),
    [
        ("Microsoft.Sql/Server/Database", SQL, "password is missing"),
        ("Microsoft.Sql/Server/DataWarehouse", SQL, "password is missing"),
        ("Microsoft.DBForPostgreSQL/servers/databases", SQL, "password is missing"),
        (
            "Microsoft.Storage/DocumentDB",
            {"accountId": "a", "database": "d", "containerName": "c"},
            "accountKey is missing",
        ),
        (
            "Microsoft.ServiceBus/Queue",
            {"serviceBusNamespace": "n", "queueName": "q"},
            "sharedAccessPolicyKey is missing",
        ),
        (
            "Microsoft.Storage/Table",
            {"accountName": "a", "table": "t", "partitionKey": "p", "rowKey": "r"},
            "accountKey",
        ),
        ("Microsoft.EventHub/EventHub", {"serviceBusNamespace": "far", "eventHubName": "q"}, "sharedAccessPolicyKey"),
        ("Microsoft.AzureFunction", {"functionAppName": "a"}, "functionName is missing"),
        (
            "Microsoft.Kafka",
            {"bootstrapServers": "h:1", "topicName": "t", "securityType": "sasl_ssl"},
            "password is missing",
        ),
    ],
)
def test_a_missing_secret_is_called_by_its_name(api: Api, kind: str, settings: dict[str, Any], cause: str) -> None:
    api.ok("PUT", JOB, {"location": "x"})
    message = api.call("PUT", f"{JOB}/outputs/o", _endpoint(kind, **settings)).json["error"]["message"]
    assert cause in message
    assert ("storage" in message.lower()) == ("Storage/Table" in kind)


def test_an_iot_hub_says_what_the_api_cannot_describe(api: Api) -> None:
    api.ok("PUT", JOB, {"location": "x"})
    keys = {"iotHubNamespace": "i", "sharedAccessPolicyName": "n", "sharedAccessPolicyKey": "k", "endpoint": "m/e"}
    body = _endpoint("Microsoft.Devices/IotHubs", **keys)
    body["properties"]["type"] = "Stream"
    message = api.call("PUT", f"{JOB}/inputs/i", body).json["error"]["message"]
    assert "are not those of this endpoint" in message
    assert "its key is missing" not in message


def test_a_container_of_cosmos_db_has_two_names(api: Api, arm_jobs: Jobs) -> None:
    api.ok("PUT", JOB, {"location": "x"})
    for name in ("containerName", "collectionNamePattern"):
        settings = {"accountId": "a", "accountKey": "aw==", "database": "d", name: "c"}
        api.ok("PUT", f"{JOB}/outputs/o", _endpoint("Microsoft.Storage/DocumentDB", **settings))
        assert arm_jobs.document("tolls").definition["outputs"]["o"]["container"] == "c"


TARGETS = st.sampled_from(
    [
        COMPILE,
        JOB,
        f"{JOB}/start",
        f"{JOB}/scale",
        f"{JOB}/inputs/fuzzed",
        f"{JOB}/inputs/tolls/test",
        f"{JOB}/outputs/fuzzed",
        f"{JOB}/functions/fuzzed",
        f"{JOB}/transformations/fuzzed",
    ]
)
SHAPED = st.fixed_dictionaries(
    {},
    optional={
        "properties": st.fixed_dictionaries(
            {},
            optional={
                "inputs": NAMED,
                "outputs": NAMED,
                "transformation": NAMED,
                "type": st.sampled_from(["Stream", "Reference", "x"]) | NAMED,
                "datasource": st.fixed_dictionaries(
                    {"type": st.sampled_from(["Microsoft.EventHub/EventHub", "Microsoft.Storage/Blob", "x"]) | NAMED},
                    optional={"properties": NAMED},
                ),
                "serialization": NAMED,
                "query": NAMED,
                "streamingUnits": NAMED,
                "eventsOutOfOrderPolicy": NAMED,
                "compatibilityLevel": NAMED,
            },
        ),
        "tags": NAMED,
        "identity": NAMED,
    },
)


@pytest.mark.slow
@settings(deadline=None)
@given(st.sampled_from(["PUT", "PATCH", "POST"]), TARGETS, NAMED | SHAPED)
def test_any_body_is_answered(arm_server: Server, method: str, path: str, body: Any) -> None:
    api = Api(arm_server)
    api.call("PUT", JOB, {"location": "x"}, version=VERSION)
    answer = api.call(method, path, body, version=VERSION)
    assert answer.status < 500, answer.content
    assert api.call("GET", f"{JOB}?$expand=inputs,outputs,functions,transformation", version=VERSION).status == 200
    api.call("DELETE", JOB, version=VERSION)


def test_no_folder_is_left_of_the_jobs(arm_server: Server) -> None:
    assert not list(Path(arm_server.data_dir / "service" / "jobs").glob("tolls-*"))


@pytest.mark.parametrize(("written", "policy"), [("Retry", "Stop"), ("stop", "Stop"), ("drop", "Drop"), (None, "Stop")])
def test_a_job_file_s_error_policy_has_the_api_s_name(written: str | None, policy: str) -> None:
    definition = {} if written is None else {"output_error_policy": written}
    assert error_policy_of(definition) == policy
