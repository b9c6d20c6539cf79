"""Azure Synapse Analytics, an output: a table of a dedicated SQL pool."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tidegate.job.project.datasources.kinds import DATA_SOURCES, DataSource


@DATA_SOURCES.register
class Synapse(DataSource):
    """A table of a dedicated SQL pool."""

    names: ClassVar[tuple[str, ...]] = ("Azure Synapse Analytics", "Azure SQL Data Warehouse", "SQL Data Warehouse")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.Sql/Server/DataWarehouse",)
    sections: ClassVar[tuple[str, ...]] = ("AzureSynapseProperties", "SQLDataWarehouseProperties")

    server: str | None = Field(default=None, alias="Server")
    database: str | None = Field(default=None, alias="Database")
    user: str | None = Field(default=None, alias="User")
    password: str | None = Field(default=None, alias="Password")
    table: str | None = Field(default=None, alias="Table")
    authentication_mode: str | None = Field(default=None, alias="AuthenticationMode")
