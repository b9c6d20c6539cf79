"""The interface of an attached link's handler, and how its deliveries are settled."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from tidegate.amqp import Credit, Link, Transfers
from tidegate.amqp.endpoints.link import SEND_SETTLED
from tidegate.hub.errors import Unauthorized

_EXPIRED = "the token of this link has expired; put a new one before that"


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


def follow_token(handler: LinkHandler) -> None:
    """Let a link whose token has expired take up a later one.

    A timer of the connection sees to it too, but is late where the machine is busy, or has slept.

    Raises:
        Unauthorized: there is no later token that covers the link.
    """
    if handler.expires_at_s is None or handler.expires_at_s > time.time():
        return
    try:
        handler.renew()
    except Unauthorized:
        raise Unauthorized(_EXPIRED) from None


_PRODUCT = "product"
_INDIFFERENT_PRODUCTS = frozenset({"azsdk-python-eventhubs", "eventhub.python", "MSGolangClient", "MSJSClient"})


def settle_mode(link: Link, peer_properties: Mapping[str, Any]) -> int:
    """Return the snd-settle-mode to answer the attach of a receiving peer with."""
    product = peer_properties.get(_PRODUCT)
    return SEND_SETTLED if isinstance(product, str) and product in _INDIFFERENT_PRODUCTS else link.snd_settle_mode
