"""Projects as the service's tools write them: what is read, from where, and what is said of one that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.job.projects import JOB_CONFIG, input_file, write_json, write_project
from tidegate.azure.projects.datasources.kinds import DATA_SOURCES
from tidegate.azure.projects.datasources.secrets import Secrets
from tidegate.azure.projects.files import JobConfig, LocalInput
from tidegate.azure.projects.model.project_file import parse_project_file
from tidegate.azure.projects.reading import find_description, locate, read_project
from tidegate.connectors.model.errors import ProjectError

VISUAL_STUDIO = r"""<?xml version="1.0" encoding="utf-8"?>
<Project ToolsVersion="4.0" xmlns="http://schemas.microsoft.com/developer/msbuild/2003">
  <PropertyGroup><Name>Rides in VS</Name></PropertyGroup>
  <ItemGroup>
    <Configure Include="JobConfig.json"><SubType>JobConfig</SubType></Configure>
    <Configure Include="Inputs\local_rides.json"><SubType>InputMock</SubType></Configure>
  </ItemGroup>
  <ItemGroup><Script Include="Rides.asaql" /></ItemGroup>
</Project>
"""
EVENT_HUB = {
    "Name": "Rides",
    "Type": "Data Stream",
    "DataSourceType": "Event Hub",
    "EventHubProperties": {
        "ServiceBusNamespace": "city",
        "EventHubName": "rides",
        "SharedAccessPolicyName": "listen",
        "SharedAccessPolicyKey": None,
        "ConsumerGroupName": None,
        "AuthenticationMode": "ConnectionString",
    },
    "Serialization": {"Type": "Json", "Encoding": "UTF8", "FieldDelimiter": None},
    "CompressionType": "None",
    "ScriptType": "Input",
}


def listed(path: str, kind: str) -> dict[str, str]:
    return {"filePath": path, "subType": kind}


def test_a_project_of_visual_studio_code_is_read_with_all_its_files(tmp_path: Path) -> None:
    names = [
        listed("Inputs/Rides.json", "Input"),
        listed("Inputs/Local_Rides.json", "InputMock"),
        listed("Outputs/Totals.json", "Output"),
        listed("Functions/shout.js.json", "JSFunction"),
    ]
    write_project(tmp_path, configurations=names)
    write_json(tmp_path / "Inputs" / "Rides.json", EVENT_HUB)
    write_json(tmp_path / "Inputs" / "Local_Rides.json", input_file("Rides", "../Data/rides.json"))
    write_json(tmp_path / "Data" / "rides.json", [])
    write_json(tmp_path / "Outputs" / "Totals.json", {"Name": "Totals", "DataSourceType": "Power BI"})
    write_json(tmp_path / "Functions" / "shout.js.json", {"Name": "shout", "ScriptType": "JSFunction"})
    (tmp_path / "Functions" / "shout.js").write_text("function main(text) { return text; }")
    project = read_project(tmp_path)
    assert (project.name, project.query_file.name) == ("rides", "rides.asaql")
    assert project.sql.startswith("\nCREATE TABLE")
    assert project.inputs["rides"].sections["EventHubProperties"]["EventHubName"] == "rides"
    assert project.local_inputs["rides"].path.resolve() == tmp_path / "Data" / "rides.json"
    assert project.outputs["totals"].data_source_type == "Power BI"
    assert list(project.functions) == ["shout"]
    assert project.notes == ()


def test_a_project_of_visual_studio_is_the_same_files_in_another_list(tmp_path: Path) -> None:
    (tmp_path / "rides.asaproj").write_text(VISUAL_STUDIO)
    (tmp_path / "rides.asaql").write_text("SELECT * INTO o FROM i")
    write_json(tmp_path / "JobConfig.json", JOB_CONFIG)
    write_json(tmp_path / "Inputs" / "Local_Rides.json", input_file("Rides", "rides.json"))
    project = read_project(tmp_path)
    assert (project.name, project.query_file.name) == ("Rides in VS", "rides.asaql")
    assert project.local_inputs["rides"].path == tmp_path / "Inputs" / "rides.json"
    assert read_project(tmp_path / "rides.asaproj") == project


def test_both_lists_in_one_folder_mean_that_of_visual_studio_code(tmp_path: Path) -> None:
    (tmp_path / "rides.asaproj").write_text(VISUAL_STUDIO)
    write_project(tmp_path)
    assert find_description(tmp_path) == tmp_path / "asaproj.json"


def test_absent_settings_mean_what_the_service_documents() -> None:
    config = parse_project_file({}, JobConfig, "")
    assert (config.late_s, config.out_of_order_s, config.out_of_order_policy) == (-1, 0, "adjust")
    assert (config.output_error_policy, config.data_locale) == ("stop", "en-US")
    config = parse_project_file(JOB_CONFIG, JobConfig, "")
    assert (config.late_s, config.output_error_policy, config.compatibility_level) == (5, "stop", "1.2")


def test_null_is_absent_and_words_match_without_case() -> None:
    config = parse_project_file(
        {"EventsLateArrivalMaxDelayInSeconds": None, "EventsOutOfOrderPolicy": "DROP", "OutputErrorPolicy": "Drop"},
        JobConfig,
        "",
    )
    assert (config.late_s, config.out_of_order_policy, config.output_error_policy) == (-1, "drop", "drop")


@pytest.mark.parametrize(
    ("content", "alias", "file_format", "delimiter", "reference"),
    [
        ({"InputAlias": "a", "Type": "Data Stream", "Format": "CSV", "FilePath": "f"}, "a", "csv", ",", False),
        (
            {
                "Name": "b",
                "Type": "Reference data",
                "DataSourceType": "Local Input",
                "Serialization": {"Type": "Csv", "FieldDelimiter": "\t", "Encoding": "UTF8"},
                "FilePath": "f",
            },
            "b",
            "csv",
            "\t",
            True,
        ),
        ({"InputAlias": "c", "Type": "Reference Data", "FilePath": "f", "Sample": None}, "c", "json", ",", True),
    ],
)
def test_local_inputs_of_older_and_newer_tools(
    content: dict[str, Any], alias: str, file_format: str, delimiter: str, reference: bool
) -> None:
    read = parse_project_file(content, LocalInput, "")
    assert (read.alias, read.data_format, read.delimiter, read.is_reference) == (
        alias,
        file_format,
        delimiter,
        reference,
    )


def test_paths_are_found_as_windows_would_find_them(tmp_path: Path) -> None:
    there = write_json(tmp_path / "Inputs" / "Data Entry.json", [])
    folder = there.parent
    assert locate(tmp_path, "inputs\\data entry.JSON") == there
    assert locate(folder, "..\\Inputs\\Data Entry.json").resolve() == there
    assert locate(folder, str(there)) == there
    assert locate(tmp_path / "Test", "C:\\Users\\me\\rides\\Inputs\\Data Entry.json", beyond=tmp_path) == there
    assert not locate(folder, "D:/nowhere.json").exists()


def test_what_is_listed_and_not_there_is_noted_where_a_local_run_does_without(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        config=None,
        configurations=[listed("JobConfig.json", "JobConfig"), listed("Inputs/Local_x.json", "InputMock")],
    )
    project = read_project(tmp_path)
    assert project.config == JobConfig()
    assert len(project.notes) == 2
    assert "JobConfig.json is listed but does not exist" in project.notes[0]


def test_a_slip_of_the_pen_is_noted(tmp_path: Path) -> None:
    write_project(tmp_path, config={"EventsOutOfOrderMaxDelayInSecond": 3, "CompatibilityLevel": "1.1"})
    (note,) = read_project(tmp_path).notes
    assert "did you mean 'EventsOutOfOrderMaxDelayInSeconds'?" in note


def test_a_locale_that_is_not_followed_is_noted(tmp_path: Path) -> None:
    write_project(tmp_path, config={"DataLocale": "de-DE"})
    (note,) = read_project(tmp_path).notes
    assert "DataLocale is de-DE; text is read as en-US writes it" in note


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"EventsLateArrivalMaxDelayInSeconds": -2}, "EventsLateArrivalMaxDelayInSeconds: input should be greater"),
        ({"EventsLateArrivalMaxDelayInSeconds": 1_814_400}, "less than or equal to 1814399, got 1814400"),
        ({"EventsOutOfOrderPolicy": "Keep"}, "EventsOutOfOrderPolicy: input should be 'adjust' or 'drop', got 'keep'"),
        ({"CompatibilityLevel": "1.3"}, "CompatibilityLevel"),
        ([], "expected an object, got a list"),
    ],
)
def test_a_wrong_setting_is_named_with_its_file(tmp_path: Path, config: Any, said: str) -> None:
    write_project(tmp_path)
    write_json(tmp_path / "JobConfig.json", config)
    with pytest.raises(ProjectError) as caught:
        read_project(tmp_path)
    assert str(tmp_path / "JobConfig.json") in str(caught.value)
    assert said in str(caught.value)


def test_every_file_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    names = [listed("Inputs/a.json", "Input"), listed("Outputs/b.json", "Output"), listed("Inputs/c.json", "InputMock")]
    write_project(tmp_path, configurations=names)
    (tmp_path / "rides.asaql").unlink()
    write_json(tmp_path / "Inputs" / "a.json", {"Type": "Data Stream"})
    (tmp_path / "Inputs" / "c.json").write_text("{\n  nope\n}")
    with pytest.raises(ProjectError) as caught:
        read_project(tmp_path)
    told = str(caught.value)
    assert "cannot read" in told
    assert "startFile of asaproj.json" in told
    assert "a.json is not an input:\n  Name: missing" in told
    assert "c.json, line 2, column 3: Expecting property name" in told
    assert "b.json: No such file" in told


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("other.txt", "", "has no asaproj.json and no *.asaproj"),
        ("asaproj.json", '{"name": "x"}', "startFile: missing"),
        ("x.asaproj", "<Project", "line 1, column 1: it is not the XML"),
        ("x.asaproj", "<Project/>", "expected one <Script Include=…>"),
    ],
)
def test_what_is_no_project_is_said(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ProjectError) as caught:
        read_project(tmp_path)
    assert said in str(caught.value)


def test_a_comma_too_many_is_none(tmp_path: Path) -> None:
    write_project(tmp_path)
    (tmp_path / "asaproj.json").write_text('{"name": "a,]", "startFile": "rides.asaql", "configurations": [],}')
    assert read_project(tmp_path).name == "a,]"


def test_comments_are_none(tmp_path: Path) -> None:
    write_project(tmp_path)
    lines = [
        "// Ours.",
        '{"name": "a//b", /* of',
        'two lines */ "startFile": "rides.asaql",',
        '"configurations": [], // none',
        "}",
    ]
    (tmp_path / "asaproj.json").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert read_project(tmp_path).name == "a//b"


def test_a_mistake_behind_comments_is_where_it_was(tmp_path: Path) -> None:
    write_project(tmp_path)
    (tmp_path / "asaproj.json").write_text('/* one\ntwo */ {"name": /* x */ nope}')
    with pytest.raises(ProjectError, match="line 2, column 25: Expecting value"):
        read_project(tmp_path)


def test_two_inputs_of_one_name_are_refused(tmp_path: Path) -> None:
    write_project(tmp_path, configurations=[listed("Inputs/a.json", "Input"), listed("Inputs/b.json", "Input")])
    for file, name in (("a.json", "Rides"), ("b.json", "rides")):
        write_json(tmp_path / "Inputs" / file, {"Name": name, "Type": "Data Stream", "DataSourceType": "Event Hub"})
    with pytest.raises(ProjectError, match=r"b\.json: Name: a\.json describes an input 'rides' too"):
        read_project(tmp_path)


def test_a_level_may_be_a_number() -> None:
    assert parse_project_file({"CompatibilityLevel": 1.1}, JobConfig, "").compatibility_level == "1.1"


def sql_input(**more: Any) -> dict[str, Any]:
    """Reference data from a database, as Visual Studio Code describes them."""
    database = {"Server": "city", "Database": "city", "RefreshRate": "00:05:00", **more}
    return {
        "Name": "Zones",
        "Type": "Reference data",
        "DataSourceType": "SQL Database",
        "SqlReferenceProperties": database,
    }


@pytest.mark.parametrize("stem", ["Zones", "zonesinput"])
def test_the_queries_of_reference_data_are_in_files_beside_it(stem: str, tmp_path: Path) -> None:
    write_project(tmp_path, configurations=[listed("Inputs/ZonesInput.json", "Input")])
    how = {"RefreshType": "RefreshPeriodicallyWithDelta", "FullSnapshotQuery": None}
    write_json(tmp_path / "Inputs" / "ZonesInput.json", sql_input(**how))
    (tmp_path / "Inputs" / f"{stem}.snapshot.sql").write_text("SELECT id FROM zones\r\n", encoding="utf-8-sig")
    (tmp_path / "Inputs" / f"{stem}.delta.sql").write_text("SELECT id, 1 AS _operation_ FROM zones\n")
    project = read_project(tmp_path)
    endpoint = project.inputs["zones"]
    source = DATA_SOURCES.of(endpoint)
    assert source is not None
    section = source.reference_section(endpoint, Secrets({"ZONES_CONNECTION_STRING": "sqlite:///zones.db"}))
    assert section == {
        "type": "sql_reference",
        "connection_string": "sqlite:///zones.db",
        "snapshot_query": "SELECT id FROM zones",
        "delta_query": "SELECT id, 1 AS _operation_ FROM zones",
        "refresh_s": 300.0,
    }
    assert project.notes == ()


def test_the_file_of_a_query_takes_precedence_and_may_be_named(tmp_path: Path) -> None:
    write_project(tmp_path, configurations=[listed("Inputs/Zones.json", "Input")])
    write_json(tmp_path / "Inputs" / "Zones.json", sql_input(FullSnapshotQuery="SELECT 1"))
    (tmp_path / "Inputs" / "Zones.snapshot.sql").write_text("SELECT 2")
    project = read_project(tmp_path)
    assert project.inputs["zones"].sections["SqlReferenceProperties"]["FullSnapshotQuery"] == "SELECT 2"
    (note,) = project.notes
    assert note.endswith("FullSnapshotQuery differs from Zones.snapshot.sql; the file's text is used")
    (tmp_path / "Inputs" / "Zones.snapshot.sql").write_text("\n")
    assert read_project(tmp_path).inputs["zones"].sections["SqlReferenceProperties"]["FullSnapshotQuery"] == "SELECT 1"
    write_json(tmp_path / "Inputs" / "Zones.json", sql_input(FullSnapshotQuery="queries\\all.sql"))
    (tmp_path / "Inputs" / "queries").mkdir()
    (tmp_path / "Inputs" / "queries" / "all.sql").write_text("SELECT 3")
    project = read_project(tmp_path)
    assert project.inputs["zones"].sections["SqlReferenceProperties"]["FullSnapshotQuery"] == "SELECT 3"
    assert project.notes == ()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"Zones has no snapshot query: write it to Zones\.snapshot\.sql beside the input's file, or to its "),
        (
            {"FullSnapshotQuery": "SELECT 1", "RefreshType": "RefreshPeriodicallyWithDelta"},
            r"Zones has no delta query: write it to Zones\.delta\.sql",
        ),
        ({"FullSnapshotQuery": "SELECT 1", "RefreshType": "Hourly"}, "RefreshType: expected one of Static, .*'Hourly'"),
    ],
)
def test_a_query_that_is_missing_is_said_with_its_file(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_project(tmp_path, configurations=[listed("Inputs/Zones.json", "Input")])
    write_json(tmp_path / "Inputs" / "Zones.json", sql_input(**settings))
    endpoint = read_project(tmp_path).inputs["zones"]
    source = DATA_SOURCES.of(endpoint)
    assert source is not None
    with pytest.raises(ProjectError, match=message):
        source.reference_section(endpoint, Secrets({"ZONES_CONNECTION_STRING": "sqlite:///zones.db"}))
