"""The three roles, and what each may do. Azure's built-in roles have the same names and the same limits."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """What a service principal may do."""

    READER = "reader"
    CONTRIBUTOR = "contributor"
    OWNER = "owner"

    def includes(self, other: Role) -> bool:
        """Return whether this role may do what the other one may."""
        order = list(Role)
        return order.index(self) >= order.index(other)

    def may(self, action: str) -> bool:
        """Return whether the role allows an action such as `Microsoft.EventHub/namespaces/eventhubs/write`."""
        match self:
            case Role.READER:
                return action.endswith("/read")
            case Role.CONTRIBUTOR:
                verb = action.rpartition("/")[2]
                return not action.startswith("Microsoft.Authorization/") or verb == "read"
            case Role.OWNER:
                return True
