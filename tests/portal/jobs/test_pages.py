"""Jobs over HTTP: created, started, changed, tested and deleted, with the right role and without their secrets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.portal.conftest import CONFIG, KEY, Client
from tests.service.launchers import FakeLauncher
from tidegate.amqp.messages import Message, encode_message
from tidegate.hub.access_rules import AccessRule, Right
from tidegate.portal import portal
from tidegate.server import BackgroundServer, Server
from tidegate.service import Jobs
from tidegate.service.supervision import Exit, ExitKind

QUERY = "SELECT * INTO output FROM input"
NEW = {"inputName": "input", "inputHub": "eh1", "outputName": "output", "outputHub": "telemetry", "query": QUERY}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="module")
def launcher() -> FakeLauncher:
    return FakeLauncher()


@pytest.fixture(scope="module")
def job_server(folder: Path, launcher: FakeLauncher) -> Iterator[Server]:
    """Return a server whose jobs run in no real processes."""
    jobs = Jobs(folder / "service", launcher=lambda: launcher)
    with BackgroundServer(CONFIG, folder / "data", http_port=0, further_routes=[portal(jobs)]) as running:
        jobs.open()
        yield running.server
        jobs.close()


@pytest.fixture
def visitor(job_server: Server) -> Client:
    return Client(job_server.http_port)


@pytest.fixture
def job(visitor: Client, request: pytest.FixtureRequest) -> str:
    """Return the path of a new job."""
    name = request.node.name.partition("[")[0][:60]
    if visitor.request("GET", f"/jobs/{name}.json").status == 404:
        answer = visitor.post("/jobs", {"name": name, **NEW})
        assert answer.status == 200, answer.text
    return f"/jobs/{name}"


PAGES = ("", "/event-ordering", "/monitor", "/diagram", "/logs")


def test_how_a_job_is_can_be_followed(visitor: Client, job: str) -> None:
    assert visitor.get(f"{job}/state.json") == {
        "state": "Created",
        "reason": None,
        "isFailing": False,
        "canStart": True,
        "canStop": False,
    }
    visitor.post(f"{job}/start", {"mode": ""})
    started = visitor.get(f"{job}/state.json")
    assert (started["state"], started["canStart"], started["canStop"]) == ("Starting", False, True)


def test_only_the_reason_of_a_failure_is_shown_as_one(visitor: Client, launcher: FakeLauncher, job: str) -> None:
    visitor.post(f"{job}/start", {"mode": ""})
    process = launcher.last
    process.run()
    process.obedient = False
    assert visitor.post(f"{job}/query", {"query": "SELECT a INTO output FROM input"}).status == 200
    restarting = visitor.get(f"{job}/state.json")
    assert (restarting["reason"], restarting["isFailing"]) == ("started again with the changed definition", False)
    assert '<p class="said" id="reason"' in visitor.page(job).text
    process.events.ended(Exit(ExitKind.ASKED, ""))
    launcher.last.events.ended(Exit(ExitKind.FATAL, "there is no table t"))
    failed = visitor.get(f"{job}/state.json")
    assert (failed["reason"], failed["isFailing"]) == ("there is no table t", True)
    assert '<p class="problem" id="reason"' in visitor.page(job).text


@pytest.mark.slow
@pytest.mark.parametrize("suffix", PAGES)
def test_every_page_is_there_as_html_and_json_without_a_secret(visitor: Client, job: str, suffix: str) -> None:
    page = visitor.page(job + suffix)
    assert page.status == 200
    data = visitor.request("GET", f"{job}{suffix}.json")
    assert data.data["state"] == "Created"
    assert KEY not in page.text + data.text
    assert "(hidden)" in data.text


@pytest.mark.parametrize("name", ["new", "words", "kinds"])
def test_a_job_has_its_page_whatever_its_name_is(visitor: Client, job: str, name: str) -> None:
    assert visitor.post(f"{job}/clone", {"name": name}).status == 200
    assert f"<h1>{name} <" in visitor.page(f"/jobs/{name}").text
    assert visitor.get(f"/jobs/{name}.json")["name"] == name


def test_a_job_is_started_and_stopped(visitor: Client, job: str) -> None:
    assert visitor.post(f"{job}/start", {"mode": "CustomTime", "time": "2026-01-31T12:00:00"}).status == 200
    shown = visitor.get(f"{job}.json")
    assert (shown["state"], shown["startMode"], shown["canStop"]) == ("Starting", "CustomTime", True)
    assert shown["outputStartTime"] == "2026-01-31T12:00:00.000Z"
    assert visitor.post(f"{job}/start", {"mode": ""}).status == 409
    assert visitor.post(f"{job}/stop").status == 200
    assert visitor.get(f"{job}.json")["state"] == "Stopped"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"mode": "Sometime"}, "expected JobStartTime"),
        ({"mode": "CustomTime", "time": ""}, "expected a time"),
        ({"mode": 5}, "expected a text"),
    ],
)
def test_a_start_that_makes_no_sense_is_refused(visitor: Client, job: str, body: object, said: str) -> None:
    answer = visitor.post(f"{job}/start", body)
    assert answer.status == 400
    assert said in answer.data["error"]["detail"]


def test_a_query_is_saved_unless_somebody_else_was_first(visitor: Client, job: str) -> None:
    etag = visitor.get(f"{job}.json")["etag"]
    saved = visitor.post(f"{job}/query", {"query": "SELECT a INTO output FROM input", "etag": etag})
    assert saved.status == 200
    assert visitor.get(f"{job}.json")["query"] == "SELECT a INTO output FROM input"
    answer = visitor.post(f"{job}/query", {"query": "SELECT b INTO output FROM input", "etag": etag})
    assert answer.status == 409
    assert visitor.post(f"{job}/query", {"query": "  "}).status == 400


def test_tolerances_are_saved_within_their_limits(visitor: Client, job: str) -> None:
    body = {"lateArrivalToleranceS": 20, "outOfOrderToleranceS": 7, "action": "drop"}
    assert visitor.post(f"{job}/ordering", body).status == 200
    ordering = visitor.get(f"{job}.json")["eventOrdering"]
    assert (ordering["late_arrival_tolerance_s"], ordering["out_of_order_tolerance_s"]) == (20, 7)
    assert (ordering["action"], ordering["early_arrival_tolerance_s"]) == ("drop", 300)
    for wrong in ({"lateArrivalToleranceS": -2}, {"outOfOrderToleranceS": 601}, {"action": "keep"}):
        assert visitor.post(f"{job}/ordering", {**body, **wrong}).status == 400


def test_a_job_is_deleted_by_its_name(visitor: Client, job: str) -> None:
    assert visitor.post(f"{job}/delete", {"confirm": "another"}).status == 400
    assert visitor.post(f"{job}/delete", {"confirm": job.rpartition("/")[2]}).status == 200
    assert visitor.page(job).status == 404


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "bad/name"}, "a job's name has letters"),
        ({"inputHub": "nowhere"}, "could not be found"),
        ({"outputPath": "/data/results.jsonl"}, "or the path of a file"),
        ({"outputHub": "", "outputPath": "results.jsonl"}, "is absolute"),
    ],
)
def test_a_job_that_cannot_be_created_says_why(visitor: Client, changes: dict[str, str], said: str) -> None:
    answer = visitor.post("/jobs", {"name": "made", **NEW, **changes})
    assert 400 <= answer.status < 500
    assert said in answer.data["error"]["detail"]


def test_a_job_may_begin_with_a_name_alone(visitor: Client) -> None:
    answer = visitor.post("/jobs", {"name": "bare", "query": ""})
    assert answer.status == 200, answer.text
    shown = visitor.get("/jobs/bare.json")
    assert (shown["inputs"], shown["outputs"]) == ([], [])
    assert "needs an input and an output" in visitor.page("/jobs/bare").text


def test_a_job_that_runs_without_an_output_is_not_said_to_need_one(visitor: Client, job: str) -> None:
    assert visitor.post(f"{job}/outputs/output/delete").status == 200
    assert "This job has no output yet" in visitor.page(job).text
    visitor.post(f"{job}/start", {"mode": ""})
    assert "This job has no output yet" not in visitor.page(job).text


def test_a_clone_has_the_inputs_outputs_and_query_and_does_not_run(visitor: Client, job: str) -> None:
    answer = visitor.post(f"{job}/clone", {"name": f"{job.rpartition('/')[2]}-copy"})
    assert answer.status == 200, answer.text
    first, second = visitor.get(f"{job}.json"), visitor.get(f"/jobs/{answer.data['name']}.json")
    assert [second[key] for key in ("inputs", "outputs", "query")] == [
        first[key] for key in ("inputs", "outputs", "query")
    ]
    assert second["state"] == "Created"
    assert visitor.post(f"{job}/clone", {"name": answer.data["name"]}).status == 409


def test_the_overview_counts_the_jobs(visitor: Client, job: str) -> None:
    name = job.rpartition("/")[2]
    shown = visitor.get(f"/.json?search={name}")
    assert [(row["name"], row["state"]) for row in shown["jobs"]] == [(name, "Created")]
    assert f'href="{job}"' in visitor.page(f"/?search={name}").text


def test_roles_decide_what_may_be_done(job_server: Server, job: str) -> None:
    for role, rights in (("reader", [Right.LISTEN]), ("contributor", [Right.LISTEN, Right.SEND])):
        rule = AccessRule.create(f"job-{role}", rights)
        job_server.namespace.management.set_access_rule(rule)
        away = Client(job_server.http_port, host="hub.example")
        away.sign_in(rule.primary_key, rule.name)
        may_start = away.post(f"{job}/query", {"query": QUERY}).status
        assert may_start == (200 if role == "contributor" else 403)
        assert away.post(f"{job}/delete", {"confirm": job.rpartition("/")[2]}).status == 403
        assert away.post("/jobs", {"name": "x", **NEW}).status == 403
        assert away.page(job).status == 200


@pytest.mark.slow
def test_a_hundred_jobs_are_shown_a_page_at_a_time(visitor: Client) -> None:
    for number in range(100):
        visitor.post("/jobs", {"name": f"many-{number:03d}", **NEW})
    page = visitor.get("/.json?search=many-")
    assert (page["jobPage"]["rows"], len(page["jobs"])) == (100, 25)


def test_the_sample_job_reads_the_sample_hub_and_starts(visitor: Client) -> None:
    visitor.post("/samples")
    made = visitor.post("/samples/job")
    assert made.status == 200, made.text
    shown = visitor.get(f"/jobs/{made.data['name']}.json")
    assert [one["place"]["hub"] for one in (*shown["inputs"], *shown["outputs"])] == ["tolls", "toll-stats"]
    assert shown["state"] == "Starting"
    assert visitor.post("/samples/job").status == 409


def test_errors_are_found_by_their_kind_and_by_words_and_followers_get_new_lines_only(
    visitor: Client, job: str, folder: Path
) -> None:
    (state,) = (folder / "service").glob(f"**/{job.rpartition('/')[2]}*/")
    (state / "state").mkdir(exist_ok=True)
    record = {"Source": "input", "BriefMessage": "the time is missing", "EventCount": 3}
    example = {"partition": "1", "sequenceNumber": 7, "body": "{}"}
    records = [
        {**record, "DataErrorType": "LateInputEvent", "ExampleEvents": [example]},
        {**record, "DataErrorType": "InvalidTime", "Source": "output"},
    ]
    text = "".join(json.dumps(one) + "\n" for one in records)
    (state / "state" / "data-errors.jsonl").write_text(text, encoding="utf-8")
    shown = visitor.get(f"{job}/logs.json")
    assert [(one["kind"], one["count"]) for one in shown["errors"]] == [("InvalidTime", 3), ("LateInputEvent", 3)]
    assert shown["errors"][1]["examples"][0]["link"] == "/eventhubs/eh1/explorer?partition=1&from=sequence&value=7"
    for query in ("kind=LateInputEvent", "find=INPUT", "kind=LateInputEvent&find=missing"):
        found = visitor.get(f"{job}/logs.json?{query}")
        assert [one["kind"] for one in found["errors"]] == ["LateInputEvent"]
        assert found["errorKinds"] == ["InvalidTime", "LateInputEvent"]
    assert "No error matches" in visitor.page(f"{job}/logs?find=nothing").text
    assert set(visitor.get(f"{job}/logs.json?after=0")) == {"lines", "next"}
    assert visitor.page(f"{job}/logs?after=0").status == 200


def test_partitions_and_sparklines_have_what_was_measured(visitor: Client, job: str) -> None:
    found = visitor.get(f"{job}/partitions.json?range=24h&after=5")
    assert (found["times"], found["delays"], found["resolution"]) == ([], {}, 60)
    assert visitor.request("GET", f"{job}/partitions.json?range=2y").status == 404
    name = job.rpartition("/")[2]
    assert visitor.get(f"/sparklines.json?search={name}")["jobs"] == {name: []}


def test_a_message_of_protobuf_is_decoded_in_the_explorer(visitor: Client, job_server: Server) -> None:
    text = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message Car { string plate = 1; }'
    body = {"group": "default", "subject": "cars-value", "format": "PROTOBUF", "schema": text}
    assert visitor.post("/schemas/register", body).status == 200
    (row,) = [one for one in visitor.get("/schemas.json")["subjects"] if one["subject"] == "cars-value"]
    framed = b"\0" + row["latestId"].to_bytes(4, "big") + b"\0" + b"\n\x03a-1"
    version = job_server.namespace.schema_registry.with_id(row["latestId"])[0]
    header = b"\1" + version.content_id.bytes + b"\0"
    stored = threading.Event()
    events = [
        Message(body_kind="data", body=[framed]),
        Message(application_properties={"__value_schema_id": header}, body_kind="data", body=[b"\n\x03a-2"]),
    ]
    log = job_server.namespace.event_hub("telemetry").partitions[3].log
    number = log.next_sequence_number
    log.append([encode_message(event) for event in events], lambda *_: stored.set())
    assert stored.wait(PATIENCE_S)
    in_header = visitor.get(f"/eventhubs/telemetry/events/3/{number + 1}/decoded.json")
    assert (in_header["records"], in_header["count"]) == ([{"plate": "a-2"}], 1)
    found = visitor.get(f"/eventhubs/telemetry/events/3/{number}/decoded.json")
    assert (found["records"], found["count"]) == ([{"plate": "a-1"}], 1)
    assert found["schema"].startswith("cars-value version 1")
