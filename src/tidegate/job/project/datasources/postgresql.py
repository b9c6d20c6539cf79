"""Azure Database for PostgreSQL, an output."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tidegate.job.project.datasources.kinds import DATA_SOURCES, DataSource


@DATA_SOURCES.register
class PostgreSql(DataSource):
    """A table of a database."""

    names: ClassVar[tuple[str, ...]] = ("Azure Database for PostgreSQL", "PostgreSQL")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.DBForPostgreSQL/servers/databases",)
    sections: ClassVar[tuple[str, ...]] = ("PostgreSQLProperties",)

    server: str | None = Field(default=None, alias="Server")
    database: str | None = Field(default=None, alias="Database")
    user: str | None = Field(default=None, alias="User")
    password: str | None = Field(default=None, alias="Password")
    table: str | None = Field(default=None, alias="Table")
    max_writer_count: int | None = Field(default=None, alias="MaxWriterCount")
    authentication_mode: str | None = Field(default=None, alias="AuthenticationMode")
