"""Azure Data Lake Storage Gen1, an output of older projects; the service was retired in 2024."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, DataSource


@DATA_SOURCES.register
class DataLakeGen1(DataSource):
    """Files of an account."""

    names: ClassVar[tuple[str, ...]] = ("Azure Data Lake Store", "Data Lake Store", "Azure Data Lake Storage Gen1")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.DataLake/Accounts",)
    sections: ClassVar[tuple[str, ...]] = ("AzureDataLakeStoreProperties",)

    account_name: str | None = Field(default=None, alias="AccountName")
    file_path_prefix: str | None = Field(default=None, alias="FilePathPrefix")
    date_format: str | None = Field(default=None, alias="DateFormat")
    time_format: str | None = Field(default=None, alias="TimeFormat")
    authentication_mode: str | None = Field(default=None, alias="AuthenticationMode")
