"""Cosmos DB, an output: documents of a container."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tidegate.job.project.datasources.kinds import DATA_SOURCES, DataSource


@DATA_SOURCES.register
class CosmosDb(DataSource):
    """A container of a database."""

    names: ClassVar[tuple[str, ...]] = ("Cosmos DB", "Document DB", "Azure Cosmos DB")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.Storage/DocumentDB",)
    sections: ClassVar[tuple[str, ...]] = ("DocumentDbProperties", "CosmosDbProperties")

    account_id: str | None = Field(default=None, alias="AccountId")
    account_key: str | None = Field(default=None, alias="AccountKey")
    database: str | None = Field(default=None, alias="Database")
    collection_name_pattern: str | None = Field(default=None, alias="CollectionNamePattern")
    partition_key: str | None = Field(default=None, alias="PartitionKey")
    document_id: str | None = Field(default=None, alias="DocumentId")
    authentication_mode: str | None = Field(default=None, alias="AuthenticationMode")
