"""Azure Database for PostgreSQL, an output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import quote

from pydantic import Field

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, DataSource, Role, SectionSettings
from tidegate.azure.projects.datasources.secrets import Secrets, address_of, given, host_of, missing, variable_of
from tidegate.azure.projects.datasources.sql_database import table_section
from tidegate.azure.projects.model.endpoint import Endpoint


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

    def output_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        """See ``DataSource.output_section``. A password is enough for the project's own database."""
        connection = secrets.connection_string(endpoint.name)
        password = secrets.password(endpoint.name) or given(self.password)
        if connection is None and password is not None and self.server:
            user = f"{quote(self.user or '', safe='')}:{quote(password, safe='')}"
            host = host_of(self.server, "")
            connection = f"postgresql://{user}@{host}/{quote(self.database or '', safe='')}"
        if connection is None:
            described = f"the table {self.table} of the database {self.database} of {self.server}"
            example = "postgresql://USER:PASSWORD@HOST/DATABASE"
            raise missing("output", endpoint.name, described, variable_of(endpoint.name), example)
        return table_section(endpoint, connection, self.table or endpoint.name)

    @classmethod
    def of_section(cls, role: Role, section: Mapping[str, Any]) -> SectionSettings | None:
        if role != "output" or section["type"] != "postgresql":
            return None
        return {**address_of(section["connection_string"]), "Table": section["table"]}
