"""Azure SQL Database and SQL Server: an output, and reference data from queries."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar
from urllib.parse import quote

from pydantic import Field

from tidegate.azure.projects.datasources.kinds import (
    DATA_SOURCES,
    DataSource,
    Role,
    SectionSettings,
    no_counterpart,
)
from tidegate.azure.projects.datasources.secrets import Secrets, address_of, given, host_of, missing, variable_of
from tidegate.azure.projects.model.endpoint import Endpoint, seconds_of
from tidegate.connectors.model.errors import ProjectError

_EXAMPLE = "postgresql://USER:PASSWORD@HOST/DATABASE"


@DATA_SOURCES.register
class SqlDatabase(DataSource):
    """A table of a database, or the queries that read one as reference data."""

    names: ClassVar[tuple[str, ...]] = ("SQL Database", "Azure SQL Database")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.Sql/Server/Database",)
    sections: ClassVar[tuple[str, ...]] = ("SQLDatabaseProperties", "SqlReferenceInputInfo", "SqlReferenceProperties")
    texts: ClassVar[Mapping[str, str]] = {".snapshot.sql": "FullSnapshotQuery", ".delta.sql": "DeltaSnapshotQuery"}

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
        """See ``DataSource.output_section``.

        The database is one that can be written here, by its connection string, or the one described with a password.
        """
        password = secrets.password(endpoint.name) or given(self.password)
        connection = secrets.connection_string(endpoint.name) or sql_server_url(
            self.server, self.database, self.user, password
        )
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
        if not query:
            raise _without_query(endpoint.name, "FullSnapshotQuery", "snapshot")
        section: SectionSettings = {"type": "sql_reference", "connection_string": connection, "snapshot_query": query}
        match _refresh_of(endpoint.name, self.refresh_type):
            case _Refresh.STATIC:
                return {**section, "refresh": "never"}
            case _Refresh.FULL:
                pass
            case _Refresh.DELTA:
                if not self.delta_snapshot_query:
                    raise _without_query(endpoint.name, "DeltaSnapshotQuery", "delta")
                section["delta_query"] = self.delta_snapshot_query
        if not self.refresh_rate:
            return section
        return {**section, "refresh_s": seconds_of(self.refresh_rate, f"the input {endpoint.name}: RefreshRate")}

    @classmethod
    def of_section(cls, role: Role, section: Mapping[str, Any]) -> SectionSettings | None:
        if role != "output" or section["type"] != "sqlserver":
            return None
        address = address_of(section["connection_string"])
        return {**address, "Table": section["table"], "MaxBatchCount": section["batch_rows"]}


class _Refresh(Enum):
    """How reference data is kept up to date, as project files and templates write it."""

    STATIC = "Static"
    FULL = "RefreshPeriodicallyWithFull"
    DELTA = "RefreshPeriodicallyWithDelta"


def _refresh_of(name: str, written: str | None) -> _Refresh:
    if written is None:
        return _Refresh.STATIC
    found = next((one for one in _Refresh if one.value.lower() == written.lower()), None)
    if found is None:
        known = ", ".join(one.value for one in _Refresh)
        raise ProjectError(f"the input {name}: RefreshType: expected one of {known}, got {written!r}")
    return found


def _without_query(name: str, setting: str, kind: str) -> ProjectError:
    return ProjectError(
        f"the input {name} has no {kind} query: write it to {name}.{kind}.sql beside the input's file, "
        f"or to its setting {setting}"
    )


def sql_server_url(server: str | None, database: str | None, user: str | None, password: str | None) -> str | None:
    """Return the URL of a database of SQL Server that is described with its password; None if that is missing.

    A name without dots is that of a server in Azure.
    """
    if not (server and database and user and password):
        return None
    host = host_of(server.removeprefix("tcp:").replace(",", ":"), ".database.windows.net")
    return f"sqlserver://{quote(user, safe='')}:{quote(password, safe='')}@{host}/{quote(database, safe='')}"


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
