"""The part of a session that a link uses: windows and delivery ids, and its channel to the peer."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol, TypeVar

from tidegate.amqp.endpoints.assembly import ByteBudget
from tidegate.amqp.endpoints.frame_queue import FrameQueue
from tidegate.amqp.framing.performatives import DeliveryState

LinkT_contra = TypeVar("LinkT_contra", contravariant=True)


class LinkSession(Protocol[LinkT_contra]):
    """A session as its links see it."""

    channel: int
    next_delivery_id: int
    held: deque[bytes]
    outgoing: FrameQueue
    budget: ByteBudget
    joined_transfers: bool

    @property
    def sendable(self) -> int:
        """Return how many transfer frames may be sent now."""

    @property
    def unsettled_room(self) -> int:
        """Return how many unsettled deliveries may be sent now."""

    def send(self, performative: Any) -> None:
        """Send a performative on the session's channel."""

    def send_flow(
        self,
        handle: int | None = None,
        delivery_count: int | None = None,
        link_credit: int | None = None,
        drain: bool = False,
    ) -> None:
        """Send the session's windows and a link's credit."""

    def settle(self, first_id: int, last_id: int, state: DeliveryState) -> None:
        """Settle a range of incoming deliveries by the next flush."""

    def flush_settlements(self) -> None:
        """Write pending settlements."""

    def on_sent(self, link: LinkT_contra, first_id: int, deliveries: int, frames: int, remembered: bool) -> None:
        """Count transfers that were written."""

    def on_left(self, link: LinkT_contra) -> None:
        """Forget a detached link's unsettled deliveries."""
