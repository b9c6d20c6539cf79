"""What a resource provider is here: its namespace, its kinds of resources, its operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tidegate.arm.manager.state import DEFAULT_LOCATION
from tidegate.arm.model.operations import Operation


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A type of resource: `namespaces/eventhubs`, with the versions of the API that clients are offered."""

    name: str
    api_versions: tuple[str, ...]


class ResourceProvider(Protocol):
    """A provider such as Microsoft.EventHub."""

    namespace: str
    kinds: Sequence[ResourceKind]

    def operations(self) -> Sequence[Operation]:
        """Return what it serves."""

    def top_level(self, subscription: str, group: str) -> Sequence[dict[str, Any]]:
        """Return its resources in a group (empty: in the subscription), as their own GET answers them."""

    def delete_group(self, group: str) -> None:
        """Delete what was created in an explicit group. Raises ArmError, OSError."""


def provider_resource(provider: ResourceProvider, prefix: str = "") -> dict[str, Any]:
    """Return a provider with its types, by which clients choose a version of the API."""
    return {
        "id": f"{prefix}/providers/{provider.namespace}",
        "namespace": provider.namespace,
        "registrationState": "Registered",
        "registrationPolicy": "RegistrationFree",
        "resourceTypes": [
            {
                "resourceType": kind.name,
                "locations": [DEFAULT_LOCATION],
                "apiVersions": list(kind.api_versions),
                "defaultApiVersion": kind.api_versions[0],
                "capabilities": "SupportsTags, SupportsLocation",
            }
            for kind in provider.kinds
        ],
    }
