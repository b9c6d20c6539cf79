"""A project as a live job: where its inputs and outputs come from, and how missing ones are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.job.projects import JOB_CONFIG, write_json, write_project
from tidegate.azure.projects.live import live_project, load_project
from tidegate.azure.projects.reading import read_project
from tidegate.connectors.inputs.event_hub import EventHubInput, IotHubInput
from tidegate.connectors.inputs.files import FilesInput
from tidegate.connectors.inputs.recorded import RecordedInput
from tidegate.connectors.inputs.reference import ReferenceInput
from tidegate.connectors.model.errors import JobError
from tidegate.connectors.outputs.files.result_file import FileOutput
from tidegate.connectors.outputs.messaging.event_hub import EventHubOutput
from tidegate.job.config.definition import JobDefinition
from tidegate.job.config.overrides import parse_override

CONNECTION = "Endpoint=sb://localhost:5672;SharedAccessKeyName=listen;SharedAccessKey=c2VjcmV0"
QUERY = "SELECT R.zone, Z.name INTO Totals FROM Rides R TIMESTAMP BY at JOIN Zones Z ON Z.zone = R.zone"
RIDES = {
    "Name": "Rides",
    "Type": "Data Stream",
    "DataSourceType": "Event Hub",
    "EventHubProperties": {
        "ServiceBusNamespace": "city",
        "EventHubName": "rides",
        "SharedAccessPolicyKey": None,
        "ConsumerGroupName": "jobs",
    },
    "Serialization": {"Type": "Csv", "FieldDelimiter": "\t", "Encoding": "UTF8"},
    "CompressionType": "GZip",
    "ScriptType": "Input",
}
BLOB = {
    "StorageAccounts": [{"AccountName": "cityblobs", "AccountKey": None}],
    "Container": "tables",
    "PathPattern": "zones/{date}/{time}/zones.json",
    "DateFormat": "yyyy/MM/dd",
    "TimeFormat": "HH",
}
ZONES = {
    "Name": "Zones",
    "Type": "Reference data",
    "DataSourceType": "Blob Storage",
    "BlobReferenceProperties": BLOB,
    "Serialization": {"Type": "Json", "FieldDelimiter": None},
}
TOTALS = {
    "Name": "Totals",
    "DataSourceType": "Event Hub",
    "EventHubProperties": {
        "ServiceBusNamespace": "city",
        "EventHubName": "totals",
        "PartitionKey": "zone",
        "PropertyColumns": ["name"],
    },
    "Serialization": {"Type": "Json", "Format": "LineSeparated"},
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RIDES_CONNECTION_STRING", CONNECTION)
    monkeypatch.setenv("TOTALS_CONNECTION_STRING", CONNECTION + ";EntityPath=elsewhere")
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")
    return written(tmp_path, [("Input", RIDES), ("Input", ZONES), ("Output", TOTALS)])


def written(folder: Path, parts: list[tuple[str, dict[str, Any]]], query: str = QUERY, **config: Any) -> Path:
    """A project with these inputs and outputs."""
    listed = []
    for kind, content in parts:
        path = f"{kind}s/{content['Name']}.json"
        write_json(folder / path, content)
        listed.append({"filePath": path, "subType": kind})
    return write_project(folder, query=query, configurations=listed, config={**JOB_CONFIG, **config})


def definition(folder: Path) -> JobDefinition:
    return live_project(read_project(folder)).definition


def test_live_inputs_and_outputs_are_ours(project: Path) -> None:
    job = definition(project)
    rides, zones, totals = job.inputs["Rides"], job.inputs["Zones"], job.outputs["Totals"]
    assert isinstance(rides, EventHubInput)
    assert (rides.connection_string, rides.event_hub, rides.consumer_group) == (CONNECTION, "rides", "jobs")
    assert (rides.format, rides.delimiter, rides.compression) == ("csv", "\t", "gzip")
    assert isinstance(zones, ReferenceInput)
    assert (zones.path, zones.date_format, zones.time_format) == (
        "az://tables/zones/{date}/{time}/zones.json",
        "YYYY/MM/DD",
        "HH",
    )
    assert isinstance(totals, EventHubOutput)
    assert (totals.event_hub, totals.partition_key, totals.property_columns) == (None, "zone", ("name",))
    assert job.state_dir == project / "rides.state"


def test_the_settings_of_the_job_are_the_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDES_CONNECTION_STRING", CONNECTION)
    ordering: dict[str, Any] = {"EventsOutOfOrderMaxDelayInSeconds": 7, "EventsOutOfOrderPolicy": "Drop"}
    folder = written(
        tmp_path,
        [("Input", RIDES)],
        "SELECT * INTO o FROM Rides",
        **ordering,
        EventsLateArrivalMaxDelayInSeconds=None,
        OutputErrorPolicy="Drop",
        CompatibilityLevel="1.1",
    )
    job = definition(folder)
    assert (job.event_ordering.late_arrival_tolerance_s, job.event_ordering.out_of_order_tolerance_s) == (-1, 7)
    assert (job.event_ordering.action, job.output_error_policy, job.compatibility_level) == ("drop", "drop", "1.1")
    loaded = load_project(read_project(folder), lambda note: None)
    assert loaded.policy.late_ticks is None


def test_devices_and_files_are_inputs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVICES_1_CONNECTION_STRING", CONNECTION + ";EntityPath=messages")
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")
    devices = {
        "Name": "devices-1",
        "DataSourceType": "IoT Hub",
        "IoTHubProperties": {"IotHubNamespace": "hub", "Endpoint": "messages/events", "ConsumerGroupName": "$Default"},
    }
    files = {"Name": "files", "DataSourceType": "Blob Storage", "BlobStorageProperties": {**BLOB, "PathPattern": ""}}
    folder = written(
        tmp_path,
        [("Input", devices), ("Input", files)],
        "SELECT a INTO o FROM [devices-1] UNION SELECT a FROM files",
    )
    job = definition(folder)
    assert isinstance(job.inputs["devices-1"], IotHubInput)
    found = job.inputs["files"]
    assert isinstance(found, FilesInput)
    assert found.path == "az://tables/"


def test_everything_that_lacks_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RIDES", "ZONES", "AZURE_STORAGE", "TOTALS"):
        monkeypatch.delenv(f"{name}_CONNECTION_STRING", raising=False)
    folder = written(tmp_path, [("Input", RIDES), ("Input", ZONES), ("Output", TOTALS)])
    with pytest.raises(JobError) as caught:
        definition(folder)
    rides, zones, totals = str(caught.value).splitlines()
    assert "the input Rides is rides of city" in rides
    assert "export RIDES_CONNECTION_STRING='Endpoint=" in rides
    assert "the container tables of cityblobs" in zones
    assert "export AZURE_STORAGE_CONNECTION_STRING=" in zones
    assert "the output Totals is totals of city" in totals
    assert "export TOTALS_CONNECTION_STRING=" in totals


def test_rows_of_an_output_without_a_counterpart_go_to_a_folder_and_a_note_says_so(project: Path) -> None:
    board = {"Name": "Totals", "DataSourceType": "Azure Quantum", "QuantumProperties": {"Qubits": 3}}
    write_json(project / "Outputs" / "Totals.json", board)
    live = live_project(read_project(project))
    totals = live.definition.outputs["Totals"]
    assert isinstance(totals, FileOutput)
    assert totals.path == project / "rides.outputs" / "Totals.jsonl"
    assert live.notes == (
        "the output Totals is Azure Quantum, which is not supported here: its rows are written to "
        "rides.outputs/Totals.jsonl, a line of JSON each",
    )


def test_an_input_without_a_counterpart_is_refused_with_what_to_do(project: Path) -> None:
    write_json(project / "Inputs" / "Rides.json", {"Name": "Rides", "DataSourceType": "Azure Quantum"})
    with pytest.raises(JobError, match=r"Azure Quantum.*--override inputs\.Rides=FILE.*tidegate\.toml"):
        definition(project)


def test_the_file_beside_the_project_takes_the_place_of_what_it_names(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RIDES_CONNECTION_STRING")
    (project / "tidegate.toml").write_text(
        'name = "mine"\n[event_ordering]\nout_of_order_tolerance_s = 3\n'
        '[inputs.rides]\ntype = "recorded"\npath = "log.jsonl"\n'
        '[inputs.ZONES]\ntype = "reference"\npath = "zones.json"\n'
        '[outputs.totals]\ntype = "file"\npath = "totals.jsonl"\n'
    )
    job = definition(project)
    assert job.name == "mine"
    assert (job.event_ordering.late_arrival_tolerance_s, job.event_ordering.out_of_order_tolerance_s) == (5, 3)
    rides, totals = job.inputs["rides"], job.outputs["totals"]
    assert isinstance(rides, RecordedInput)
    assert rides.path == project / "log.jsonl"
    assert isinstance(totals, FileOutput)
    assert len(job.inputs) == 2
    assert len(job.outputs) == 1


def test_inputs_that_the_query_does_not_read_need_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    (project / "rides.asaql").write_text("SELECT * INTO Totals FROM Rides")
    assert list(definition(project).inputs) == ["Rides"]


def test_an_input_that_the_project_does_not_have_is_a_mistake_in_the_query(project: Path) -> None:
    (project / "rides.asaql").write_text("SELECT * INTO Totals FROM Ride")
    with pytest.raises(JobError, match=r"did you mean Rides\?"):
        definition(project)


def test_an_override_takes_the_place_of_an_input_or_output_whose_secret_is_then_not_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RIDES", "AZURE_STORAGE", "TOTALS"):
        monkeypatch.delenv(f"{name}_CONNECTION_STRING", raising=False)
    folder = written(tmp_path, [("Input", RIDES), ("Input", ZONES), ("Output", TOTALS)])
    texts = ["inputs.zones=zones.csv", f"inputs.rides={CONNECTION}", "outputs.Totals=console"]
    job = live_project(read_project(folder), [parse_override(text, tmp_path) for text in texts]).definition
    rides, zones = job.inputs["Rides"], job.inputs["Zones"]
    assert isinstance(rides, EventHubInput)
    assert (rides.connection_string, rides.event_hub, rides.delimiter) == (CONNECTION, "rides", "\t")
    assert isinstance(zones, ReferenceInput)
    assert (zones.path, zones.format) == (str(tmp_path / "zones.csv"), "csv")
    assert job.outputs["Totals"].type == "console"


def test_an_override_that_names_nothing_is_refused(project: Path) -> None:
    with pytest.raises(JobError, match=r"there is no output Total; there are: Totals"):
        live_project(read_project(project), [parse_override("outputs.Total=console", project)])
