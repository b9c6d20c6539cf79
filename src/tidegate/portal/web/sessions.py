"""Who a request comes from, and whether it came from a page of the portal.

On loopback no key is needed: both the client's address and the host that it asked for must be loopback ones, so that a
page from elsewhere cannot reach the portal by pointing its own name at 127.0.0.1, and no header may say that a proxy
asks for somebody else. Anyone else signs in with a key of
the namespace, or sends a shared access signature with each request.

A change must carry a token that only the portal's pages hold (a header or a form's field), and an Origin, if the
browser sends one, that is the portal's own.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import urlsplit

from starlette.requests import Request

from tidegate.hub.access import Access, Grant
from tidegate.hub.access_rules import NAMESPACE_LEVEL, Right, is_root_rule
from tidegate.hub.errors import HubError, Unauthorized
from tidegate.server.http.refusals import is_loopback


class VisitorRole(Enum):
    """A role includes those before it."""

    READER = "reader"
    """Sees every page and browses events."""
    CONTRIBUTOR = "contributor"
    """Also sends events, starts and stops jobs, and changes their queries."""
    MANAGER = "manager"
    """Also creates, changes and deletes hubs and consumer groups."""
    OWNER = "owner"
    """Also creates and deletes jobs, and decides which files, hosts and code they use."""

    def includes(self, other: VisitorRole) -> bool:
        """Return whether a visitor of this role may do what the other one may."""
        order = list(VisitorRole)
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
    role: VisitorRole
    grant: Grant
    session: str = field(default="", repr=False)
    is_exempt: bool = False

    @property
    def has_key(self) -> bool:
        """Whether the visitor holds a key, or is on this machine; a token is no key, and shows none."""
        return not self.is_exempt

    def check(self, needed: VisitorRole) -> None:
        """Raise Forbidden unless the visitor's role includes the one that is needed."""
        if not self.role.includes(needed):
            raise Forbidden(f"this needs the role {needed.value}; {self.name} has the role {self.role.value}")


def role_of(access: Access, grant: Grant, now_s: float) -> VisitorRole:
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
        return VisitorRole.OWNER if is_root_rule(grant.rule_name, grant.rule_level) else VisitorRole.MANAGER
    if has(Right.LISTEN):
        return VisitorRole.CONTRIBUTOR if has(Right.SEND) else VisitorRole.READER
    raise Unauthorized("the portal needs a key with the right Listen; Send alone shows nothing")


COOKIE = "tidegate-session"
TOKEN_HEADER = "x-csrf-token"
SESSION_S = 12 * 3600.0
MAX_SESSIONS = 1000
THIS_MACHINE = "this machine"


@dataclass(frozen=True, slots=True)
class _Session:
    grant: Grant
    expires_at_s: float


class Sessions:
    """The visitors of one server. Sessions are kept in memory: after a restart, visitors sign in again."""

    def __init__(self, access: Callable[[], Access], now_s: Callable[[], float] = time.time) -> None:
        """`access` returns the namespace's current access control."""
        self._access = access
        self._now_s = now_s
        self._secret = secrets.token_bytes(32)
        self._sessions: dict[str, _Session] = {}

    def visitor(self, request: Request) -> Visitor | None:
        """Return who sent a request, None for someone who has yet to sign in. Raises Unauthorized for a bad token."""
        now_s = self._now_s()
        authorization = request.headers.get("authorization")
        if authorization is not None:
            grant = self._access().check_token(authorization, now_s)
            return Visitor(grant.rule_name, role_of(self._access(), grant, now_s), grant, is_exempt=True)
        identifier = request.cookies.get(COOKIE, "")
        session = self._sessions.get(identifier)
        if session is not None and session.expires_at_s > now_s:
            try:
                role = role_of(self._access(), session.grant, now_s)
            except Unauthorized:  # the key was renewed or its rule deleted
                del self._sessions[identifier]
            else:
                return Visitor(session.grant.rule_name, role, session.grant, identifier)
        if is_loopback_request(request):
            root = self._access().rule_table.root_rule
            return Visitor(THIS_MACHINE, VisitorRole.OWNER, self._access().check_key(root.name, root.primary_key))
        return None

    def check(self, visitor: Visitor) -> None:
        """Raise Unauthorized if a visitor's key or right is no longer valid, in the middle of a long answer."""
        role_of(self._access(), visitor.grant, self._now_s())

    def sign_in(self, rule_name: str, key: str) -> str:
        """Begin a session with a rule's name and one of its keys, and return its id. Raises Unauthorized."""
        now_s = self._now_s()
        grant = self._access().check_key(rule_name, key)
        role_of(self._access(), grant, now_s)
        self._sessions = {name: one for name, one in self._sessions.items() if one.expires_at_s > now_s}
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        identifier = secrets.token_urlsafe(32)
        self._sessions[identifier] = _Session(grant, now_s + SESSION_S)
        return identifier

    def sign_out(self, identifier: str) -> None:
        """End a session. Calling it again does nothing."""
        self._sessions.pop(identifier, None)

    def page_token(self, session: str) -> str:
        """Return the token that the pages of a session send back with each change."""
        return hmac.new(self._secret, session.encode("utf-8"), hashlib.sha256).hexdigest()

    def check_page_token(self, request: Request, session: str, token: str) -> None:
        """Raise Forbidden unless a change was asked for by a page of the portal in this session."""
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
            raise Forbidden("a page of another site asked for this change")
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Forbidden("a page of another site asked for this change")
        if not hmac.compare_digest(token.encode("utf-8"), self.page_token(session).encode("ascii")):
            raise Forbidden("the page is out of date: reload it, then try again")


_OF_PROXIES = (
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
    "x-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
)
"""Headers by which a proxy says for whom it asks (RFC 7239, RFC 9110 section 7.6.3, and what was used before)."""


def is_loopback_request(request: Request) -> bool:
    """Return whether a request came over loopback, from no proxy, and asked for a loopback host."""
    if any(name in request.headers for name in _OF_PROXIES):
        return False
    client = request.client.host if request.client else ""
    return is_loopback(client) and is_loopback(_host_name(request.headers.get("host", "")))


def _host_name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
