"""Event hubs and IoT hubs as inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tidegate.client import ClientError, ConnectionString
from tidegate.connectors.inputs.deserializer import DeserializerName, Prefix, deserializer_of, problem_of
from tidegate.connectors.inputs.file_settings import Columns, Delimiter, Encoding
from tidegate.connectors.inputs.hub_log import HubLog
from tidegate.connectors.inputs.hub_topic import ClusterAccess
from tidegate.connectors.inputs.kinds import INPUTS, ArrivalEstimate, EstimateArrival, FormatName, IdleAfter, LogOpening
from tidegate.connectors.inputs.schema_registry import REGISTRY_FORMATS, RegistrySettings
from tidegate.connectors.model.events import InputLog
from tidegate.connectors.model.section import Public, Secret
from tidegate.engine import DecodingLimits, Format

Compression = Annotated[Literal["none", "gzip", "deflate"], Field(description="how each body is compressed")]


class HubSettings(RegistrySettings):
    """Settings of an input that is read over AMQP."""

    connection_string: Secret = Field(description="Endpoint=…;SharedAccessKeyName=…;SharedAccessKey=…;EntityPath=…")
    event_hub: Public | None = Field(default=None, description="the hub's name, where the string has no EntityPath")
    consumer_group: Public = Field(default="$Default", description="the consumer group to read in")
    segments: Literal["auto", "never"] = Field(
        default="auto",
        description="auto: read the hub's files where they are on the reading machine, or its topic where gateways "
        "keep it in Kafka; never: its network",
    )
    store_config: Path | None = Field(
        default=None,
        description="Kafka's TLS and SASL settings, with `bootstrap.servers`, to read the topic of a hub that gateways "
        "keep in Kafka; not needed for brokers without both. Relative to the job file",
    )
    format: Annotated[Public, FormatName(in_events=True)] = Field(default="json", description="the format of a body")
    delimiter: Delimiter = ","
    columns: Columns = ()
    encoding: Encoding = "utf-8"
    compression: Compression = "none"
    deserializer: DeserializerName = None
    message_prefix: Prefix = "none"
    estimate_arrival: EstimateArrival = True
    idle_after_s: IdleAfter = 1

    @model_validator(mode="after")
    def _format_and_deserializer_fit(self) -> HubSettings:
        has_registry = self.schema_registry is not None
        problem = problem_of(self.format, self.deserializer, self.message_prefix, has_registry=has_registry)
        if problem is not None:
            raise ValueError(problem)
        if self.schema_registry is not None and self.format not in REGISTRY_FORMATS:
            raise ValueError("schema_registry is for the formats avro, protobuf and json")
        return self

    def cluster_access(self) -> ClusterAccess | None:
        """Return how to sign in to the cluster in which gateways have the hub. Raises InputError."""
        return None if self.store_config is None else ClusterAccess.read(self.store_config)

    def body_format(self, limits: DecodingLimits) -> Format:
        """Return the format of its bodies as the engine takes it."""
        custom = deserializer_of(self.deserializer, self.message_prefix)
        return Format(self.format, self.delimiter, self.columns, self.encoding, self.compression, limits, custom)

    def event_hub_name(self) -> str:
        try:
            return ConnectionString.parse(self.connection_string, self.event_hub).entity_path
        except ClientError:
            return self.event_hub or ""

    def arrival_estimate(self) -> ArrivalEstimate | None:
        return ArrivalEstimate(self.idle_after_s) if self.estimate_arrival else None


@INPUTS.register
class EventHubInput(HubSettings):
    """An event hub, Tidegate's or Azure's, named by a connection string with an ``EntityPath``."""

    type: Literal["eventhub"]

    def open_log(self, opening: LogOpening) -> InputLog:
        log = HubLog.connect(
            self.connection_string,
            self.event_hub,
            self.consumer_group,
            use_segments=self.segments == "auto",
            cluster=self.cluster_access(),
            body_format=self.body_format(opening.limits),
            patient=opening.patient,
            job=opening.job,
        )
        log.registry = self.registry(self.connection_string)
        return log


@INPUTS.register
class IotHubInput(HubSettings):
    """Messages of devices, from the Event Hubs-compatible endpoint of an IoT hub. A message arrives at its
    ``IoTHub.EnqueuedTime``."""

    type: Literal["iothub"]

    def open_log(self, opening: LogOpening) -> InputLog:
        log = HubLog.connect(
            self.connection_string,
            self.event_hub,
            self.consumer_group,
            use_segments=self.segments == "auto",
            cluster=self.cluster_access(),
            body_format=self.body_format(opening.limits),
            of_devices=True,
            patient=opening.patient,
            job=opening.job,
        )
        log.registry = self.registry()
        return log
