"""Power BI, an output: a streaming dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, DataSource, Role, SectionSettings, no_counterpart
from tidegate.azure.projects.datasources.secrets import Secrets, variable_of
from tidegate.azure.projects.model.endpoint import Endpoint


@DATA_SOURCES.register
class PowerBi(DataSource):
    """A table of a streaming dataset."""

    names: ClassVar[tuple[str, ...]] = ("Power BI",)
    template_types: ClassVar[tuple[str, ...]] = ("PowerBI",)
    sections: ClassVar[tuple[str, ...]] = ("PowerBIProperties", "PowellBIProperties")
    named_after: ClassVar[tuple[str, ...]] = ("Dataset", "Table")
    after_deployment: ClassVar[str] = "authorize it in the portal, where its workspace can be chosen too"

    dataset: str | None = Field(default=None, alias="Dataset")
    table: str | None = Field(default=None, alias="Table")
    group_id: str | None = Field(default=None, alias="GroupId")
    group_name: str | None = Field(default=None, alias="GroupName")
    authentication_mode: str | None = Field(default=None, alias="AuthenticationMode")

    def output_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        """See ``DataSource.output_section``: a project signs in as a person, so here it needs the push URL."""
        url = secrets.connection_string(endpoint.name)
        if url is None:
            because = (
                f"which needs the dataset's push URL: export {variable_of(endpoint.name)}='https://api.powerbi.com/…'"
            )
            raise no_counterpart("output", endpoint, because)
        return {"type": "powerbi", "push_url": url}

    @classmethod
    def of_section(cls, role: Role, section: Mapping[str, Any]) -> SectionSettings | None:
        """See ``DataSource.of_section``. The service makes a dataset of its own; a push URL names no dataset to it."""
        return {"AuthenticationMode": "UserToken"} if section["type"] == "powerbi" else None
