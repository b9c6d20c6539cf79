"""Azure SQL Database and SQL Server: an output, and reference data from queries."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field

from tidegate.job.model.errors import ProjectError
from tidegate.job.project.datasources.kinds import DATA_SOURCES, DataSource, SectionSettings
from tidegate.job.project.datasources.secrets import Secrets, missing, variable_of
from tidegate.job.project.model.endpoint import Endpoint

_SPAN = re.compile(r"(?:\b(\d+)\.)?(\d+):(\d+):(\d+)")


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

    def reference_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        """See ``DataSource.reference_section``. The database is one that can be read here, by its connection string."""
        connection = secrets.connection_string(endpoint.name)
        if connection is None:
            described = f"reference data from the database {self.database} of {self.server}"
            example = "postgresql://USER:PASSWORD@HOST/DATABASE"
            raise missing("input", endpoint.name, described, variable_of(endpoint.name), example)
        query = self.full_snapshot_query or (f"SELECT * FROM {self.table}" if self.table else "")
        section: SectionSettings = {"type": "sql_reference", "connection_string": connection, "snapshot_query": query}
        how = (self.refresh_type or "Static").lower()
        if how == "static":
            return {**section, "refresh": "never"}
        if how.endswith("delta") and self.delta_snapshot_query:
            section["delta_query"] = self.delta_snapshot_query
        return {**section, "refresh_s": _seconds(self.refresh_rate)} if self.refresh_rate else section


def _seconds(span: str) -> float:
    """Return the length of a time span: 00:05:00, 1.00:00:00, or the time of day that templates write for it."""
    found = _SPAN.search(span)
    if found is None:
        raise ProjectError(f"RefreshRate: expected a time span such as 00:05:00, got {span!r}")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
