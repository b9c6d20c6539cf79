"""What the portal changes of event hubs and consumer groups, and how its requests say it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.capture.store import StoreError, changed_capture
from tidegate.hub.config import (
    MAX_PARTITIONS,
    MAX_RETENTION_HOURS,
    MAX_USER_METADATA_CHARACTERS,
    MS_PER_HOUR,
    EventHubConfig,
)
from tidegate.hub.errors import ArgumentError
from tidegate.hub.namespace import Namespace

RetentionHours = Annotated[int | float, Field(ge=1, le=MAX_RETENTION_HOURS)]
UserMetadata = Annotated[str, Field(max_length=MAX_USER_METADATA_CHARACTERS)]


class _Body(BaseModel):
    """What the bodies of changes have in common."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True)


class CaptureSettings(_Body):
    """How a hub is captured; omitted settings do not change, or have the service's defaults."""

    enabled: bool | None = None
    destination: str | None = None
    interval_in_seconds: int | None = None
    size_limit_in_bytes: int | None = None
    skip_empty_archives: bool | None = None
    archive_name_format: str | None = None


class EventHubCreation(_Body):
    """A hub to be made. Retention left out or null: events are kept for ever."""

    partition_count: int = Field(default=1, ge=1, le=MAX_PARTITIONS)
    retention_time_in_hours: RetentionHours | None = None
    retention_size_in_bytes: Annotated[int, Field(gt=0)] | None = None
    """Of each partition."""
    user_metadata: UserMetadata = ""
    capture: CaptureSettings | None = None


class EventHubChanges(_Body):
    """Omitted settings do not change. A partition count is the hub's own or a larger one."""

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


class ConsumerGroupSettings(_Body):
    """What may be said of a consumer group."""

    user_metadata: UserMetadata = ""


class HubManagement:
    """Creates and changes event hubs, in worker threads."""

    def __init__(self, namespace: Namespace, default_capture: CaptureDescription | None) -> None:
        self._namespace = namespace
        self._default_capture = default_capture

    def create(self, name: str, body: EventHubCreation) -> None:
        """Create an event hub. Raises HubError, OSError."""
        try:
            config = EventHubConfig(
                name=name,
                partition_count=body.partition_count,
                retention_ms=retention_ms(body.retention_time_in_hours),
                retention_bytes=body.retention_size_in_bytes,
                user_metadata=body.user_metadata,
                capture=None if body.capture is None else _capture(body.capture, self._default_capture),
            )
        except ValidationError as error:
            raise ArgumentError(f"event hub {name!r}: {reasons(error)}") from None
        self._namespace.management.create_event_hub(config)

    def update(self, name: str, body: EventHubChanges) -> None:
        """Change an event hub. Raises HubError, OSError."""
        changes = body.changes()
        if "capture" in body.model_fields_set:
            former = self._namespace.event_hub(name).config.capture or self._default_capture
            changes["capture"] = body.capture and _capture(body.capture, former)
        count = body.partition_count
        more = count if count is not None and count > self._namespace.event_hub(name).config.partition_count else None
        if more is not None:
            del changes["partition_count"]
        self._namespace.management.update_event_hub(name, **changes)
        if more is not None:
            self._namespace.management.add_partitions(name, more)


def _capture(settings: CaptureSettings, former: CaptureDescription | None) -> CaptureDescription:
    """Return the capture that is asked for, tried as far as can be without writing. Raises ArgumentError."""
    try:
        return changed_capture(former, {"enabled": True} | settings.model_dump(exclude_none=True))
    except ValidationError as error:
        raise ArgumentError(f"capture: {reasons(error)}") from None
    except StoreError as error:
        raise ArgumentError(f"capture: destination: {error}") from None


def reasons(error: ValidationError) -> str:
    """Return every mistake with its place. The values are left out: they may be anything, and long."""
    return "; ".join(
        ": ".join(
            (
                ".".join(to_camel(str(step)) for step in item["loc"]) or "the document",
                item["msg"].removeprefix("Value error, "),
            )
        )
        for item in error.errors(include_url=False, include_input=False)
    )


def retention_ms(hours: float | None) -> int | None:
    """Return hours in milliseconds; None is for ever."""
    return None if hours is None else round(hours * MS_PER_HOUR)
