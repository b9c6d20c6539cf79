"""Event Hubs, as an input and as an output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, DataSource, Role, SectionSettings
from tidegate.azure.projects.datasources.messages import body_settings, column_settings
from tidegate.azure.projects.datasources.secrets import Secrets, given, host_of, missing, part_of, parts_of, variable_of
from tidegate.azure.projects.model.endpoint import Endpoint


@DATA_SOURCES.register
class EventHub(DataSource):
    """An event hub of a namespace."""

    names: ClassVar[tuple[str, ...]] = ("Event Hub", "Event Hubs")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.EventHub/EventHub", "Microsoft.ServiceBus/EventHub")
    sections: ClassVar[tuple[str, ...]] = ("EventHubProperties",)

    service_bus_namespace: str | None = Field(default=None, alias="ServiceBusNamespace")
    event_hub_name: str | None = Field(default=None, alias="EventHubName")
    shared_access_policy_name: str | None = Field(default=None, alias="SharedAccessPolicyName")
    shared_access_policy_key: str | None = Field(default=None, alias="SharedAccessPolicyKey")
    authentication_mode: str | None = Field(default=None, alias="AuthenticationMode")
    consumer_group_name: str | None = Field(default=None, alias="ConsumerGroupName")
    partition_key: str | None = Field(default=None, alias="PartitionKey")
    property_columns: tuple[str, ...] = Field(default=(), alias="PropertyColumns")
    system_property_columns: dict[str, Any] = Field(default_factory=dict, alias="SystemPropertyColumns")

    def input_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        group = {"consumer_group": self.consumer_group_name} if self.consumer_group_name else {}
        return {"type": "eventhub", **self._hub("input", endpoint, secrets), **endpoint.format_settings(), **group}

    def output_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        section = {"type": "eventhub", **self._hub("output", endpoint, secrets), **body_settings(endpoint)}
        if self.partition_key:
            section["partition_key"] = self.partition_key
        return {**section, **column_settings(self.property_columns, self.system_property_columns)}

    @classmethod
    def of_section(cls, role: Role, section: Mapping[str, Any]) -> SectionSettings | None:
        if section["type"] != "eventhub":
            return None
        parts = parts_of(section["connection_string"])
        settings: SectionSettings = {
            "ServiceBusNamespace": parts["host"].partition(".")[0],
            "EventHubName": parts.get("entitypath") or section.get("event_hub"),
            "SharedAccessPolicyName": parts.get("sharedaccesskeyname"),
            "AuthenticationMode": "ConnectionString",
        }
        if role == "input":
            return {**settings, "ConsumerGroupName": section["consumer_group"]}
        columns = list(section.get("property_columns") or ())
        return {**settings, "PartitionKey": section.get("partition_key"), "PropertyColumns": columns}

    def _hub(self, what: str, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        connection = secrets.connection_string(endpoint.name) or self._of_its_own_key()
        if connection is None:
            at = f" of {self.service_bus_namespace}" if self.service_bus_namespace else ""
            described = f"{self.event_hub_name or 'a hub'}{at}"
            example = "Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…"
            raise missing(what, endpoint.name, described, variable_of(endpoint.name), example)
        section = {"connection_string": connection}
        if self.event_hub_name and "entitypath=" not in connection.lower():
            section["event_hub"] = self.event_hub_name
        return section

    def _of_its_own_key(self) -> str | None:
        """Return the connection string if the file does hold the key, as a template's parameters may."""
        key = given(self.shared_access_policy_key)
        if key is None or not self.service_bus_namespace or not self.shared_access_policy_name:
            return None
        host = host_of(self.service_bus_namespace, ".servicebus.windows.net")
        name = part_of(self.shared_access_policy_name, "sharedAccessPolicyName")
        return f"Endpoint=sb://{host}/;SharedAccessKeyName={name};SharedAccessKey={part_of(key, 'its key')}"
