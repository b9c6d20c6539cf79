"""Every page in a real browser: its main task, no console errors, no axe-core findings, two widths.

The pictures stay in the folder that TIDEGATE_PICTURES names, for somebody to look at.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.patience import PATIENCE_S
from tests.portal.conftest import KEY, Client
from tests.profiles import SOAK
from tests.programs import program
from tidegate.amqp.messages import Message, encode_message
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.portal import portal
from tidegate.portal.events.placeholders import SAMPLES
from tidegate.server import BackgroundServer, Server
from tidegate.service import JobDocument, Jobs

BROWSER = Path(__file__).parent / "browser"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
LONGEST_S = 420
HUB_PAGES = (
    "overview",
    "send-and-browse",
    "follow-a-generator",
    "send-by-keyboard",
    "browse-from-positions",
    "hub",
    "namespace",
    "delete",
    "missing",
    "sign-in",
)
JOB_PAGES = (
    "new-job",
    "edit-and-test",
    "edit-sections",
    "start",
    "event-ordering",
    "monitor",
    "output-sample",
    "diagram",
    "logs",
    "jobs-in-overview",
    "stop-and-delete",
)
HOSTILE_PAGES = (
    "narrow",
    "odd-events",
    "wide-hub",
    "empty-hub",
    "hub-goes-away",
    "two-tabs",
    "columns-during-a-search",
    "stale-settings",
    "stale-capture",
    "settings-beyond-the-form",
    "a-name-that-is-taken",
    "stale-tags",
    "a-name-ending-in-json",
    "many-outputs",
    "job-that-fails",
    "avro-events",
    "by-keyboard",
)
ATTACK = "<img src=x onerror='globalThis.harmed = 1; alert(1)'>"
ODD_EVENTS: tuple[dict[str, Any], ...] = (
    {"body": ATTACK, "partitionKey": ATTACK, "properties": [{"name": ATTACK, "type": "text", "value": ATTACK}]},
    {"body": json.dumps({ATTACK: [f"</script>{ATTACK}", None, 1e400]})},
    {"body": "no JSON: {" + "x" * 5000},
    {"body": json.dumps([{"reading": at, "unit": "°C"} for at in range(26_500)])},
    {"body": "{}", "properties": [{"name": "n" * 500, "type": "text", "value": "v" * 5000}]},
    {"body": '{"a":' * 90 + "1" + "}" * 90},
)


def visit(script: str, port: int | None, pictures: Path, **more: str) -> dict[str, Any]:
    """Run all scenarios of a script in one browser, and return what went wrong in each.

    What a script says of itself, such as how many clicks it took, is in the file of its name beside the pictures.
    """
    chromium = program(*CHROMIUM)
    pictures = Path(os.environ.get("TIDEGATE_PICTURES") or pictures).absolute()
    pictures.mkdir(exist_ok=True)
    settings = {
        "url": f"http://127.0.0.1:{port}",
        "away": f"http://portal.test:{port}",
        "key": KEY,
        "chromiumPath": chromium,
        "pictures": str(pictures),
        "keepsPictures": "TIDEGATE_PICTURES" in os.environ,
        "isSoak": SOAK > 1,
        **more,
    }
    done = subprocess.run(
        [program("node"), script, json.dumps(settings)],
        cwd=BROWSER,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )
    assert done.returncode == 0, done.stderr
    (pictures / f"{script}.txt").write_text(done.stderr, encoding="utf-8")
    return {one["name"]: one["problems"] for one in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def hub_pages(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return visit("hub_pages.mjs", server.http_port, tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def job_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a server with jobs, and with toll booths that send."""
    folder = tmp_path_factory.mktemp("jobs")
    hubs = (EventHubConfig(name="tolls", partition_count=2), EventHubConfig(name="results"))
    jobs = Jobs(folder / "service")
    config = NamespaceConfig(name="emulatorNs1", event_hubs=hubs)
    with BackgroundServer(config, folder / "data", http_port=0, further_routes=[portal(jobs)]) as running:
        jobs.open()
        try:
            (tolls,) = [one for one in SAMPLES if one.name == "tolls"]
            client = Client(running.server.http_port)
            event = {"body": tolls.body, "partitionKey": tolls.partition_key}
            assert client.post("/eventhubs/tolls/send", {**event, "repeat": 300}).status == 200
            generator = client.post("/eventhubs/tolls/generators", {**event, "rate": 4}).data
            yield running.server
            client.post(f"/eventhubs/tolls/generators/{generator['id']}/stop")
        finally:
            jobs.close()


def avro_container(records: list[dict[str, Any]]) -> bytes:
    schema = {"type": "record", "name": "car", "fields": [{"name": "plate", "type": "string"}]}
    content = io.BytesIO()
    fastavro.writer(content, fastavro.parse_schema(schema), records)
    return content.getvalue()


def store(server: Server, hub: str, bodies: list[bytes]) -> None:
    """Append events that no form of the portal can send."""
    stored = threading.Event()
    events = [encode_message(Message(body_kind="data", body=[body])) for body in bodies]
    server.namespace.event_hub(hub).partitions[0].log.append(events, lambda *_: stored.set())
    assert stored.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def hostile_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a server with odd events, a hub with many partitions, a job with many outputs and one that fails."""
    folder = tmp_path_factory.mktemp("hostile")
    hubs = (
        EventHubConfig(name="odd"),
        EventHubConfig(name="wide", partition_count=100),
        EventHubConfig(name="empty"),
        EventHubConfig(name="avro", partition_count=1),
        EventHubConfig(name="brief", retention_ms=60_000),  # shorter than the portal's form takes
    )
    jobs = Jobs(folder / "service")
    config = NamespaceConfig(name="emulatorNs1", event_hubs=hubs)
    with BackgroundServer(config, folder / "data", http_port=0, further_routes=[portal(jobs)]) as running, jobs:
        client = Client(running.server.http_port)
        for event in ODD_EVENTS:
            assert client.post("/eventhubs/odd/send", event).status == 200
        store(running.server, "avro", [avro_container([{"plate": f"A{at}"} for at in range(3)]), b"Obj\x01 broken"])
        outputs = {f"out{at}": {"type": "file", "path": str(folder / f"out{at}.jsonl")} for at in range(20)}
        query = "\n".join(f"SELECT a INTO {output} FROM i WHERE a > {at};" for at, output in enumerate(outputs))
        recorded = folder / "log.jsonl"
        recorded.write_text('{"arrival": "2026-01-01T00:00:00Z", "body": {"a": 1}}\n', encoding="utf-8")
        for name, path in (("many", recorded), ("failing", folder / "no-such-folder" / "log.jsonl")):
            inputs = {"i": {"type": "recorded", "path": str(path)}}
            definition = {"query": query, "inputs": inputs, "outputs": outputs, "state_dir": str(folder / name)}
            jobs.create(name, JobDocument(definition))
        yield running.server


@pytest.mark.soak  # Each of its steps is also part of a scenario of the pages.
def test_a_first_day_from_signing_in_to_deleting_the_job(tmp_path: Path, pictures: Path) -> None:
    jobs = Jobs(tmp_path / "service")
    config = NamespaceConfig(name="emulatorNs1", event_hubs=(EventHubConfig(name="exits"),))
    with BackgroundServer(config, tmp_path / "data", http_port=0, further_routes=[portal(jobs)]) as running, jobs:
        client = Client(running.server.http_port)
        exits = '{"booth": "north", "exit_time": "{{now}}"}'
        assert client.post("/eventhubs/exits/send", {"body": exits, "repeat": 20}).status == 200
        generator = client.post("/eventhubs/exits/generators", {"body": exits, "rate": 5}).data
        found = visit("walk.mjs", running.server.http_port, pictures, table=str(tmp_path / "results.sqlite"))
        client.post(f"/eventhubs/exits/generators/{generator['id']}/stop")
    assert found == {"walk": []}


@pytest.fixture(scope="module")
def hostile_pages(hostile_server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return visit("hostile_pages.mjs", hostile_server.http_port, tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def job_pages(job_server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return visit("job_pages.mjs", job_server.http_port, tmp_path_factory.mktemp("pictures"))


@pytest.mark.parametrize("scenario", HUB_PAGES)
def test_a_page_of_the_hub_does_its_task_without_a_problem(hub_pages: dict[str, Any], scenario: str) -> None:
    assert hub_pages[scenario] == []


@pytest.mark.parametrize("scenario", JOB_PAGES)
def test_a_page_of_a_job_does_its_task_without_a_problem(job_pages: dict[str, Any], scenario: str) -> None:
    assert job_pages[scenario] == []


@pytest.mark.parametrize("scenario", HOSTILE_PAGES)
def test_a_page_bears_what_it_is_given(hostile_pages: dict[str, Any], scenario: str) -> None:
    assert hostile_pages[scenario] == []


def test_every_scenario_is_tested(
    hub_pages: dict[str, Any], job_pages: dict[str, Any], hostile_pages: dict[str, Any]
) -> None:
    assert (set(hub_pages), set(job_pages)) == (set(HUB_PAGES), set(JOB_PAGES))
    assert set(hostile_pages) == set(HOSTILE_PAGES)


def test_the_bundle_is_what_the_lock_file_builds(tmp_path: Path) -> None:
    root = BROWSER.parent.parent.parent
    subprocess.run(
        [program("node"), "build.mjs", str(tmp_path / "built")],
        cwd=root / "frontend",
        check=True,
        timeout=LONGEST_S,
    )
    static = root / "src" / "tidegate" / "portal" / "static"
    assert {path.name: path.read_bytes() for path in (tmp_path / "built").iterdir()} == {
        path.name: path.read_bytes() for path in static.iterdir()
    }
