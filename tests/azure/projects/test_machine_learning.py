"""Functions of projects and templates that call Azure Machine Learning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.azure.projects.test_template import template
from tests.http_receiver import Answer, Request, receiver
from tests.job.projects import write_json, write_project
from tidegate.azure.projects.live import functions_of
from tidegate.azure.projects.machine_learning import CLASSIC, SERVICES, section_of
from tidegate.azure.projects.reading import read_project
from tidegate.azure.projects.template_export import export_job, export_project
from tidegate.connectors.model.errors import ProjectError
from tidegate.job.config.definition import definition_of
from tidegate.job.config.model_definitions import AzureMLDefinition

QUERY = "SELECT udf.score(age, name) AS score INTO o FROM i"
COLUMNS = [{"name": "name", "dataType": "string", "mapTo": 1}, {"name": "age", "dataType": "int32", "mapTo": 0}]
SERVICE: dict[str, Any] = {
    "type": SERVICES,
    "properties": {
        "endpoint": "http://127.0.0.1/score",
        "apiKey": None,
        "inputs": COLUMNS,
        "outputs": [{"name": "Scored Labels", "dataType": "double"}],
        "batchSize": 100,
        "numberOfParallelRequests": 4,
        "inputRequestName": "WebServiceInput0",
        "outputResponseName": "WebServiceOutput0",
    },
}
CLASSIC_SERVICE: dict[str, Any] = {
    "type": CLASSIC,
    "properties": {
        "endpoint": "http://127.0.0.1/execute?api-version=2.0",
        "inputs": {"name": "input1", "columnNames": COLUMNS},
        "outputs": [{"name": "Scored Labels", "dataType": "double"}],
        "batchSize": 100,
    },
}
SECTION = {
    "type": "azureml",
    "endpoint": "http://127.0.0.1/score",
    "request": "inputs",
    "input_name": "WebServiceInput0",
    "inputs": ["age", "name"],
    "input_types": ["bigint", "nvarchar(max)"],
    "output_name": "WebServiceOutput0",
    "output": "Scored Labels",
    "output_type": "float",
    "batch_size": 100,
    "parallel_requests": 4,
}


def resource(binding: dict[str, Any]) -> dict[str, Any]:
    return {"name": "score", "properties": {"type": "Scalar", "properties": {"inputs": [], "binding": binding}}}


def project_at(folder: Path, content: dict[str, Any]) -> Path:
    write_json(folder / "Functions" / "score.json", content)
    listed = [{"filePath": "Functions/score.json", "subType": "AzureMLFunction"}]
    return write_project(folder, query=QUERY, configurations=listed)


def test_the_binding_of_a_service_is_a_section() -> None:
    assert section_of("score", SERVICE) == SECTION


def test_the_binding_of_a_classic_service_is_a_section() -> None:
    changes = {"endpoint": "http://127.0.0.1/execute?api-version=2.0", "request": "table", "input_name": "input1"}
    left_out = ("output_name", "parallel_requests")
    expected = {key: value for key, value in {**SECTION, **changes}.items() if key not in left_out}
    assert section_of("score", CLASSIC_SERVICE) == expected


def test_a_scoring_script_takes_the_row_that_the_query_makes() -> None:
    properties = {"endpoint": "http://127.0.0.1/score", "inputRequestName": "data"}
    inputs = [{"name": "row", "dataType": "record"}]
    made = section_of("score", {"type": SERVICES, "properties": {**properties, "inputs": inputs}})
    assert made == {"type": "azureml", "endpoint": properties["endpoint"], "request": "records", "input_name": "data"}


@pytest.mark.parametrize("shape", ["resource", "flat"])
def test_a_project_calls_its_model(tmp_path: Path, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: Request) -> Answer:
        rows = request.json["Inputs"]["WebServiceInput0"]
        results = [{"Scored Labels": row["age"] + len(row["name"])} for row in rows]
        return Answer(body=json.dumps({"Results": {"WebServiceOutput0": results}}).encode())

    content = resource(SERVICE) if shape == "resource" else {"Name": "score", "Type": "Scalar", "Binding": SERVICE}
    with receiver() as there:
        there.behaviour = answer
        monkeypatch.setenv("SCORE_CONNECTION_STRING", f"{there.url}/score")
        monkeypatch.setenv("SCORE_PASSWORD", "its-key")
        functions = functions_of(read_project(project_at(tmp_path, content)))
        assert functions["udf.score"](30, "ab") == 32.0
        (request,) = there.requests
    assert request.headers["authorization"] == "Bearer its-key"


@pytest.mark.parametrize("binding", [SERVICE, CLASSIC_SERVICE], ids=["service", "classic"])
def test_a_template_has_it_and_gives_it_back_without_the_key(tmp_path: Path, binding: dict[str, Any]) -> None:
    with_key = {**binding, "properties": {**binding["properties"], "apiKey": "kEy"}}
    transformation = {"properties": {"query": QUERY}}
    path = write_json(tmp_path / "t.json", template(functions=[resource(with_key)], transformation=transformation))
    exported = export_project(read_project(path)).content
    assert "kEy" not in json.dumps(exported)
    assert exported["parameters"]["score_apiKey"] == {"type": "securestring"}
    (function,) = exported["resources"][0]["properties"]["functions"]
    written = function["properties"]["properties"]["binding"]
    assert written["type"] == binding["type"]
    back = read_project(write_json(tmp_path / "back.json", exported)).functions["score"]
    assert back.binding is not None
    assert section_of("score", back.binding) == section_of("score", binding)


def test_a_job_file_is_exported_with_its_model(tmp_path: Path) -> None:
    content = {
        "name": "score",
        "query": QUERY,
        "inputs": {"i": {"type": "recorded", "path": "i.jsonl"}},
        "functions": {"score": {**SECTION, "api_key": "kEy"}},
    }
    definition = definition_of(content, tmp_path / "job.toml")
    exported = export_job(definition).content
    assert "kEy" not in json.dumps(exported)
    (function,) = exported["resources"][0]["properties"]["functions"]
    assert section_of("score", function["properties"]["properties"]["binding"]) == SECTION
    assert isinstance(definition.functions["score"], AzureMLDefinition)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"inputs": 5}, "its binding does not have the shape"),
        ({"batchSize": 10**6}, "batch_size: Input should be less than or equal to 10000"),
    ],
)
def test_a_wrong_binding_is_one_line(properties: dict[str, Any], said: str) -> None:
    with pytest.raises(ProjectError, match=said):
        section_of("score", {"type": SERVICES, "properties": {**SERVICE["properties"], **properties}})
