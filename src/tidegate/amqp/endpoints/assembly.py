"""Assembly of a delivery that spans several transfer frames (part 2, section 2.6.14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class ByteBudget(Protocol):
    """The bytes of a connection's incomplete deliveries."""

    def reserve_partial_bytes(self, size: int) -> None:
        """Reserve `size` more bytes. Raises PeerError if that is too many."""

    def release_partial_bytes(self, size: int) -> None:
        """Release `size` bytes."""


@dataclass(frozen=True, slots=True)
class PartialDelivery:
    """The fields of a delivery's first frame, which later frames may omit."""

    delivery_id: int
    message_format: int


class Assembly:
    """The frames of one delivery. Once they exceed the link's limit, only their size is kept."""

    __slots__ = ("_budget", "_kept", "delivery", "settled", "size")

    def __init__(self, budget: ByteBudget, delivery: PartialDelivery) -> None:
        self.delivery = delivery
        self.settled = False
        self.size = 0
        self._budget = budget
        self._kept = bytearray()

    @property
    def is_whole(self) -> bool:
        """Whether every piece so far was kept."""
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
        """Return the joined pieces, and release them."""
        payload = bytes(self._kept)
        self.discard()
        return payload

    def discard(self) -> None:
        """Release the pieces."""
        self._budget.release_partial_bytes(len(self._kept))
        self._kept = bytearray()
