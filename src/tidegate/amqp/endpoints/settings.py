"""Settings of a connection: what it offers its peer, and the limits it enforces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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
