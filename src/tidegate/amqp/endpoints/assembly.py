"""A delivery of several transfer frames, on its way to being whole (part 2, section 2.6.14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class ByteBudget(Protocol):
    """The bytes of deliveries that are not yet whole, over a connection."""

    def reserve_partial_bytes(self, size: int) -> None:
        """Keep `size` more bytes. Raises PeerError when that is too many."""

    def release_partial_bytes(self, size: int) -> None:
        """Keep `size` bytes fewer."""


@dataclass(frozen=True, slots=True)
class PartialDelivery:
    """What the first frame of a delivery says of it; later frames may leave it out."""

    delivery_id: int
    message_format: int


class Assembly:
    """The pieces of one delivery. Once they are larger than the link allows, only their size is kept."""

    __slots__ = ("_budget", "_kept", "delivery", "settled", "size")

    def __init__(self, budget: ByteBudget, delivery: PartialDelivery) -> None:
        self.delivery = delivery
        self.settled = False
        self.size = 0
        self._budget = budget
        self._kept = bytearray()

    @property
    def is_whole(self) -> bool:
        """True if every piece so far was kept."""
        return len(self._kept) == self.size

    def add(self, payload: bytes, limit: int) -> None:
        """Add a piece; `limit` is the link's maximum in bytes, 0 for none. Raises PeerError."""
        self.size += len(payload)
        if 0 < limit < self.size:
            self.discard()
        else:
            self._budget.reserve_partial_bytes(len(payload))
            self._kept += payload

    def join(self) -> bytes:
        """Return the pieces as one, and keep them no longer."""
        payload = bytes(self._kept)
        self.discard()
        return payload

    def discard(self) -> None:
        """Keep the pieces no longer."""
        self._budget.release_partial_bytes(len(self._kept))
        self._kept = bytearray()
