"""Table storage, an output: entities of a table."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tidegate.job.project.datasources.kinds import DATA_SOURCES, DataSource


@DATA_SOURCES.register
class TableStorage(DataSource):
    """A table of a storage account."""

    names: ClassVar[tuple[str, ...]] = ("Table Storage", "Azure Table Storage")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.Storage/Table",)
    sections: ClassVar[tuple[str, ...]] = ("TableStorageProperties",)

    account_name: str | None = Field(default=None, alias="AccountName")
    account_key: str | None = Field(default=None, alias="AccountKey")
    table: str | None = Field(default=None, alias="Table")
    partition_key: str | None = Field(default=None, alias="PartitionKey")
    row_key: str | None = Field(default=None, alias="RowKey")
    columns_to_remove: tuple[str, ...] = Field(default=(), alias="ColumnsToRemove")
    batch_size: int | None = Field(default=None, alias="BatchSize")
