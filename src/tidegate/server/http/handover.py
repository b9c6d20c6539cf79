"""An HTTP connection whose requests another process answers: its bytes are passed on, both ways."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

import h11

_logger = logging.getLogger(__name__)
HandOver = Callable[[str, tuple[str, int], tuple[str, int]], socket.socket]
"""Given scheme, client and server, return a socket to the process that answers. Raises OSError."""


def head_of(request: h11.Request) -> bytes:
    """Return the head of a request as it goes over the wire."""
    lines = [b"%b %b HTTP/%b" % (request.method, request.target, request.http_version)]
    lines += [b"%b: %b" % header for header in request.headers.raw_items()]
    return b"\r\n".join((*lines, b"", b""))


class Relay:
    """Carries bytes between a client and the process that answers it until either end closes.

    `connections` are those that uvicorn waits for when it stops. The other process ends them then.
    """

    def __init__(
        self, client: asyncio.Transport, elsewhere: socket.socket, first: bytes, connections: set[Any]
    ) -> None:
        self._client = client
        self._connections = connections
        self._is_over = False
        client.pause_reading()
        self._near = _End(self, None)
        client.set_protocol(self._near)
        connections.add(self)
        self._opening = asyncio.ensure_future(self._open(elsewhere, first))

    async def _open(self, elsewhere: socket.socket, first: bytes) -> None:
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.create_connection(lambda: _End(self, self._client), sock=elsewhere)
        except OSError as error:
            _logger.error("a request could not be handed over: %s", error)
            self._client.abort()
            return
        if self._is_over:
            transport.abort()
            return
        self._near.other = transport
        transport.write(first)
        self._client.resume_reading()

    def end(self) -> None:
        """Close both ends, once they have sent what was written."""
        if self._is_over:
            return
        self._is_over = True
        self._connections.discard(self)
        self._client.close()
        if self._near.other is not None:
            self._near.other.close()

    def shutdown(self) -> None:
        """Do nothing: the process that answers finishes what is under way, and closes."""


class _End(asyncio.Protocol):
    """One end of a relay; what comes here goes to the other."""

    def __init__(self, relay: Relay, other: asyncio.Transport | None) -> None:
        self.other = other
        self._relay = relay

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.end()
