"""Power BI, an output: a streaming dataset."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tidegate.job.project.datasources.kinds import DATA_SOURCES, DataSource


@DATA_SOURCES.register
class PowerBi(DataSource):
    """A table of a streaming dataset."""

    names: ClassVar[tuple[str, ...]] = ("Power BI",)
    template_types: ClassVar[tuple[str, ...]] = ("PowerBI",)
    sections: ClassVar[tuple[str, ...]] = ("PowerBIProperties", "PowellBIProperties")

    dataset: str | None = Field(default=None, alias="Dataset")
    table: str | None = Field(default=None, alias="Table")
    group_id: str | None = Field(default=None, alias="GroupId")
    group_name: str | None = Field(default=None, alias="GroupName")
    authentication_mode: str | None = Field(default=None, alias="AuthenticationMode")
