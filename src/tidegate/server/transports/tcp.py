"""AMQP over TCP (`amqp://host:port`) and over TLS (`amqps://host:port`): asyncio's callbacks, passed on.

A chunk costs one call; there is no task and no stream.
"""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import SplitResult

from tidegate.server.transports.listening import BACKLOG, ListenOptions, transport
from tidegate.server.transports.transport import Conversation, Converse

DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}


@transport("amqp", "amqps")
async def listen_tcp(url: SplitResult, options: ListenOptions) -> TcpListener:
    """Listen on a host and port; port 0 lets the system choose. Raises OSError."""
    port = DEFAULT_PORTS[url.scheme] if url.port is None else url.port
    server = await asyncio.get_running_loop().create_server(
        lambda: TcpProtocol(options.converse, options.unsent_bytes),
        url.hostname,
        port,
        ssl=options.tls() if url.scheme == "amqps" else None,
        backlog=BACKLOG,
    )
    return TcpListener(url, server)


class TcpListener:
    """A listening port."""

    def __init__(self, url: SplitResult, server: asyncio.Server) -> None:
        host = url.hostname or ""
        self.port = int(server.sockets[0].getsockname()[1])
        self.url = f"{url.scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"
        self.close = server.close


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
