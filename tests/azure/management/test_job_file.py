"""Jobs made of a job file through the management API, and what Tidegate tells of any job beyond Azure's API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.azure.management.conftest import GROUP, Api
from tests.service.launchers import FakeLauncher
from tidegate.azure.management import PrincipalRole
from tidegate.azure.management.access.requests import ArmError
from tidegate.azure.management.stream_analytics.job_file import with_kept_secrets
from tidegate.server import Server
from tidegate.service import Jobs

JOBS = f"{GROUP}/providers/Microsoft.StreamAnalytics/streamingjobs"
JOB = f"{JOBS}/tolls"
EXPANDED = f"{JOB}?$expand=jobFile,queryVersions"
SECRET = "Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=abc=;EntityPath=e"
FILE = {"query": "SELECT * INTO o FROM i", "inputs": {"i": {"type": "eventhub", "connection_string": SECRET}}}
MISSING = "Microsoft.StreamAnalytics/streamingjobs/nothing"


@pytest.fixture
def api(arm_server: Server) -> Iterator[Api]:
    api = Api(arm_server)
    yield api
    for job in api.ok("GET", "/subscriptions/s/providers/Microsoft.StreamAnalytics/streamingjobs")["value"]:
        api.ok("DELETE", job["id"])


@pytest.fixture
def job(api: Api) -> Any:
    answer = api.call("PUT", JOB, {"tags": {"a": "b"}, "properties": {"jobFile": FILE, "streamingUnits": 2}})
    assert answer.status == 201, answer.content
    return answer.json


def test_a_job_of_a_file_is_created_started_changed_and_scaled(api: Api, job: Any, launcher: FakeLauncher) -> None:
    assert (job["properties"]["jobState"], job["properties"]["streamingUnits"]) == ("Created", 2)
    assert "jobFile" not in job["properties"]
    shown = api.ok("GET", EXPANDED)["properties"]["jobFile"]
    assert shown == {**FILE, "inputs": {"i": {"type": "eventhub", "connection_string": None}}}
    assert api.call("POST", f"{JOB}/start", {"outputStartMode": "LastOutputEventTime"}).status == 202
    launcher.last.run()
    changed = {**shown, "query": "SELECT 2"}
    answer = api.ok("PATCH", JOB, {"properties": {"jobFile": changed}})
    assert (answer["tags"], answer["properties"]["streamingUnits"]) == ({"a": "b"}, 2)
    # a client that changes what it was shown does not know the secret, and does not lose it
    assert launcher.last.order.content["inputs"]["i"]["connection_string"] == SECRET
    launcher.last.run()
    assert api.call("POST", f"{JOB}/scale", {"streamingUnits": 3}).status == 202
    shown = api.ok("GET", EXPANDED)["properties"]
    assert (shown["streamingUnits"], shown["jobFile"]["query"], shown["queryVersions"]) == (3, "SELECT 2", [])
    assert api.ok("PATCH", JOB, {"tags": {"c": "d"}})["tags"] == {"c": "d"}
    assert api.ok("PATCH", JOB, {"properties": {"streamingUnits": 1}})["properties"]["streamingUnits"] == 1
    assert api.ok("GET", f"{JOB}/transformations/Transformation")["properties"]["query"] == "SELECT 2"


def test_a_job_described_in_azure_s_terms_shows_its_file_and_can_be_given_one(api: Api, arm_jobs: Jobs) -> None:
    transformation = {"name": "main", "properties": {"query": "SELECT 1", "streamingUnits": 1}}
    api.ok("PUT", JOB, {"location": "west", "properties": {"transformation": transformation}})
    shown = api.ok("GET", EXPANDED)["properties"]["jobFile"]
    assert shown["query"] == "SELECT 1"
    made = api.ok("PUT", JOB, {"properties": {"jobFile": {**shown, "query": "SELECT 2"}}})
    assert made["location"] == "west"
    assert arm_jobs.show("tolls").query == "SELECT 2"
    assert api.call("PUT", f"{JOB}/transformations/main", {"properties": {"query": "SELECT 3"}}).code == "JobFile"


def test_what_cannot_be_is_refused_with_its_reason(api: Api, job: Any) -> None:
    def put(path: str, properties: Any, method: str = "PUT", **headers: str) -> tuple[int, str, str]:
        answer = api.call(method, path, {"properties": properties}, **headers)
        return answer.status, answer.code, answer.json["error"]["message"]

    assert put(f"{JOBS}/other", {"jobFile": [SECRET]}) == (
        400,
        "BadRequest",
        "properties.jobFile: expected an object, the content of a job file",
    )
    assert put(JOB, {"jobFile": FILE, "inputs": []})[2] == (
        "properties.jobFile and properties.inputs contradict each other"
    )
    assert put(JOB, {"jobFile": FILE, "streamingUnits": "2"})[2] == "properties.streamingUnits is a whole number"
    assert put(JOB, {"streamingUnits": 0}, "PATCH")[1:] == ("InvalidJob", "a job has 1 to 396 streaming units, got 0")
    assert put(JOB, {"jobFile": FILE}, If_None_Match="*")[:2] == (412, "PreconditionFailed")
    assert put(JOB, {"jobFile": FILE}, If_Match='"another"')[:2] == (412, "PreconditionFailed")
    assert MISSING in put(f"{JOBS}/nothing", {"jobFile": FILE}, "PATCH")[2]


def test_a_job_file_is_checked_before_there_is_a_job(api: Api) -> None:
    check = f"{JOBS}/new/checkJobFile"
    assert api.ok("POST", check, {"properties": {"jobFile": FILE}}) == {"problems": []}
    assert api.ok("POST", check, {"properties": {"jobFile": {"query": "wrong"}}}) == {
        "problems": ["line 1: that is wrong"]
    }
    assert "jobFile is missing" in api.call("POST", check, {}).json["error"]["message"]


def test_logs_metrics_and_errors_of_a_job_that_has_not_run_are_empty(api: Api, job: Any) -> None:
    assert api.ok("GET", f"{JOB}/logs?limit=5") == {"value": [], "next": 0}
    assert api.ok("GET", f"{JOB}/logs?limit=5&after=9") == {"value": [], "next": 0}
    assert api.ok("GET", f"{JOB}/metrics") == {"metrics": {}}
    assert api.ok("GET", f"{JOB}/watermarks") == {"watermarks": None}
    assert api.ok("GET", f"{JOB}/dataErrors") == {"value": []}
    assert "limit is a number" in api.call("GET", f"{JOB}/logs?limit=many").json["error"]["message"]
    assert MISSING in api.call("GET", f"{JOBS}/nothing/logs").json["error"]["message"]


@pytest.mark.parametrize("role", PrincipalRole)
def test_writing_a_job_file_takes_an_owner_and_reading_it_a_reader(
    api: Api, job: Any, api_of: Callable[[PrincipalRole], Api], role: PrincipalRole
) -> None:
    caller = api_of(role)
    assert caller.ok("GET", EXPANDED)["properties"]["jobFile"]["query"] == FILE["query"]
    assert caller.ok("GET", f"{JOB}/logs")["value"] == []
    body = {"properties": {"jobFile": FILE}}
    answers = [
        caller.call("PUT", JOB, body),
        caller.call("PATCH", JOB, body),
        caller.call("POST", f"{JOB}/checkJobFile", body),
    ]
    assert {answer.status for answer in answers} == ({200} if role is PrincipalRole.OWNER else {403})
    if role is PrincipalRole.CONTRIBUTOR:
        assert "needs the role of an owner" in answers[0].json["error"]["message"]


def test_a_list_of_all_jobs_says_in_which_group_each_is(api: Api, job: Any) -> None:
    other = "/subscriptions/s1/resourceGroups/Made"
    api.ok("PUT", other, {"location": "local"})
    try:
        api.ok(
            "PUT", f"{other}/providers/Microsoft.StreamAnalytics/streamingjobs/else", {"properties": {"jobFile": FILE}}
        )
        found = api.ok("GET", "/subscriptions/s1/providers/Microsoft.StreamAnalytics/streamingjobs")["value"]
        resource_groups = [one["id"].split("/")[4] for one in found]
        assert resource_groups == ["Made", "tidegate"]
        assert [api.ok("GET", one["id"])["name"] for one in found] == ["else", "tolls"]
    finally:
        api.ok("DELETE", other)


def test_a_secret_in_a_wrong_body_is_not_repeated(api: Api) -> None:
    answer = api.call("PUT", JOB, {"properties": {"jobFile": [SECRET]}})
    assert answer.status == 400
    assert "abc" not in json.dumps(answer.json)


def test_what_is_null_stays_only_where_there_was_something() -> None:
    old = {"a": {"b": "secret", "c": 1}, "gone": {"d": "e"}}
    assert with_kept_secrets({"a": {"b": None, "c": 2}, "new": None}, old) == {
        "a": {"b": "secret", "c": 2},
        "new": None,
    }


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        ({"host": "elsewhere"}, "outputs.users.host"),
        ({"type": "mysql"}, "outputs.users.type"),
        ({"port": 1}, "outputs.users.port"),
        ({"host": None, "table": "other"}, ""),
        ({"table": "other"}, ""),
    ],
)
def test_a_secret_is_for_the_place_that_it_was_given_for(change: dict[str, Any], moved: str) -> None:
    section = {"type": "postgresql", "host": "h", "table": "t", "tls": {"password": "secret"}}
    old = {"outputs": {"users": section, "other": {"type": "console"}}}
    new = {"outputs": {"users": {**section, "tls": {"password": None}, **change}}}
    if not moved:
        assert with_kept_secrets(new, old)["outputs"]["users"]["tls"] == {"password": "secret"}
        return
    with pytest.raises(ArmError) as refused:
        with_kept_secrets(new, old)
    assert refused.value.message == (
        f"enter outputs.users.tls.password again: it was given for another place, and {moved} has changed"
    )
