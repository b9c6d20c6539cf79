"""Identities of the hub's resources: their ids, their envelopes, and which namespace a path names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tidegate.arm.manager.places import DEFAULT_GROUP, time_text
from tidegate.arm.model.errors import resource_not_found
from tidegate.arm.model.operations import GROUP
from tidegate.arm.model.requests import ArmRequest
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
