"""The input type `kafka`."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from tidegate.client import ClientError, ConnectionString
from tidegate.connectors.inputs.deserializer import DeserializerName, Prefix, deserializer_of, problem_of
from tidegate.connectors.inputs.event_hub import Compression
from tidegate.connectors.inputs.file_settings import Columns, Delimiter, Encoding
from tidegate.connectors.inputs.kafka.log import KafkaLog, KafkaSource
from tidegate.connectors.inputs.kinds import (
    INPUTS,
    ArrivalEstimate,
    EstimateArrival,
    FormatName,
    IdleAfter,
    LogOpening,
)
from tidegate.connectors.inputs.schema_registry import RegistrySettings
from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.events import InputLog
from tidegate.connectors.model.section import Public, Secret, SecretOptions
from tidegate.engine import Format, Limits

_EVENT_HUBS_PORT = 9093
_PUBLIC_OPTIONS = (
    "client.id",
    "client.rack",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "max.partition.fetch.bytes",
    "ssl.ca.location",
)


@INPUTS.register
class KafkaInput(RegistrySettings):
    """A topic of Kafka, or an event hub through its Kafka endpoint. A record arrives at its timestamp: when it was
    appended, or when it was made, as the topic's `message.timestamp.type` says."""

    other_words: ClassVar[Mapping[str, str]] = dict.fromkeys(("confluent", "redpanda", "topic"), 'write type = "kafka"')

    type: Literal["kafka"]
    bootstrap_servers: Public | None = Field(default=None, description="`host:port`, separated by commas")
    connection_string: Secret | None = Field(
        default=None, description="of an Event Hubs namespace, instead of bootstrap_servers and a password"
    )
    topic: Public = Field(description="the topic; several are separated by commas, and each of their partitions counts")
    consumer_group: Public = Field(
        default="tidegate", description="the group that the job reads as; its positions are in the job's journal"
    )
    security_protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = Field(
        default="plaintext", description="how the brokers are reached"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        default="PLAIN", description="how the job signs in, with sasl_plaintext and sasl_ssl"
    )
    username: Public | None = Field(default=None, description="for signing in")
    password: Secret | None = Field(default=None, description="for signing in")
    format: Annotated[Public, FormatName(in_events=True)] = Field(default="json", description="the format of a body")
    delimiter: Delimiter = ","
    columns: Columns = ()
    encoding: Encoding = "utf-8"
    compression: Compression = "none"
    deserializer: DeserializerName = None
    message_prefix: Prefix = "none"
    options: Annotated[dict[str, str | int | float | bool], SecretOptions(_PUBLIC_OPTIONS)] = Field(
        default_factory=dict, description="further settings of librdkafka, such as `fetch.max.bytes`"
    )
    estimate_arrival: EstimateArrival = True
    idle_after_s: IdleAfter = 1

    @model_validator(mode="after")
    def _settings_fit(self) -> KafkaInput:
        if (self.bootstrap_servers is None) == (self.connection_string is None):
            raise ValueError("give either 'bootstrap_servers' or 'connection_string', one of the two")
        if "sasl" in self.security_protocol and (self.username is None or self.password is None):
            raise ValueError(f"{self.security_protocol} needs 'username' and 'password'")
        if self.schema_registry is not None and self.format not in ("avro", "json"):
            raise ValueError("schema_registry is for the formats avro and json")
        if (problem := problem_of(self.format, self.deserializer, self.message_prefix)) is not None:
            raise ValueError(problem)
        if not all(name.strip() for name in self.topic.split(",")):
            raise ValueError("topic: a name is empty")
        return self

    def event_hub_name(self) -> str:
        return self.topic

    def open_log(self, opening: LogOpening) -> InputLog:
        if importlib.util.find_spec("confluent_kafka") is None:
            raise InputError("an input from Kafka needs confluent-kafka: pip install 'tidegate[kafka]'")
        topics = tuple(name.strip() for name in self.topic.split(","))
        settings = tuple(self._configuration().items())
        source = KafkaSource(settings, self._body_format(opening.limits), self.registry(), opening.retry_s)
        return KafkaLog(source, topics)

    def arrival_estimate(self) -> ArrivalEstimate | None:
        return ArrivalEstimate(self.idle_after_s) if self.estimate_arrival else None

    def _body_format(self, limits: Limits) -> Format:
        custom = deserializer_of(self.deserializer, self.message_prefix)
        return Format(self.format, self.delimiter, self.columns, self.encoding, self.compression, limits, custom)

    def _configuration(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "group.id": self.consumer_group,
            "security.protocol": self.security_protocol,
            **self.options,
        }
        if self.connection_string is not None:
            try:
                connection = ConnectionString.parse(self.connection_string, self.topic)
            except ClientError as error:
                raise InputError(str(error)) from error
            return {
                **settings,
                "bootstrap.servers": f"{connection.host}:{_EVENT_HUBS_PORT}",
                "security.protocol": "sasl_ssl",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "$ConnectionString",
                "sasl.password": self.connection_string,
            }
        settings["bootstrap.servers"] = self.bootstrap_servers
        if "sasl" in self.security_protocol:
            signs_in = {"mechanism": self.sasl_mechanism, "username": self.username, "password": self.password}
            settings |= {f"sasl.{name}": value for name, value in signs_in.items()}
        return settings
