"""Cosmos DB, an output: documents of a container."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, DataSource, Role, SectionSettings
from tidegate.azure.projects.datasources.secrets import (
    Secrets,
    given,
    host_of,
    missing,
    named_part,
    part_of,
    variable_of,
)
from tidegate.azure.projects.model.endpoint import Endpoint
from tidegate.connectors.model.errors import ProjectError


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
