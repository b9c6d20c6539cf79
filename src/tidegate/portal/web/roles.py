"""What visitors of the portal may do: roles, and the authorization rules that they follow from."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tidegate.hub.access import Access, Grant
from tidegate.hub.access_rules import NAMESPACE_LEVEL, Right, is_root_rule
from tidegate.hub.errors import HubError, Unauthorized


class Role(Enum):
    """A role includes those before it."""

    READER = "reader"
    """Sees every page and browses events."""
    CONTRIBUTOR = "contributor"
    """Also sends events, starts and stops jobs, and changes their queries."""
    MANAGER = "manager"
    """Also creates, changes and deletes hubs and consumer groups."""
    OWNER = "owner"
    """Also creates and deletes jobs, and decides which files, hosts and code they use."""

    def includes(self, other: Role) -> bool:
        """Return whether a visitor of this role may do what the other one may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


class Forbidden(HubError):
    """The visitor's role does not allow it, or the request did not come from a page of the portal."""

    condition = "amqp:unauthorized-access"
    http_status = 403


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who sent a request.

    Attributes:
        name: The rule whose key signed in, or "this machine".
        role: What it may do.
        grant: What the hub checks when the visitor sends or reads events.
        session: The session's id, "" for requests that need none.
        is_exempt: True for a request whose header carries its own token, which no other site can make a browser send.
    """

    name: str
    role: Role
    grant: Grant
    session: str = field(default="", repr=False)
    is_exempt: bool = False

    @property
    def has_key(self) -> bool:
        """Whether the visitor holds a key, or is on this machine; a token is no key, and shows none."""
        return not self.is_exempt

    def check(self, needed: Role) -> None:
        """Raise Forbidden unless the visitor's role includes the one that is needed."""
        if not self.role.includes(needed):
            raise Forbidden(f"this needs the role {needed.value}; {self.name} has the role {self.role.value}")


def role_of(access: Access, grant: Grant, now_s: float) -> Role:
    """Return the role that a key of the namespace gives.

    The root rule's Manage makes an owner, as in the management API, where a contributor may create every rule but
    that one. Manage of any other rule makes a manager, Listen and Send together a contributor, Listen alone a reader.

    Raises:
        Unauthorized: The grant is for one hub only, has expired, or has none of these rights.
    """
    if grant.rule_level != NAMESPACE_LEVEL or grant.scope:
        raise Unauthorized("the portal shows all hubs: sign in with a key of the namespace, not of one hub")

    def has(right: Right) -> bool:
        try:
            access.authorize([grant], right, (), now_s)
        except Unauthorized:
            return False
        return True

    if has(Right.MANAGE):
        return Role.OWNER if is_root_rule(grant.rule_name, grant.rule_level) else Role.MANAGER
    if has(Right.LISTEN):
        return Role.CONTRIBUTOR if has(Right.SEND) else Role.READER
    raise Unauthorized("the portal needs a key with the right Listen; Send alone shows nothing")
