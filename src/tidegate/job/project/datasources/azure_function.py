"""Azure Functions, an output: batches of rows over HTTP."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tidegate.job.project.datasources.kinds import DATA_SOURCES, DataSource


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
