"""Service Bus queues and topics, outputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, DataSource, Role, SectionSettings
from tidegate.azure.projects.datasources.messages import body_settings, column_settings
from tidegate.azure.projects.datasources.secrets import Secrets, given, host_of, missing, part_of, parts_of, variable_of
from tidegate.azure.projects.model.endpoint import Endpoint


class ServiceBusEntity(DataSource):
    """What queues and topics have in common."""

    names: ClassVar[tuple[str, ...]] = ()
    template_types: ClassVar[tuple[str, ...]] = ()
    sections: ClassVar[tuple[str, ...]] = ()
    entity_kind: ClassVar[str]

    service_bus_namespace: str | None = Field(default=None, alias="ServiceBusNamespace")
    shared_access_policy_name: str | None = Field(default=None, alias="SharedAccessPolicyName")
    shared_access_policy_key: str | None = Field(default=None, alias="SharedAccessPolicyKey")
    authentication_mode: str | None = Field(default=None, alias="AuthenticationMode")
    property_columns: tuple[str, ...] = Field(default=(), alias="PropertyColumns")
    system_property_columns: dict[str, Any] = Field(default_factory=dict, alias="SystemPropertyColumns")

    @abstractmethod
    def entity(self) -> SectionSettings:
        """Return the setting that names the queue or topic."""

    def output_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        entity = self.entity()
        connection = secrets.connection_string(endpoint.name) or self._of_its_own_key()
        if connection is None:
            at = f" of {self.service_bus_namespace}" if self.service_bus_namespace else ""
            described = " ".join(f"the {kind} {name or 'without a name'}" for kind, name in entity.items()) + at
            example = "Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…"
            raise missing("output", endpoint.name, described, variable_of(endpoint.name), example)
        named = {kind: name for kind, name in entity.items() if name and "entitypath=" not in connection.lower()}
        section: SectionSettings = {"type": "servicebus", "connection_string": connection, **named}
        columns = column_settings(self.property_columns, self.system_property_columns)
        return {**section, **body_settings(endpoint), **columns}

    @classmethod
    def of_section(cls, role: Role, section: Mapping[str, Any]) -> SectionSettings | None:
        kind = cls.entity_kind
        if section["type"] != "servicebus" or not section["connection_string"].lower().startswith("endpoint="):
            return None
        parts = parts_of(section["connection_string"])
        named = section[kind] or (parts.get("entitypath") if section["queue"] == section["topic"] else None)
        if named is None:
            return None
        return {
            "ServiceBusNamespace": parts["host"].partition(".")[0],
            f"{kind.title()}Name": named,
            "SharedAccessPolicyName": parts.get("sharedaccesskeyname"),
            "AuthenticationMode": "ConnectionString",
            "PropertyColumns": list(section["property_columns"]),
            "SystemPropertyColumns": dict(section["system_property_columns"]),
        }

    def _of_its_own_key(self) -> str | None:
        """Return the connection string if the file does hold the key, as a template's parameters may."""
        key = given(self.shared_access_policy_key)
        if key is None or not self.service_bus_namespace or not self.shared_access_policy_name:
            return None
        host = host_of(self.service_bus_namespace, ".servicebus.windows.net")
        name = part_of(self.shared_access_policy_name, "sharedAccessPolicyName")
        return f"Endpoint=sb://{host}/;SharedAccessKeyName={name};SharedAccessKey={part_of(key, 'its key')}"


@DATA_SOURCES.register
class ServiceBusQueue(ServiceBusEntity):
    """A queue."""

    names: ClassVar[tuple[str, ...]] = ("Service Bus Queue",)
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.ServiceBus/Queue",)
    sections: ClassVar[tuple[str, ...]] = ("ServiceBusQueueProperties",)

    entity_kind: ClassVar[str] = "queue"
    queue_name: str | None = Field(default=None, alias="QueueName")

    def entity(self) -> SectionSettings:
        return {"queue": self.queue_name}


@DATA_SOURCES.register
class ServiceBusTopic(ServiceBusEntity):
    """A topic."""

    names: ClassVar[tuple[str, ...]] = ("Service Bus Topic",)
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.ServiceBus/Topic",)
    sections: ClassVar[tuple[str, ...]] = ("ServiceBusTopicProperties",)

    entity_kind: ClassVar[str] = "topic"
    topic_name: str | None = Field(default=None, alias="TopicName")

    def entity(self) -> SectionSettings:
        return {"topic": self.topic_name}
