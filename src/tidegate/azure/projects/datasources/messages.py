"""Messages: event hubs, IoT hubs, Kafka, Service Bus, functions and Power BI."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from pydantic import Field

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, DataSource, Role, SectionSettings, no_counterpart
from tidegate.azure.projects.datasources.secrets import (
    Secrets,
    given,
    host_of,
    missing,
    part_of,
    parts_of,
    password_variable_of,
    variable_of,
)
from tidegate.azure.projects.model.endpoint import Endpoint, delimiter_of

_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe", " ": "space"}


def body_settings(endpoint: Endpoint) -> SectionSettings:
    """Return the settings for the format of bodies.

    Raises:
        NoCounterpartError: a message cannot have the format.
    """
    written = endpoint.serialization
    match endpoint.format:
        case None | "json":
            is_array = written is not None and (written.format or "").lower() == "array"
            return {"json_format": "array"} if is_array else {}
        case "csv":
            delimiter = delimiter_of((written.field_delimiter if written else None) or ",")
            if delimiter not in _DELIMITERS:
                raise no_counterpart("output", endpoint, f"whose delimiter {delimiter!r} is not supported here")
            return {"format": "csv", "csv_delimiter": _DELIMITERS[delimiter]}
        case "avro":
            return {"format": "avro"}
    raise no_counterpart("output", endpoint, "a format that a message cannot have: expected Json, Csv or Avro")


def column_settings(properties: Sequence[str], system: Mapping[str, Any]) -> SectionSettings:
    """Return the settings for columns that are properties and system properties of the message."""
    section: SectionSettings = {"property_columns": list(properties)} if properties else {}
    named = {name: str(column) for name, column in system.items() if column}
    return {**section, "system_property_columns": named} if named else section


class InNamespace(DataSource):
    """What is in a namespace of Event Hubs or Service Bus, and reached with the key of a policy."""

    names: ClassVar[tuple[str, ...]] = ()
    template_types: ClassVar[tuple[str, ...]] = ()
    sections: ClassVar[tuple[str, ...]] = ()

    service_bus_namespace: str | None = Field(default=None, alias="ServiceBusNamespace")
    shared_access_policy_name: str | None = Field(default=None, alias="SharedAccessPolicyName")
    shared_access_policy_key: str | None = Field(default=None, alias="SharedAccessPolicyKey")
    authentication_mode: str | None = Field(default=None, alias="AuthenticationMode")
    property_columns: tuple[str, ...] = Field(default=(), alias="PropertyColumns")
    system_property_columns: dict[str, Any] = Field(default_factory=dict, alias="SystemPropertyColumns")

    def _of_its_own_key(self) -> str | None:
        """Return the connection string if the file does hold the key, as a template's parameters may."""
        key = given(self.shared_access_policy_key)
        if key is None or not self.service_bus_namespace or not self.shared_access_policy_name:
            return None
        host = host_of(self.service_bus_namespace, ".servicebus.windows.net")
        name = part_of(self.shared_access_policy_name, "sharedAccessPolicyName")
        return f"Endpoint=sb://{host}/;SharedAccessKeyName={name};SharedAccessKey={part_of(key, 'its key')}"


@DATA_SOURCES.register
class EventHub(InNamespace):
    """An event hub of a namespace."""

    names: ClassVar[tuple[str, ...]] = ("Event Hub", "Event Hubs")
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.EventHub/EventHub", "Microsoft.ServiceBus/EventHub")
    sections: ClassVar[tuple[str, ...]] = ("EventHubProperties",)

    event_hub_name: str | None = Field(default=None, alias="EventHubName")
    consumer_group_name: str | None = Field(default=None, alias="ConsumerGroupName")
    partition_key: str | None = Field(default=None, alias="PartitionKey")

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
        """The name of the IoT hub is that of its endpoint's entity."""
        if section["type"] != "iothub":
            return None
        parts = parts_of(section["connection_string"])
        return {
            "IotHubNamespace": parts.get("entitypath") or section.get("event_hub"),
            "Endpoint": "messages/events",
            "SharedAccessPolicyName": parts.get("sharedaccesskeyname"),
            "ConsumerGroupName": section["consumer_group"],
        }


@DATA_SOURCES.register
class Kafka(DataSource):
    """A topic of a cluster."""

    names: ClassVar[tuple[str, ...]] = ("Kafka",)
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.Kafka",)
    sections: ClassVar[tuple[str, ...]] = ("KafkaProperties",)
    required: ClassVar[Mapping[Role, tuple[str, ...]]] = {"input": ("TopicName",), "output": ("TopicName",)}

    bootstrap_servers: str | None = Field(default=None, alias="BootstrapServers")
    topic_name: str | None = Field(default=None, alias="TopicName")
    security_type: str | None = Field(default=None, alias="SecurityType")
    sasl_mechanism: str | None = Field(default=None, alias="SaslMechanism")
    username: str | None = Field(default=None, alias="Username")
    password: str | None = Field(default=None, alias="Password")
    consumer_group_id: str | None = Field(default=None, alias="ConsumerGroupId")

    def input_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        group = {"consumer_group": self.consumer_group_id} if self.consumer_group_id else {}
        return {"type": "kafka", **self.cluster("input", endpoint, secrets), **group, **endpoint.format_settings()}

    def output_section(self, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        connection = secrets.connection_string(endpoint.name)
        if connection is None:
            cluster = self.cluster("output", endpoint, secrets)
        else:
            cluster = {"connection_string": connection, "topic": self.topic_name or ""}
        return {"type": "kafka", **cluster, **body_settings(endpoint)}

    @classmethod
    def of_section(cls, role: Role, section: Mapping[str, Any]) -> SectionSettings | None:
        """A namespace of Event Hubs is reached as the output `eventhub` there."""
        if section["type"] != "kafka" or section.get("bootstrap_servers") is None:
            return None
        security = str(section["security_protocol"])
        settings: SectionSettings = {
            "BootstrapServers": section["bootstrap_servers"],
            "TopicName": section["topic"],
            "SecurityType": security.upper(),
        }
        if "sasl" in security:
            settings |= {"SaslMechanism": section["sasl_mechanism"], "Username": section["username"]}
        return {**settings, "ConsumerGroupId": section["consumer_group"]} if role == "input" else settings

    def cluster(self, what: str, endpoint: Endpoint, secrets: Secrets) -> SectionSettings:
        """Return the settings of the topic, and how the job signs in: by a password in the environment.

        Raises:
            ProjectError: the password is not there.
        """
        section: SectionSettings = {"bootstrap_servers": self.bootstrap_servers or "", "topic": self.topic_name or ""}
        security = (self.security_type or "plaintext").lower().replace("-", "_")
        if security != "plaintext":
            section["security_protocol"] = security
        if "sasl" in security:
            password = secrets.password(endpoint.name) or given(self.password)
            if password is None:
                variable = password_variable_of(endpoint.name)
                raise missing(what, endpoint.name, f"the topic {self.topic_name} of a cluster", variable, "…")
            section |= {"username": self.username or "", "password": password}
            section |= {"sasl_mechanism": self.sasl_mechanism.upper()} if self.sasl_mechanism else {}
        return section


class ServiceBusEntity(InNamespace):
    """What queues and topics have in common."""

    entity_kind: ClassVar[str]

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
        """The connection string is the function's URL, if it is not in Azure."""
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
        """A webhook is a function if its URL is one of Azure's."""
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
        """A project signs in as a person, so here it needs the push URL."""
        url = secrets.connection_string(endpoint.name)
        if url is None:
            because = (
                f"which needs the dataset's push URL: export {variable_of(endpoint.name)}='https://api.powerbi.com/…'"
            )
            raise no_counterpart("output", endpoint, because)
        return {"type": "powerbi", "push_url": url}

    @classmethod
    def of_section(cls, role: Role, section: Mapping[str, Any]) -> SectionSettings | None:
        """The service makes a dataset of its own; a push URL names no dataset to it."""
        return {"AuthenticationMode": "UserToken"} if section["type"] == "powerbi" else None
