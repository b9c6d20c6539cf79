"""Azure Synapse Analytics, an output: a table of a dedicated SQL pool."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, DataSource, SectionSettings
from tidegate.azure.projects.datasources.secrets import Secrets, given, missing, variable_of
from tidegate.azure.projects.datasources.sql_database import sql_server_url, table_section
from tidegate.azure.projects.model.endpoint import Endpoint


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

    def output_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        """See ``DataSource.output_section``; it is found as a SQL Database is."""
        password = secrets.password(endpoint.name) or given(self.password)
        connection = secrets.connection_string(endpoint.name) or sql_server_url(
            self.server, self.database, self.user, password
        )
        if connection is None:
            described = f"the table {self.table} of the pool {self.database} of {self.server}"
            example = "sqlserver://USER:PASSWORD@HOST/DATABASE"
            raise missing("output", endpoint.name, described, variable_of(endpoint.name), example)
        return table_section(endpoint, connection, self.table or endpoint.name)
