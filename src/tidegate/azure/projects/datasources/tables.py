"""Tables: SQL Database, PostgreSQL, Synapse, Cosmos DB, Table storage and Data Explorer."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar
from urllib.parse import quote

from pydantic import Field

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, DataSource, Role, SectionSettings, no_counterpart
from tidegate.azure.projects.datasources.secrets import (
    Secrets,
    address_of,
    given,
    host_of,
    missing,
    named_part,
    part_of,
    storage_connection_string,
    variable_of,
)
from tidegate.azure.projects.model.endpoint import Endpoint, seconds_of
from tidegate.connectors.model.errors import ProjectError

_EXAMPLE = "postgresql://USER:PASSWORD@HOST/DATABASE"


class InDatabase(DataSource):
    """A table of a server's database, by default of SQL Server; what is described with its password can be reached."""

    names: ClassVar[tuple[str, ...]] = ()
    template_types: ClassVar[tuple[str, ...]] = ()
    sections: ClassVar[tuple[str, ...]] = ()
    noun: ClassVar[str] = "database"
    example: ClassVar[str] = _EXAMPLE

    server: str | None = Field(default=None, alias="Server")
    database: str | None = Field(default=None, alias="Database")
    user: str | None = Field(default=None, alias="User")
    password: str | None = Field(default=None, alias="Password")
    table: str | None = Field(default=None, alias="Table")
    authentication_mode: str | None = Field(default=None, alias="AuthenticationMode")

    def own_url(self, password: str | None) -> str | None:
        """Return the URL of the database; None if it is not described with a password."""
        return sql_server_url(self.server, self.database, self.user, password)

    def output_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        """The database is one that can be written here, by its connection string, or the one that is described."""
        password = secrets.password(endpoint.name) or given(self.password)
        connection = secrets.connection_string(endpoint.name) or self.own_url(password)
        if connection is None:
            described = f"the table {self.table} of the {self.noun} {self.database} of {self.server}"
            raise missing("output", endpoint.name, described, variable_of(endpoint.name), self.example)
        return table_section(endpoint, connection, self.table or endpoint.name)


@DATA_SOURCES.register
class SqlDatabase(InDatabase):
    """A table of a database, or the queries that read one as reference data."""

    names: ClassVar[tuple[str, ...]] = ("SQL Database", "Azure SQL Database")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.Sql/Server/Database",)
    sections: ClassVar[tuple[str, ...]] = ("SQLDatabaseProperties", "SqlReferenceInputInfo", "SqlReferenceProperties")
    texts: ClassVar[Mapping[str, str]] = {".snapshot.sql": "FullSnapshotQuery", ".delta.sql": "DeltaSnapshotQuery"}

    max_writer_count: int | None = Field(default=None, alias="MaxWriterCount")
    max_batch_count: int | None = Field(default=None, alias="MaxBatchCount")
    refresh_type: str | None = Field(default=None, alias="RefreshType")
    refresh_rate: str | None = Field(default=None, alias="RefreshRate")
    full_snapshot_query: str | None = Field(default=None, alias="FullSnapshotQuery")
    delta_snapshot_query: str | None = Field(default=None, alias="DeltaSnapshotQuery")

    def output_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        section = super().output_section(endpoint, secrets)
        if self.max_batch_count and "batch_rows" in section:
            section["batch_rows"] = min(section["batch_rows"], self.max_batch_count)
        return section

    def reference_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        """The database is one that can be read here, by its connection string."""
        connection = secrets.connection_string(endpoint.name)
        if connection is None:
            described = f"reference data from the database {self.database} of {self.server}"
            raise missing("input", endpoint.name, described, variable_of(endpoint.name), _EXAMPLE)
        query = self.full_snapshot_query or (f"SELECT * FROM {self.table}" if self.table else "")
        if not query:
            raise _without_query(endpoint.name, "FullSnapshotQuery", "snapshot")
        section: SectionSettings = {"type": "sql_reference", "connection_string": connection, "snapshot_query": query}
        match _refresh_of(endpoint.name, self.refresh_type):
            case _Refresh.STATIC:
                return {**section, "refresh": "never"}
            case _Refresh.FULL:
                pass
            case _Refresh.DELTA:
                if not self.delta_snapshot_query:
                    raise _without_query(endpoint.name, "DeltaSnapshotQuery", "delta")
                section["delta_query"] = self.delta_snapshot_query
        if not self.refresh_rate:
            return section
        return {**section, "refresh_s": seconds_of(self.refresh_rate, f"the input {endpoint.name}: RefreshRate")}

    @classmethod
    def of_section(cls, role: Role, section: Mapping[str, Any]) -> SectionSettings | None:
        if role != "output" or section["type"] != "sqlserver":
            return None
        address = address_of(section["connection_string"])
        return {**address, "Table": section["table"], "MaxBatchCount": section["batch_rows"]}


class _Refresh(Enum):
    """How reference data is kept up to date, as project files and templates write it."""

    STATIC = "Static"
    FULL = "RefreshPeriodicallyWithFull"
    DELTA = "RefreshPeriodicallyWithDelta"


def _refresh_of(name: str, written: str | None) -> _Refresh:
    if written is None:
        return _Refresh.STATIC
    found = next((one for one in _Refresh if one.value.lower() == written.lower()), None)
    if found is None:
        known = ", ".join(one.value for one in _Refresh)
        raise ProjectError(f"the input {name}: RefreshType: expected one of {known}, got {written!r}")
    return found


def _without_query(name: str, setting: str, kind: str) -> ProjectError:
    return ProjectError(
        f"the input {name} has no {kind} query: write it to {name}.{kind}.sql beside the input's file, "
        f"or to its setting {setting}"
    )


def sql_server_url(server: str | None, database: str | None, user: str | None, password: str | None) -> str | None:
    """Return the URL of a database of SQL Server that is described with its password; None if that is missing.

    A name without dots is that of a server in Azure.
    """
    if not (server and database and user and password):
        return None
    host = host_of(server.removeprefix("tcp:").replace(",", ":"), ".database.windows.net")
    return f"sqlserver://{quote(user, safe='')}:{quote(password, safe='')}@{host}/{quote(database, safe='')}"


def table_section(endpoint: Endpoint, connection: str, table: str) -> SectionSettings:
    """Return the section of an output to a table of the database that a connection string names.

    The schema `dbo` of SQL Server is left out elsewhere, as other databases have none of that name.

    Raises:
        NoCounterpartError: no output here writes to such a database.
    """
    plain = table.replace("[", "").replace("]", "")
    plain = plain[4:] if plain.lower().startswith("dbo.") else plain
    scheme, _, rest = connection.partition("://")
    if scheme == "sqlserver":
        named = table.replace("[", "").replace("]", "")
        return {"type": "sqlserver", "connection_string": connection, "table": named, "batch_rows": 1_000}
    if scheme == "mysql":
        return {"type": "mysql", "connection_string": connection, "table": plain, "batch_rows": 1_000}
    if scheme in ("postgresql", "postgres"):
        return {"type": "postgresql", "connection_string": connection, "table": plain}
    if scheme == "sqlite":
        return {"type": "sqlite", "path": rest.removeprefix("/"), "table": plain}
    raise no_counterpart("output", endpoint, f"and no output here writes to {scheme[:20]}://…")


@DATA_SOURCES.register
class PostgreSql(InDatabase):
    """A table of a database."""

    names: ClassVar[tuple[str, ...]] = ("Azure Database for PostgreSQL", "PostgreSQL")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.DBForPostgreSQL/servers/databases",)
    sections: ClassVar[tuple[str, ...]] = ("PostgreSQLProperties",)

    max_writer_count: int | None = Field(default=None, alias="MaxWriterCount")

    def own_url(self, password: str | None) -> str | None:
        if password is None or not self.server:
            return None
        user = f"{quote(self.user or '', safe='')}:{quote(password, safe='')}"
        return f"postgresql://{user}@{host_of(self.server, '')}/{quote(self.database or '', safe='')}"

    @classmethod
    def of_section(cls, role: Role, section: Mapping[str, Any]) -> SectionSettings | None:
        if role != "output" or section["type"] != "postgresql":
            return None
        return {**address_of(section["connection_string"]), "Table": section["table"]}


@DATA_SOURCES.register
class Synapse(InDatabase):
    """A table of a dedicated SQL pool."""

    names: ClassVar[tuple[str, ...]] = ("Azure Synapse Analytics", "Azure SQL Data Warehouse", "SQL Data Warehouse")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.Sql/Server/DataWarehouse",)
    sections: ClassVar[tuple[str, ...]] = ("AzureSynapseProperties", "SQLDataWarehouseProperties")
    noun: ClassVar[str] = "pool"
    example: ClassVar[str] = "sqlserver://USER:PASSWORD@HOST/DATABASE"


@DATA_SOURCES.register
class CosmosDb(DataSource):
    """A container of a database."""

    names: ClassVar[tuple[str, ...]] = ("Cosmos DB", "Document DB", "Azure Cosmos DB")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.Storage/DocumentDB",)
    sections: ClassVar[tuple[str, ...]] = ("DocumentDbProperties", "CosmosDbProperties")
    required: ClassVar[Mapping[Role, tuple[str, ...]]] = {"output": ("Database",)}

    account_id: str | None = Field(default=None, alias="AccountId")
    account_key: str | None = Field(default=None, alias="AccountKey")
    database: str | None = Field(default=None, alias="Database")
    collection_name_pattern: str | None = Field(default=None, alias="CollectionNamePattern")
    container_name: str | None = Field(default=None, alias="ContainerName")
    """What newer descriptions call it."""
    partition_key: str | None = Field(default=None, alias="PartitionKey")
    document_id: str | None = Field(default=None, alias="DocumentId")
    authentication_mode: str | None = Field(default=None, alias="AuthenticationMode")

    def output_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        container = self.collection_name_pattern or self.container_name
        if not container:
            raise ProjectError(f"the output {endpoint.name}: CollectionNamePattern (or ContainerName) has no value")
        connection = secrets.connection_string(endpoint.name)
        key = given(self.account_key)
        if connection is None and key is not None:
            host = host_of(self.account_id or "", ".documents.azure.com")
            connection = f"AccountEndpoint=https://{host}:443/;AccountKey={part_of(key, 'its key')};"
        if connection is None:
            described = f"the container {container} of {self.account_id}"
            example = "AccountEndpoint=https://…;AccountKey=…;"
            raise missing("output", endpoint.name, described, variable_of(endpoint.name), example)
        section: SectionSettings = {
            "type": "cosmosdb",
            "connection_string": connection,
            "database": self.database or "",
            "container": container,
        }
        return {**section, "document_id": self.document_id} if self.document_id else section

    @classmethod
    def of_section(cls, role: Role, section: Mapping[str, Any]) -> SectionSettings | None:
        if section["type"] != "cosmosdb":
            return None
        endpoint = named_part(section["connection_string"], "AccountEndpoint") or ""
        return {
            "AccountId": endpoint.partition("://")[2].partition(".")[0],
            "Database": section["database"],
            "CollectionNamePattern": section["container"],
            "DocumentId": section["document_id"],
        }


@DATA_SOURCES.register
class TableStorage(DataSource):
    """A table of a storage account."""

    names: ClassVar[tuple[str, ...]] = ("Table Storage", "Azure Table Storage")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.Storage/Table",)
    sections: ClassVar[tuple[str, ...]] = ("TableStorageProperties",)
    required: ClassVar[Mapping[Role, tuple[str, ...]]] = {"output": ("Table", "PartitionKey", "RowKey")}

    account_name: str | None = Field(default=None, alias="AccountName")
    account_key: str | None = Field(default=None, alias="AccountKey")
    table: str | None = Field(default=None, alias="Table")
    partition_key: str | None = Field(default=None, alias="PartitionKey")
    row_key: str | None = Field(default=None, alias="RowKey")
    columns_to_remove: tuple[str, ...] = Field(default=(), alias="ColumnsToRemove")
    batch_size: int | None = Field(default=None, alias="BatchSize")

    def output_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        own = secrets.own_storage(self.account_name, self.account_key)
        connection = secrets.connection_string(endpoint.name) or own or secrets.storage()
        if connection is None:
            described = f"the table {self.table} of {self.account_name}"
            example = storage_connection_string(str(self.account_name), "…")
            raise missing("output", endpoint.name, described, variable_of(endpoint.name), example)
        section: SectionSettings = {
            "type": "tablestorage",
            "connection_string": connection,
            "table": self.table or "",
            "partition_key": self.partition_key or "",
            "row_key": self.row_key or "",
        }
        section |= {"columns_to_remove": list(self.columns_to_remove)} if self.columns_to_remove else {}
        return section | ({"batch_size": min(self.batch_size, 100)} if self.batch_size else {})

    @classmethod
    def of_section(cls, role: Role, section: Mapping[str, Any]) -> SectionSettings | None:
        if section["type"] != "tablestorage":
            return None
        return {
            "AccountName": named_part(section["connection_string"], "AccountName"),
            "Table": section["table"],
            "PartitionKey": section["partition_key"],
            "RowKey": section["row_key"],
            "ColumnsToRemove": list(section["columns_to_remove"]),
            "BatchSize": section["batch_size"],
        }


@DATA_SOURCES.register
class DataExplorer(DataSource):
    """A table of a cluster."""

    names: ClassVar[tuple[str, ...]] = ("Azure Data Explorer", "Kusto")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.Kusto/clusters/databases",)
    sections: ClassVar[tuple[str, ...]] = ("KustoProperties", "AzureDataExplorerProperties")

    cluster: str | None = Field(default=None, alias="Cluster")
    database: str | None = Field(default=None, alias="Database")
    table: str | None = Field(default=None, alias="Table")
    authentication_mode: str | None = Field(default=None, alias="AuthenticationMode")
