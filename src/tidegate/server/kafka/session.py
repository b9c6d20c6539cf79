"""Who a client of Kafka is: SASL PLAIN with a connection string, as everywhere in Event Hubs' documentation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from uuid import NAMESPACE_URL, UUID, uuid5

from tidegate.hub.access import Grant
from tidegate.hub.access_rules import Right
from tidegate.hub.addresses import Path
from tidegate.hub.errors import Unauthorized
from tidegate.hub.event_hub import EventHub
from tidegate.hub.namespace import Namespace
from tidegate.kafka.messages import Message

USER = "$ConnectionString"
MECHANISM = "PLAIN"


def topic_id(hub: EventHub) -> UUID:
    """Return the id of one incarnation of a hub."""
    return _id_of(hub.definition.directory)


@lru_cache(maxsize=4096)
def _id_of(directory: str) -> UUID:
    return uuid5(NAMESPACE_URL, f"tidegate:{directory}")


@dataclass(slots=True)
class FetchSession:
    """What an incremental fetch leaves out (KIP-227): the partitions that a consumer reads, and what it was told.

    Attributes:
        by_id: Whether topics are named by their ids, which an answer can be only as the request is.
        partitions: The request's fields of each partition, by topic and number.
        sent: The last error, end and beginning that the consumer knows of each.
    """

    session_id: int
    by_id: bool
    epoch: int = 1
    partitions: dict[tuple[str, int], Message] = field(default_factory=dict)
    sent: dict[tuple[str, int], tuple[int, int, int]] = field(default_factory=dict)


class Session:
    """One connection's client: what it is called, and what its key allows."""

    def __init__(self, namespace: Namespace, peer: str, host: str, port: int) -> None:
        self.namespace = namespace
        self.peer = peer
        self.advertised = (host, port)
        self.mechanism: str | None = None
        self.grant: Grant | None = None
        self.fetch: FetchSession | None = None
        self.upstream: str | None = None
        """The connection to a cluster that is the client's alone, if it has one."""
        self.on_close: Callable[[], None] = lambda: None
        """Called when the client is gone."""

    def authenticate(self, token: bytes) -> None:
        """Check a SASL PLAIN message: an authorization id, a user and a password. Raises Unauthorized."""
        try:
            _, user, password = token.decode("utf-8").split("\0")
        except ValueError:
            raise Unauthorized("the client's SASL PLAIN message cannot be read") from None
        if user != USER:
            raise Unauthorized(f"the user must be {USER}, and the password a connection string")
        self.grant = self.namespace.access.check_connection_string(password, time.time())

    @property
    def scope(self) -> Path:
        """What the key covers."""
        return () if self.grant is None else self.grant.scope

    def has_expired(self) -> bool:
        """Return whether the token that the client has shown is over; keys do not expire."""
        return self.grant is not None and self.grant.expires_at_s is not None and self.grant.expires_at_s <= time.time()

    def may(self, right: Right, *path: str) -> bool:
        """Return whether the client has a right, on the namespace or at a path below it."""
        if self.grant is None:
            return False
        try:
            self.namespace.access.authorize([self.grant], right, tuple(one.lower() for one in path), time.time())
        except Unauthorized:
            return False
        return True

    def sees(self, hub: str) -> bool:
        """Return whether the client has any right on a hub of that name, which need not exist."""
        return any(self.may(right, hub) for right in (Right.SEND, Right.LISTEN))

    def name_of(self, wanted: UUID) -> str | None:
        """Return the name of the hub with an id, if the client has any right on it."""
        return next((hub.name for hub in self.visible_hubs() if topic_id(hub) == wanted), None)

    def visible_hubs(self) -> list[EventHub]:
        """Return the hubs that the client has any right on."""
        return [hub for hub in list(self.namespace.event_hubs.values()) if self.sees(hub.name)]
