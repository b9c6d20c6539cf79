"""Files: Blob storage, Data Lake Storage Gen2 and Gen1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, DataSource, Role, SectionSettings, no_counterpart
from tidegate.azure.projects.datasources.secrets import (
    STORAGE_VARIABLES,
    Secrets,
    missing,
    named_part,
    storage_connection_string,
)
from tidegate.azure.projects.model.endpoint import Endpoint, delimiter_of, seconds_of
from tidegate.azure.projects.model.project_file import ProjectFile
from tidegate.connectors.model.errors import ProjectError

_FILE_FORMATS = ("json", "csv", "avro", "parquet")
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe", " ": "space"}


class StorageAccount(ProjectFile):
    """A storage account."""

    account_name: str | None = Field(default=None, alias="AccountName")
    account_key: str | None = Field(default=None, alias="AccountKey")


@DATA_SOURCES.register
class BlobStorage(DataSource):
    """Files of a container."""

    names: ClassVar[tuple[str, ...]] = ("Blob Storage", "Blob Storage/ADLS Gen2", "Data Lake Storage Gen2", "ADLS Gen2")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.Storage/Blob",)
    sections: ClassVar[tuple[str, ...]] = ("BlobStorageProperties", "BlobReferenceProperties")
    required: ClassVar[Mapping[Role, tuple[str, ...]]] = {
        "input": ("Container",),
        "reference": ("Container", "PathPattern"),
        "output": ("Container",),
    }

    storage_accounts: tuple[StorageAccount, ...] = Field(default=(), alias="StorageAccounts")
    container: str | None = Field(default=None, alias="Container")
    path_pattern: str | None = Field(default=None, alias="PathPattern")
    date_format: str | None = Field(default=None, alias="DateFormat")
    time_format: str | None = Field(default=None, alias="TimeFormat")
    source_partition_count: int | None = Field(default=None, alias="SourcePartitionCount")
    authentication_mode: str | None = Field(default=None, alias="AuthenticationMode")
    blob_write_mode: str | None = Field(default=None, alias="BlobWriteMode")

    def input_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        return {"type": "files", **self.files("input", endpoint, secrets), **endpoint.format_settings()}

    def reference_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        return {"type": "reference", **self.files("input", endpoint, secrets), **endpoint.format_settings()}

    def output_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        written = endpoint.serialization
        if endpoint.format == "delta" and written is not None and written.delta_table_path:
            files = self.files("output", endpoint, secrets)
            path = f"{files['path'].partition('://')[0]}://{self.container}/{written.delta_table_path.strip('/')}"
            account = {name: files[name] for name in ("connection_string",) if name in files}
            return {"type": "deltalake", "path": path, **account, "partition_by": list(written.partition_columns)}
        if endpoint.format not in (None, *_FILE_FORMATS):
            raise no_counterpart("output", endpoint)
        section: SectionSettings = {"type": "files", **self.files("output", endpoint, secrets)}
        if endpoint.format is not None:
            section["format"] = endpoint.format
        if endpoint.format == "json" and written is not None and (written.format or "").lower() == "array":
            section["json_format"] = "array"
        if endpoint.format == "csv" and written is not None and written.field_delimiter:
            section["csv_delimiter"] = _DELIMITERS.get(delimiter_of(written.field_delimiter), "comma")
        if endpoint.minimum_rows:
            section["minimum_rows"] = endpoint.minimum_rows
        if endpoint.maximum_time:
            section["maximum_time_s"] = seconds_of(endpoint.maximum_time, f"the output {endpoint.name}: MaximumTime")
        match (self.blob_write_mode or "append").lower():
            case "append":
                return section
            case "once":
                return {**section, "write_mode": "once"}
            case _:
                raise ProjectError(
                    f"the output {endpoint.name}: BlobWriteMode: expected Append or Once, got {self.blob_write_mode!r}"
                )

    @classmethod
    def of_section(cls, role: Role, section: Mapping[str, Any]) -> SectionSettings | None:
        """Only a container has a counterpart in the service, a folder has not."""
        path = str(section.get("path", ""))
        if section["type"] not in ("files", "reference", "deltalake") or not path.startswith("az://"):
            return None
        container, _, pattern = path.removeprefix("az://").partition("/")
        connection = section.get("connection_string")
        account: SectionSettings = {
            "StorageAccounts": [{"AccountName": None if connection is None else named_part(connection, "AccountName")}],
            "AuthenticationMode": "ConnectionString",
            "Container": container,
        }
        if section["type"] == "deltalake":  # its path is a setting of the format
            return account
        settings: SectionSettings = {
            **account,
            "PathPattern": pattern,
            "DateFormat": str(section["date_format"]).replace("YYYY", "yyyy").replace("DD", "dd"),
            "TimeFormat": section["time_format"],
        }
        match role:
            case "reference":
                return settings
            case "input":
                return {**settings, "SourcePartitionCount": section["partitions"]}
            case "output":
                return {**settings, "BlobWriteMode": str(section["write_mode"]).capitalize()}

    def files(self, what: str, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        """Return the settings for files of a container.

        The account's key is in the variable of the input or output, with the account, or in the variables of Azure's
        tools.

        Raises:
            ProjectError: it is in none of them.
        """
        account = next((one for one in self.storage_accounts if one.account_name), StorageAccount())
        connection = secrets.connection_string(endpoint.name)
        if connection is not None and connection.lower().startswith("endpoint="):
            connection = None  # of an event hub that takes the container's place
        connection = connection or secrets.own_storage(account.account_name, account.account_key)
        if connection is None and not secrets.has_storage():
            name = account.account_name or "an account"
            described = f"the container {self.container} of {name}"
            raise missing(what, endpoint.name, described, STORAGE_VARIABLES[0], storage_connection_string(name, "…"))
        section: SectionSettings = {"path": f"az://{self.container}/{(self.path_pattern or '').lstrip('/')}"}
        if connection is not None:
            section["connection_string"] = connection
        if self.date_format:
            section["date_format"] = self.date_format.upper()
        if self.time_format:
            section["time_format"] = self.time_format
        return section


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
