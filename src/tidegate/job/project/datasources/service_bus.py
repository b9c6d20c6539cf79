"""Service Bus queues and topics, outputs."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from tidegate.job.project.datasources.kinds import DATA_SOURCES, DataSource


@DATA_SOURCES.register
class ServiceBusQueue(DataSource):
    """A queue."""

    names: ClassVar[tuple[str, ...]] = ("Service Bus Queue",)
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.ServiceBus/Queue",)
    sections: ClassVar[tuple[str, ...]] = ("ServiceBusQueueProperties",)

    queue_name: str | None = Field(default=None, alias="QueueName")
    service_bus_namespace: str | None = Field(default=None, alias="ServiceBusNamespace")
    shared_access_policy_name: str | None = Field(default=None, alias="SharedAccessPolicyName")
    shared_access_policy_key: str | None = Field(default=None, alias="SharedAccessPolicyKey")
    authentication_mode: str | None = Field(default=None, alias="AuthenticationMode")
    property_columns: tuple[str, ...] = Field(default=(), alias="PropertyColumns")
    system_property_columns: dict[str, Any] = Field(default_factory=dict, alias="SystemPropertyColumns")


@DATA_SOURCES.register
class ServiceBusTopic(DataSource):
    """A topic."""

    names: ClassVar[tuple[str, ...]] = ("Service Bus Topic",)
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.ServiceBus/Topic",)
    sections: ClassVar[tuple[str, ...]] = ("ServiceBusTopicProperties",)

    topic_name: str | None = Field(default=None, alias="TopicName")
    service_bus_namespace: str | None = Field(default=None, alias="ServiceBusNamespace")
    shared_access_policy_name: str | None = Field(default=None, alias="SharedAccessPolicyName")
    shared_access_policy_key: str | None = Field(default=None, alias="SharedAccessPolicyKey")
    authentication_mode: str | None = Field(default=None, alias="AuthenticationMode")
    property_columns: tuple[str, ...] = Field(default=(), alias="PropertyColumns")
    system_property_columns: dict[str, Any] = Field(default_factory=dict, alias="SystemPropertyColumns")
