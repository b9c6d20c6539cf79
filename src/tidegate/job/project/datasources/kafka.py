"""Kafka, as an input and as an output."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tidegate.job.project.datasources.kinds import DATA_SOURCES, DataSource


@DATA_SOURCES.register
class Kafka(DataSource):
    """A topic of a cluster."""

    names: ClassVar[tuple[str, ...]] = ("Kafka",)
    template_types: ClassVar[tuple[str, ...]] = ("Microsoft.Kafka",)
    sections: ClassVar[tuple[str, ...]] = ("KafkaProperties",)

    bootstrap_servers: str | None = Field(default=None, alias="BootstrapServers")
    topic_name: str | None = Field(default=None, alias="TopicName")
    security_type: str | None = Field(default=None, alias="SecurityType")
    sasl_mechanism: str | None = Field(default=None, alias="SaslMechanism")
    username: str | None = Field(default=None, alias="Username")
    password: str | None = Field(default=None, alias="Password")
    consumer_group_id: str | None = Field(default=None, alias="ConsumerGroupId")
