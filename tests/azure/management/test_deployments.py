"""Template deployments over HTTP: what a template means is made, in order, with the rights of its caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.azure.management.conftest import GROUP, KEY, Api
from tests.azure.management.test_stream_analytics import QUERY, hub
from tidegate.azure.management import PrincipalRole
from tidegate.azure.management.access.requests import ArmError
from tidegate.azure.management.deployments import ExpandedTemplate
from tidegate.server import Server
from tidegate.service import Jobs

DEPLOYMENT = f"{GROUP}/providers/Microsoft.Resources/deployments/main"
NAMESPACE = "[parameters('namespace')]"

TEMPLATE: dict[str, Any] = {
    "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
    "contentVersion": "1.0.0.0",
    "parameters": {
        "namespace": {"type": "string", "defaultValue": "emulatorNs1"},
        "prefix": {"type": "string", "minLength": 2},
        "hubs": {"type": "array", "defaultValue": ["in", "out"]},
        "days": {"type": "int", "defaultValue": 1, "allowedValues": [1, 7]},
        "secret": {"type": "securestring", "defaultValue": "hidden"},
    },
    "variables": {
        "job": "[toLower(concat(parameters('prefix'), '-Job'))]",
        "copy": [
            {"name": "names", "count": 2, "input": "[format('{0}-{1}', parameters('prefix'), copyIndex('names'))]"}
        ],
    },
    "resources": [
        {
            "type": "Microsoft.StreamAnalytics/streamingjobs",
            "apiVersion": "2020-03-01",
            "name": "[variables('job')]",
            "location": "[resourceGroup().location]",
            "dependsOn": ["hubs"],
            "properties": {
                "sku": {"name": "Standard"},
                "inputs": [
                    {
                        "name": "tolls",
                        "properties": {
                            "type": "Stream",
                            "datasource": hub("[concat(parameters('prefix'), '-', parameters('hubs')[0])]"),
                            "serialization": {"type": "Json", "properties": {"encoding": "UTF8"}},
                        },
                    }
                ],
                "transformation": {"name": "main", "properties": {"streamingUnits": 1, "query": QUERY}},
            },
            "resources": [
                {
                    "type": "outputs",
                    "apiVersion": "2020-03-01",
                    "name": "results",
                    "dependsOn": ["[variables('job')]"],
                    "properties": {"datasource": hub("[variables('names')[1]]"), "serialization": {"type": "Json"}},
                }
            ],
        },
        {
            "type": "Microsoft.EventHub/namespaces/eventhubs",
            "apiVersion": "2024-01-01",
            "name": "[format('{0}/{1}-{2}', 'emulatorNs1', parameters('prefix'), parameters('hubs')[copyIndex()])]",
            "copy": {"name": "hubs", "count": "[length(parameters('hubs'))]"},
            "properties": {"partitionCount": "[add(copyIndex(), 1)]", "messageRetentionInDays": "[parameters('days')]"},
        },
        {
            "condition": "[equals(parameters('prefix'), 'never')]",
            "type": "Microsoft.EventHub/namespaces/eventhubs",
            "apiVersion": "2024-01-01",
            "name": "[concat(parameters('namespace'), '/never')]",
        },
    ],
    "outputs": {
        "jobState": {"type": "string", "value": "[reference(variables('job')).jobState]"},
        "connection": {
            "type": "string",
            "value": "[listKeys(resourceId('Microsoft.EventHub/namespaces/authorizationRules', "
            "parameters('namespace'), 'RootManageSharedAccessKey'), '2024-01-01').keyName]",
        },
        "secret": {"type": "securestring", "value": "[parameters('secret')]"},
        "literal": {"type": "string", "value": "[[not an expression]"},
    },
}


def body(template: Any, **parameters: Any) -> dict[str, Any]:
    values = {name: {"value": value} for name, value in parameters.items()}
    return {"properties": {"mode": "Incremental", "template": template, "parameters": values}}


@pytest.fixture(autouse=True)
def _clean(arm_server: Server, arm_jobs: Jobs) -> Iterator[None]:
    yield
    api = Api(arm_server)
    for name in ("main", "module"):
        api.call("DELETE", DEPLOYMENT.replace("main", name))
    for job in arm_jobs.list():
        arm_jobs.delete(job.name)
    for name in list(arm_server.namespace.event_hubs):
        if name != "eh1":
            arm_server.namespace.management.delete_event_hub(name)


@pytest.mark.slow
def test_a_hub_and_a_job_from_a_template(api: Api, arm_server: Server, arm_jobs: Jobs) -> None:
    answer = api.call("PUT", DEPLOYMENT, body(TEMPLATE, prefix="demo"))
    assert answer.status == 201, answer.content
    assert answer.json["properties"]["provisioningState"] == "Accepted"
    status = answer.headers["Azure-AsyncOperation"].removeprefix(api.base_url).partition("?")[0]
    assert api.ok("GET", status) == {"status": "Succeeded"}
    done = api.ok("GET", DEPLOYMENT)["properties"]
    assert done["provisioningState"] == "Succeeded"
    assert done["outputs"] == {
        "jobState": {"type": "String", "value": "Created"},
        "connection": {"type": "String", "value": "RootManageSharedAccessKey"},
        "secret": {"type": "Securestring"},
        "literal": {"type": "String", "value": "[not an expression]"},
    }
    assert done["parameters"]["secret"] == {"type": "Securestring"}
    assert "hidden" not in str(done)
    hubs = arm_server.namespace.event_hubs
    assert [len(hubs[name].partitions) for name in ("demo-in", "demo-out")] == [1, 2]
    job = arm_jobs.show("demo-job")
    assert job.query == QUERY
    assert job.inputs["tolls"]["event_hub"] == "demo-in"
    assert job.outputs["results"]["event_hub"] == "demo-1"
    operations = api.ok("GET", f"{DEPLOYMENT}/operations")["value"]
    assert api.ok("GET", f"{GROUP}/deployments/main/operations")["value"] == operations
    made = [one["properties"]["targetResource"]["resourceName"] for one in operations]
    assert made == ["demo-in", "demo-out", "demo-job", "results"]
    assert api.call("PUT", DEPLOYMENT, body(TEMPLATE, prefix="demo")).status == 200
    listed = api.ok("GET", DEPLOYMENT.removesuffix("/main"))["value"]
    # Tests of other files may have deployed something here too.
    assert [one["name"] for one in listed].count("main") == 1
    assert [api.call("DELETE", DEPLOYMENT).status, api.call("GET", DEPLOYMENT).status] == [204, 404]


def test_validating_makes_nothing(api: Api, arm_server: Server) -> None:
    validated = api.ok("POST", f"{DEPLOYMENT}/validate", body(TEMPLATE, prefix="dry"))
    assert len(validated["properties"]["validatedResources"]) == 4
    assert "dry-in" not in arm_server.namespace.event_hubs
    assert api.call("GET", DEPLOYMENT).status == 404


def test_symbolic_names_and_modules_as_bicep_writes_them(api: Api, arm_server: Server) -> None:
    inner = {
        "languageVersion": "2.0",
        "parameters": {"name": {"type": "string"}},
        "resources": {
            "ns": {
                "existing": True,
                "type": "Microsoft.EventHub/namespaces",
                "apiVersion": "2024-01-01",
                "name": "emulatorNs1",
            },
            "group": {
                "type": "Microsoft.EventHub/namespaces/eventhubs/consumergroups",
                "apiVersion": "2024-01-01",
                "name": "[format('{0}/{1}/{2}', 'emulatorNs1', parameters('name'), 'readers')]",
                "dependsOn": ["eh"],
            },
            "eh": {
                "type": "Microsoft.EventHub/namespaces/eventhubs",
                "apiVersion": "2024-01-01",
                "name": "[format('{0}/{1}', 'emulatorNs1', parameters('name'))]",
                "properties": {"partitionCount": 3},
            },
        },
        "outputs": {
            "ids": {"type": "array", "value": "[reference('eh').partitionIds]"},
            "status": {"type": "string", "value": "[reference('ns').status]"},
        },
    }
    outer = {
        "resources": [
            {
                "type": "Microsoft.Resources/deployments",
                "apiVersion": "2022-09-01",
                "name": "module",
                "properties": {
                    "expressionEvaluationOptions": {"scope": "inner"},
                    "mode": "Incremental",
                    "parameters": {"name": {"value": "[concat('by', '-bicep')]"}},
                    "template": inner,
                },
            }
        ],
        "outputs": {
            "ids": {
                "type": "array",
                "value": "[reference(resourceId('Microsoft.Resources/deployments', 'module')).outputs.ids.value]",
            }
        },
    }
    api.ok("PUT", DEPLOYMENT, body(outer))
    done = api.ok("GET", DEPLOYMENT)["properties"]
    assert done["provisioningState"] == "Succeeded", done
    assert done["outputs"]["ids"]["value"] == ["0", "1", "2"]
    assert "readers" in arm_server.namespace.event_hub("by-bicep").consumer_groups


def test_a_resource_that_cannot_be_made_fails_the_deployment(api: Api) -> None:
    wrong = {
        "resources": [
            {
                "type": "Microsoft.EventHub/namespaces/eventhubs",
                "apiVersion": "2024-01-01",
                "name": "emulatorNs1/many",
                "properties": {"partitionCount": 5000},
            }
        ]
    }
    answer = api.call("PUT", DEPLOYMENT, body(wrong))
    assert answer.status == 201
    status = answer.headers["Azure-AsyncOperation"].removeprefix(api.base_url).partition("?")[0]
    failed = api.ok("GET", status)
    assert (failed["status"], failed["error"]["code"]) == ("Failed", "DeploymentFailed")
    assert "partitionCount" in failed["error"]["details"][0]["message"]
    (operation,) = api.ok("GET", f"{DEPLOYMENT}/operations")["value"]
    assert operation["properties"]["provisioningState"] == "Failed"
    api.ok("DELETE", DEPLOYMENT)


@pytest.mark.slow
def test_a_deployment_has_the_rights_of_its_caller(api_of: Callable[[PrincipalRole], Api], arm_server: Server) -> None:
    """The root key is an owner's credential, so a contributor's template must not read or replace it."""
    rule = "Microsoft.EventHub/namespaces/authorizationRules"
    replacing = {
        "resources": [
            {
                "type": rule,
                "apiVersion": "2024-01-01",
                "name": "emulatorNs1/RootManageSharedAccessKey",
                "properties": {"rights": ["Listen"]},
            }
        ]
    }
    key = f"[listKeys(resourceId('{rule}', 'emulatorNs1', 'RootManageSharedAccessKey'), '2024-01-01').primaryKey]"
    reading = {"resources": [], "outputs": {"key": {"type": "string", "value": key}}}
    contributor, reader = api_of(PrincipalRole.CONTRIBUTOR), api_of(PrincipalRole.READER)
    for template in (replacing, reading):
        contributor.call("PUT", DEPLOYMENT, body(template))
        done = contributor.ok("GET", DEPLOYMENT)
        assert done["properties"]["error"]["details"][0]["code"] == "AuthorizationFailed"
        assert KEY not in str(done)
    assert contributor.call("POST", f"{DEPLOYMENT}/validate", body(replacing)).status == 403
    assert reader.call("PUT", DEPLOYMENT, body({"resources": []})).status == 403
    contributor.ok("DELETE", DEPLOYMENT)


@pytest.mark.slow
def test_who_may_not_list_a_key_does_not_read_it_in_the_reason_of_a_failure(
    api_of: Callable[[PrincipalRole], Api],
) -> None:
    rule = "resourceId('Microsoft.EventHub/namespaces/authorizationRules', 'emulatorNs1', 'RootManageSharedAccessKey')"
    mistake = f"[dateTimeAdd('2024-01-01T00:00:00Z', listKeys({rule}, '2024-01-01').primaryKey)]"
    hub_of_key = {
        "type": "Microsoft.EventHub/namespaces/eventhubs",
        "apiVersion": "2024-01-01",
        "name": "emulatorNs1/of-key",
        "properties": {"userMetadata": mistake},
    }
    owner, contributor = api_of(PrincipalRole.OWNER), api_of(PrincipalRole.CONTRIBUTOR)
    for template in (
        {"resources": [hub_of_key]},
        {"resources": [], "outputs": {"o": {"type": "string", "value": mistake}}},
    ):
        answer = owner.call("PUT", DEPLOYMENT, body(template))
        status = answer.headers["Azure-AsyncOperation"].removeprefix(owner.base_url).partition("?")[0]
        places = (DEPLOYMENT, f"{DEPLOYMENT}/operations", status)
        assert KEY in str([owner.ok("GET", place) for place in places])
        seen = [contributor.ok("GET", place) for place in places]
        assert KEY not in str(seen)
        assert seen[0]["properties"]["error"]["code"] == "DeploymentFailed"
        owner.ok("DELETE", DEPLOYMENT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "parameters", "message"),
    [
        (TEMPLATE, {}, "parameter 'prefix' is not provided"),
        (TEMPLATE, {"prefix": "x"}, "violates minLength 2"),
        (TEMPLATE, {"prefix": 1}, "not of the type 'string'"),
        (TEMPLATE, {"prefix": "xx", "days": 2}, "allowed values 1, 7"),
        (TEMPLATE, {"prefix": "xx", "other": 2}, "'other' is not declared"),
        ([], {}, "Input should be a valid dictionary"),
        ({"resources": 1}, {}, "list of resources"),
        ({"resources": [{"type": "A/b", "apiVersion": "x"}]}, {}, "a type, a name and an apiVersion"),
        ({"resources": [{"type": "A/b/c", "name": "x", "apiVersion": "x"}]}, {}, "incorrect segment lengths"),
        ({"resources": [{"type": "A/b", "name": "[x", "apiVersion": "x", "dependsOn": ["y"]}]}, {}, "not defined"),
        ({"resources": [{"type": "A/b", "name": "[parameters('x')]", "apiVersion": "x"}]}, {}, "'x' is not found"),
        ({"resources": [{"type": "A/b", "name": "[variables('x')]", "apiVersion": "x"}]}, {}, "'x' is not found"),
        ({"resources": [{"type": "A/b", "name": "[nothing()]", "apiVersion": "x"}]}, {}, "'nothing' is not supported"),
        ({"resources": [{"type": "A/b", "name": "[concat('a]", "apiVersion": "x"}]}, {}, "is not expected"),
        (
            {
                "resources": [
                    {"type": "A/b", "name": one, "apiVersion": "x", "dependsOn": [other]}
                    for one, other in (("1", "2"), ("2", "1"))
                ]
            },
            {},
            "circular dependency",
        ),
        (
            {
                "variables": {"a": "[variables('b')]", "b": "[variables('a')]"},
                "resources": [{"type": "A/b", "name": "[variables('a')]", "apiVersion": "x"}],
            },
            {},
            "refers to itself",
        ),
    ],
)
def test_a_template_that_is_wrong_is_refused(api: Api, template: Any, parameters: Any, message: str) -> None:
    for method, path in (("PUT", DEPLOYMENT), ("POST", f"{DEPLOYMENT}/validate")):
        answer = api.call(method, path, body(template, **parameters))
        assert answer.status == 400
        assert message in answer.json["error"]["message"]


def test_what_is_not_supported_says_so(api: Api) -> None:
    linked = {"properties": {"mode": "Incremental", "templateLink": {"uri": "https://x"}}}
    assert "not fetched" in api.call("PUT", DEPLOYMENT, linked).json["error"]["message"]
    complete = {"properties": {"mode": "Complete", "template": {"resources": []}}}
    assert "Incremental" in api.call("PUT", DEPLOYMENT, complete).json["error"]["message"]
    assert api.call("POST", f"{DEPLOYMENT}/whatIf", {}).code == "NotSupported"


def test_templates_are_expanded_in_a_process_of_their_own(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_here(*_arguments: Any, **_options: Any) -> None:
        raise AssertionError("the hub's process expands a template")

    monkeypatch.setattr("tidegate.azure.templates.template.Template.__init__", not_here)
    monkeypatch.setattr("tidegate.azure.templates.evaluation.Evaluator.__init__", not_here)
    template = {"resources": [], "outputs": {"a": {"type": "string", "value": "[concat('b', 'c')]"}}}
    api.ok("PUT", DEPLOYMENT, body(template))
    assert api.ok("GET", DEPLOYMENT)["properties"]["outputs"]["a"]["value"] == "bc"


def test_a_template_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.azure.management.deployments._MODULE", "asyncio")  # reads, and never answers
    with pytest.raises(ArmError, match="make it smaller"):
        ExpandedTemplate({"resources": []}, None, {}, timeout_s=0.1)


@pytest.mark.slow
def test_nested_deployments_are_counted_together(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.azure.management.deployments.MAX_RESOURCES", 5)
    inner = {
        "type": "Microsoft.Resources/deployments",
        "apiVersion": "2021-04-01",
        "name": "[format('inner{0}', copyIndex())]",
        "copy": {"name": "c", "count": 3},
        "properties": {
            "mode": "Incremental",
            "expressionEvaluationOptions": {"scope": "inner"},
            "template": {
                "resources": [
                    {
                        "type": "Microsoft.Resources/deployments",
                        "apiVersion": "2021-04-01",
                        "name": "[format('innermost{0}', copyIndex())]",
                        "copy": {"name": "d", "count": 2},
                        "properties": {"mode": "Incremental", "template": {"resources": []}},
                    }
                ]
            },
        },
    }
    api.ok("PUT", DEPLOYMENT, body({"resources": [inner]}))
    properties = api.ok("GET", DEPLOYMENT)["properties"]
    assert properties["provisioningState"] == "Failed"
    assert "more than 5 resources" in str(properties["error"])
