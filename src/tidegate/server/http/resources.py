"""The resources of the management API as JSON: what is sent and what comes back.

Nouns and field names are those of Azure Resource Manager's Event Hubs provider
(https://learn.microsoft.com/azure/templates/microsoft.eventhub/namespaces/eventhubs), flat.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tidegate.hub.access_rules import AccessRule, Right
from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.config import (
    MAX_PARTITIONS,
    MAX_RETENTION_HOURS,
    MAX_THROUGHPUT_UNITS,
    MAX_USER_METADATA_CHARACTERS,
    MS_PER_HOUR,
    Limits,
    Tier,
)
from tidegate.hub.event_hub import EventHub

RetentionHours = Annotated[int | float, Field(ge=1, le=MAX_RETENTION_HOURS)]
UserMetadata = Annotated[str, Field(max_length=MAX_USER_METADATA_CHARACTERS)]
RightName = Literal["Manage", "Listen", "Send"]


class Resource(BaseModel):
    """What all of them have in common."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True)


class NamespaceChanges(Resource):
    """Omitted settings do not change. No throughput units: no limit; no maximum: no auto-inflate."""

    tier: Literal["basic", "standard", "premium"] | None = None
    throughput_units: Annotated[int, Field(ge=1, le=MAX_THROUGHPUT_UNITS)] | None = None
    is_auto_inflate_enabled: bool | None = None
    maximum_throughput_units: Annotated[int, Field(ge=1, le=MAX_THROUGHPUT_UNITS)] | None = None

    def changes(self) -> dict[str, object]:
        """As fields of Limits. Raises ValueError for what contradicts itself."""
        changes: dict[str, object] = {}
        given = self.model_fields_set
        if self.tier is not None:
            changes["tier"] = Tier(self.tier)
        if "throughput_units" in given:
            changes["throughput_units"] = self.throughput_units
            if self.throughput_units is None and "maximum_throughput_units" not in given:
                changes["auto_inflate_to"] = None
        if "maximum_throughput_units" in given:
            changes["auto_inflate_to"] = self.maximum_throughput_units
        if self.is_auto_inflate_enabled is False:
            if self.maximum_throughput_units is not None:
                raise ValueError("isAutoInflateEnabled false and maximumThroughputUnits contradict each other")
            changes["auto_inflate_to"] = None
        elif self.is_auto_inflate_enabled and self.maximum_throughput_units is None:
            raise ValueError("isAutoInflateEnabled needs maximumThroughputUnits: up to how many?")
        return changes


class NamespaceResource(Resource):
    """The namespace. `throughputUnits` are those of now, with what auto-inflate has added."""

    name: str
    tier: Literal["basic", "standard", "premium"]
    max_message_size_in_bytes: int
    throughput_units: int | None
    is_auto_inflate_enabled: bool
    maximum_throughput_units: int | None

    @classmethod
    def of(cls, name: str, limits: Limits) -> NamespaceResource:
        """As it is now."""
        return cls(
            name=name,
            tier=limits.tier.value,
            max_message_size_in_bytes=limits.max_message_bytes,
            throughput_units=limits.throughput_units,
            is_auto_inflate_enabled=limits.auto_inflate_to is not None,
            maximum_throughput_units=limits.auto_inflate_to,
        )


class CaptureSettings(Resource):
    """How a hub is captured; omitted settings do not change, or have the service's defaults."""

    enabled: bool | None = None
    destination: str | None = None
    interval_in_seconds: int | None = None
    size_limit_in_bytes: int | None = None
    skip_empty_archives: bool | None = None
    archive_name_format: str | None = None

    def over(self, former: CaptureDescription | None) -> CaptureDescription:
        """Return the former settings changed by these. Raises pydantic's ValidationError."""
        fields: dict[str, Any] = former.model_dump() if former is not None else {}
        return CaptureDescription(**fields | {"enabled": True} | self.model_dump(exclude_none=True))


class CaptureResource(Resource):
    """How a hub is captured: by settings of its own, or by those the hub was started with."""

    enabled: bool
    destination: str
    interval_in_seconds: int
    size_limit_in_bytes: int
    skip_empty_archives: bool
    archive_name_format: str


class EventHubCreation(Resource):
    """A hub to be made. Retention left out or null: events are kept for ever."""

    partition_count: int = Field(default=1, ge=1, le=MAX_PARTITIONS)
    retention_time_in_hours: RetentionHours | None = None
    retention_size_in_bytes: Annotated[int, Field(gt=0)] | None = None
    """Of each partition."""
    user_metadata: UserMetadata = ""
    capture: CaptureSettings | None = None


class EventHubChanges(Resource):
    """Omitted settings do not change. A partition count is accepted only if it is the hub's own."""

    partition_count: int | None = None
    retention_time_in_hours: RetentionHours | None = None
    retention_size_in_bytes: Annotated[int, Field(gt=0)] | None = None
    user_metadata: UserMetadata | None = None
    capture: CaptureSettings | None = None
    """Null: no settings of its own."""

    def changes(self) -> dict[str, object]:
        """As fields of an EventHubConfig; capture is apart."""
        changes: dict[str, object] = {}
        given = self.model_fields_set
        if "partition_count" in given and self.partition_count is not None:
            changes["partition_count"] = self.partition_count
        if "retention_time_in_hours" in given:
            changes["retention_ms"] = retention_ms(self.retention_time_in_hours)
        if "retention_size_in_bytes" in given:
            changes["retention_bytes"] = self.retention_size_in_bytes
        if self.user_metadata is not None:
            changes["user_metadata"] = self.user_metadata
        return changes


class EventHubResource(Resource):
    """An event hub."""

    name: str
    partition_count: int
    partition_ids: list[str]
    retention_time_in_hours: int | float | None
    retention_size_in_bytes: int | None
    user_metadata: str
    consumer_groups: list[str]
    capture: CaptureResource | None
    created_at: datetime

    @classmethod
    def of(cls, hub: EventHub, default_capture: CaptureDescription | None) -> EventHubResource:
        """Describe the current state of a hub."""
        config = hub.config
        capture = config.capture or default_capture
        hours = None if config.retention_ms is None else config.retention_ms / MS_PER_HOUR
        return cls(
            name=hub.name,
            partition_count=len(hub.partitions),
            partition_ids=[partition.partition_id for partition in hub.partitions],
            retention_time_in_hours=int(hours) if hours is not None and hours.is_integer() else hours,
            retention_size_in_bytes=config.retention_bytes,
            user_metadata=config.user_metadata,
            consumer_groups=list(hub.consumer_groups),
            capture=None if capture is None else CaptureResource(**capture.model_dump()),
            created_at=datetime.fromtimestamp(hub.definition.created_at_ms / 1000, UTC),
        )


class ConsumerGroupSettings(Resource):
    """What may be said of a consumer group."""

    user_metadata: UserMetadata = ""


class ConsumerGroupResource(Resource):
    """A consumer group."""

    name: str
    user_metadata: str

    @classmethod
    def of(cls, hub: EventHub, name: str) -> ConsumerGroupResource:
        """Describe the current state of a group. Raises NotFound."""
        name = hub.consumer_group(name)
        return cls(name=name, user_metadata=hub.config.group_metadata.get(name.lower(), ""))


class AuthorizationRuleSettings(Resource):
    """What a rule allows; Manage includes the others. Keys are made by the hub."""

    rights: Annotated[list[RightName], Field(min_length=1)]

    def as_rights(self) -> list[Right]:
        """As the hub names them."""
        return [Right(name) for name in self.rights]


class AuthorizationRuleResource(Resource):
    """A shared access policy, without its keys."""

    name: str
    rights: list[RightName]

    @classmethod
    def of(cls, rule: AccessRule) -> AuthorizationRuleResource:
        """Describe the current state of a rule."""
        names: tuple[RightName, ...] = ("Manage", "Listen", "Send")
        return cls(name=rule.name, rights=[name for name in names if Right(name) in rule.rights])


class AuthorizationRuleKeys(Resource):
    """The keys of a rule, and connection strings with them."""

    key_name: str
    primary_key: str = Field(repr=False)
    secondary_key: str = Field(repr=False)
    primary_connection_string: str = Field(repr=False)
    secondary_connection_string: str = Field(repr=False)


class KeyChoice(Resource):
    """Which key to renew; the other remains valid."""

    key: Literal["primary", "secondary"]


class RevokedPublisher(Resource):
    """A publisher from which nothing more is taken, whatever its token says."""

    name: str


class Problem(Resource):
    """A refusal (https://www.rfc-editor.org/rfc/rfc9457); `condition` is what AMQP clients get for it."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    condition: str


def retention_ms(hours: float | None) -> int | None:
    """None: for ever."""
    return None if hours is None else round(hours * MS_PER_HOUR)
