"""`/eventhubs/NAME`: throughput, partitions, consumer groups and capture of a hub; creating and deleting them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import BaseRoute

from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.capture.store import StoreError, changed_capture
from tidegate.hub.config import (
    MAX_PARTITIONS,
    MAX_RETENTION_HOURS,
    MAX_USER_METADATA_CHARACTERS,
    MS_PER_HOUR,
    EventHubConfig,
)
from tidegate.hub.errors import ArgumentError, NotFound
from tidegate.hub.event_hub import EventHub
from tidegate.hub.namespace import Namespace
from tidegate.portal.pages.hubs import capture_state, group_rows, hub_summary, kafka_group_rows, partition_rows
from tidegate.portal.pages.namespace import policy_rows
from tidegate.portal.pages.throughput import DEFAULT_RANGE, RANGES, ThroughputCharts
from tidegate.portal.web.handling import Desk, text_of
from tidegate.portal.web.rendering import iso_of_ms
from tidegate.portal.web.sessions import Forbidden, Visitor, VisitorRole

HUB = "/eventhubs/{hub}"
Model = TypeVar("Model", bound=BaseModel)


class EventHubPages:
    """The handlers of a hub's page and of the changes that it offers."""

    def __init__(self, desk: Desk, throughput: ThroughputCharts) -> None:
        self._desk = desk
        self._throughput = throughput
        hub = desk.http.hub
        self._namespace = hub.namespace
        self._default_capture = hub.settings.capture
        self._management = HubManagement(hub.namespace, hub.settings.capture)

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        desk, manager = self._desk, VisitorRole.MANAGER
        return [
            desk.data(f"{HUB}/throughput.json", self._chart),
            desk.action("/eventhubs", self._create, manager, None),
            desk.action(f"{HUB}/update", self._update, manager, None),
            desk.action(f"{HUB}/delete", self._delete, manager, ("confirm",)),
            desk.action(f"{HUB}/consumergroups", self._create_group, manager, ("name", "userMetadata")),
            desk.action(f"{HUB}/consumergroups/{{group}}/delete", self._delete_group, manager),
            desk.action(f"{HUB}/connection-string", self._connection_string, VisitorRole.READER),
            *desk.page(HUB, "event_hub.html", self._show),
        ]

    async def _show(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        hub = self._namespace.event_hub(request.path_params["hub"])
        range_name = _range(request)
        return await run_in_threadpool(self._describe, hub, range_name)

    def _describe(self, hub: EventHub, range_name: str) -> dict[str, Any]:
        config = hub.config
        return {
            **hub_summary(hub),
            "namespace": self._namespace.name,
            "createdAt": iso_of_ms(hub.definition.created_at_ms),
            "retentionMs": config.retention_ms,
            "retentionBytes": config.retention_bytes,
            "userMetadata": config.user_metadata,
            "ranges": list(RANGES),
            "throughput": self._throughput.chart(hub, range_name),
            "partitionRows": partition_rows(hub, self._throughput),
            "consumerGroups": group_rows(hub),
            "kafkaGroups": kafka_group_rows(hub, self._namespace.group_offsets),
            "capture": capture_state(hub, self._default_capture),
            "policies": policy_rows(self._namespace, hub.name),
            "revokedPublishers": sorted(hub.definition.revoked_publishers),
        }

    async def _chart(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        hub = self._namespace.event_hub(request.path_params["hub"])
        return await run_in_threadpool(lambda: self._throughput.chart(hub, _range(request), by_partition=True))

    async def _create(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        name = text_of(body, "name").strip()
        _check_capture(visitor, body)
        settings = _parsed(EventHubCreation, {key: value for key, value in body.items() if key != "name"})
        if name.lower() in self._namespace.event_hubs:
            raise ArgumentError(f"there is an event hub {name} already")
        await run_in_threadpool(self._management.create, name, settings)
        return {"name": name}

    async def _update(self, request: Request, visitor: Visitor, body: Any) -> None:
        _check_capture(visitor, body)
        await self._change(self._management.update, request.path_params["hub"], _parsed(EventHubChanges, body))

    async def _delete(self, request: Request, visitor: Visitor, body: Any) -> None:
        hub = self._namespace.event_hub(request.path_params["hub"])
        if text_of(body, "confirm") != hub.name:
            raise ArgumentError(f"to delete the hub with all its events, repeat its name: {hub.name}")
        await self._change(self._namespace.management.delete_event_hub, hub.name)

    async def _create_group(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        name = text_of(body, "name").strip()
        settings = _parsed(ConsumerGroupSettings, {"userMetadata": text_of(body, "userMetadata")})
        create = self._namespace.management.create_consumer_group
        await self._change(create, request.path_params["hub"], name, settings.user_metadata)
        return {"name": name}

    async def _delete_group(self, request: Request, visitor: Visitor, body: Any) -> None:
        names = request.path_params
        await self._change(self._namespace.management.delete_consumer_group, names["hub"], names["group"])

    async def _connection_string(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        """Return a connection string with the visitor's own key: only here, only when asked, never in a page."""
        hub = self._namespace.event_hub(request.path_params["hub"])
        access = self._namespace.access
        key = access.key_of(visitor.grant) if visitor.has_key else None
        if key is None:
            raise Forbidden("a connection string holds a key: sign in with one; a shared access signature shows none")
        rule = access.rule_table.rule(visitor.grant.rule_name, visitor.grant.rule_level)
        text = self._desk.http.control.connection_string(rule, key, hub.name)
        return {"rule": rule.name, "connectionString": text}

    async def _change(self, change: Callable[..., Any], *arguments: Any) -> None:
        await run_in_threadpool(change, *arguments)


def _check_capture(visitor: Visitor, body: Any) -> None:
    """Raise Forbidden if someone who is no owner decides where this machine writes files."""
    capture = body.get("capture") if isinstance(body, dict) else None
    if isinstance(capture, dict) and capture.get("destination") is not None:
        visitor.check(VisitorRole.OWNER)


def _range(request: Request) -> str:
    name = request.query_params.get("range", DEFAULT_RANGE)
    if name not in RANGES:
        raise NotFound(f"there is no range {name[:20]!r}: choose {', '.join(RANGES)}")
    return name


def _parsed(model: type[Model], body: Any) -> Model:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise ArgumentError(reasons(error)) from None


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
        first = {"enabled": True} if former is None else {}
        return changed_capture(former, first | settings.model_dump(exclude_none=True))
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
                item["msg"].removeprefix("Value error, ").replace("Input should be", "expected"),
            )
        )
        for item in error.errors(include_url=False, include_input=False)
    )


def retention_ms(hours: float | None) -> int | None:
    """Return hours in milliseconds; None is for ever."""
    return None if hours is None else round(hours * MS_PER_HOUR)
