"""One AMQP connection: bytes in, events out; calls in, bytes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tidegate.amqp.events import Event
from tidegate.amqp.performatives import Open
from tidegate.amqp.session import Session


class Connection:
    """An AMQP 1.0 connection without its socket.

    A server waits for the peer's protocol header; a client calls open() first. `remote` is the peer's Open once it
    came. `closed` is True after Closed was reported. Peer bytes never raise.
    """

    remote: Open | None
    closed: bool
    context: Any

    def __init__(
        self,
        role: Literal["server", "client"],
        container_id: str,
        *,
        hostname: str | None = None,
        max_frame_size: int = 1 << 20,
        channel_max: int = 2047,
        handle_max: int = 255,
        max_links: int = 4096,
        idle_timeout_ms: int | None = None,
        incoming_window: int = 5000,
        sasl_mechanisms: Sequence[str] = ("MSSBCBS", "ANONYMOUS", "PLAIN"),
        sasl_response: bytes = b"",
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Sizes are bytes. A server offers `sasl_mechanisms`; a client takes the first of them the server offers and sends
        `sasl_response` with it. With none, there is no SASL layer. `idle_timeout_ms` is how long we bear silence.
        """
        ...

    def receive_data(self, data: bytes) -> list[Event]:
        """Take bytes from the peer and report what they said. b"" says nothing (see receive_eof)."""
        ...

    def receive_eof(self) -> list[Event]:
        """The transport has ended: the events that follow from that, Closed the last."""
        ...

    def data_to_send(self) -> bytes:
        """All bytes for the peer since the last call."""
        ...

    def tick(self, now_ms: int) -> list[Event]:
        """Tell the time (any clock that does not go back): sends what keeps the peer's timer quiet, and ends a
        connection silent for longer than `idle_timeout_ms`. Call it when next_tick_ms is due."""
        ...

    @property
    def next_tick_ms(self) -> int | None:
        """When tick() is due, on the caller's clock; 0 = now; None = nothing is timed."""
        ...

    def sasl_outcome(self, ok: bool) -> list[Event]:
        """Server: answer SaslInit. Returns the events of bytes that had been waiting for the answer."""
        ...

    def open(self) -> None:
        """Client: send protocol headers and open; begin() and attach may follow at once, before any answer."""
        ...

    def begin(self) -> Session:
        """Begin a session; SessionBegun follows. Links may be attached at once."""
        ...

    def close(self, condition: str | None = None, description: str = "") -> None:
        """Close, with an error where there is a condition. Closed follows with the peer's answer or receive_eof()."""
        ...
