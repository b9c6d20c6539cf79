"""Kafka, as an input and as an output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, DataSource, Role, SectionSettings
from tidegate.azure.projects.datasources.messages import body_settings
from tidegate.azure.projects.datasources.secrets import Secrets, given, missing, password_variable_of
from tidegate.azure.projects.model.endpoint import Endpoint


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
        """See ``DataSource.of_section``; a namespace of Event Hubs is reached as the output `eventhub` there."""
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
