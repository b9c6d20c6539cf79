"""Microsoft.Insights: metrics as the service names them, and the log of changes."""

from __future__ import annotations

import http.client
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import pytest

from tests.azure.management.conftest import GROUP, NAMESPACE, Api
from tests.patience import PATIENCE_S
from tidegate.azure.management import monitor
from tidegate.azure.management.monitor import JOB_METRICS, ActivityLog
from tidegate.connectors.model import metrics as job_metrics
from tidegate.hub.capture.partition_capture import CaptureWriter
from tidegate.server import Server
from tidegate.server.context.metrics import ServerMetrics, TimedCounts
from tidegate.service import Jobs

METRICS = "providers/Microsoft.Insights/metrics"
JOBS = f"{GROUP}/providers/Microsoft.StreamAnalytics/streamingjobs"
JOB = {"location": "local", "properties": {"sku": {"name": "Standard"}}}


def points(answer: dict[str, Any], metric: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer["value"][metric]["timeseries"][0]["data"]
    return found


def store(server: Server, hub: str, events: int) -> None:
    stored = threading.Event()
    server.namespace.event_hub(hub).partitions[0].log.append([b"x"] * events, lambda *_: stored.set())
    assert stored.wait(PATIENCE_S)


def test_messages_are_counted_by_the_minute_and_by_hub(api: Api, arm_server: Server) -> None:
    for hub in ("counted", "silent"):
        api.ok("PUT", f"{NAMESPACE}/eventhubs/{hub}", {"properties": {"partitionCount": 1}})
    store(arm_server, "counted", 5)
    end = datetime.now(UTC) + timedelta(minutes=1)
    span = f"{(end - timedelta(minutes=10)).strftime('%Y-%m-%dT%H:%M:%SZ')}/{end.strftime('%Y-%m-%dT%H:%M:%SZ')}"
    asked = f"{NAMESPACE}/{METRICS}?timespan={span}&metricnames=IncomingMessages,Size&aggregation=Total,Average"
    answer = api.ok("GET", f"{asked}&$filter=EntityName eq 'counted' or EntityName eq 'silent'")
    by_hub = {one["metadatavalues"][0]["value"]: one["data"] for one in answer["value"][0]["timeseries"]}
    assert sum(point.get("total", 0) for point in by_hub["counted"]) == 5
    assert sum(point.get("total", 0) for point in by_hub["silent"]) == 0
    assert answer["value"][1]["unit"] == "Bytes"
    assert next(point["average"] for point in points(answer, 1) if "average" in point) > 0
    assert answer["interval"] == "PT1M"


def test_bytes_and_refusals_are_counted_by_the_minute_and_by_hub(api: Api, arm_server: Server) -> None:
    api.ok("PUT", f"{NAMESPACE}/eventhubs/sized", {"properties": {"partitionCount": 1}})
    begin, counts = time.time(), arm_server.metrics
    store(arm_server, "sized", 5)
    counts.deliveries.count("sized", 2, 700)
    counts.refuse("com.microsoft:server-busy", "sized", 3)
    counts.refuse("amqp:not-found")
    end = datetime.fromtimestamp(begin, UTC) + timedelta(minutes=2)
    span = f"{(end - timedelta(minutes=10)).strftime('%Y-%m-%dT%H:%M:%SZ')}/{end.strftime('%Y-%m-%dT%H:%M:%SZ')}"

    def totals(more: str = "") -> dict[str, float]:
        names = "IncomingBytes,OutgoingBytes,ThrottledRequests,UserErrors,ServerErrors,QuotaExceededErrors"
        answer = api.ok("GET", f"{NAMESPACE}/{METRICS}?timespan={span}&metricnames={names}{more}")
        return {
            one["name"]["value"]: sum(point.get("total", 0) for point in one["timeseries"][0]["data"])
            for one in answer["value"]
        }

    by_hub = totals("&$filter=EntityName eq 'sized'")
    assert by_hub["IncomingBytes"] == arm_server.namespace.event_hub("sized").partitions[0].log.last_offset > 0
    assert (by_hub["OutgoingBytes"], by_hub["ThrottledRequests"], by_hub["UserErrors"]) == (700, 3, 0)
    # A publication without a token is its hub's.
    connection = http.client.HTTPConnection("127.0.0.1", arm_server.http_port)
    connection.request("POST", "/Sized/messages", b"{}")
    assert connection.getresponse().status == 401
    connection.close()
    assert totals("&$filter=EntityName eq 'sized'")["UserErrors"] == 1
    # What names no hub counts for the namespace.
    assert totals()["UserErrors"] >= 2
    assert totals()["ThrottledRequests"] == 3


def recent() -> str:
    """Return the last minutes and the present one as a timespan, encoded twice, as the Azure CLI sends it."""
    end = datetime.now(UTC) + timedelta(minutes=1)
    span = f"{(end - timedelta(minutes=10)).isoformat()}/{end.isoformat()}"
    return quote(span, safe="")


def total(api: Api, metric: str, condition: str = "") -> float:
    more = f"&$filter={condition}" if condition else ""
    answer = api.ok("GET", f"{NAMESPACE}/{METRICS}?timespan={recent()}&metricnames={metric}&aggregation=Total{more}")
    return float(sum(point.get("total", 0) for point in points(answer)))


def test_requests_are_counted_for_the_hub_that_they_name(api: Api, arm_server: Server) -> None:
    api.ok("PUT", f"{NAMESPACE}/eventhubs/asked", {"properties": {"partitionCount": 1}})
    before = total(api, "IncomingRequests")
    for _ in range(3):
        connection = http.client.HTTPConnection("127.0.0.1", arm_server.http_port)
        connection.request("POST", "/asked/messages", b"{}")
        assert connection.getresponse().status == 401
        connection.close()
    assert total(api, "IncomingRequests", "EntityName eq 'asked'") == 3
    assert total(api, "IncomingRequests") >= before + 3


def test_how_many_connections_were_open_follows_from_what_opened_and_closed(
    api: Api, arm_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [time.time() // 60 * 60 - 1200 + 30]
    metrics = ServerMetrics(counts=TimedCounts(lambda: now[0]))
    metrics.open_connection()
    for change in (2, -1, 5):
        now[0] += 60
        for _ in range(change):
            metrics.open_connection()
        metrics.close_connection(max(0, -change))
    for name in ("counts", "connections_open"):
        monkeypatch.setattr(arm_server.metrics, name, getattr(metrics, name))
    monkeypatch.setattr(monitor, "time", SimpleNamespace(time=lambda: now[0]))

    def asked(metric: str, begin_s: float, end_s: float, more: str = "") -> list[dict[str, Any]]:
        span = "/".join(datetime.fromtimestamp(at, UTC).isoformat() for at in (begin_s, end_s))
        query = f"timespan={quote(span, safe='')}&metricnames={metric}{more}"
        return points(api.ok("GET", f"{NAMESPACE}/{METRICS}?{query}"))

    begin_s, end_s = now[0] - 210, now[0] + 30
    assert [one["average"] for one in asked("ActiveConnections", begin_s, end_s)] == [1, 3, 2, 7]
    assert [one["average"] for one in asked("ActiveConnections", begin_s, end_s - 120)] == [1, 3]
    assert [one["average"] for one in asked("ConnectionsOpened", begin_s, end_s)] == [1, 2, 0, 5]
    (whole,) = asked("ActiveConnections", begin_s, end_s, "&interval=FULL&aggregation=Maximum,Minimum,Average,Count")
    assert (whole["maximum"], whole["minimum"], whole["average"], whole["count"]) == (7, 1, 3.25, 4)
    (closed,) = asked("ConnectionsClosed", begin_s, end_s, "&interval=FULL&aggregation=Total")
    assert closed["total"] == 1
    # Connections are to the namespace, not to one of its hubs.
    assert "average" not in asked("ConnectionsOpened", begin_s, end_s, "&$filter=EntityName eq 'eh1'")[-1]


def test_captured_files_are_counted(api: Api, arm_server: Server) -> None:
    api.ok("PUT", f"{NAMESPACE}/eventhubs/captured", {"properties": {"partitionCount": 1}})
    arm_server.metrics.capture("captured", 7, 900)
    arm_server.metrics.capture("other", 1, 90)
    condition = "EntityName eq 'captured'"
    assert (total(api, "CapturedMessages", condition), total(api, "CapturedBytes", condition)) == (7, 900)
    partition = arm_server.namespace.event_hub("captured").partitions[0]
    store(arm_server, "captured", 5)
    assert total(api, "CaptureBacklog", condition) == 0
    partition.capture = cast("CaptureWriter", SimpleNamespace(keep_from=2))
    try:
        assert total(api, "CaptureBacklog", condition) == 3
    finally:
        partition.capture = None


@pytest.mark.slow
def test_the_hubs_with_most_come_first_if_that_is_asked_for(api: Api, arm_server: Server) -> None:
    for hub, count in (("few", 1), ("many", 9), ("some", 4)):
        api.ok("PUT", f"{NAMESPACE}/eventhubs/{hub}", {"properties": {"partitionCount": 1}})
        store(arm_server, hub, count)
    names = " or ".join(f"EntityName eq '{hub}'" for hub in ("few", "many", "some"))
    asked = f"{NAMESPACE}/{METRICS}?timespan={recent()}&metricnames=IncomingMessages&$filter={names}"

    def listed(more: str) -> list[str]:
        found = api.ok("GET", asked + more)["value"][0]["timeseries"]
        return [one["metadatavalues"][0]["value"] for one in found]

    assert listed("&orderby=Total desc&top=2") == ["many", "some"]
    assert listed("&orderby=sum asc") == ["few", "some", "many"]
    assert len(listed("&top=10")) == 3
    assert api.call("GET", f"{asked}&top=none").status == 400
    assert api.call("GET", f"{asked}&orderby=median desc").status == 400


def test_the_metrics_of_a_job_come_from_its_history(api: Api, arm_jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{JOBS}/measured"
    api.ok("PUT", path, JOB, version="2020-03-01")
    now = time.time() // 60 * 60
    rows = [(now - 60 + at, {"Input Events": 10.0 * at, "Watermark Delay": float(at)}) for at in range(60)]
    monkeypatch.setattr(arm_jobs, "history", lambda *_: rows)
    answer = api.ok("GET", f"{path}/{METRICS}?metricnames=InputEvents,OutputWatermarkDelaySeconds")
    assert sum(point.get("total", 0) for point in points(answer)) == 590
    assert [point["maximum"] for point in points(answer, 1) if "maximum" in point] == [59.0]
    hourly = api.ok("GET", f"{path}/{METRICS}?metricnames=InputEvents&interval=PT1H&aggregation=count")
    assert [point["count"] for point in points(hourly) if "count" in point] == [59]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("metricnames=Nonsense", "IncomingMessages"),
        ("interval=PT7M", "PT5M"),
        ("timespan=yesterday/today", "is not a time"),
        ("timespan=2026-01-01T00:00:00Z", "two times"),
        ("timespan=2020-01-01T00:00:00Z/2026-01-01T00:00:00Z", "longer interval"),
        ("aggregation=Median", "Average"),
    ],
)
def test_a_wrong_question_about_metrics_says_why(api: Api, query: str, said: str) -> None:
    answer = api.call("GET", f"{NAMESPACE}/{METRICS}?{query}")
    assert answer.status == 400
    assert said in answer.json["error"]["message"]


def test_every_metric_is_defined_with_its_dimension(api: Api) -> None:
    found = api.ok("GET", f"{NAMESPACE}/providers/Microsoft.Insights/metricDefinitions")["value"]
    assert {one["name"]["value"] for one in found} >= {"IncomingMessages", "OutgoingMessages"}
    assert found[0]["dimensions"] == [{"value": "EntityName", "localizedValue": "EntityName"}]
    assert api.call("GET", f"{NAMESPACE}x/{METRICS}").status == 404


def test_the_metrics_of_jobs_are_those_that_a_job_reports() -> None:
    names = {value for name, value in vars(job_metrics).items() if name.isupper() and isinstance(value, str)}
    assert {metric.source for metric in JOB_METRICS} <= names


def test_changes_are_in_the_activity_log(api: Api) -> None:
    begin = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    path = f"{NAMESPACE}/eventhubs/noted"
    api.ok("PUT", path, {"properties": {"partitionCount": 1}})
    values = "/subscriptions/s1/providers/Microsoft.Insights/eventtypes/management/values"
    (entry,) = api.ok("GET", f"{values}?$filter=eventTimestamp ge '{begin}' and resourceUri eq '{path}'")["value"]
    assert entry["operationName"]["value"] == "Microsoft.EventHub/namespaces/eventhubs/write"
    assert entry["status"]["value"] == "Succeeded"
    assert entry["caller"]
    assert api.ok("GET", f"{values}?$filter=eventTimestamp ge '2999-01-01T00:00:00Z'")["value"] == []


def test_the_activity_log_outlives_a_restart_and_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ActivityLog, "MOST", 5)
    file = tmp_path / "activity.jsonl"
    log = ActivityLog(file)
    for number in range(30):
        log.note("A/b/write", f"/subscriptions/s/resourceGroups/g/{number}", "PUT", "me", 200, str(number))
    with file.open("a", encoding="utf-8") as written:
        written.write('{"cut off')
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 11
    assert [one["correlationId"] for one in ActivityLog(file).entries()][:2] == ["29", "28"]


def test_a_provider_lists_its_operations(api: Api) -> None:
    names = [one["name"] for one in api.ok("GET", "/providers/Microsoft.EventHub/operations")["value"]]
    assert "Microsoft.EventHub/namespaces/eventhubs/write" in names
    jobs = api.ok("GET", "/providers/Microsoft.StreamAnalytics/operations", version="2020-03-01")["value"]
    assert jobs[0]["display"]["provider"] == "Microsoft.StreamAnalytics"
    assert api.call("GET", "/providers/Microsoft.Nothing/operations").status == 404


def test_a_script_has_a_default_definition(api: Api) -> None:
    api.ok("PUT", f"{JOBS}/scripted", JOB, version="2020-03-01")
    body = {
        "bindingType": "Microsoft.StreamAnalytics/JavascriptUdf",
        "bindingRetrievalProperties": {"script": "function add(a, b) { return a + b; }", "udfType": "Scalar"},
    }
    asked = f"{JOBS}/scripted/functions/add/retrieveDefaultDefinition"
    found = api.ok("POST", asked, body, version="2020-03-01")
    assert [one["dataType"] for one in found["properties"]["properties"]["inputs"]] == ["any", "any"]
    wrong = {**body, "bindingType": "Microsoft.MachineLearning/WebService"}
    assert api.call("POST", asked, wrong, version="2020-03-01").status == 400


@pytest.mark.slow
def test_an_exported_template_can_be_deployed_again(api: Api) -> None:
    hub, job = f"{NAMESPACE}/eventhubs/exported", f"{JOBS}/exported"
    api.ok("PUT", hub, {"properties": {"partitionCount": 2}})
    api.ok("PUT", f"{hub}/consumergroups/cg", {"properties": {"userMetadata": "x"}})
    query = {"name": "t", "properties": {"streamingUnits": 1, "query": "SELECT * INTO o FROM i"}}
    described = {**JOB, "tags": {"a": "b"}, "properties": {**JOB["properties"], "transformation": query}}
    api.ok("PUT", job, described, version="2020-03-01")
    template = api.ok("POST", f"{GROUP}/exportTemplate", {"resources": [hub, job]})["template"]
    by_name = {one["name"]: one for one in template["resources"]}
    assert by_name["emulatorNs1/exported"]["properties"]["partitionCount"] == 2
    assert "emulatorNs1/exported/cg" in by_name
    assert by_name["exported"]["tags"] == {"a": "b"}
    assert "SELECT * INTO o FROM i" in by_name["exported"]["properties"]["transformation"]["properties"]["query"]
    assert len(by_name) == 3
    api.ok("DELETE", hub)
    api.ok("DELETE", job, version="2020-03-01")
    for one in template["resources"]:
        if one["name"] == "emulatorNs1/exported":
            one.pop("dependsOn")  # the namespace is no part of this export
    deployment = {"properties": {"mode": "Incremental", "template": template}}
    api.ok("PUT", f"{GROUP}/providers/Microsoft.Resources/deployments/again", deployment)
    assert api.ok("GET", hub)["properties"]["partitionCount"] == 2
    assert api.ok("GET", job, version="2020-03-01")["tags"] == {"a": "b"}
