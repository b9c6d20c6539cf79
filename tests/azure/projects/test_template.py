"""Jobs in templates of Azure Resource Manager: the same project under other names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.job.logs import TravellingTasks
from tests.job.projects import QUERY, TOTALS, input_file, rides_case, rides_project, write_json, write_test_config
from tidegate.azure.projects.cases import ProjectTests
from tidegate.azure.projects.datasources.kinds import DATA_SOURCES
from tidegate.azure.projects.datasources.messages import EventHub
from tidegate.azure.projects.live import live_project
from tidegate.azure.projects.reading import read_project
from tidegate.azure.projects.template import TemplateJob
from tidegate.cli import main
from tidegate.connectors.inputs.event_hub import EventHubInput
from tidegate.connectors.inputs.reference import ReferenceInput
from tidegate.connectors.model.errors import JobQueryError, ProjectError

JOB_TYPE = "Microsoft.StreamAnalytics/streamingjobs"
RIDES = {
    "name": "Rides",
    "properties": {
        "type": "Stream",
        "datasource": {
            "type": "Microsoft.EventHub/EventHub",
            "properties": {
                "serviceBusNamespace": "[parameters('namespace')]",
                "eventHubName": "rides",
                "sharedAccessPolicyKey": "[parameters('key')]",
                "consumerGroupName": "jobs",
            },
        },
        "serialization": {"type": "Csv", "properties": {"fieldDelimiter": ";", "encoding": "UTF8"}},
        "compression": {"type": "Deflate"},
    },
}
ZONES = {
    "name": "Zones",
    "properties": {
        "type": "Reference",
        "datasource": {
            "type": "Microsoft.Storage/Blob",
            "properties": {
                "storageAccounts": [{"accountName": "blobs"}],
                "container": "tables",
                "pathPattern": "zones.json",
            },
        },
        "serialization": {"type": "Json", "properties": {"encoding": "UTF8"}},
    },
}
PROPERTIES = {
    "sku": {"name": "Standard"},
    "eventsOutOfOrderPolicy": "Drop",
    "eventsOutOfOrderMaxDelayInSeconds": 4,
    "outputErrorPolicy": "Drop",
    "compatibilityLevel": "1.1",
    "outputStartMode": "JobStartTime",
    "inputs": [RIDES, ZONES],
    "transformation": {"name": "t", "properties": {"streamingUnits": 1, "query": QUERY}},
    "outputs": [],
}


def template(*more: dict[str, Any], **properties: Any) -> dict[str, Any]:
    """A template with the job."""
    return {
        "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
        "parameters": {"namespace": {"type": "string", "defaultValue": "city"}, "key": {"type": "securestring"}},
        "resources": [{"type": JOB_TYPE, "name": "rides", "properties": {**PROPERTIES, **properties}}, *more],
    }


def test_a_template_is_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDES_CONNECTION_STRING", "Endpoint=sb://h;SharedAccessKeyName=a;SharedAccessKey=b")
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")
    path = write_json(tmp_path / "job.json", template())
    write_json(tmp_path / "job.parameters.json", {"parameters": {"namespace": {"value": "town"}}})
    project = read_project(path)
    assert (project.name, project.sql) == ("rides", QUERY)
    source = DATA_SOURCES.of(project.inputs["rides"])
    assert isinstance(source, EventHub)
    assert source.service_bus_namespace == "town"
    job = live_project(project).definition
    rides, zones = job.inputs["Rides"], job.inputs["Zones"]
    assert isinstance(rides, EventHubInput)
    assert (rides.event_hub, rides.consumer_group, rides.format) == ("rides", "jobs", "csv")
    assert (rides.delimiter, rides.compression) == (";", "deflate")
    assert isinstance(zones, ReferenceInput)
    assert zones.path == "az://tables/zones.json"
    ordering = job.event_ordering
    assert (ordering.late_arrival_tolerance_s, ordering.out_of_order_tolerance_s, ordering.action) == (-1, 4, "drop")
    assert (job.compatibility_level, job.output_error_policy) == ("1.1", "drop")


def test_parts_may_be_resources_of_their_own(tmp_path: Path) -> None:
    parts = [
        {**RIDES, "type": f"{JOB_TYPE}/inputs", "name": "[concat(parameters('job'), '/Rides')]"},
        {
            "type": f"{JOB_TYPE}/transformations",
            "name": "rides/t",
            "properties": {"query": ["SELECT 1 AS n", "INTO o"]},
        },
    ]
    content = template(*parts, inputs=None, transformation=None, compatibilityLevel=None)
    project = read_project(write_json(tmp_path / "job.json", content))
    assert list(project.inputs) == ["rides"]
    assert project.sql == "SELECT 1 AS n\nINTO o"
    assert project.notes[0].endswith("has no compatibilityLevel: 1.2 is used")


def test_its_tests_are_run_as_those_of_a_project(tmp_path: Path) -> None:
    rides_project(tmp_path)
    path = write_json(tmp_path / "template.json", template())
    write_test_config(tmp_path, [rides_case()])
    tests = ProjectTests(read_project(path))
    result = tests.run(tests.cases[0], TravellingTasks)
    assert result.passed, result
    assert [len(output.rows) for output in result.outputs] == [len(TOTALS)]


def test_functions_in_javascript_are_refused_by_name(tmp_path: Path) -> None:
    function = {
        "name": "shout",
        "properties": {
            "type": "Scalar",
            "properties": {"binding": {"type": "Microsoft.StreamAnalytics/JavascriptUdf", "properties": {}}},
        },
    }
    query = {"properties": {"query": "SELECT udf.shout(a) AS b INTO o FROM i"}}
    path = write_json(tmp_path / "t.json", template(functions=[function], transformation=query))
    write_json(tmp_path / "test" / "i.json", [{"a": "x"}])
    write_json(
        tmp_path / "test" / "testConfig.json", {"TestCases": [{"Name": "a", "Inputs": [input_file("i", "i.json")]}]}
    )
    tests = ProjectTests(read_project(path))
    with pytest.raises(JobQueryError, match=r"udf\.shout is in JavaScript"):
        tests.run(tests.cases[0], TravellingTasks)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"resources": []}, "expected one resource of the type"),
        (template(transformation=None), "the job has no transformation with a query"),
        (
            template(transformation={"properties": {"query": "[concat('SELECT', )]"}}),
            "t.json: the expression \"[concat('SELECT', )]\" is wrong at its character 19: ')' is not expected",
        ),
        (
            template(transformation={"properties": {"query": "[join('SELECT')]"}}),
            "t.json: the template function 'join' cannot take these arguments",
        ),
        (
            template(transformation={"properties": {"query": "[parameters('key')]"}}),
            "or its query is a parameter without a value",
        ),
        (
            template({"type": f"{JOB_TYPE}/inputs", "name": "i", "condition": "[parameters('key')]"}),
            "t.json: the value of the template parameter 'key' is not provided",
        ),
        (template(compatibilityLevel="2.0"), "CompatibilityLevel"),
        (template(inputs=[{"properties": {"type": "Stream"}}]), "one of the inputs has no name"),
    ],
)
def test_what_is_no_job_is_said(tmp_path: Path, content: dict[str, Any], said: str) -> None:
    path = write_json(tmp_path / "t.json", content)
    with pytest.raises(ProjectError) as caught:
        read_project(path)
    assert said in str(caught.value)


ACCOUNT = "[resourceId('Microsoft.Storage/storageAccounts', variables('account'))]"
HUB_KEYS = "[listKeys(resourceId('Microsoft.EventHub/namespaces', variables('space')), '2024-01-01').primaryKey]"
DEPLOYED: dict[str, Any] = {
    "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
    "contentVersion": "1.0.0.0",
    "parameters": {
        "prefix": {"type": "string", "defaultValue": "city", "maxLength": 10},
        "jobName": {"type": "string"},
        "alerts": {"type": "bool", "defaultValue": False},
        "password": {"type": "securestring"},
        "location": {"type": "string", "defaultValue": "[resourceGroup().location]"},
    },
    "variables": {
        "space": "[concat(parameters('prefix'), '-', uniqueString(resourceGroup().id))]",
        "account": "[toLower(format('{0}blobs', parameters('prefix')))]",
        "hubs": ["rides", "fares"],
    },
    "resources": [
        {"type": "Microsoft.Storage/storageAccounts", "name": "[variables('account')]", "apiVersion": "2023-01-01"},
        {
            "type": "Microsoft.Authorization/roleAssignments",
            "name": "[guid(resourceGroup().id)]",
            "scope": ACCOUNT,
            "properties": {"principalId": "[reference('x').identity.principalId]"},
        },
        {
            "type": JOB_TYPE,
            "apiVersion": "2021-10-01-preview",
            "name": "[parameters('jobName')]",
            "location": "[parameters('location')]",
            "dependsOn": [ACCOUNT],
            "properties": {"compatibilityLevel": "1.2", "eventsLateArrivalMaxDelayInSeconds": "[mul(2, 30)]"},
            "resources": [
                {
                    "type": "transformations",
                    "name": "main",
                    "properties": {"query": "[concat('SELECT * INTO o FROM ', variables('hubs')[0])]"},
                }
            ],
        },
        {
            "type": f"{JOB_TYPE}/inputs",
            "name": "[format('{0}/{1}', parameters('jobName'), variables('hubs')[copyIndex()])]",
            "copy": {"name": "each", "count": "[length(variables('hubs'))]"},
            "properties": {
                "type": "Stream",
                "datasource": {
                    "type": "Microsoft.EventHub/EventHub",
                    "properties": {
                        "serviceBusNamespace": "[variables('space')]",
                        "eventHubName": "[variables('hubs')[copyIndex('each')]]",
                        "sharedAccessPolicyKey": HUB_KEYS,
                    },
                },
                "serialization": {"type": "Json"},
            },
        },
        {
            "type": f"{JOB_TYPE}/outputs",
            "name": "[concat(parameters('jobName'), '/o')]",
            "properties": {
                "datasource": {
                    "type": "Microsoft.Sql/Server/Database",
                    "properties": {
                        "server": "[concat(parameters('prefix'), '-sql')]",
                        "table": "[[dbo].[rides]",
                        "password": "[concat('a', parameters('password'))]",
                    },
                }
            },
        },
        {
            "type": f"{JOB_TYPE}/outputs",
            "name": "[concat(parameters('jobName'), '/alerts')]",
            "condition": "[parameters('alerts')]",
            "properties": {},
        },
    ],
}


def test_resources_may_have_symbolic_names(tmp_path: Path) -> None:
    (job,) = template()["resources"]
    content = {**template(), "languageVersion": "2.0", "resources": {"job": job}}
    assert read_project(write_json(tmp_path / "main.json", content)).name == "rides"


@pytest.mark.parametrize("values", [{}, {"jobName": "rides-job", "alerts": False, "prefix": "Town"}])
def test_expressions_have_the_values_that_a_deployment_gives_them(tmp_path: Path, values: dict[str, Any]) -> None:
    path = write_json(tmp_path / "azuredeploy.json", DEPLOYED)
    given = {name: {"value": value} for name, value in values.items()}
    write_json(tmp_path / "azuredeploy.parameters.json", {"parameters": {**given, "password": {"value": None}}})
    project = read_project(path)
    assert project.name == values.get("jobName", "azuredeploy")
    assert project.notes == ()
    assert project.sql == "SELECT * INTO o FROM rides"
    assert project.config.late_s == 60
    assert list(project.inputs) == ["rides", "fares"]
    assert list(project.outputs) == ["o"]
    source = DATA_SOURCES.of(project.inputs["fares"])
    assert isinstance(source, EventHub)
    assert source.event_hub_name == "fares"
    prefix = values.get("prefix", "city")
    assert source.service_bus_namespace is not None
    assert source.service_bus_namespace.startswith(f"{prefix}-")
    assert source.shared_access_policy_key is None
    (settings,) = project.outputs["o"].sections.values()
    assert settings == {"Server": f"{prefix}-sql", "Table": "[dbo].[rides]"}


def test_a_template_is_checked_as_one_with_texts_of_several_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resource Manager takes raw line breaks in texts, so queries in templates have them."""
    monkeypatch.setenv("RIDES_CONNECTION_STRING", "Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=k")
    path = write_json(tmp_path / "template.json", template())
    path.write_text(path.read_text().replace("SELECT ", "SELECT\n\t", 1))
    with pytest.raises(ValueError, match="control character"):
        json.loads(path.read_text())
    assert TemplateJob(path).sql == QUERY.replace("SELECT ", "SELECT\n\t", 1)
    with pytest.raises(SystemExit) as left:
        main(["job", "check", str(path)])
    out, err = capsys.readouterr()
    assert left.value.code == 0, err
    assert "the project 'rides' is fine" in out
    path.write_text(json.dumps(template()))
    with pytest.raises(SystemExit):
        main(["job", "run", str(path)])
    assert f"is a template of Azure Resource Manager, and no job file: pass it as a project, --project {path}" in (
        capsys.readouterr().err.replace("\n", " ")
    )
