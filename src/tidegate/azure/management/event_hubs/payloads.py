"""What clients send for a namespace, an event hub, a consumer group and an authorization rule.

https://learn.microsoft.com/rest/api/eventhub
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tidegate.azure.management.access.requests import GROUP, ArmRequest, Payload, bad_request, resource_not_found
from tidegate.azure.management.manager.resource_groups import DEFAULT_GROUP, time_text
from tidegate.azure.management.manager.subscriptions import Tags
from tidegate.hub.config import MAX_PARTITIONS, MAX_THROUGHPUT_UNITS, MAX_USER_METADATA_CHARACTERS, MS_PER_HOUR
from tidegate.hub.namespace import Namespace

PROVIDER = "Microsoft.EventHub"
NAMESPACES = "namespaces"
NAMESPACE_PATH = f"{GROUP}/providers/{PROVIDER}/{NAMESPACES}/{{namespace}}"
EVENT_HUB_PATH = f"{NAMESPACE_PATH}/eventhubs/{{hub}}"


def namespace_key(namespace: Namespace) -> str:
    """Return what the namespace's tags and location are recorded under."""
    return f"{PROVIDER}/{NAMESPACES}/{namespace.name}".lower()


def check_namespace(namespace: Namespace, request: ArmRequest) -> None:
    """Raise ArmError unless the path names the namespace that is served."""
    asked = request.names["namespace"]
    if asked.lower() != namespace.name.lower():
        error = resource_not_found(f"{PROVIDER}/{NAMESPACES}", asked, request.group)
        error.message += f" This hub serves one namespace, {namespace.name}."
        raise error


def namespace_id(namespace: Namespace, subscription: str, group: str) -> str:
    """Return the id of the namespace in a place."""
    place = f"/subscriptions/{subscription}/resourceGroups/{group or DEFAULT_GROUP}"
    return f"{place}/providers/{PROVIDER}/{NAMESPACES}/{namespace.name}"


def envelope(parent_id: str, kind: str, name: str, properties: dict[str, Any], location: str) -> dict[str, Any]:
    """Return a resource below the namespace; `kind` is its type without the provider."""
    segment = kind.rpartition("/")[2]
    return {
        "id": f"{parent_id}/{segment}/{name}",
        "name": name,
        "type": f"{PROVIDER}/{kind}",
        "location": location,
        "properties": properties,
    }


def time_of_ms(time_ms: int) -> str:
    """Return milliseconds since 1970 as Azure writes a time."""
    return time_text(datetime.fromtimestamp(time_ms / 1000, UTC))


FOR_EVER = (1 << 63) - 1
"""The service's own figure for a retention without end: the longest .NET has."""
NO_LIMIT = -1
DEFAULT_PARTITIONS = 4
DEFAULT_RETENTION_DAYS = 7
_HOURS_PER_DAY = 24


def _capitalized(value: Any) -> Any:
    return value[:1].upper() + value[1:].lower() if isinstance(value, str) else value


class Sku(Payload):
    """A namespace's tier and throughput units. Zero units leave them as they are; Tidegate's own -1 is no limit."""

    name: Annotated[Literal["Basic", "Standard", "Premium"], BeforeValidator(_capitalized)] | None = None
    capacity: Annotated[int, Field(ge=NO_LIMIT, le=MAX_THROUGHPUT_UNITS)] | None = None


class NamespaceProperties(Payload):
    """Settings of a namespace. Zero maximum units are none."""

    is_auto_inflate_enabled: bool | None = None
    maximum_throughput_units: Annotated[int, Field(ge=0, le=MAX_THROUGHPUT_UNITS)] | None = None
    minimum_tls_version: Literal["1.0", "1.1", "1.2", "1.3"] | None = None
    public_network_access: str | None = None
    disable_local_auth: bool | None = None


class NamespacePayload(Payload):
    """A namespace."""

    location: str | None = None
    tags: Tags | None = None
    sku: Sku | None = None
    properties: NamespaceProperties = NamespaceProperties()


class RetentionPayload(Payload):
    """How long events are kept, and how much of each partition: the size is Tidegate's own."""

    cleanup_policy: str = "Delete"
    retention_time_in_hours: Annotated[int, Field(ge=NO_LIMIT, le=FOR_EVER)] | None = None
    retention_size_in_bytes: Annotated[int, Field(ge=NO_LIMIT)] | None = None

    def hours(self) -> float | None:
        """Return the hours, None for ever. Raises ArmError for what a log cannot do."""
        if self.cleanup_policy.lower() != "delete":
            raise bad_request(
                f"the cleanup policy {self.cleanup_policy[:40]!r} is not supported: Tidegate deletes events by age and "
                "does not compact"
            )
        hours = self.retention_time_in_hours
        if hours is None:
            return DEFAULT_RETENTION_DAYS * _HOURS_PER_DAY
        return None if hours in (-1, FOR_EVER) else hours


class CaptureDestinationProperties(Payload):
    """Where captured files go: a container, or a folder of this machine in Tidegate's own kind of destination."""

    storage_account_resource_id: str | None = None
    blob_container: str | None = None
    archive_name_format: str | None = None
    folder: str | None = None


class CaptureDestination(Payload):
    """A destination and its kind."""

    name: str = "EventHubArchive.AzureBlockBlob"
    properties: CaptureDestinationProperties = CaptureDestinationProperties()


class CapturePayload(Payload):
    """How a hub is captured."""

    enabled: bool = False
    encoding: Annotated[Literal["Avro", "Avrodeflate"], BeforeValidator(_capitalized)] = "Avro"
    interval_in_seconds: int | None = None
    size_limit_in_bytes: int | None = None
    skip_empty_archives: bool | None = None
    destination: CaptureDestination | None = None


class EventHubProperties(Payload):
    """Settings of an event hub."""

    partition_count: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] | None = None
    message_retention_in_days: Annotated[int, Field(ge=-1, le=FOR_EVER)] | None = None
    retention_description: RetentionPayload | None = None
    capture_description: CapturePayload | None = None
    status: str | None = None
    user_metadata: Annotated[str, Field(max_length=MAX_USER_METADATA_CHARACTERS)] | None = None

    @property
    def names_retention(self) -> bool:
        """Whether it says how long events are kept. A description of the size alone does not."""
        description = self.retention_description
        if description is None or (
            description.retention_time_in_hours is None and description.retention_size_in_bytes is not None
        ):
            return self.message_retention_in_days is not None
        return True

    @property
    def names_retention_size(self) -> bool:
        """Whether it says how much of each partition is kept."""
        return self.retention_description is not None and self.retention_description.retention_size_in_bytes is not None

    def retention_bytes(self) -> int | None:
        """Return how much of each partition is kept, None for all. Raises ArmError."""
        size = None if self.retention_description is None else self.retention_description.retention_size_in_bytes
        if size == 0:
            raise bad_request(f"retentionSizeInBytes is 1 or more, or {NO_LIMIT} for no limit")
        return None if size == NO_LIMIT else size

    def retention_ms(self) -> int | None:
        """Return the retention, None for ever. Raises ArmError."""
        if self.retention_description is not None:
            hours = self.retention_description.hours()
        else:
            days = DEFAULT_RETENTION_DAYS if self.message_retention_in_days is None else self.message_retention_in_days
            hours = None if days in (-1, FOR_EVER) else days * _HOURS_PER_DAY
        if hours is None:
            return None
        if not 1 <= hours <= 90 * _HOURS_PER_DAY:
            raise bad_request(f"events are kept for 1 hour to 90 days, or for ever ({FOR_EVER}), not for {hours} hours")
        return round(hours * MS_PER_HOUR)


class EventHubPayload(Payload):
    """An event hub."""

    properties: EventHubProperties = EventHubProperties()


class ConsumerGroupProperties(Payload):
    """Settings of a consumer group."""

    user_metadata: Annotated[str, Field(max_length=MAX_USER_METADATA_CHARACTERS)] = ""


class ConsumerGroupPayload(Payload):
    """A consumer group."""

    properties: ConsumerGroupProperties = ConsumerGroupProperties()


class RuleProperties(Payload):
    """What an authorization rule allows."""

    rights: Annotated[
        list[Annotated[Literal["Manage", "Listen", "Send"], BeforeValidator(_capitalized)]], Field(min_length=1)
    ]


class RulePayload(Payload):
    """An authorization rule."""

    properties: RuleProperties


class KeyPayload(Payload):
    """Which key is made anew, and its value if it is not to be a new one."""

    key_type: Annotated[Literal["Primarykey", "Secondarykey"], BeforeValidator(_capitalized)]
    key: Annotated[str, Field(min_length=8, max_length=256)] | None = None


class NamePayload(Payload):
    """A name whose availability is asked for."""

    name: str


def retention_figures(retention_ms: int | None) -> tuple[int, int]:
    """Return a retention as whole days and hours, as the service returns both."""
    if retention_ms is None:
        return FOR_EVER, FOR_EVER
    hours = math.ceil(retention_ms / MS_PER_HOUR)
    return math.ceil(hours / _HOURS_PER_DAY), hours
