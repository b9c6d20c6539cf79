"""Azure SQL Database and SQL Server: an output, and reference data from queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from tidegate.job.project.datasources.kinds import (
    DATA_SOURCES,
    DataSource,
    Role,
    SectionSettings,
    no_counterpart,
)
from tidegate.job.project.datasources.secrets import Secrets, address_of, missing, variable_of
from tidegate.job.project.model.endpoint import Endpoint, seconds_of

_EXAMPLE = "postgresql://USER:PASSWORD@HOST/DATABASE"


@DATA_SOURCES.register
class SqlDatabase(DataSource):
    """A table of a database, or the queries that read one as reference data."""

    names: ClassVar[tuple[str, ...]] = ("SQL Database", "Azure SQL Database")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.Sql/Server/Database",)
    sections: ClassVar[tuple[str, ...]] = ("SQLDatabaseProperties", "SqlReferenceInputInfo", "SqlReferenceProperties")

    server: str | None = Field(default=None, alias="Server")
    database: str | None = Field(default=None, alias="Database")
    user: str | None = Field(default=None, alias="User")
    password: str | None = Field(default=None, alias="Password")
    table: str | None = Field(default=None, alias="Table")
    max_writer_count: int | None = Field(default=None, alias="MaxWriterCount")
    max_batch_count: int | None = Field(default=None, alias="MaxBatchCount")
    authentication_mode: str | None = Field(default=None, alias="AuthenticationMode")
    refresh_type: str | None = Field(default=None, alias="RefreshType")
    refresh_rate: str | None = Field(default=None, alias="RefreshRate")
    full_snapshot_query: str | None = Field(default=None, alias="FullSnapshotQuery")
    delta_snapshot_query: str | None = Field(default=None, alias="DeltaSnapshotQuery")

    def output_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        """See ``DataSource.output_section``. The database is one that can be written here, by its connection string."""
        connection = secrets.connection_string(endpoint.name)
        if connection is None:
            described = f"the table {self.table} of the database {self.database} of {self.server}"
            raise missing("output", endpoint.name, described, variable_of(endpoint.name), _EXAMPLE)
        section = table_section(endpoint, connection, self.table or endpoint.name)
        if self.max_batch_count and "batch_rows" in section:
            section["batch_rows"] = min(section["batch_rows"], self.max_batch_count)
        return section

    def reference_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        """See ``DataSource.reference_section``. The database is one that can be read here, by its connection string."""
        connection = secrets.connection_string(endpoint.name)
        if connection is None:
            described = f"reference data from the database {self.database} of {self.server}"
            raise missing("input", endpoint.name, described, variable_of(endpoint.name), _EXAMPLE)
        query = self.full_snapshot_query or (f"SELECT * FROM {self.table}" if self.table else "")
        section: SectionSettings = {"type": "sql_reference", "connection_string": connection, "snapshot_query": query}
        how = (self.refresh_type or "Static").lower()
        if how == "static":
            return {**section, "refresh": "never"}
        if how.endswith("delta") and self.delta_snapshot_query:
            section["delta_query"] = self.delta_snapshot_query
        return {**section, "refresh_s": seconds_of(self.refresh_rate, "RefreshRate")} if self.refresh_rate else section

    @classmethod
    def of_section(cls, role: Role, section: Mapping[str, Any]) -> SectionSettings | None:
        """See ``DataSource.of_section``."""
        if role != "output" or section["type"] != "sqlserver":
            return None
        address = address_of(section["connection_string"])
        return {**address, "Table": section["table"], "MaxBatchCount": section["batch_rows"]}


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
