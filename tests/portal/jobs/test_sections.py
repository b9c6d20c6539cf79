"""Inputs, outputs and functions in the portal: changed by owners, their secrets never shown, sampled and tried."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.portal.conftest import CONFIG, Client
from tests.portal.jobs.test_pages import NEW
from tests.service.launchers import FakeLauncher
from tidegate.cli.job.managed import described as shown
from tidegate.durable_files import encode_checked
from tidegate.hub.access_rules import AccessRule, Right
from tidegate.hub.errors import ArgumentError, NotFound
from tidegate.portal import portal
from tidegate.portal.jobs.changes import Conflict
from tidegate.portal.jobs.sections import with_section
from tidegate.server import BackgroundServer, Server
from tidegate.service import JobDocument, Jobs

SECRET = "a-key-that-nobody-reads"
WEBHOOK = {
    "type": "webhook",
    "url": "https://hooks.example/a",
    "key": SECRET,
    "headers": {"Authorization": f"Bearer {SECRET}"},
}
HIDDEN = {**WEBHOOK, "key": None, "headers": {"Authorization": None}}


@pytest.fixture(scope="module")
def launcher() -> FakeLauncher:
    return FakeLauncher()


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, launcher: FakeLauncher) -> Iterator[Jobs]:
    with Jobs(tmp_path_factory.mktemp("jobs") / "service", launcher=lambda: launcher) as jobs:
        yield jobs


@pytest.fixture(scope="module")
def section_server(tmp_path_factory: pytest.TempPathFactory, jobs: Jobs) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("hub") / "data"
    with BackgroundServer(CONFIG, data, http_port=0, further_routes=[portal(jobs)]) as running:
        yield running.server


@pytest.fixture(scope="module")
def visitor(section_server: Server) -> Client:
    client = Client(section_server.http_port)
    assert client.post("/jobs", {"name": "edited", **NEW}).status == 200
    return client


def put(visitor: Client, path: str, settings: Any, **more: Any) -> Any:
    return visitor.post(f"/jobs/edited/{path}", {"settings": settings, **more})


@pytest.mark.slow
def test_an_output_is_added_changed_and_removed_without_showing_its_secrets(visitor: Client, jobs: Jobs) -> None:
    assert put(visitor, "outputs/hook", WEBHOOK).status == 200
    assert SECRET not in visitor.page("/jobs/edited").text + visitor.request("GET", "/jobs/edited.json").text
    (shown,) = [one for one in visitor.get("/jobs/edited.json")["outputs"] if one["name"] == "hook"]
    assert (shown["hidden"], shown["settings"]["url"]) == (["key"], WEBHOOK["url"])
    assert put(visitor, "outputs/HOOK", {**HIDDEN, "timeout_s": 7}).status == 200
    assert jobs.document("edited").definition["outputs"]["hook"] == {**WEBHOOK, "timeout_s": 7}
    moved = put(visitor, "outputs/hook", {**HIDDEN, "url": "https://elsewhere.example/"})
    assert moved.status == 400
    assert "enter key again" in moved.data["error"]["detail"]
    assert SECRET not in moved.text
    assert put(visitor, "outputs/hook", {**WEBHOOK, "key": "new", "url": "https://elsewhere.example/"}).status == 200
    assert visitor.post("/jobs/edited/outputs/hook/delete").status == 200
    assert visitor.post("/jobs/edited/outputs/hook/delete").status == 404
    assert "hook" not in jobs.document("edited").definition["outputs"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "settings", "status", "said"),
    [
        ("outputs/x", {"type": "nothing"}, 400, "nothing"),
        ("outputs/x", {"type": "webhook"}, 400, "url"),
        ("inputs/x", {"type": "recorded", "path": "/a", "pth": 1}, 400, "pth"),
        ("inputs/x", [], 400, "expected an object"),
        ("inputs/2 x", {"type": "recorded", "path": "/a"}, 400, "begins with a letter"),
        ("windows/x", {}, 404, "inputs, outputs, functions"),
        ("functions/x", {}, 400, "either 'module'"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(
    visitor: Client, path: str, settings: Any, status: int, said: str
) -> None:
    answer = put(visitor, path.replace(" ", "%20"), settings)
    assert (answer.status, said in answer.data["error"]["detail"]) == (status, True), answer.text


def test_a_change_does_not_undo_another_one(visitor: Client) -> None:
    etag = visitor.get("/jobs/edited.json")["etag"]
    assert put(visitor, "inputs/other", {"type": "recorded", "path": "/a"}, etag=etag).status == 200
    assert put(visitor, "inputs/other", {"type": "recorded", "path": "/b"}, etag=etag).status == 409


@pytest.mark.parametrize("path", ["outputs/output", "outputs/OUTPUT", "inputs/input"])
def test_a_new_section_replaces_none(visitor: Client, jobs: Jobs, path: str) -> None:
    before = jobs.document("edited").definition
    answer = put(visitor, path, {"type": "recorded", "path": "/a"}, isNew=True)
    assert (answer.status, "already" in answer.data["error"]["detail"]) == (409, True)
    assert jobs.document("edited").definition == before


def test_changes_need_an_owner(section_server: Server, visitor: Client) -> None:
    rule = AccessRule.create("section-contributor", [Right.LISTEN, Right.SEND])
    section_server.namespace.management.set_access_rule(rule)
    away = Client(section_server.http_port, host="hub.example")
    away.sign_in(rule.primary_key, rule.name)
    assert put(away, "outputs/hook", WEBHOOK).status == 403
    assert away.post("/jobs/edited/outputs/output/delete").status == 403
    assert "data-edit" not in away.page("/jobs/edited").text


def test_a_part_of_the_management_api_is_changed_there() -> None:
    document = JobDocument({"inputs": {"tolls": {"type": "eventhub"}}}, arm={"inputs": [{"name": "Tolls"}]})
    with pytest.raises(Conflict, match="management API"):
        with_section("inputs", "tolls", {"type": "recorded", "path": "/a"})(document)
    with pytest.raises(NotFound):
        with_section("outputs", "tolls", None)(document)


def test_a_secret_is_not_kept_by_another_type() -> None:
    document = JobDocument({"outputs": {"o": WEBHOOK}})
    with pytest.raises(ArgumentError, match="enter key again"):
        with_section("outputs", "o", {"type": "postgresql", "key": None})(document)


def test_the_form_knows_the_kinds_and_their_secrets(visitor: Client) -> None:
    kinds = visitor.get("/job-kinds.json")
    (webhook,) = [one for one in kinds["outputs"] if one["type"] == "webhook"]
    fields = {one["name"]: one for one in webhook["fields"]}
    assert (fields["url"]["isRequired"], fields["key"]["isSecret"], fields["url"]["isSecret"]) == (True, True, False)
    assert fields["timeout_s"]["form"] == "number"
    assert {one["name"] for one in kinds["functions"][0]["fields"]} >= {"script", "module"}


def test_functions_are_tried(visitor: Client) -> None:
    assert put(visitor, "functions/twice", {"script": "function main(a) { return a * 2 }"}).status == 200
    total = "function main() { this.init = () => { this.s = 0 }; this.accumulate = (v) => { this.s += v }; "
    total += "this.computeResult = () => this.s }"
    assert put(visitor, "functions/total", {"script": total, "aggregate": "main"}).status == 200
    tried = "/jobs/edited/functions/{}/try"
    assert visitor.post(tried.format("twice"), {"arguments": [21]}).data["result"] == 42
    assert visitor.post(tried.format("total"), {"arguments": [1, 2, 4]}).data["result"] == 7
    assert visitor.post(tried.format("nothing"), {"arguments": []}).status == 404
    assert visitor.post(tried.format("twice"), {"arguments": 5}).status == 400


def test_the_last_rows_of_an_output_are_its_sample(visitor: Client, launcher: FakeLauncher) -> None:
    sample = "/jobs/edited/outputs/OUTPUT/sample.json"
    assert visitor.get(sample) == {"rows": []}
    assert visitor.post("/jobs/edited/start", {"mode": ""}).status == 200
    launcher.last.run()
    launcher.last.events.measured({"families": [], "samples": {"output": ['{"a": 1}']}, "metrics": {"Input Events": 3}})
    launcher.last.events.measured({"families": [], "samples": {}, "metrics": {"Input Events": 3}})
    assert visitor.get(sample) == {"rows": ['{"a": 1}']}
    assert visitor.get("/jobs/edited/monitor.json")["metrics"] == {"Input Events": 3}
    assert visitor.get("/jobs/edited/metrics.json?range=5m")["rates"] == {"Input Events": [None]}
    assert visitor.request("GET", "/jobs/edited/outputs/nothing/sample.json").status == 404


def test_the_page_says_where_the_job_runs(visitor: Client, jobs: Jobs, launcher: FakeLauncher) -> None:
    assert visitor.post("/jobs", {"name": "placed", **NEW}).status == 200
    assert visitor.post("/jobs/placed/start", {"mode": ""}).status == 200
    launcher.last.run()
    assert visitor.get("/jobs/placed.json")["placement"] is None
    place = {"where": "spark", "master": "local[2]", "shards": 2, "since": "2026-01-01T00:00:00Z", "why": "it is large"}
    content = {"updated": "2026-01-01T00:00:01Z", "timelines": [], "placement": {**place, "moves": 1, "losses": 0}}
    status = jobs.state_folder("placed") / "status.json"
    status.parent.mkdir(exist_ok=True)
    status.write_bytes(encode_checked(content))
    page = visitor.page("/jobs/placed").text
    assert "on Spark, local[2]" in page
    assert "it is large, 2 shards" in page
    shared = {**content, "placement": {**content["placement"], "shared": True}}
    status.write_bytes(encode_checked(shared))
    assert "on the Spark that jobs share, local[2]" in visitor.page("/jobs/placed").text
    assert "on the Spark that jobs share (local[2], shards: 2)" in visitor.page("/jobs/placed/monitor").text
    child = {**content["placement"], "where": "process", "master": None, "child": True}
    status.write_bytes(encode_checked({**content, "placement": child}))
    assert "runs in a child of its process: it is large" in visitor.page("/jobs/placed").text
    assert "Runs in a child of its process since" in visitor.page("/jobs/placed/monitor").text
    assert shown(visitor.get("/jobs/placed.json"), "table")["placement"].startswith("a child of its process since")


def test_a_page_shows_a_job_with_functions(visitor: Client) -> None:
    assert put(visitor, "functions/twice", {"script": "function main(a) { return a * 2 }"}).status == 200
    page = visitor.page("/jobs/edited")
    assert (page.status, "function main(a)" in page.text) == (200, True)
