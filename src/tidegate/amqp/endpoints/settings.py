"""Settings of a connection: what it offers its peer, and the limits it enforces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.amqp.encoding.errors import RESOURCE_LIMIT_EXCEEDED, PeerError


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Sizes are bytes, the window is frames."""

    hostname: str | None = None
    max_frame_size: int = 1 << 20
    channel_max: int = 2047
    handle_max: int = 255
    max_links: int = 1024
    max_partial_bytes: int = 1 << 26
    """The maximum size of incomplete deliveries."""
    idle_timeout_ms: int | None = None
    """The idle timeout announced to the peer. The connection ends after twice that time without bytes."""
    incoming_window: int = 8192
    sasl_mechanisms: Sequence[str] | None = None
    """A server offers these (None: MSSBCBS, ANONYMOUS and PLAIN); a client chooses the first of them that is offered
    (None: ANONYMOUS). Empty: no SASL layer."""
    sasl_response: bytes = b""
    """A client's initial response, sent with the mechanism."""
    properties: Mapping[str, Any] | None = None
    joined_transfers: bool = False
    """Report deliveries as Transfers."""


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
