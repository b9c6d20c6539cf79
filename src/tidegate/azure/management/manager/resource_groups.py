"""Subscriptions and resource groups: any name refers to the same place, unless a group was created explicitly.

Scripts written for Azure name a subscription and a group, and need not prepare them here. A group that somebody
creates is a place of its own: it holds what is created in it, and deleting it deletes that. Subscriptions are never
told apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tidegate.azure.management.access.tokens import DEFAULT_TENANT
from tidegate.azure.management.manager.state import (
    DEFAULT_LOCATION,
    MOST_DEPLOYMENTS,
    ArmState,
    DeploymentRecord,
    GroupRecord,
    ResourceRecord,
    StateFile,
)

DEFAULT_SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
DEFAULT_GROUP = "tidegate"
"""The group that lists name when a request names none."""


class ResourceGroups:
    """Knows the explicit groups, and what is kept of the resources in all of them."""

    def __init__(self, state: StateFile) -> None:
        self._state = state

    @property
    def groups(self) -> Mapping[str, GroupRecord]:
        """The explicit groups, by their names in lower case."""
        return self._state.current.groups

    @property
    def created_at(self) -> datetime:
        """When the management API was first used."""
        return self._state.current.created_at

    def group_key(self, group: str) -> str:
        """Return what resources of a group are recorded under: nothing, unless it was created explicitly."""
        return group.lower() if group.lower() in self.groups else ""

    def location(self, group: str) -> str:
        """Return where a group is, which new resources take over."""
        record = self.groups.get(group.lower())
        return DEFAULT_LOCATION if record is None else record.location

    def record(self, key: str) -> ResourceRecord:
        """Return what is kept of a resource. `key` is its provider, types and names in lower case."""
        return self._state.current.resources.get(key, ResourceRecord())

    def records(self, prefix: str) -> Mapping[str, ResourceRecord]:
        """Return what is kept of the resources whose keys begin so."""
        return {key: record for key, record in self._state.current.resources.items() if key.startswith(prefix)}

    def is_in(self, key: str, group: str) -> bool:
        """Return whether a resource is in the place that a group's name refers to. An empty name: anywhere."""
        return not group or self.record(key).group == self.group_key(group)

    def put_record(self, key: str, record: ResourceRecord) -> None:
        """Keep something of a resource. Raises OSError."""
        created = record if record.created_at else record.model_copy(update={"created_at": _now()})
        self._state.change(lambda state: _with(state, resources={**state.resources, key: created}))

    def drop_records(self, key: str) -> None:
        """Forget a resource and everything below it. Raises OSError."""

        def without(state: ArmState) -> ArmState:
            kept = {
                other: record
                for other, record in state.resources.items()
                if other != key and not other.startswith(f"{key}/")
            }
            return _with(state, resources=kept)

        self._state.change(without)

    def put_group(self, record: GroupRecord) -> None:
        """Create or change an explicit group. Raises OSError."""
        self._state.change(lambda state: _with(state, groups={**state.groups, record.name.lower(): record}))

    def drop_group(self, group: str) -> None:
        """Forget an explicit group with its deployments; what it held must be gone. Raises OSError."""
        key = group.lower()

        def without(state: ArmState) -> ArmState:
            return _with(
                state,
                groups={name: other for name, other in state.groups.items() if name != key},
                deployments={name: one for name, one in state.deployments.items() if one.group.lower() != key},
            )

        self._state.change(without)

    # -- deployments

    def deployments(self) -> Sequence[DeploymentRecord]:
        """Return those of all groups, the oldest first."""
        return list(self._state.current.deployments.values())

    def deployment(self, group: str, name: str) -> DeploymentRecord | None:
        """Return one by its group and name in any case, None if there is none."""
        return self._state.current.deployments.get(f"{group}/{name}".lower())

    def put_deployment(self, record: DeploymentRecord) -> None:
        """Keep a deployment, and forget its group's oldest if there are too many. Raises OSError."""

        def with_it(state: ArmState) -> ArmState:
            key = f"{record.group}/{record.name}".lower()
            kept = {name: one for name, one in state.deployments.items() if name != key}
            own = [name for name, one in kept.items() if one.group.lower() == record.group.lower()]
            for name in own[: max(0, len(own) - MOST_DEPLOYMENTS + 1)]:
                del kept[name]
            return _with(state, deployments={**kept, key: record})

        self._state.change(with_it)

    def drop_deployment(self, record: DeploymentRecord) -> None:
        """Forget a deployment; what it made stays. Raises OSError."""
        key = f"{record.group}/{record.name}".lower()
        self._state.change(
            lambda state: _with(
                state, deployments={name: one for name, one in state.deployments.items() if name != key}
            )
        )


def _with(state: ArmState, **changes: Any) -> ArmState:
    return state.model_copy(update=changes)


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def subscription_resource(subscription: str) -> dict[str, Any]:
    """Return a subscription as clients see it."""
    return {
        "id": f"/subscriptions/{subscription}",
        "subscriptionId": subscription,
        "tenantId": DEFAULT_TENANT,
        "displayName": "Tidegate",
        "state": "Enabled",
        "authorizationSource": "RoleBased",
        "managedByTenants": [],
        "subscriptionPolicies": {"locationPlacementId": "Public", "quotaId": "Tidegate", "spendingLimit": "Off"},
    }


def time_text(time: datetime) -> str:
    """Return a time as Azure writes it."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
