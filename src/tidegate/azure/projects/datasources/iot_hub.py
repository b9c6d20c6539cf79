"""IoT Hub, an input: the Event Hubs-compatible endpoint of its messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, DataSource, Role, SectionSettings
from tidegate.azure.projects.datasources.secrets import Secrets, missing, parts_of, variable_of
from tidegate.azure.projects.model.endpoint import Endpoint


@DATA_SOURCES.register
class IotHub(DataSource):
    """An IoT hub. Its keys are not those of its endpoint, so the connection string is always from the environment."""

    names: ClassVar[tuple[str, ...]] = ("IoT Hub",)
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.Devices/IotHubs",)
    sections: ClassVar[tuple[str, ...]] = ("IoTHubProperties",)

    iot_hub_namespace: str | None = Field(default=None, alias="IotHubNamespace")
    endpoint: str | None = Field(default=None, alias="Endpoint")
    shared_access_policy_name: str | None = Field(default=None, alias="SharedAccessPolicyName")
    shared_access_policy_key: str | None = Field(default=None, alias="SharedAccessPolicyKey")
    consumer_group_name: str | None = Field(default=None, alias="ConsumerGroupName")

    def input_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        connection = secrets.connection_string(endpoint.name)
        if connection is None:
            described = f"the Event Hub-compatible endpoint of {self.iot_hub_namespace or 'an IoT hub'}"
            example = "Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…;EntityPath=…"
            raise missing("input", endpoint.name, described, variable_of(endpoint.name), example)
        group = {"consumer_group": self.consumer_group_name} if self.consumer_group_name else {}
        return {"type": "iothub", "connection_string": connection, **endpoint.format_settings(), **group}

    @classmethod
    def of_section(cls, role: Role, section: Mapping[str, Any]) -> SectionSettings | None:
        """See ``DataSource.of_section``. The name of the IoT hub is that of its endpoint's entity."""
        if section["type"] != "iothub":
            return None
        parts = parts_of(section["connection_string"])
        return {
            "IotHubNamespace": parts.get("entitypath") or section.get("event_hub"),
            "Endpoint": "messages/events",
            "SharedAccessPolicyName": parts.get("sharedaccesskeyname"),
            "ConsumerGroupName": section["consumer_group"],
        }
