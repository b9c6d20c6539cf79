"""`testQuery`, `sampleInput`, `testInput` and `testOutput`: asynchronous, and their results where the caller says."""

from __future__ import annotations

import json
import os
import ssl
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubProducerClient

from tests.azure.management.conftest import NAMESPACE, Answer, Api
from tests.azure.management.test_stream_analytics import INPUT, JSON, OUTPUT, hub
from tests.patience import PATIENCE_S, eventually
from tidegate.azure.management import PrincipalRole
from tidegate.azure.management.access.requests import ArmError, ArmRequest
from tidegate.azure.management.stream_analytics import engine_questions
from tidegate.azure.management.stream_analytics.background import (
    AT_ONCE,
    KEPT_S,
    MOST_WAITING,
    Background,
    OperationResult,
)
from tidegate.azure.management.stream_analytics.engine_questions import NoAnswer, asked
from tidegate.azure.management.stream_analytics.trials import checked_uri, read_blob, within, write_blob
from tidegate.server import Server
from tidegate.service.questions import ProblemKind, Workbench

pytestmark = pytest.mark.slow

LOCATION = "/subscriptions/s/providers/Microsoft.StreamAnalytics/locations/West Europe"
VERSION = "2021-10-01-preview"
QUERY = "SELECT COUNT(*) AS n INTO counted FROM tolls TIMESTAMP BY t GROUP BY TumblingWindow(second, 10)"
EVENTS = "\n".join(
    json.dumps({"t": f"2026-01-01T00:00:{second:02d}Z", "booth": second % 2, "EventEnqueuedUtcTime": arrival})
    for second, arrival in ((1, "2026-01-01T00:00:01Z"), (2, "2026-01-01T00:00:02Z"), (3, "2026-01-01T00:00:50Z"))
)


def raw(name: str, kind: str = "Stream", **settings: str) -> dict[str, Any]:
    datasource = {"type": "Raw", "properties": settings}
    return {"name": name, "properties": {"type": kind, "datasource": datasource, "serialization": JSON}}


def job(query: str, *inputs: Any, outputs: Any = (), **properties: Any) -> dict[str, Any]:
    transformation = {"name": "main", "properties": {"query": query, "streamingUnits": 1}}
    described = {"inputs": inputs, "outputs": outputs, "transformation": transformation, **properties}
    return {"streamingJob": {"location": "West Europe", "properties": described}}


def post(api: Api, operation: str, body: Any) -> Answer:
    return api.call("POST", f"{LOCATION}/{operation}", body, version=VERSION)


def result(api: Api, operation: str, body: Any) -> Any:
    """Return the result of an operation as a client gets it: it polls the address of the first answer."""
    started = post(api, operation, body)
    assert (started.status, started.json) == (202, {"status": "Started"}), started.content
    assert started.headers["Retry-After"] == "1"
    target = started.headers["Location"].removeprefix(api.base_url)
    answers: list[Answer] = []

    def done() -> bool:
        answers.append(api.send("GET", target, Authorization=f"Bearer {api.token}"))
        return answers[-1].status != 202

    eventually(done)
    assert answers[-1].status == 200, answers[-1].content
    return answers[-1].json


def downloaded(api: Api, address: str) -> Any:
    context = ssl.create_default_context(cafile=api.ca_file)
    with urllib.request.urlopen(address, timeout=PATIENCE_S, context=context) as answer:
        return json.load(answer)


class Container:
    """A container of blobs: GET and PUT, with a signature."""

    def __init__(self) -> None:
        container = self
        self.blobs: dict[str, bytes] = {}
        self.kinds: set[str | None] = set()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(container.blobs.get(self.path.partition("?")[0]))

            def do_PUT(self) -> None:
                container.kinds.add(self.headers["x-ms-blob-type"])
                content = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path.endswith("?sig=abc"):
                    container.blobs[self.path.partition("?")[0]] = content
                self._answer(b"" if self.path.endswith("?sig=abc") else None)

            def _answer(self, content: bytes | None) -> None:
                self.send_response(403 if content is None else 200)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, format: str, *arguments: Any) -> None:
                """Be quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def uri(self, path: str, signature: str = "abc") -> str:
        return f"http://127.0.0.1:{self.server.server_port}{path}?sig={signature}"


@pytest.fixture
def container() -> Iterator[Container]:
    made = Container()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def test_a_query_is_tested_under_its_policy_and_its_rows_are_downloaded_without_a_token(api: Api) -> None:
    policy = {"eventsLateArrivalMaxDelayInSeconds": 5, "eventsOutOfOrderPolicy": "Drop"}
    found = result(api, "testQuery", job(QUERY, raw("tolls", payload=EVENTS), **policy))
    assert found["status"] == "Success"
    assert downloaded(api, found["outputUri"]) == {"counted": [{"n": 2}]}
    forged = found["outputUri"].removeprefix(api.base_url).partition("&sig=")[0]
    assert Api(api.server, "").send("GET", f"{forged}&sig=x").status == 403
    assert Api(api.server, "").send("GET", forged.replace("/payload", "")).status == 401


def test_inputs_are_read_from_blobs_and_rows_are_written_to_blobs(api: Api, container: Container) -> None:
    container.blobs["/in/tolls.json"] = EVENTS.encode()
    names = json.dumps([{"booth": 0, "name": "east"}, {"booth": 1, "name": "north"}])
    query = "SELECT names.name INTO named FROM tolls TIMESTAMP BY t JOIN names ON names.booth = tolls.booth"
    inputs = [raw("tolls", payloadUri=container.uri("/in/tolls.json")), raw("names", "Reference", payload=names)]
    target = raw("named", payloadUri=container.uri("/out/named.json"))["properties"]["datasource"]
    outputs = [{"name": "named", "properties": {"datasource": target}}]
    diagnostics = {"writeUri": container.uri("/out"), "path": "run/1"}
    body = {**job(query, *inputs, outputs=outputs), "diagnostics": diagnostics}
    assert result(api, "testQuery", body)["status"] == "Success"
    rows = [{"name": "north"}, {"name": "east"}, {"name": "north"}]
    assert (
        json.loads(container.blobs["/out/named.json"]) == json.loads(container.blobs["/out/run/1/named.json"]) == rows
    )
    told = json.loads(container.blobs["/out/run/1/diagnostics.json"])
    assert (told["rows"], told["events"]) == ({"named": 3}, {"tolls": 3})
    assert container.kinds == {"BlockBlob"}


def test_a_query_that_does_not_compile_says_where(api: Api) -> None:
    found = result(api, "testQuery", job("SELECT COUNT( INTO counted FROM tolls", raw("tolls", payload=EVENTS)))
    assert found["status"] == "CompilerError"
    assert "line 1" in found["error"]["message"]


def test_rows_that_cannot_be_written_say_so_without_the_signature(api: Api, container: Container) -> None:
    body = {**job(QUERY, raw("tolls", payloadUri=container.uri("/in/nothing", "secret"))), "diagnostics": None}
    found = result(api, "testQuery", body)
    assert (found["status"], found["error"]["code"]) == ("RuntimeError", "BlobRefused")
    assert "403" in found["error"]["message"]
    assert "secret" not in json.dumps(found)


def test_events_of_a_live_input_are_sampled_and_test_the_query_again(api: Api) -> None:
    keys = api.ok("POST", f"{NAMESPACE}/authorizationRules/RootManageSharedAccessKey/listKeys", {})
    with EventHubProducerClient.from_connection_string(
        keys["primaryConnectionString"], eventhub_name="eh1"
    ) as producer:
        producer.send_batch([EventData('{"t": "2026-01-01T00:00:01Z", "sampled": 1}')], partition_id="1")
    found = result(api, "sampleInput", {"input": {"name": "tolls", **INPUT}, "compatibilityLevel": "1.2"})
    assert found["status"] == "ReadAllEventsInRange", found
    assert found["diagnostics"] == ["Partition 0 has no events."]
    (event,) = downloaded(api, found["eventsDownloadUrl"])
    assert (event["sampled"], event["PartitionId"]) == (1, 1)
    assert found["lastArrivalTime"][:16] == event["EventEnqueuedUtcTime"][:16]
    sample = raw("tolls", payload=json.dumps([event]))
    tested = result(api, "testQuery", job("SELECT sampled INTO a FROM tolls", sample))
    assert downloaded(api, tested["outputUri"]) == {"a": [{"sampled": 1}]}


def test_an_input_that_cannot_be_reached_or_has_no_events(api: Api, container: Container) -> None:
    nowhere = {"properties": {**INPUT["properties"], "datasource": hub("no-such-hub")}}
    missing = result(api, "sampleInput", {"input": nowhere})
    assert missing["status"] == "ErrorConnectingToInput"
    assert "no-such-hub" in missing["error"]["message"]
    empty = result(api, "sampleInput", {"input": raw("tolls", payload=""), "eventsUri": container.uri("/empty")})
    assert (empty["status"], container.blobs["/empty"]) == ("NoEventsFoundInRange", b"[]")


def test_whether_an_input_or_output_outside_of_a_job_can_be_reached(api: Api) -> None:
    assert result(api, "testInput", {"input": {"name": "tolls", **INPUT}}) == {"status": "TestSucceeded"}
    assert result(api, "testOutput", {"output": {"name": "counted", **OUTPUT}}) == {"status": "TestSucceeded"}
    nowhere = {"properties": {**OUTPUT["properties"], "datasource": hub("no-such-hub")}}
    failed = result(api, "testOutput", {"output": nowhere})
    assert failed["status"] == "TestFailed"
    assert "no-such-hub" in failed["error"]["message"]


@pytest.mark.parametrize(
    ("operation", "body", "said"),
    [
        ("testQuery", {}, "streamingJob"),
        ("testQuery", job("", raw("a", payload="")), "query is missing"),
        ("testQuery", job(QUERY), "inputs is empty"),
        ("testQuery", job(QUERY, raw("tolls")), "either payload or payloadUri"),
        ("testQuery", job(QUERY, raw("tolls", payloadUri="file:///etc/passwd")), "payloadUri"),
        ("testQuery", {**job(QUERY, raw("a", payload="")), "diagnostics": {"writeUri": "x"}}, "diagnostics.writeUri"),
        ("testQuery", job(QUERY, {"name": "a", "properties": {"type": "Stream"}}), "no type"),
        ("sampleInput", {"input": raw("a", "Reference", payload="")}, "Stream"),
        ("sampleInput", {"input": {"name": "a]b", **INPUT}}, "input.name"),
        ("sampleInput", {"input": {"name": "a", **INPUT}, "eventsUri": "ftp://x/y"}, "eventsUri"),
        ("testInput", {}, "input"),
        ("testOutput", {"output": {"name": "a"}}, "no type"),
    ],
)
def test_a_request_that_is_wrong_is_refused_at_once(api: Api, operation: str, body: Any, said: str) -> None:
    answer = post(api, operation, body)
    assert answer.status == 400, answer.content
    assert said in answer.json["error"]["message"]


@pytest.mark.parametrize("operation", ["testQuery", "sampleInput", "testInput", "testOutput"])
def test_a_reader_may_test_nothing(api_of: Callable[[PrincipalRole], Api], operation: str) -> None:
    assert post(api_of(PrincipalRole.READER), operation, {}).status == 403
    assert post(api_of(PrincipalRole.CONTRIBUTOR), operation, {}).status == 400


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"])
def test_a_sample_is_never_read_from_this_servers_own_pages(api: Api, arm_server: Server, host: str) -> None:
    """On loopback a visitor of the portal needs no key."""
    address = f"http://{host}:{arm_server.http_port}/.json"
    found = result(api, "sampleInput", {"input": raw("tolls", payloadUri=address)})
    assert found["status"] == "ErrorConnectingToInput"
    assert "for its owner" in str(found)
    asked_for = job(QUERY, raw("tolls", payload=EVENTS), outputs=[raw("counted", payloadUri=address)])
    found = result(api, "testQuery", asked_for)
    assert "for its owner" in str(found)


@pytest.mark.parametrize("host", ["169.254.169.254", "[fd00:ec2::254]", "[::ffff:a9fe:a9fe]", "169.254.1.1"])
def test_no_sample_is_read_where_a_cloud_keeps_credentials(api: Api, host: str) -> None:
    found = result(api, "sampleInput", {"input": raw("tolls", payloadUri=f"http://{host}/latest/meta-data")})
    assert found["status"] == "ErrorConnectingToInput"
    assert "connections there are refused" in str(found)
    target = {"connectionString": f"Endpoint=sb://{host}", "serviceBusNamespace": host.strip("[]"), "eventHubName": "h"}
    keys = {"sharedAccessPolicyName": "p", "sharedAccessPolicyKey": "azE="}
    datasource = {"type": "Microsoft.ServiceBus/EventHub", "properties": {**target, **keys}}
    part = {"name": "i", "properties": {"type": "Stream", "datasource": datasource, "serialization": JSON}}
    assert result(api, "testInput", {"input": part})["status"] == "TestFailed"


def test_a_result_is_kept_for_a_while_and_few_wait() -> None:
    now_s = [0.0]
    background = Background(lambda: now_s[0])
    (show, _) = background.operations()
    asking = ArmRequest("POST", "/x", {"subscription": "s", "location": "l"}, {"api-version": VERSION})
    release = threading.Event()

    def work() -> OperationResult:
        release.wait(PATIENCE_S)
        return OperationResult({"status": "Success"})

    def shown(address: str) -> int:
        name = address.rpartition("/")[2].partition("?")[0]
        return show.act(ArmRequest("GET", "/x", {"operation": name}, {"api-version": VERSION})).status

    addresses = [background.start(asking, work).headers["Location"] for _ in range(MOST_WAITING)]
    assert len(addresses) > AT_ONCE
    with pytest.raises(ArmError) as refused:
        background.start(asking, work)
    assert refused.value.status == 429
    assert shown(addresses[0]) == 202
    release.set()
    eventually(lambda: all(shown(address) == 200 for address in addresses))
    now_s[0] = KEPT_S + 1
    background.start(asking, work)
    with pytest.raises(ArmError, match="no longer"):
        shown(addresses[0])


def test_a_question_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(NoAnswer) as given_up:
        asked({"ask": "words"}, timeout_s=0.01)
    assert given_up.value.kind is ProblemKind.TIMEOUT


def test_addresses_of_blobs(container: Container) -> None:
    assert within("https://a.example/c?sig=1", "run 1", "", "x.json") == "https://a.example/c/run%201/x.json?sig=1"
    for wrong in ("", "x", "https://", "ftp://a/b", "https://a b/c", "http://a:x/b"):
        with pytest.raises(ArmError, match="signature"):
            checked_uri(wrong, "eventsUri")
    write_blob(container.uri("/a"), b"content")
    assert read_blob(container.uri("/a")) == b"content"
    with pytest.raises(ArmError, match=r"cannot reach 127\.0\.0\.1:1/"):
        read_blob("http://127.0.0.1:1/a?sig=x")


def test_each_question_has_a_process_of_its_own_which_ends_with_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere in these tests one process answers all of them (conftest.py)."""
    processes: list[int] = []

    class Watched(Workbench):
        def close(self) -> None:
            assert self.pid is not None
            processes.append(self.pid)
            super().close()

    monkeypatch.setattr(engine_questions, "Workbench", Watched)
    for _ in range(2):
        assert asked({"ask": "words"})
    assert len({*processes}) == 2
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
