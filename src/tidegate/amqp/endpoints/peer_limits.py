"""What one peer may make us keep, counted over its connection."""

from __future__ import annotations

from tidegate.amqp.encoding.errors import RESOURCE_LIMIT_EXCEEDED, PeerError


class PeerLimits:
    """Links, and bytes of deliveries that are not yet whole; more than the maximum ends the connection."""

    __slots__ = ("_max_links", "_max_partial_bytes", "links", "partial_bytes")

    def __init__(self, max_links: int, max_partial_bytes: int) -> None:
        self._max_links = max_links
        self._max_partial_bytes = max_partial_bytes
        self.links = 0
        self.partial_bytes = 0

    def count_links(self, change: int) -> None:
        """Count links that came or went. Raises PeerError when there are too many."""
        self.links += change
        if self.links > self._max_links:
            raise PeerError(RESOURCE_LIMIT_EXCEEDED, f"more than {self._max_links} links on one connection")

    def reserve_partial_bytes(self, size: int) -> None:
        """Count bytes of a delivery that are kept. Raises PeerError when there are too many."""
        self.partial_bytes += size
        if self.partial_bytes > self._max_partial_bytes:
            raise PeerError(RESOURCE_LIMIT_EXCEEDED, "too many bytes of deliveries that are not yet whole")

    def release_partial_bytes(self, size: int) -> None:
        """Count bytes that are no longer kept."""
        self.partial_bytes -= size
