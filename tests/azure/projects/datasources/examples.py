"""An input or output of every kind, as the extension of Visual Studio Code writes it."""

from __future__ import annotations

from typing import Any

NO_KEY = {"AuthenticationMode": "ConnectionString"}
JSON_LINES = {"Type": "Json", "Encoding": "UTF8", "Format": "LineSeparated"}
ACCOUNT = {"StorageAccounts": [{"AccountName": "account", "AccountKey": None}]}
POLICY = {"SharedAccessPolicyName": "RootManageSharedAccessKey", "SharedAccessPolicyKey": None, **NO_KEY}
DATABASE = {"Server": "server", "Database": "database", "User": "user", "Password": "********", "Table": "rows"}


def an_input(kind: str, section: str, settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An input."""
    return {
        "Name": "in",
        "Type": "Data Stream",
        "DataSourceType": kind,
        section: settings,
        "DataSourceCredentialDomain": "10d74682-af83-4b3f-b905-89f266ef9d8f.StreamAnalystics",
        "Serialization": {"Type": "Json", "Encoding": "UTF8"},
        "PartitionKey": None,
        "CompressionType": "None",
        "ScriptType": "Input",
        **more,
    }


def an_output(kind: str, section: str, settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An output."""
    return {
        "Name": "out",
        "DataSourceType": kind,
        section: settings,
        "DataSourceCredentialDomain": None,
        "Serialization": JSON_LINES,
        "ScriptType": "Output",
        **more,
    }


REFERENCE = {"Type": "Reference data"}
FILES = {**ACCOUNT, "Container": "files", "DateFormat": "yyyy/MM/dd", "TimeFormat": "HH", **NO_KEY}
EVENT_HUB = {"ServiceBusNamespace": "namespace", "EventHubName": "hub", **POLICY}

INPUTS: dict[str, dict[str, Any]] = {
    "Event Hub": an_input("Event Hub", "EventHubProperties", {**EVENT_HUB, "ConsumerGroupName": "$Default"}),
    "IoT Hub": an_input(
        "IoT Hub",
        "IoTHubProperties",
        {
            "IotHubNamespace": "devices",
            "Endpoint": "messages/events",
            "SharedAccessPolicyName": "iothubowner",
            "SharedAccessPolicyKey": "********",
            "ConsumerGroupName": "$Default",
        },
    ),
    "Blob Storage": an_input(
        "Blob Storage",
        "BlobStorageProperties",
        {**FILES, "PathPattern": "rides/{date}/{time}", "SourcePartitionCount": 1},
    ),
    "Kafka": an_input(
        "Kafka",
        "KafkaProperties",
        {"BootstrapServers": "broker:9092", "TopicName": "rides", "ConsumerGroupId": "jobs"},
    ),
    "reference data, blobs": an_input(
        "Blob Storage", "BlobReferenceProperties", {**FILES, "PathPattern": "zones/{date}/{time}.json"}, **REFERENCE
    ),
    "reference data, SQL": an_input(
        "SQL Database",
        "SqlReferenceProperties",
        {
            **DATABASE,
            "RefreshType": "RefreshPeriodicallyWithDelta",
            "RefreshRate": "00:05:00",
            "FullSnapshotQuery": "SELECT id, name FROM zones",
            "DeltaSnapshotQuery": "SELECT id, name FROM zones WHERE changed > @deltaStartTime",
        },
        **REFERENCE,
    ),
}
OUTPUTS: dict[str, dict[str, Any]] = {
    "Event Hub": an_output(
        "Event Hub", "EventHubProperties", {**EVENT_HUB, "PartitionKey": "zone", "PropertyColumns": ["zone"]}
    ),
    "Blob Storage": an_output(
        "Blob Storage",
        "BlobStorageProperties",
        {**FILES, "PathPattern": "totals/{datetime:yyyy}/{datetime:MM}/{zone}", "BlobWriteMode": "Append"},
        MinimumRows=100,
        MaximumTime="00:05:00",
    ),
    "SQL Database": an_output(
        "SQL Database",
        "SQLDatabaseProperties",
        {**DATABASE, "MaxWriterCount": 1, "MaxBatchCount": 10000, **NO_KEY},
        Serialization=None,
    ),
    "Azure Synapse Analytics": an_output(
        "Azure Synapse Analytics", "AzureSynapseProperties", {**DATABASE, **NO_KEY}, Serialization=None
    ),
    "PostgreSQL": an_output(
        "Azure Database for PostgreSQL",
        "PostgreSQLProperties",
        {**DATABASE, "MaxWriterCount": 1, **NO_KEY},
        Serialization=None,
    ),
    "Service Bus Queue": an_output(
        "Service Bus Queue",
        "ServiceBusQueueProperties",
        {
            "ServiceBusNamespace": "namespace",
            "QueueName": "alerts",
            **POLICY,
            "PropertyColumns": ["zone"],
            "SystemPropertyColumns": {"MessageId": "id", "PartitionKey": "zone"},
        },
    ),
    "Service Bus Topic": an_output(
        "Service Bus Topic",
        "ServiceBusTopicProperties",
        {"ServiceBusNamespace": "namespace", "TopicName": "alerts", **POLICY, "PropertyColumns": ["zone"]},
    ),
    "Azure Function": an_output(
        "Azure Function",
        "AzureFunctionProperties",
        {
            "FunctionAppName": "app",
            "FunctionName": "alert",
            "ApiKey": None,
            "MaxBatchSize": 262144,
            "MaxBatchCount": 100,
        },
        Serialization=None,
    ),
    "Cosmos DB": an_output(
        "Cosmos DB",
        "DocumentDbProperties",
        {
            "AccountId": "account",
            "AccountKey": None,
            "Database": "database",
            "CollectionNamePattern": "rows",
            "PartitionKey": "zone",
            "DocumentId": "id",
        },
        Serialization=None,
    ),
    "Table Storage": an_output(
        "Table Storage",
        "TableStorageProperties",
        {
            "AccountName": "account",
            "AccountKey": None,
            "Table": "rows",
            "PartitionKey": "zone",
            "RowKey": "id",
            "ColumnsToRemove": ["zone"],
            "BatchSize": 100,
        },
        Serialization=None,
    ),
    "Power BI": an_output(
        "Power BI",
        "PowerBIProperties",
        {"GroupId": "group", "GroupName": "My workspace", "Dataset": "rides", "Table": "rows"},
        Serialization=None,
    ),
    "Data Lake Gen1": an_output(
        "Azure Data Lake Store",
        "AzureDataLakeStoreProperties",
        {"AccountName": "lake", "FilePathPrefix": "rows/{date}", "DateFormat": "yyyy/MM/dd", "TimeFormat": "HH"},
    ),
    "Azure Data Explorer": an_output(
        "Azure Data Explorer",
        "KustoProperties",
        {"Cluster": "https://cluster.region.kusto.windows.net", "Database": "database", "Table": "rows"},
        Serialization=None,
    ),
    "Kafka": an_output("Kafka", "KafkaProperties", {"BootstrapServers": "broker:9092", "TopicName": "totals"}),
}
