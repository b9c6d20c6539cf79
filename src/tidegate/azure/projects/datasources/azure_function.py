"""Azure Functions, an output: batches of rows over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from pydantic import Field

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, DataSource, Role, SectionSettings
from tidegate.azure.projects.datasources.secrets import Secrets, given, host_of, missing, variable_of
from tidegate.azure.projects.model.endpoint import Endpoint

_DOMAIN = ".azurewebsites.net"
_ROUTE = "/api/"


@DATA_SOURCES.register
class AzureFunction(DataSource):
    """A function of a function app."""

    names: ClassVar[tuple[str, ...]] = ("Azure Function", "Azure Functions")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.AzureFunction",)
    sections: ClassVar[tuple[str, ...]] = ("AzureFunctionProperties",)

    function_app_name: str | None = Field(default=None, alias="FunctionAppName")
    function_name: str | None = Field(default=None, alias="FunctionName")
    api_key: str | None = Field(default=None, alias="ApiKey")
    max_batch_size: int | None = Field(default=None, alias="MaxBatchSize")
    max_batch_count: int | None = Field(default=None, alias="MaxBatchCount")

    def output_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        """See ``DataSource.output_section``; the connection string is the function's URL, if it is not in Azure."""
        url = secrets.connection_string(endpoint.name) or self._url()
        if url is None:
            example = f"https://APP{_DOMAIN}{_ROUTE}FUNCTION"
            described = "an Azure Function without FunctionAppName or FunctionName"
            raise missing("output", endpoint.name, described, variable_of(endpoint.name), example)
        section: SectionSettings = {"type": "webhook", "url": url}
        if key := secrets.password(endpoint.name) or given(self.api_key):
            section["key"] = key
        if self.max_batch_size:
            section["max_batch_bytes"] = self.max_batch_size
        if self.max_batch_count:
            section["max_batch_count"] = self.max_batch_count
        return section

    def _url(self) -> str | None:
        if not self.function_app_name or not self.function_name:
            return None
        return f"https://{host_of(self.function_app_name, _DOMAIN)}{_ROUTE}{self.function_name}"

    @classmethod
    def of_section(cls, role: Role, section: Mapping[str, Any]) -> SectionSettings | None:
        """See ``DataSource.of_section``; a webhook is a function if its URL is one of Azure's."""
        if section["type"] != "webhook":
            return None
        url = urlsplit(section["url"])
        host, function = url.hostname or "", unquote(url.path).removeprefix(_ROUTE).strip("/")
        if not host.endswith(_DOMAIN) or not url.path.startswith(_ROUTE) or not function or "/" in function:
            return None
        return {
            "FunctionAppName": host.removesuffix(_DOMAIN),
            "FunctionName": function,
            "MaxBatchSize": section["max_batch_bytes"],
            "MaxBatchCount": section["max_batch_count"],
        }
