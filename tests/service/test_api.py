"""Jobs over HTTP: what each operation answers, what it refuses, and to whom."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.launchers import FakeLauncher
from tidegate.hub.access import sign
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer
from tidegate.service import Jobs
from tidegate.service.api import PREFIX, job_routes
from tidegate.service.api.representation import with_kept_secrets

SECRET = "Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=abc=;EntityPath=e"
DEFINITION = {"query": "SELECT * INTO o FROM i", "inputs": {"i": {"type": "eventhub", "connection_string": SECRET}}}


class Service:
    """A client of a service whose processes are the test's."""

    def __init__(self, server: BackgroundServer, launcher: FakeLauncher) -> None:
        self.launcher = launcher
        self._url = f"http://127.0.0.1:{server.server.http_port}"
        self._rule = server.server.namespace.access.rule_table.root_rule
        self.token = sign(self._url, self._rule.name, self._rule.primary_key, int(time.time()) + 60)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Return the status and the content of an answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": self.token, **headers}
        request = urllib.request.Request(f"{self._url}{PREFIX}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("service")
    launcher = FakeLauncher()
    config = NamespaceConfig(name="n", event_hubs=(EventHubConfig(name="eh1", partition_count=1),))
    with (
        Jobs(folder / "service", launcher=lambda: launcher) as jobs,
        BackgroundServer(config, folder / "data", further_routes=[job_routes(jobs)], http_port=0) as server,
    ):
        yield Service(server, launcher)


def test_a_job_is_created_started_changed_stopped_and_deleted(service: Service) -> None:
    status, job = service.call("PUT", "/tolls", {"definition": DEFINITION})
    assert (status, job["state"], job["streamingUnits"]) == (201, "Created", 1)
    assert job["definition"]["inputs"]["i"]["connection_string"] is None
    assert service.call("POST", "/tolls/start", {"outputStartMode": "now"})[1]["state"] == "Starting"
    service.launcher.last.run()
    assert service.call("GET", "/TOLLS")[1]["outputStartMode"] == "JobStartTime"
    changed = {**job["definition"], "query": "SELECT 2"}
    status, job = service.call("PATCH", "/tolls", {"definition": changed, "streamingUnits": 3})
    assert (status, job["streamingUnits"], job["definition"]["query"]) == (200, 3, "SELECT 2")
    # A client that changes what it was shown does not know the secret, and does not lose it.
    assert service.launcher.last.order.content["inputs"]["i"]["connection_string"] == SECRET
    assert service.call("GET", "")[1]["value"][0]["name"] == "tolls"
    assert service.call("POST", "/tolls/stop")[1]["state"] == "Stopped"
    assert service.call("DELETE", "/tolls") == (204, None)
    assert service.call("GET", "/tolls")[0] == 404


def test_what_cannot_be_done_is_refused_with_its_reason(service: Service) -> None:
    assert service.call("PUT", "/refused", {"definition": DEFINITION})[0] == 201
    refusals = [
        service.call("PUT", "/refused", {"definition": DEFINITION}),
        service.call("POST", "/refused/start", {"outputStartMode": "yesterday"}),
        service.call("POST", "/refused/start", {"outputStartMode": "custom"}),
        service.call("PATCH", "/refused", {"streamingUnits": 2}, **{"If-Match": "another"}),
        service.call("PATCH", "/refused", {"streamingUnits": 0}),
        service.call("PATCH", "/refused", {"units": 2}),
        service.call("GET", "/nothing"),
    ]
    assert [(status, problem["detail"].split(":")[0]) for status, problem in refusals] == [
        (409, "a job 'refused' exists already; update or delete it, or choose another name"),
        (400, "outputStartMode is one of JobStartTime, CustomTime, LastOutputEventTime, got 'yesterday'"),
        (400, "an output start time is for CustomTime only, which needs one"),
        (412, "job 'refused' was changed by somebody else; read it again, then change it"),
        (400, "a job has 1 to 396 streaming units, got 0"),
        (400, "the request's body"),
        (404, "there is no job 'nothing'; 'tidegate job list' shows those there are"),
    ]
    assert service.call("POST", "/refused/check", {"definition": {"query": "wrong"}}) == (
        200,
        {"problems": ["line 1: that is wrong"]},
    )


def test_logs_metrics_and_errors_of_a_job_that_has_not_run_are_empty(service: Service) -> None:
    service.call("PUT", "/fresh", {"definition": DEFINITION})
    assert service.call("GET", "/fresh/logs?limit=5")[1] == {"lines": [], "next": 0}
    assert service.call("GET", "/fresh/metrics")[1] == {}
    assert service.call("GET", "/fresh/status")[1] is None
    assert service.call("GET", "/fresh/dataerrors")[1] == {"value": []}


def test_nothing_is_answered_without_the_right_to_manage(service: Service) -> None:
    assert service.call("GET", "", Authorization="SharedAccessSignature sr=x&sig=y&se=1&skn=z")[0] == 401
    assert service.call("GET", "", Authorization="")[0] == 401


def test_a_secret_in_a_wrong_body_is_not_repeated(service: Service) -> None:
    status, problem = service.call("PUT", "/wrong", {"definition": [SECRET]})
    assert status == 400
    assert "abc" not in json.dumps(problem)


def test_what_is_null_stays_only_where_there_was_something() -> None:
    old = {"a": {"b": "secret", "c": 1}, "gone": {"d": "e"}}
    assert with_kept_secrets({"a": {"b": None, "c": 2}, "new": None}, old) == {
        "a": {"b": "secret", "c": 2},
        "new": None,
    }
