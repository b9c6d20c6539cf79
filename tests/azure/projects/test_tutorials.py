"""Three of Microsoft's tutorials as projects, run unchanged against a hub, Azurite and a database on this machine.

- Fraud detection (stream-analytics-real-time-fraud-detection): calls with one SIM card from two places, to a hub.
- Geofencing (geospatial-scenarios): devices of an IoT hub that leave their site, sites from a database, to a table.
- Clickstream with reference data (BuildApplications/ClickStream in Azure/azure-stream-analytics), to blobs.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.azurite import azurite, container
from tests.job.logs import travelling
from tests.job.test_kills import events_of
from tidegate.azure.projects.live import load_project
from tidegate.azure.projects.reading import read_project
from tidegate.client import ConnectionString, Publisher
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.job import run_job
from tidegate.job.config.overrides import parse_override
from tidegate.ordering import TICKS_PER_SECOND, format_time
from tidegate.server import BackgroundServer

PROJECTS = Path(__file__).parents[3] / "docs" / "projects"
HUBS = ("calls", "alerts", "devices", "click-stream-events")
SITE = "POLYGON((-122.1340 47.6370, -122.1320 47.6370, -122.1320 47.6380, -122.1340 47.6380, -122.1340 47.6370))"
INSIDE = {"type": "Point", "coordinates": [-122.133, 47.6375]}
OUTSIDE = {"type": "Point", "coordinates": [-122.130, 47.6375]}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    hubs = tuple(EventHubConfig(name=name, partition_count=2) for name in HUBS)
    with BackgroundServer(NamespaceConfig(name="asatutorial", event_hubs=hubs), tmp_path_factory.mktemp("hub")) as one:
        yield one.connection_string


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a project, as its results are written beside it."""
    return Path(shutil.copytree(PROJECTS / request.param, tmp_path / request.param))


def send(hub: str, name: str, *events: dict[str, Any]) -> None:
    """Publish events to the first partition."""
    with closing(Publisher(ConnectionString.parse(hub, name))) as publisher:
        publisher.publish([json.dumps(event).encode() for event in events], partition="0")


def seconds_ago(seconds: float) -> str:
    """A time of the minute that just passed, on a whole second and the fraction given."""
    return format_time(int(time.time() - seconds) * TICKS_PER_SECOND + int(-seconds % 1 * TICKS_PER_SECOND))


def run(project: Path, *overrides: str) -> list[str]:
    """Run a project until everything is emitted; return the notes on it."""
    notes: list[str] = []
    parsed = [parse_override(text, project.parent) for text in overrides]
    job = load_project(read_project(project), notes.append, parsed)
    run_job(job, travelling(job), until_caught_up=True)
    return notes


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("project", ["fraud-detection"], indirect=True)
def test_fraudulent_calls_reach_an_event_hub(project: Path, hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CALLSTREAM", "ALERTHUB"):
        monkeypatch.setenv(f"{name}_CONNECTION_STRING", hub)
    calls = [("1", "US", 4.0), ("2", "US", 4.0), ("2", "US", 3.0), ("1", "UK", 2.0)]
    times = [seconds_ago(seconds) for _, _, seconds in calls]
    named = [
        {"CallingIMSI": card, "SwitchNum": switch, "CallRecTime": at}
        for (card, switch, _), at in zip(calls, times, strict=True)
    ]
    send(hub, "calls", *named)
    assert run(project, "outputs.Dashboard=dashboard.jsonl", "inputs.CallStream.idle_after_s=0.1") == []
    alerts = [json.loads(body) for partition in "01" for body, _, _ in events_of(hub, "alerts", partition)]
    assert [(row["WindowEnd"], row["FraudulentCalls"]) for row in alerts] == [(times[3], 1)]
    windows = lines_of(project.parent / "dashboard.jsonl")  # of half a minute: the last is not over
    assert sum(row["Calls"] for row in windows) <= len(calls)


@pytest.mark.slow
@pytest.mark.parametrize("project", ["geofence"], indirect=True)
def test_devices_that_left_their_site_are_in_a_table(
    project: Path, hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites, alerts = tmp_path / "sites.db", tmp_path / "alerts.db"
    with closing(sqlite3.connect(sites)) as database:
        database.execute("CREATE TABLE Sites (SiteID int, SiteName text, Geofence text, AllowedDeviceID text)")
        database.executemany(
            "INSERT INTO Sites VALUES (?, ?, ?, ?)", [(1, "Building 41", SITE, "A"), (2, "Building 41", SITE, "B")]
        )
        database.commit()
    monkeypatch.setenv("DEVICESTREAMINPUT_CONNECTION_STRING", f"{hub};EntityPath=devices")
    monkeypatch.setenv("SITEREFERENCEINPUT_CONNECTION_STRING", f"sqlite:///{sites}")
    monkeypatch.setenv("OUTPUT_CONNECTION_STRING", f"sqlite:///{alerts}")
    positions = [("A", INSIDE), ("B", OUTSIDE), ("A", OUTSIDE), ("C", OUTSIDE)]
    send(hub, "devices", *({"DeviceID": device, "GeoPosition": position} for device, position in positions))
    run(project)
    with closing(sqlite3.connect(alerts)) as database:
        rows = database.execute("SELECT DeviceID, SiteID, SiteName FROM Escapes").fetchall()
    assert rows == [("B", 2, "Building 41"), ("A", 1, "Building 41")]


@pytest.mark.sdk
@pytest.mark.parametrize("project", ["clickstream"], indirect=True)
def test_clicks_with_the_names_of_users_are_in_blobs(project: Path, hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLICKSTREAM_CONNECTION_STRING", hub)
    with azurite() as account:
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", account)
        with container(account, "reference-data") as tables, container(account, "job-output") as results:
            tables.upload_blob("user-info.csv", b"UserId,UserName,Gender\n1,Ann,F\n")
            at = seconds_ago(1)
            click = {"EventTime": at, "Response": {"Code": 200}}
            send(hub, "click-stream-events", {**click, "UserId": 1}, {**click, "UserId": 2})
            run(project, "outputs.BlobOutput.maximum_time_s=0.1")
            names = [blob.name for blob in results.list_blobs(name_starts_with="clicks/")]
            blobs = {name: results.download_blob(name).readall() for name in names if name.endswith(".jsonl")}
    rows = [json.loads(line) for content in blobs.values() for line in content.splitlines()]
    assert rows == [
        {"Systime": at, "UserId": 1, "Code": 200, "UserName": "Ann", "Gender": "F"},
        {"Systime": at, "UserId": 2, "Code": 200, "UserName": None, "Gender": None},
    ]
    assert all(name.startswith(f"clicks/{at[:10].replace('-', '/')}/{at[11:13]}/") for name in blobs)
