"""`/eventhubs/NAME`: throughput, partitions, consumer groups and capture of a hub; creating and deleting them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import BaseRoute

from tidegate.hub.errors import ArgumentError, NotFound
from tidegate.hub.event_hub import EventHub
from tidegate.portal.pages.hub_management import (
    ConsumerGroupSettings,
    EventHubChanges,
    EventHubCreation,
    HubManagement,
    reasons,
)
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
            desk.action("/eventhubs", self._create, manager),
            desk.action(f"{HUB}/update", self._update, manager),
            desk.action(f"{HUB}/delete", self._delete, manager),
            desk.action(f"{HUB}/consumergroups", self._create_group, manager),
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
