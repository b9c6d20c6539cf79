"""AMQP over TCP and over TLS: asyncio's callbacks, handed on. A chunk costs one call; no task, no stream."""

from __future__ import annotations

import asyncio
import socket

from tidegate.server.transports.transport import Conversation, Converse


class TcpProtocol(asyncio.Protocol):
    """One accepted socket, TLS or not."""

    def __init__(self, converse: Converse, unsent_bytes: int) -> None:
        self._converse = converse
        self._unsent_bytes = unsent_bytes
        self._conversation: Conversation | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=self._unsent_bytes)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._conversation = self._converse(TcpTransport(transport))

    def data_received(self, data: bytes) -> None:
        if self._conversation is not None:
            self._conversation.data_received(data)

    def eof_received(self) -> bool:
        if self._conversation is not None:
            self._conversation.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            conversation.connection_lost()

    def pause_writing(self) -> None:
        if self._conversation is not None:
            self._conversation.pause_writing()

    def resume_writing(self) -> None:
        if self._conversation is not None:
            self._conversation.resume_writing()


class TcpTransport:
    """The writing side of an accepted socket."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        address = transport.get_extra_info("peername") or ("?", 0)
        self.peer = f"{address[0]}:{address[1]}"
        self.write = transport.write
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.abort = transport.abort

    def close(self) -> None:
        self._transport.close()
