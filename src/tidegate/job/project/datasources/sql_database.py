"""Azure SQL Database and SQL Server: an output, and reference data from queries."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tidegate.job.project.datasources.kinds import DATA_SOURCES, DataSource


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
