"""Limits on the memory that one peer may occupy, counted per connection."""

from __future__ import annotations

from tidegate.amqp.encoding.errors import RESOURCE_LIMIT_EXCEEDED, PeerError


class PeerLimits:
    """Counts links and the bytes of incomplete deliveries. Exceeding a maximum ends the connection."""

    __slots__ = ("_max_links", "_max_partial_bytes", "links", "partial_bytes")

    def __init__(self, max_links: int, max_partial_bytes: int) -> None:
        self._max_links = max_links
        self._max_partial_bytes = max_partial_bytes
        self.links = 0
        self.partial_bytes = 0

    def count_links(self, change: int) -> None:
        """Count attached or detached links. Raises PeerError if there are too many."""
        self.links += change
        if self.links > self._max_links:
            raise PeerError(RESOURCE_LIMIT_EXCEEDED, f"more than {self._max_links} links on one connection")

    def reserve_partial_bytes(self, size: int) -> None:
        """Count buffered bytes of a delivery. Raises PeerError if there are too many."""
        self.partial_bytes += size
        if self.partial_bytes > self._max_partial_bytes:
            raise PeerError(RESOURCE_LIMIT_EXCEEDED, "too many bytes of deliveries that are not yet whole")

    def release_partial_bytes(self, size: int) -> None:
        """Count bytes that are no longer buffered."""
        self.partial_bytes -= size
