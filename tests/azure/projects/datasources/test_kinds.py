"""Every kind of source and sink: as project files write it, as templates write it, and as a section here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.azure.projects.datasources.examples import INPUTS, OUTPUTS
from tests.job.projects import write_json
from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, DataSource, NoCounterpartError
from tidegate.azure.projects.datasources.secrets import Secrets, given, variable_of
from tidegate.azure.projects.model.endpoint import Endpoint
from tidegate.azure.projects.model.project_file import parse_project_file
from tidegate.azure.projects.reading import read_project
from tidegate.connectors.model.errors import ProjectError

EVERY = [
    *(pytest.param("inputs", one, id=f"input: {name}") for name, one in INPUTS.items()),
    *(pytest.param("outputs", one, id=f"output: {name}") for name, one in OUTPUTS.items()),
]
STORAGE = "DefaultEndpointsProtocol=https;AccountName={account};AccountKey={key};EndpointSuffix=core.windows.net"
KEYS = Secrets(
    {
        "IN_CONNECTION_STRING": "Endpoint=sb://h;SharedAccessKeyName=a;SharedAccessKey=b",
        "OUT_CONNECTION_STRING": "Endpoint=sb://h;SharedAccessKeyName=a;SharedAccessKey=b;EntityPath=own",
        "AZURE_STORAGE_CONNECTION_STRING": "UseDevelopmentStorage=true",
    }
)


def endpoint_of(content: dict[str, Any]) -> Endpoint:
    return parse_project_file(content, Endpoint, "not an endpoint")


def settings_of(content: dict[str, Any]) -> dict[str, Any]:
    (section,) = (key for key in content if key.endswith("Properties"))
    settings = content[section]
    assert isinstance(settings, dict)
    return settings


def source_of(endpoint: Endpoint) -> DataSource:
    source = DATA_SOURCES.of(endpoint)
    assert source is not None
    return source


def camel(value: Any) -> Any:
    """Settings as templates name them."""
    if isinstance(value, dict):
        return {key[:1].lower() + key[1:]: camel(inner) for key, inner in value.items()}
    return [camel(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("part", "content"), EVERY)
def test_every_setting_that_concerns_a_run_is_read(part: str, content: dict[str, Any]) -> None:
    source = source_of(endpoint_of(content))
    known = {field.alias for field in type(source).model_fields.values()}
    assert set(settings_of(content)) <= known
    assert content["DataSourceType"] in type(source).names


@pytest.mark.parametrize(("part", "content"), EVERY)
def test_a_template_says_the_same(part: str, content: dict[str, Any], tmp_path: Path) -> None:
    kind = type(source_of(endpoint_of(content)))
    for number, written in enumerate(kind.template_types):
        properties = {
            "type": "Reference" if content.get("Type") == "Reference data" else "Stream",
            "datasource": {"type": written, "properties": camel(settings_of(content))},
            "serialization": None
            if content["Serialization"] is None
            else {"type": content["Serialization"]["Type"], "properties": camel(content["Serialization"])},
            "sizeWindow": content.get("MinimumRows"),
            "timeWindow": content.get("MaximumTime"),
        }
        job = {
            "type": "Microsoft.StreamAnalytics/streamingjobs",
            "name": "job",
            "properties": {
                "compatibilityLevel": "1.2",
                "transformation": {"properties": {"query": "SELECT * INTO out FROM [in]"}},
                part: [{"name": content["Name"], "properties": properties}],
            },
        }
        project = read_project(write_json(tmp_path / f"{number}.json", {"resources": [job]}))
        (endpoint,) = (project.inputs if part == "inputs" else project.outputs).values()
        assert source_of(endpoint) == source_of(endpoint_of(content))
        assert (endpoint.minimum_rows, endpoint.maximum_time) == (
            content.get("MinimumRows"),
            content.get("MaximumTime"),
        )


def test_visual_studio_writes_a_section_for_every_kind_and_the_one_with_a_value_counts() -> None:
    content = dict.fromkeys(("BlobStorageProperties", "PowellBIProperties", "SQLDatabaseProperties"))
    endpoint = endpoint_of({**INPUTS["Event Hub"], **content})
    assert list(endpoint.sections) == ["EventHubProperties"]


def test_a_section_under_an_unknown_name_is_read_if_it_is_the_only_one() -> None:
    content = {**OUTPUTS["Power BI"], "PowerBiSinkProperties": OUTPUTS["Power BI"]["PowerBIProperties"]}
    del content["PowerBIProperties"]
    assert source_of(endpoint_of(content)) == source_of(endpoint_of(OUTPUTS["Power BI"]))


def test_a_setting_of_the_wrong_type_is_named() -> None:
    content = {**OUTPUTS["SQL Database"], "SQLDatabaseProperties": {"MaxBatchCount": "many"}}
    with pytest.raises(
        ProjectError, match=r"out is not .*SQL Database:\n  SQLDatabaseProperties.MaxBatchCount: .*'many'"
    ):
        DATA_SOURCES.of(endpoint_of(content))


def test_no_two_kinds_share_a_name() -> None:
    class Copy(DataSource):
        names = ("Event Hub",)
        template_types = ()
        sections = ()

    with pytest.raises(ValueError, match="event hub: Copy and EventHub"):
        DATA_SOURCES.register(Copy)


def test_an_event_hub_takes_its_key_from_a_template_whose_parameters_give_it() -> None:
    content = {**INPUTS["Event Hub"]}
    content["EventHubProperties"] = {**content["EventHubProperties"], "SharedAccessPolicyKey": "c2VjcmV0"}
    endpoint = endpoint_of(content)
    section = source_of(endpoint).input_section(endpoint, Secrets({}))
    assert section["connection_string"] == (
        "Endpoint=sb://namespace.servicebus.windows.net/;"
        "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=c2VjcmV0"
    )
    assert source_of(endpoint).input_section(endpoint, KEYS)["connection_string"].startswith("Endpoint=sb://h;")


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("Event Hub", {"ServiceBusNamespace": "HOST/x#", "SharedAccessPolicyKey": "k"}),
        ("Event Hub", {"SharedAccessPolicyName": "a;Endpoint=sb://HOST", "SharedAccessPolicyKey": "k"}),
        ("Event Hub", {"SharedAccessPolicyKey": "k;Endpoint=sb://HOST"}),
        ("Service Bus Queue", {"ServiceBusNamespace": "x@HOST/", "SharedAccessPolicyKey": "k"}),
        ("Service Bus Topic", {"SharedAccessPolicyKey": "k;Endpoint=sb://HOST"}),
        ("Cosmos DB", {"AccountId": "HOST/.", "AccountKey": "k"}),
        ("Cosmos DB", {"AccountKey": "k;AccountEndpoint=https://HOST"}),
        ("SQL Database", {"Server": "8.8.8.8/d?host=HOST&x=", "Password": "p"}),
        ("SQL Database", {"Server": "HOST\\instance.x", "Password": "p"}),
        ("Azure Synapse Analytics", {"Server": "8.8.8.8/d?host=HOST&x=", "Password": "p"}),
        ("PostgreSQL", {"Server": "8.8.8.8,HOST", "Password": "p"}),
        ("PostgreSQL", {"Server": "%2Ftmp", "Password": "p"}),
        ("Azure Function", {"FunctionAppName": "HOST/x?."}),
        ("Table Storage", {"AccountName": "lake", "AccountKey": "k;TableEndpoint=http://HOST"}),
        ("Blob Storage", {"StorageAccounts": [{"AccountName": "x;BlobEndpoint=http://HOST", "AccountKey": "k"}]}),
    ],
)
def test_a_setting_is_no_more_of_an_address_than_it_says(kind: str, settings: dict[str, Any]) -> None:
    content = next(one for one in OUTPUTS.values() if kind in type(source_of(endpoint_of(one))).names)
    (section,) = (key for key in content if key.endswith("Properties"))
    content = {**content, section: {**content[section], **settings}}
    endpoint = endpoint_of(content)
    with pytest.raises(ProjectError, match=r"is not the name or address of a server|no connection string can hold"):
        source_of(endpoint).output_section(endpoint, Secrets({}))


def test_the_database_of_postgresql_is_no_more_of_its_address() -> None:
    content = next(one for one in OUTPUTS.values() if one["DataSourceType"] == "PostgreSQL" or "PostgreSQL" in str(one))
    (name,) = (key for key in content if key.endswith("Properties"))
    changed = {"Server": "h", "User": "u", "Password": "p", "Database": "d?host=127.0.0.1"}
    endpoint = endpoint_of({**content, name: {**content[name], **changed}})
    section = source_of(endpoint).output_section(endpoint, Secrets({}))
    assert section["connection_string"] == "postgresql://u:p@h/d%3Fhost%3D127.0.0.1"


def test_asterisks_are_no_key() -> None:
    assert given("********") is None
    assert given("") is None
    assert given("k*y") == "k*y"


def test_the_variable_is_named_after_the_input() -> None:
    assert variable_of("Taxi-Ride.5") == "TAXI_RIDE_5_CONNECTION_STRING"


@pytest.mark.parametrize(
    ("serialization", "expected"),
    [
        (None, {}),
        ({"Type": "Json", "Format": "LineSeparated"}, {}),
        ({"Type": "Json", "Format": "Array"}, {"json_format": "array"}),
        ({"Type": "Csv", "FieldDelimiter": "\t"}, {"format": "csv", "csv_delimiter": "tab"}),
        ({"Type": "Csv", "FieldDelimiter": "verticalBar"}, {"format": "csv", "csv_delimiter": "pipe"}),
        ({"Type": "Avro"}, {"format": "avro"}),
    ],
)
def test_events_have_the_format_of_the_project(serialization: dict[str, Any] | None, expected: dict[str, Any]) -> None:
    content = {**OUTPUTS["Event Hub"], "Serialization": serialization}
    content["EventHubProperties"] = {**content["EventHubProperties"], "SystemPropertyColumns": {"MessageId": "id"}}
    endpoint = endpoint_of(content)
    assert source_of(endpoint).output_section(endpoint, KEYS) == {
        "type": "eventhub",
        "connection_string": KEYS.variables["OUT_CONNECTION_STRING"],
        "partition_key": "zone",
        "property_columns": ["zone"],
        "system_property_columns": {"MessageId": "id"},
        **expected,
    }


@pytest.mark.parametrize("serialization", [{"Type": "Parquet"}, {"Type": "Csv", "FieldDelimiter": "~"}])
def test_a_format_that_messages_cannot_have(serialization: dict[str, Any]) -> None:
    endpoint = endpoint_of({**OUTPUTS["Event Hub"], "Serialization": serialization})
    with pytest.raises(NoCounterpartError, match=serialization["Type"]):
        source_of(endpoint).output_section(endpoint, KEYS)


def test_a_topic_of_kafka_takes_its_password_from_the_environment() -> None:
    content = {**INPUTS["Kafka"]}
    endpoint = endpoint_of(content)
    plain = {"type": "kafka", "bootstrap_servers": "broker:9092", "topic": "rides", "consumer_group": "jobs"}
    assert source_of(endpoint).input_section(endpoint, KEYS) == {**plain, "format": "json"}
    signed_in = {"SecurityType": "SASL_SSL", "Username": "me", "SaslMechanism": "Plain"}
    endpoint = endpoint_of({**content, "KafkaProperties": {**content["KafkaProperties"], **signed_in}})
    section = source_of(endpoint).input_section(endpoint, Secrets({"IN_PASSWORD": "secret"}))
    assert section.items() >= {"username": "me", "password": "secret", "sasl_mechanism": "PLAIN"}.items()
    with pytest.raises(ProjectError, match="export IN_PASSWORD="):
        source_of(endpoint).input_section(endpoint, KEYS)


def output_section(kind: str, secrets: Secrets = KEYS, **settings: Any) -> dict[str, Any]:
    """The section for an output of a kind, with other settings where given."""
    content = {**OUTPUTS[kind]}
    (section,) = (key for key in content if key.endswith("Properties"))
    content[section] = {**content[section], **settings}
    endpoint = endpoint_of(content)
    return source_of(endpoint).output_section(endpoint, secrets)


def test_queues_and_topics_are_outputs_to_service_bus() -> None:
    key = Secrets({"OUT_CONNECTION_STRING": "Endpoint=sb://h;SharedAccessKeyName=a;SharedAccessKey=b"})
    common = {"type": "servicebus", "connection_string": key.variables["OUT_CONNECTION_STRING"]}
    assert output_section("Service Bus Queue", key) == {
        **common,
        "queue": "alerts",
        "property_columns": ["zone"],
        "system_property_columns": {"MessageId": "id", "PartitionKey": "zone"},
    }
    assert output_section("Service Bus Topic", key) == {**common, "topic": "alerts", "property_columns": ["zone"]}
    assert "topic" not in output_section("Service Bus Topic")  # the string has an EntityPath
    with pytest.raises(ProjectError, match=r"out is the queue alerts of namespace, .*: export OUT_CONNECTION_STRING="):
        output_section("Service Bus Queue", Secrets({}))


def test_topics_of_kafka_are_outputs() -> None:
    plain = {"type": "kafka", "topic": "totals", "bootstrap_servers": "broker:9092"}
    assert output_section("Kafka", Secrets({})) == plain
    signed = {"SecurityType": "SASL_SSL", "SaslMechanism": "SCRAM-SHA-256", "Username": "u"}
    assert output_section("Kafka", Secrets({"OUT_PASSWORD": "p"}), **signed) == {
        **plain,
        "security_protocol": "sasl_ssl",
        "sasl_mechanism": "SCRAM-SHA-256",
        "username": "u",
        "password": "p",
    }
    with pytest.raises(ProjectError, match="export OUT_PASSWORD="):
        output_section("Kafka", Secrets({}), **signed)
    event_hub = output_section("Kafka", KEYS)
    assert event_hub == {
        "type": "kafka",
        "topic": "totals",
        "connection_string": KEYS.variables["OUT_CONNECTION_STRING"],
    }


def test_functions_are_webhooks() -> None:
    limits = {"max_batch_bytes": 262_144, "max_batch_count": 100}
    url = {"type": "webhook", "url": "https://app.azurewebsites.net/api/alert"}
    assert output_section("Azure Function", Secrets({})) == {**url, **limits}
    assert output_section("Azure Function", Secrets({"OUT_PASSWORD": "k"}), ApiKey="other")["key"] == "k"
    assert output_section("Azure Function", Secrets({}), ApiKey="own")["key"] == "own"
    local = output_section("Azure Function", Secrets({"OUT_CONNECTION_STRING": "http://localhost:7071/api/alert"}))
    assert local["url"] == "http://localhost:7071/api/alert"


def test_documents_of_cosmos_db_are_outputs() -> None:
    settings = {"type": "cosmosdb", "database": "database", "container": "rows", "document_id": "id"}
    connection = "AccountEndpoint=https://account.documents.azure.com:443/;AccountKey=a2V5;"
    assert output_section("Cosmos DB", Secrets({}), AccountKey="a2V5") == {**settings, "connection_string": connection}
    given_ = Secrets({"OUT_CONNECTION_STRING": connection})
    assert output_section("Cosmos DB", given_, DocumentId=None).get("document_id") is None
    with pytest.raises(ProjectError, match=r"the container rows of account, .*: export OUT_CONNECTION_STRING="):
        output_section("Cosmos DB", Secrets({}))


def test_entities_of_table_storage_are_outputs() -> None:
    keys = {"partition_key": "zone", "row_key": "id", "columns_to_remove": ["zone"], "batch_size": 100}
    settings = {"type": "tablestorage", "table": "rows", **keys}
    connection = STORAGE.format(account="account", key="a2V5")
    assert output_section("Table Storage", Secrets({}), AccountKey="a2V5") == {
        **settings,
        "connection_string": connection,
    }
    storage = Secrets({"AZURE_STORAGE_CONNECTION_STRING": "UseDevelopmentStorage=true"})
    assert output_section("Table Storage", storage)["connection_string"] == "UseDevelopmentStorage=true"
    with pytest.raises(ProjectError, match=r"the table rows of account, .*: export OUT_CONNECTION_STRING="):
        output_section("Table Storage", Secrets({}))


def test_tables_of_postgresql_and_synapse_are_those_of_a_database_here() -> None:
    own = output_section("PostgreSQL", Secrets({"OUT_PASSWORD": "p/w"}))
    address = "postgresql://user:p%2Fw@server/database"
    assert own == {"type": "postgresql", "connection_string": address, "table": "rows"}
    other = Secrets({"OUT_CONNECTION_STRING": "sqlserver://h/d"})
    assert output_section("Azure Synapse Analytics", other)["type"] == "sqlserver"
    for kind in ("PostgreSQL", "Azure Synapse Analytics"):
        assert output_section(kind, Secrets({"OUT_CONNECTION_STRING": "sqlite:///rows.db"}))["path"] == "rows.db"
        with pytest.raises(ProjectError, match=r"the table rows of the .* of server, .*OUT_CONNECTION_STRING="):
            output_section(kind, Secrets({}))


def test_power_bi_needs_the_push_url_of_its_dataset() -> None:
    url = "https://api.powerbi.com/beta/x/datasets/y/rows?key=z"
    assert output_section("Power BI", Secrets({"OUT_CONNECTION_STRING": url})) == {"type": "powerbi", "push_url": url}
    with pytest.raises(NoCounterpartError, match="needs the dataset's push URL: export OUT_CONNECTION_STRING="):
        output_section("Power BI", Secrets({}))


def test_reference_data_of_a_database_is_asked_as_often_as_the_project_says() -> None:
    endpoint = endpoint_of(INPUTS["reference data, SQL"])
    secrets = Secrets({"IN_CONNECTION_STRING": "postgresql://h/d"})
    section = source_of(endpoint).reference_section(endpoint, secrets)
    assert section == {
        "type": "sql_reference",
        "connection_string": "postgresql://h/d",
        "snapshot_query": "SELECT id, name FROM zones",
        "delta_query": "SELECT id, name FROM zones WHERE changed > @deltaStartTime",
        "refresh_s": 300.0,
    }
    with pytest.raises(ProjectError, match=r"the database database of server.*export IN_CONNECTION_STRING="):
        source_of(endpoint).reference_section(endpoint, Secrets({}))


@pytest.mark.parametrize(
    ("span", "seconds"), [("00:05:00", 300), ("1.00:00:01", 86_401), ("0001-01-01T02:00:00Z", 7_200)]
)
def test_spans_are_those_of_dotnet_or_times_of_day(span: str, seconds: float) -> None:
    settings = {**INPUTS["reference data, SQL"]["SqlReferenceProperties"], "RefreshRate": span}
    endpoint = endpoint_of({**INPUTS["reference data, SQL"], "SqlReferenceProperties": settings})
    section = source_of(endpoint).reference_section(endpoint, KEYS)
    assert section["refresh_s"] == seconds


def test_blobs_are_files_with_the_settings_of_the_service() -> None:
    assert output_section("Blob Storage") == {
        "type": "files",
        "path": "az://files/totals/{datetime:yyyy}/{datetime:MM}/{zone}",
        "date_format": "YYYY/MM/DD",
        "time_format": "HH",
        "format": "json",
        "minimum_rows": 100,
        "maximum_time_s": 300.0,
    }
    assert output_section("Blob Storage", BlobWriteMode="Once")["write_mode"] == "once"
    with pytest.raises(ProjectError, match="the output out: BlobWriteMode: expected Append or Once, got 'Twice'"):
        output_section("Blob Storage", BlobWriteMode="Twice")
    csv = {**OUTPUTS["Blob Storage"], "Serialization": {"Type": "Csv", "FieldDelimiter": "|"}}
    endpoint = endpoint_of(csv)
    assert source_of(endpoint).output_section(endpoint, KEYS)["csv_delimiter"] == "pipe"


def test_delta_in_a_container_is_a_delta_table() -> None:
    delta = {"Type": "Delta", "DeltaTablePath": "/tables/rows", "PartitionColumns": ["booth"]}
    endpoint = endpoint_of({**OUTPUTS["Blob Storage"], "Serialization": delta})
    section = source_of(endpoint).output_section(endpoint, KEYS)
    assert (section["type"], section["partition_by"]) == ("deltalake", ["booth"])
    assert section["path"].startswith("az://")
    assert section["path"].endswith("/tables/rows")


def test_a_table_is_one_of_the_database_that_the_connection_string_names() -> None:
    own = Secrets({"OUT_CONNECTION_STRING": "sqlite:///rows.db"})
    assert output_section("SQL Database", own, Table="[dbo].[Rows]") == {
        "type": "sqlite",
        "path": "rows.db",
        "table": "Rows",
    }
    own = Secrets({"OUT_CONNECTION_STRING": "postgresql://h/d"})
    assert output_section("SQL Database", own)["type"] == "postgresql"
    own = Secrets({"OUT_CONNECTION_STRING": "mysql://h/d"})
    assert output_section("SQL Database", own, Table="dbo.Rows", MaxBatchCount=50) == {
        "type": "mysql",
        "connection_string": "mysql://h/d",
        "table": "Rows",
        "batch_rows": 50,
    }
    own = Secrets({"OUT_CONNECTION_STRING": "sqlserver://h/d"})
    section = output_section("SQL Database", own, Table="[dbo].[Rows]", MaxBatchCount=10_000)
    assert (section["type"], section["table"], section["batch_rows"]) == ("sqlserver", "dbo.Rows", 1_000)
    with pytest.raises(NoCounterpartError, match="no output here writes to oracle://"):
        output_section("SQL Database", Secrets({"OUT_CONNECTION_STRING": "oracle://h/d"}))
    with pytest.raises(ProjectError, match=r"the table rows of the database database.*OUT_CONNECTION_STRING"):
        output_section("SQL Database", Secrets({}))


def test_each_input_and_output_may_have_a_storage_account_of_its_own() -> None:
    own, every = (STORAGE.format(account=name, key="a2V5") for name in ("own", "every"))

    def connection(written: dict[str, str], **accounts: Any) -> Any:
        content = INPUTS["Blob Storage"]
        endpoint = endpoint_of({**content, "BlobStorageProperties": {**settings_of(content), **accounts}})
        return source_of(endpoint).input_section(endpoint, Secrets(written)).get("connection_string")

    for_every, for_it = {"AZURE_STORAGE_CONNECTION_STRING": every}, {"IN_CONNECTION_STRING": own}
    assert connection(for_every) is None  # it is read from the environment
    assert connection({**for_every, **for_it}) == own
    assert connection({**for_every, "IN_CONNECTION_STRING": "Endpoint=sb://h;SharedAccessKeyName=a"}) is None
    keyed = [{"AccountName": "own", "AccountKey": "a2V5"}]
    assert connection({}, StorageAccounts=keyed) == own
    assert connection(for_every, StorageAccounts=keyed) == own
    # Variables that name the account say where it is, and an emulator stands for every account.
    for here in (STORAGE.format(account="own", key="b3RoZXI="), "UseDevelopmentStorage=true"):
        assert connection({"AZURE_STORAGE_CONNECTION_STRING": here}, StorageAccounts=keyed) is None
    assert connection({"AZURE_STORAGE_ACCOUNT_NAME": "own"}, StorageAccounts=keyed) is None
    assert connection({"AZURE_STORAGE_ACCOUNT_NAME": "another"}, StorageAccounts=keyed) == own
    with pytest.raises(ProjectError, match="export AZURE_STORAGE_CONNECTION_STRING="):
        connection({}, StorageAccounts=[{"AccountName": "own", "AccountKey": "***"}])
