"""What stands behind an attached link, and what of its connection it may use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tidegate.amqp import Credit, Link, Transfers
from tidegate.hub.errors import HubError
from tidegate.server.context.context import ServerContext
from tidegate.server.context.tokens import Tokens


class LinkHandler(Protocol):
    """One attached link's behaviour."""

    expires_at_s: float | None

    def on_transfers(self, transfers: Transfers) -> None:
        """Take deliveries that came."""

    def on_credit(self, credit: Credit) -> None:
        """Send more, now that the peer has given credit."""

    def on_writable(self) -> None:
        """Send more, now that the transport has room again."""

    def renew(self) -> None:
        """Set `expires_at_s` anew, as the token has expired. Raises Unauthorized if no later one covers the link."""

    def check(self) -> None:
        """Raise HubError if what the link leads to, or the key and right that it rests on, no longer exists."""

    def close(self) -> None:
        """Free what the link holds; it is gone."""


class ReplySender(Protocol):
    """A link on which a peer receives replies of `$cbs` or `$management`."""

    address: str
    link: Link

    def send(self, reply: bytes) -> None:
        """Send a reply now or with the next credit."""


class HandlerConnection(Protocol):
    """What a link handler may use of the connection that its link belongs to."""

    context: ServerContext
    tokens: Tokens
    loop: asyncio.AbstractEventLoop
    writable: bool
    flush: Callable[[], None]

    @property
    def peer_properties(self) -> Mapping[str, Any]:
        """Return the properties of the peer's open."""

    def count_in_flight(self, size: int) -> None:
        """Add bytes that were published and are not yet durable; negative when they have become durable."""

    def refused(self, what: str, address: object, error: HubError) -> None:
        """Count and log a refusal."""

    def guard(self, action: Callable[[], None]) -> None:
        """Run an action; a fault in it costs this connection only."""

    def detach(self, link: Link, error: HubError) -> None:
        """End a link from our side."""

    def reply_links(self) -> Sequence[ReplySender]:
        """Return the links on which this peer receives replies."""
