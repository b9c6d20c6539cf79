"""Table storage, an output: entities of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, DataSource, Role, SectionSettings
from tidegate.azure.projects.datasources.secrets import (
    Secrets,
    missing,
    named_part,
    storage_connection_string,
    variable_of,
)
from tidegate.azure.projects.model.endpoint import Endpoint


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
