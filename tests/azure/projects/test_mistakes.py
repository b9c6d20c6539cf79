"""Mistakes in a project's files: each is reported with its file, the path of the setting, expected and actual value."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.azure.projects.datasources.examples import INPUTS, OUTPUTS
from tests.job.projects import rides_project, write_json, write_project
from tidegate.azure.projects.cases import ProjectTests
from tidegate.azure.projects.check import check_project
from tidegate.azure.projects.datasources.kinds import DATA_SOURCES
from tidegate.azure.projects.live import live_project
from tidegate.azure.projects.reading import read_project
from tidegate.connectors.model.errors import JobError
from tidegate.job.config.overrides import parse_override

QUERY = "SELECT at, zone, id INTO out FROM [in]"
FUNCTION = {"Name": "Shout", "Type": "Scalar", "ScriptType": "JSFunction", "OutputType": "nvarchar(max)"}


def swapped(content: Any) -> Any:
    """The same content under names of other case, in every object."""
    if isinstance(content, dict):
        # The names of system properties are values here, those of the message.
        return {
            key.swapcase(): value if key == "SystemPropertyColumns" else swapped(value)
            for key, value in content.items()
        }
    return [swapped(value) for value in content] if isinstance(content, list) else content


def project_of(folder: Path, files: dict[str, Any], query: str = QUERY) -> Path:
    """A project with these files; their kind is the name of their folder."""
    listed = []
    for name, content in files.items():
        write_json(folder / name, content)
        listed.append({"filePath": name, "subType": {"I": "Input", "O": "Output", "F": "JSFunction"}[name[0]]})
    return write_project(folder, query=query, configurations=listed)


def endpoint_with(examples: dict[str, dict[str, Any]], kind: str, **settings: Any) -> dict[str, Any]:
    """An input or output of a kind, with other settings in its section; those given as None are left out."""
    content = {**examples[kind]}
    (section,) = (key for key in content if key.endswith("Properties"))
    content[section] = {key: value for key, value in {**content[section], **settings}.items() if value is not None}
    return content


def problems_of(folder: Path) -> str:
    """What `tidegate job check` says of a project."""
    return "\n".join(f"{one.severity} {Path(one.file).name}: {one.message}" for one in check_project(folder)[1])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"F.json": {**FUNCTION, "Type": "Scalr"}}, "Type: expected 'Scalar' or 'Aggregate', got 'Scalr'"),
        ({"F.json": {**FUNCTION, "OutputType": "texts"}}, r"OutputType: expected one of any, .*record, got 'texts'"),
        (
            {"F.json": {**FUNCTION, "FunctionInputs": [{"DataType": "any"}, {"DataType": "number"}]}},
            r"FunctionInputs\.1\.DataType: expected one of .*; did you mean float\?, got 'number'",
        ),
        (
            {"I.json": {**INPUTS["Event Hub"], "Type": "Stram"}},
            "Type: expected 'Data Stream' or 'Reference data', got 'Stram'",
        ),
        (
            {"O.json": endpoint_with(OUTPUTS, "Table Storage", RowKey=None)},
            r"TableStorageProperties\.RowKey: missing",
        ),
        (
            {"O.json": endpoint_with(OUTPUTS, "Table Storage", BatchSize="many")},
            r"TableStorageProperties\.BatchSize: .*integer.*, got 'many'",
        ),
        ({"O.json": endpoint_with(OUTPUTS, "Cosmos DB", Database="")}, r"DocumentDbProperties\.Database: missing"),
        (
            {"I.json": endpoint_with(INPUTS, "Blob Storage", Container=None)},
            r"BlobStorageProperties\.Container: missing",
        ),
        ({"I.json": endpoint_with(INPUTS, "Kafka", TopicName=None)}, r"KafkaProperties\.TopicName: missing"),
        (
            {"I.json": {**INPUTS["Event Hub"], "name": "another"}},
            "'Name' and 'name' are the same setting with two values; remove one",
        ),
    ],
)
def test_a_wrong_setting_is_reported_with_its_file_and_path(tmp_path: Path, files: Any, message: str) -> None:
    (name,) = files
    assert re.search(rf"error .*{name}.*{message}", problems_of(project_of(tmp_path, files)))


@pytest.mark.parametrize(
    ("files", "note"),
    [
        (
            {"O.json": endpoint_with(OUTPUTS, "Table Storage", RowKey=None, Rowkeys="id")},
            r"O.json, TableStorageProperties: there is no setting 'Rowkeys'",
        ),
        ({"I.json": {"Name": "in", "DataSourceType": "Kafka", "CompressionTyp": "GZip"}}, "mean 'CompressionType'"),
    ],
)
def test_a_name_close_to_a_setting_is_noted(tmp_path: Path, files: Any, note: str) -> None:
    assert re.search(rf"warning .*{note}", problems_of(project_of(tmp_path, files)))


@pytest.mark.parametrize("kind", [*INPUTS, *OUTPUTS])
def test_the_names_of_settings_are_read_regardless_of_case(tmp_path: Path, kind: str) -> None:
    examples, name = (INPUTS, "I.json") if kind in INPUTS else (OUTPUTS, "O.json")
    found = []
    for folder, content in (("plain", examples[kind]), ("swapped", swapped(examples[kind]))):
        project = read_project(project_of(tmp_path / folder, {name: content}))
        assert not project.notes
        (endpoint,) = (project.inputs or project.outputs).values()
        found.append((DATA_SOURCES.of(endpoint), endpoint.serialization, endpoint.minimum_rows, endpoint.is_reference))
    assert found[0] == found[1]
    assert found[0][0] is not None


def test_a_whole_project_in_another_case_passes_the_same_test_cases(tmp_path: Path) -> None:
    rides_project(tmp_path)
    for path in (tmp_path / "asaproj.json", tmp_path / "JobConfig.json", tmp_path / "Test" / "testConfig.json"):
        path.write_text(json.dumps(swapped(json.loads(path.read_text()))))
    project = read_project(tmp_path)
    assert project.config.late_s == 5
    tests = ProjectTests(project)
    assert [tests.run(case).passed for case in tests.cases] == [True]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-8-sig"])
def test_a_project_may_be_in_utf_16(tmp_path: Path, encoding: str) -> None:
    rides_project(tmp_path)
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        text = path.read_text(encoding="utf-8-sig")
        mark = "\ufeff" if encoding == "utf-16-be" else ""
        path.write_bytes(f"{mark}{text}".replace("\n", "\r\n").encode(encoding))
    tests = ProjectTests(read_project(tmp_path))
    assert [tests.run(case).passed for case in tests.cases] == [True]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}".encode("utf-16-le"), "JobConfig.json: character 1 is a zero, so this is another encoding; save it as"),
        (b"\xff\xfe{", r"JobConfig.json: it is not UTF-16 text \(byte 2\); save it as UTF-8"),
        (
            '{"DataLocale": "dé"}'.encode("latin-1"),
            r"JobConfig.json: it is not UTF-8 text \(byte 17\); save it as UTF-8",
        ),
    ],
)
def test_another_encoding_is_refused_with_the_place(tmp_path: Path, content: bytes, message: str) -> None:
    rides_project(tmp_path)
    (tmp_path / "JobConfig.json").write_bytes(content)
    with pytest.raises(JobError, match=message):
        read_project(tmp_path)


def test_a_live_run_names_the_file_of_each_wrong_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")
    blobs = endpoint_with(INPUTS, "Blob Storage")
    table = endpoint_with(OUTPUTS, "Table Storage")
    project = project_of(tmp_path, {"I.json": {**blobs, "CompressionType": "Zip"}, "O.json": table})
    with pytest.raises(JobError, match=r"inputs\.in\.compression: .*got 'zip' \(from .*I\.json\)"):
        live_project(read_project(project))
    wrong = endpoint_with(OUTPUTS, "Blob Storage", BlobWriteMode="Twice")
    project = project_of(tmp_path / "mode", {"I.json": blobs, "O.json": wrong})
    with pytest.raises(JobError, match=r"O\.json: the output out: BlobWriteMode: expected Append or Once, got 'Twice'"):
        live_project(read_project(project))


def test_an_output_that_is_replaced_may_be_incomplete(tmp_path: Path) -> None:
    table = endpoint_with(OUTPUTS, "Table Storage", RowKey=None)
    project = read_project(project_of(tmp_path, {"I.json": INPUTS["Event Hub"], "O.json": table}))
    overrides = [parse_override("inputs.in=rides.jsonl", tmp_path), parse_override("outputs.out=console", tmp_path)]
    assert live_project(project, overrides).definition.outputs["out"].type == "console"
    with pytest.raises(JobError, match=r"O\.json is not an output of the kind Table Storage:\n.*RowKey: missing"):
        live_project(project, overrides[:1])


def test_an_unknown_kind_is_written_to_a_folder_with_the_kind_that_was_probably_meant(tmp_path: Path) -> None:
    unknown = {**OUTPUTS["Service Bus Queue"], "DataSourceType": "Service Bus Quue"}
    project = read_project(project_of(tmp_path, {"I.json": INPUTS["Event Hub"], "O.json": unknown}))
    live = live_project(project, [parse_override("inputs.in=rides.jsonl", tmp_path)])
    (note,) = live.notes
    assert "Service Bus Quue" in note
    assert "did you mean Service Bus Queue?" in note
    assert "its rows are written to" in note


def test_a_function_without_a_url_is_not_called_at_one_that_is_made_up(tmp_path: Path) -> None:
    function = endpoint_with(OUTPUTS, "Azure Function", FunctionName=None)
    project = read_project(project_of(tmp_path, {"I.json": INPUTS["Event Hub"], "O.json": function}))
    with pytest.raises(JobError, match=r"without FunctionAppName or FunctionName.*export OUT_CONNECTION_STRING="):
        live_project(project, [parse_override("inputs.in=rides.jsonl", tmp_path)])


def test_a_template_with_an_unknown_type_of_input_is_refused(tmp_path: Path) -> None:
    properties = {"type": "Streem", "datasource": {"type": "Microsoft.EventHub/EventHub", "properties": {}}}
    job = {
        "type": "Microsoft.StreamAnalytics/streamingjobs",
        "properties": {
            "inputs": [{"name": "in", "properties": properties}],
            "transformation": {"properties": {"query": QUERY}},
        },
    }
    path = write_json(tmp_path / "template.json", {"resources": [job]})
    with pytest.raises(JobError, match=r"template\.json, in is not an input:\n  Type: expected .*, got 'Streem'"):
        read_project(path)


def test_a_deserializer_that_does_not_run_here_and_a_doubtful_query_are_warnings(tmp_path: Path) -> None:
    clr = {**INPUTS["Event Hub"], "Name": "Rides"}
    clr["Serialization"] = {"Type": "CustomClr", "SerializationClassName": "Fleet.Reader"}
    write_json(tmp_path / "Inputs" / "Rides.json", clr)
    query = "SELECT fare * 2 AS twice INTO output FROM Rides WHERE twice > 5"
    write_project(tmp_path, query=query, configurations=[{"filePath": "Inputs/Rides.json", "subType": "Input"}])
    found = {one.message: one for one in check_project(tmp_path)[1]}
    assert {one.severity for one in found.values()} == {"warning"}
    (reader,) = [one for message, one in found.items() if "deserializer Fleet.Reader of the kind CustomClr" in message]
    assert Path(reader.file).name == "Rides.json"
    assert 'format = "custom"' in (reader.hint or "")
    (alias,) = [one for message, one in found.items() if message.startswith("twice is read as a column")]
    assert (Path(alias.file).name, alias.line, alias.column) == ("rides.asaql", 1, query.index("twice >") + 1)
    (tmp_path / "tidegate.toml").write_text(
        '[inputs.Rides]\ntype = "eventhub"\nconnection_string = "c"\nformat = "custom"\ndeserializer = "r.py:read"\n'
    )
    assert [one.message for one in check_project(tmp_path)[1]] == [alias.message]
