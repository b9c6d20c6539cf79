"""Jobs written as templates: in the shapes that Azure publishes, without secrets, and read back as the same job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.azure.projects.datasources.examples import INPUTS, OUTPUTS
from tests.job.projects import JOB_CONFIG, write_json, write_project
from tidegate.azure.projects.datasources.kinds import DATA_SOURCES
from tidegate.azure.projects.reading import read_project
from tidegate.azure.projects.template_export import ExportedTemplate, export_job, export_project
from tidegate.job.config.definition import definition_of, read_definition

# The names of Microsoft.StreamAnalytics@2021-10-01-preview, by the type of a data source.
ACCOUNT = {"storageAccounts", "container", "pathPattern", "dateFormat", "timeFormat", "authenticationMode"}
POLICY = {"serviceBusNamespace", "sharedAccessPolicyName", "sharedAccessPolicyKey", "authenticationMode"}
TABLE = {"server", "database", "user", "password", "table"}
PUBLISHED: dict[str, dict[str, set[str]]] = {
    "inputs": {
        "Microsoft.EventHub/EventHub": POLICY | {"eventHubName", "consumerGroupName"},
        "Microsoft.Devices/IotHubs": {
            *("iotHubNamespace", "endpoint", "consumerGroupName"),
            *("sharedAccessPolicyName", "sharedAccessPolicyKey"),
        },
        "Microsoft.Storage/Blob": ACCOUNT | {"sourcePartitionCount"},
        "Microsoft.Sql/Server/Database": TABLE
        | {"refreshType", "refreshRate", "fullSnapshotQuery", "deltaSnapshotQuery", "authenticationMode"},
    },
    "outputs": {
        "Microsoft.EventHub/EventHub": POLICY | {"eventHubName", "partitionKey", "propertyColumns"},
        "Microsoft.Storage/Blob": ACCOUNT | {"blobPathPrefix", "blobWriteMode"},
        "Microsoft.Sql/Server/Database": TABLE | {"maxBatchCount", "maxWriterCount", "authenticationMode"},
        "Microsoft.Sql/Server/DataWarehouse": TABLE | {"authenticationMode"},
        "Microsoft.DBForPostgreSQL/servers/databases": TABLE | {"maxWriterCount", "authenticationMode"},
        "Microsoft.ServiceBus/Queue": POLICY | {"queueName", "propertyColumns", "systemPropertyColumns"},
        "Microsoft.ServiceBus/Topic": POLICY | {"topicName", "propertyColumns", "systemPropertyColumns"},
        "Microsoft.AzureFunction": {"functionAppName", "functionName", "apiKey", "maxBatchSize", "maxBatchCount"},
        "Microsoft.Storage/DocumentDB": {
            *("accountId", "accountKey", "database", "collectionNamePattern", "partitionKey", "documentId"),
            "authenticationMode",
        },
        "Microsoft.Storage/Table": {
            *("accountName", "accountKey", "table", "partitionKey", "rowKey", "columnsToRemove", "batchSize"),
        },
        "PowerBI": {"dataset", "table", "groupId", "groupName", "authenticationMode", "refreshToken"},
        "Microsoft.DataLake/Accounts": {
            *("accountName", "filePathPrefix", "dateFormat", "timeFormat", "authenticationMode"),
            *("refreshToken", "tenantId"),
        },
        "Microsoft.Kusto/clusters/databases": {"cluster", "database", "table", "authenticationMode"},
    },
}
PROPERTIES = {
    "inputs": {"type", "datasource", "serialization", "compression", "partitionKey"},
    "outputs": {"datasource", "serialization", "sizeWindow", "timeWindow"},
}
SERIALIZATIONS = {
    "Json": {"encoding", "format"},
    "Csv": {"encoding", "fieldDelimiter"},
    "Avro": set[str](),
    "Parquet": set[str](),
    "Delta": {"deltaTablePath", "partitionColumns"},
    "CustomClr": {"serializationClassName", "serializationDllPath"},
}
QUERY = "SELECT udf.shout(zone) AS zone INTO [out] FROM [in]"
SHOUT = {
    "Name": "shout",
    "Type": "Scalar",
    "ScriptType": "JSFunction",
    "FunctionInputs": [{"DataType": "nvarchar(max)", "IsConfigurationParameter": None}],
    "OutputType": "nvarchar(max)",
}
SCRIPT = "function shout(text) { return text.toUpperCase(); }"
# Kafka is not among the types that are published.
WITHOUT_A_TYPE = {"Kafka"}


def project(folder: Path, *, query: str = QUERY, **parts: dict[str, Any]) -> Path:
    """A project with these inputs and outputs, by sub type."""
    listed = []
    for kind, content in parts.items():
        path = f"{kind}s/{content['Name']}.json"
        write_json(folder / path, content)
        listed.append({"filePath": path, "subType": kind})
    return write_project(folder, query=query, configurations=listed, config=JOB_CONFIG)


def job_of(exported: ExportedTemplate) -> dict[str, Any]:
    (job,) = exported.content["resources"]
    assert isinstance(job, dict)
    return job


def check_part(kind: str, part: dict[str, Any]) -> None:
    """Check an input or output against the published names."""
    properties = part["properties"]
    assert set(properties) <= PROPERTIES[kind]
    source = properties["datasource"]
    assert set(source["properties"]) <= PUBLISHED[kind][source["type"]]
    if kind == "inputs":
        assert properties["type"] in ("Stream", "Reference")
    if "serialization" in properties:
        written = properties["serialization"]
        assert set(written["properties"]) <= SERIALIZATIONS[written["type"]]


EVERY = [
    *(pytest.param("Input", one, id=f"input: {name}") for name, one in INPUTS.items() if name not in WITHOUT_A_TYPE),
    *(pytest.param("Output", one, id=f"output: {name}") for name, one in OUTPUTS.items() if name not in WITHOUT_A_TYPE),
]


@pytest.mark.parametrize(("part", "content"), EVERY)
def test_every_kind_has_the_published_shape_and_comes_back(part: str, content: dict[str, Any], tmp_path: Path) -> None:
    exported = export_project(read_project(project(tmp_path / "project", **{part: content})))
    assert exported.notes == ()
    kind = "inputs" if part == "Input" else "outputs"
    (written,) = job_of(exported)["properties"][kind]
    check_part(kind, written)
    back = read_project(write_json(tmp_path / "job.json", exported.content))
    before = read_project(tmp_path / "project")
    (one,) = (back.inputs if kind == "inputs" else back.outputs).values()
    (other,) = (before.inputs if kind == "inputs" else before.outputs).values()
    plain, same = DATA_SOURCES.of(one), DATA_SOURCES.of(other)
    assert plain is not None
    assert same is not None
    known = {key: value for key, value in same.model_dump().items() if value not in (None, "********")}
    assert known.items() <= plain.model_dump().items() or kind == "inputs"
    assert (one.is_reference, one.format, one.maximum_time) == (other.is_reference, other.format, other.maximum_time)


def test_secrets_are_parameters_that_a_deployment_asks_for(tmp_path: Path) -> None:
    path = project(tmp_path, Input=INPUTS["Blob Storage"], Output=OUTPUTS["SQL Database"])
    exported = export_project(read_project(path))
    secret = {name for name, one in exported.content["parameters"].items() if one["type"] == "securestring"}
    assert secret == {"in_accountKey", "out_password"}
    assert not any("defaultValue" in exported.content["parameters"][name] for name in secret)
    text = json.dumps(exported.content)
    assert '"accountKey": "[parameters(\'in_accountKey\')]"' in text
    assert '"password": "[parameters(\'out_password\')]"' in text


def test_a_managed_identity_needs_no_secret(tmp_path: Path) -> None:
    blob = {**OUTPUTS["Blob Storage"]["BlobStorageProperties"], "AuthenticationMode": "Msi"}
    path = project(tmp_path, Output={**OUTPUTS["Blob Storage"], "BlobStorageProperties": blob})
    exported = export_project(read_project(path))
    assert set(exported.content["parameters"]) == {"jobName", "location"}
    (output,) = job_of(exported)["properties"]["outputs"]
    assert output["properties"]["datasource"]["properties"]["storageAccounts"] == [{"accountName": "account"}]


def test_the_job_itself_is_what_the_service_takes(tmp_path: Path) -> None:
    exported = export_project(read_project(project(tmp_path, query="[not an expression]")))
    job = job_of(exported)
    assert set(exported.content) == {"$schema", "contentVersion", "parameters", "resources"}
    assert (job["type"], job["apiVersion"]) == ("Microsoft.StreamAnalytics/streamingjobs", "2021-10-01-preview")
    properties = job["properties"]
    assert properties["outputErrorPolicy"] == "Stop"
    assert properties["eventsOutOfOrderPolicy"] == "Adjust"
    assert (properties["sku"], properties["compatibilityLevel"]) == ({"name": "StandardV2"}, "1.2")
    assert properties["transformation"]["properties"] == {"streamingUnits": 3, "query": "[[not an expression]"}
    assert read_project(write_json(tmp_path / "job.json", exported.content)).sql == "[not an expression]"


def test_functions_in_javascript_are_written_with_their_text(tmp_path: Path) -> None:
    path = project(tmp_path, JSFunction=SHOUT)
    (tmp_path / "JSFunctions" / "shout.js").write_text(SCRIPT)
    (function,) = job_of(export_project(read_project(path)))["properties"]["functions"]
    assert function == {
        "name": "shout",
        "properties": {
            "type": "Scalar",
            "properties": {
                "inputs": [{"dataType": "nvarchar(max)"}],
                "output": {"dataType": "nvarchar(max)"},
                "binding": {"type": "Microsoft.StreamAnalytics/JavascriptUdf", "properties": {"script": SCRIPT}},
            },
        },
    }


def test_what_templates_do_not_have_is_left_out_and_said(tmp_path: Path) -> None:
    path = project(
        tmp_path,
        Output={"Name": "out", "DataSourceType": "Azure Quantum"},
        CSharpFunction={"Name": "f", "Type": "Scalar"},
    )
    exported = export_project(read_project(path))
    assert "outputs" not in job_of(exported)["properties"]
    assert exported.notes == (
        "outputs.out is of Azure Quantum, which templates do not have: it is left out",
        "functions.f: only functions in JavaScript and models are written, it is left out",
    )


JOB = """
name = "rides"
query = "SELECT * INTO out FROM rides"

[event_ordering]
late_arrival_tolerance_s = 7

[inputs.rides]
type = "eventhub"
connection_string = "Endpoint=sb://city.servicebus.windows.net/;SharedAccessKeyName=listen;SharedAccessKey=c2VjcmV0;EntityPath=rides"
format = "csv"
delimiter = ";"
compression = "gzip"

[inputs.devices]
type = "iothub"
connection_string = "Endpoint=sb://ihsuprod.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=c2VjcmV0;EntityPath=things"

[inputs.old]
type = "files"
path = "az://lake/rides/{date}/{time}"
date_format = "YYYY/MM/DD"
time_format = "HH"

[inputs.zones]
type = "reference"
path = "az://tables/zones.csv"
format = "csv"

[inputs.local]
type = "recorded"
path = "log.jsonl"

[outputs.out]
type = "eventhub"
connection_string = "Endpoint=sb://city.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey=c2VjcmV0;EntityPath=totals"
partition_key = "zone"
"""


def test_a_job_file_is_written_too(tmp_path: Path) -> None:
    (tmp_path / "rides.toml").write_text(JOB)
    exported = export_job(read_definition(tmp_path / "rides.toml"))
    assert "c2VjcmV0" not in json.dumps(exported.content)
    assert exported.notes == ("inputs.local is of type recorded, which the service does not have: it is left out",)
    properties = job_of(exported)["properties"]
    assert properties["eventsLateArrivalMaxDelayInSeconds"] == 7
    for kind in ("inputs", "outputs"):
        for part in properties[kind]:
            check_part(kind, part)
    rides, devices, old, zones = (part["properties"] for part in properties["inputs"])
    assert rides["datasource"]["properties"] == {
        "serviceBusNamespace": "city",
        "eventHubName": "rides",
        "sharedAccessPolicyName": "listen",
        "sharedAccessPolicyKey": "[parameters('rides_sharedAccessPolicyKey')]",
        "authenticationMode": "ConnectionString",
        "consumerGroupName": "$Default",
    }
    assert rides["serialization"] == {"type": "Csv", "properties": {"encoding": "UTF8", "fieldDelimiter": ";"}}
    assert rides["compression"] == {"type": "GZip"}
    assert devices["datasource"]["properties"]["iotHubNamespace"] == "things"
    blobs = old["datasource"]["properties"]
    assert (blobs["container"], blobs["pathPattern"]) == ("lake", "rides/{date}/{time}")
    assert (blobs["dateFormat"], blobs["timeFormat"]) == ("yyyy/MM/dd", "HH")
    assert blobs["storageAccounts"] == [
        {"accountName": "[parameters('old_accountName')]", "accountKey": "[parameters('old_accountKey')]"}
    ]
    assert zones["type"] == "Reference"


POLICY_STRING = "Endpoint=sb://city.example.com/;SharedAccessKeyName=send;SharedAccessKey=sEcReT"
SECTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Azure Database for PostgreSQL": (
        {"type": "postgresql", "connection_string": "postgresql://me%40x:sEcReT@db/city", "table": "rides"},
        {"server": "db", "database": "city", "user": "me@x", "table": "rides"},
    ),
    "SQL Database": (
        {"type": "sqlserver", "connection_string": "sqlserver://me:sEcReT@db/city", "table": "dbo.rides"},
        {"server": "db", "database": "city", "user": "me", "table": "dbo.rides"},
    ),
    "Service Bus Queue": (
        {"type": "servicebus", "connection_string": POLICY_STRING, "queue": "q", "property_columns": ["zone"]},
        {"service_bus_namespace": "city", "queue_name": "q", "property_columns": ("zone",)},
    ),
    "Service Bus Topic": (
        {"type": "servicebus", "connection_string": POLICY_STRING, "topic": "t"},
        {"service_bus_namespace": "city", "topic_name": "t", "shared_access_policy_name": "send"},
    ),
    "Cosmos DB": (
        {
            "type": "cosmosdb",
            "connection_string": "AccountEndpoint=https://city.example.com:443/;AccountKey=sEcReT;",
            **{"database": "d", "container": "c", "document_id": "zone"},
        },
        {"account_id": "city", "database": "d", "collection_name_pattern": "c", "document_id": "zone"},
    ),
    "Table Storage": (
        {
            "type": "tablestorage",
            "connection_string": "AccountName=city;AccountKey=sEcReT;",
            **{"table": "rides", "partition_key": "zone", "row_key": "zone", "columns_to_remove": ["zone"]},
        },
        {"account_name": "city", "table": "rides", "partition_key": "zone", "columns_to_remove": ("zone",)},
    ),
    "Azure Function": (
        {
            **{"type": "webhook", "url": "https://city.azurewebsites.net/api/count%20cars?code=sEcReT"},
            **{"key": "sEcReT", "max_batch_count": 7, "max_batch_bytes": 5_000},
        },
        {"function_app_name": "city", "function_name": "count cars", "max_batch_count": 7, "max_batch_size": 5_000},
    ),
    "Power BI": (
        {"type": "powerbi", "push_url": "https://api.example.com/beta/t/datasets/d/rows?key=sEcReT"},
        {"dataset": "out", "table": "out", "group_id": None, "authentication_mode": "UserToken"},
    ),
    "Kafka": (
        {
            **{"type": "kafka", "bootstrap_servers": "b:9092", "topic": "t", "security_protocol": "sasl_ssl"},
            **{"username": "u", "password": "sEcReT"},
        },
        {"bootstrap_servers": "b:9092", "topic_name": "t", "security_type": "SASL_SSL", "sasl_mechanism": "PLAIN"},
    ),
}


AFTER_DEPLOYMENT = {
    "Power BI": (
        "outputs.out, after the deployment: authorize it in the portal, where its workspace can be chosen too",
    )
}


@pytest.mark.parametrize("kind", list(SECTIONS))
def test_an_output_of_a_job_file_comes_back_as_its_kind(kind: str, tmp_path: Path) -> None:
    section, expected = SECTIONS[kind]
    job = {"name": "rides", "query": "SELECT zone INTO out FROM i", "outputs": {"out": section}}
    job["inputs"] = {"i": {"type": "eventhub", "connection_string": f"{POLICY_STRING};EntityPath=rides"}}
    exported = export_job(definition_of(job, tmp_path / "rides.toml"))
    assert exported.notes == AFTER_DEPLOYMENT.get(kind, ())
    assert "sEcReT" not in json.dumps(exported.content)
    project = read_project(write_json(tmp_path / "job.json", exported.content))
    assert project.outputs["out"].data_source_type == kind
    source = DATA_SOURCES.of(project.outputs["out"])
    assert source is not None
    assert source.model_dump().items() >= expected.items()
    written = [one["properties"] for one in job_of(exported)["properties"]["outputs"]]
    if kind not in WITHOUT_A_TYPE:
        assert set(written[0]["datasource"]["properties"]) <= PUBLISHED["outputs"][written[0]["datasource"]["type"]]


@pytest.mark.parametrize(
    "url", ["https://city.example.com/api/f", "https://city.azurewebsites.net/f", "https://city.azurewebsites.net/api/"]
)
def test_a_webhook_that_is_no_function_of_azure_is_left_out_and_said(url: str, tmp_path: Path) -> None:
    job = {"name": "rides", "query": "SELECT zone INTO out FROM i", "outputs": {"out": {"type": "webhook", "url": url}}}
    job["inputs"] = {"i": {"type": "eventhub", "connection_string": f"{POLICY_STRING};EntityPath=rides"}}
    exported = export_job(definition_of(job, tmp_path / "rides.toml"))
    assert exported.notes == ("outputs.out is of type webhook, which the service does not have: it is left out",)
    assert "outputs" not in job_of(exported)["properties"]
