"""Revoked publishers of an event hub as resources. Azure has them in an older API; these paths are Tidegate's."""

from __future__ import annotations

from typing import Any

from tidegate.arm.event_hubs.names import EVENT_HUB_PATH, check_namespace, envelope, namespace_id
from tidegate.arm.manager.state import DEFAULT_LOCATION
from tidegate.arm.model.errors import bad_request
from tidegate.arm.model.operations import Operation
from tidegate.arm.model.requests import ArmAnswer, ArmRequest
from tidegate.hub.addresses import split_address
from tidegate.hub.errors import NotFound
from tidegate.hub.event_hub import EventHub
from tidegate.hub.namespace import Namespace

_PUBLISHERS = f"{EVENT_HUB_PATH}/revokedPublishers"
_PUBLISHER = f"{_PUBLISHERS}/{{publisher}}"


class RevokedPublishers:
    """The publishers from which nothing more is taken, whatever their tokens say."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def operations(self) -> list[Operation]:
        """Return what is served."""
        return [
            Operation("GET", _PUBLISHERS, self._list),
            Operation("GET", _PUBLISHER, self._show),
            Operation("PUT", _PUBLISHER, self._put),
            Operation("DELETE", _PUBLISHER, self._delete),
        ]

    def _list(self, request: ArmRequest) -> ArmAnswer:
        hub = self._hub(request)
        return ArmAnswer(
            body={"value": [self._resource(request, hub, name) for name in sorted(hub.revoked_publishers)]}
        )

    def _show(self, request: ArmRequest) -> ArmAnswer:
        hub, name = self._hub(request), request.names["publisher"]
        if not hub.is_revoked(name):
            raise NotFound(f"the publisher {name!r} is not revoked")
        return ArmAnswer(body=self._resource(request, hub, name.lower()))

    def _put(self, request: ArmRequest) -> ArmAnswer:
        hub = self._hub(request)
        segments = split_address(request.names["publisher"])
        if len(segments) != 1:
            raise bad_request(f"{request.names['publisher'][:100]!r} is not the name of a publisher")
        name = segments[0]
        status = 200 if hub.is_revoked(name) else 201
        self._namespace.management.revoke_publisher(hub.name, name)
        return ArmAnswer(status, self._resource(request, hub, name.lower()))

    def _delete(self, request: ArmRequest) -> ArmAnswer:
        hub, name = self._hub(request), request.names["publisher"]
        if not hub.is_revoked(name):
            return ArmAnswer(204)
        self._namespace.management.restore_publisher(hub.name, name)
        return ArmAnswer()

    def _hub(self, request: ArmRequest) -> EventHub:
        check_namespace(self._namespace, request)
        return self._namespace.event_hub(request.names["hub"])

    def _resource(self, request: ArmRequest, hub: EventHub, name: str) -> dict[str, Any]:
        parent = f"{namespace_id(self._namespace, request.subscription, request.group)}/eventhubs/{hub.name}"
        return envelope(parent, "namespaces/eventhubs/revokedPublishers", name, {}, DEFAULT_LOCATION)
