"""Azure Data Explorer, an output: a table of a cluster."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, DataSource


@DATA_SOURCES.register
class DataExplorer(DataSource):
    """A table of a cluster."""

    names: ClassVar[tuple[str, ...]] = ("Azure Data Explorer", "Kusto")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.Kusto/clusters/databases",)
    sections: ClassVar[tuple[str, ...]] = ("KustoProperties", "AzureDataExplorerProperties")

    cluster: str | None = Field(default=None, alias="Cluster")
    database: str | None = Field(default=None, alias="Database")
    table: str | None = Field(default=None, alias="Table")
    authentication_mode: str | None = Field(default=None, alias="AuthenticationMode")
