"""AMQP over TCP (`amqp://host:port`) and over TLS (`amqps://host:port`): asyncio's callbacks, passed on.

A chunk costs one call; there is no task and no stream.
"""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import SplitResult

from tidegate.server.transports.strangers import AMQP_1_0
from tidegate.server.transports.transport import BACKLOG, Conversation, ListenOptions, transport

DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}


@transport("amqp", "amqps")
async def listen_tcp(url: SplitResult, options: ListenOptions) -> TcpListener:
    """Listen on a host and port; port 0 lets the system choose. Raises OSError."""
    port = DEFAULT_PORTS[url.scheme] if url.port is None else url.port
    server = await asyncio.get_running_loop().create_server(
        lambda: TcpProtocol(options, url.scheme),
        url.hostname,
        port,
        ssl=options.tls() if url.scheme == "amqps" else None,
        backlog=BACKLOG,
        reuse_port=options.reuse_port or None,
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

    def __init__(self, options: ListenOptions, scheme: str) -> None:
        self._converse = options.converse
        self._unsent_bytes = options.unsent_bytes
        self._strangers = options.strangers
        self._scheme = scheme
        self._conversation: Conversation | None = None
        self._greeting: bytes | None = b""
        """The first bytes, until it is known what they are; then None."""
        self._refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=self._unsent_bytes)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._wire = TcpTransport(transport)
        self._port = (transport.get_extra_info("sockname") or ("?", 0))[1]
        self._conversation = self._converse(self._wire)

    def data_received(self, data: bytes) -> None:
        if self._greeting is not None:
            data = self._greet(self._greeting + data)
        if self._conversation is not None and data and not self._refused:
            self._conversation.data_received(data)

    def _greet(self, data: bytes, *, at_end: bool = False) -> bytes:
        """Return the first bytes once they are for the AMQP core, b"" if they are too few to tell or a stranger's."""
        stranger = self._strangers.recognise(data, at_end=at_end)
        if stranger is None and not data.startswith(AMQP_1_0) and not at_end:
            self._greeting = data
            return b""
        self._greeting = None
        if stranger is None:
            return data
        self._strangers.note(stranger, f"the {self._scheme} port {self._port}", self._wire.peer)
        if not stranger.passed_on:
            self._refused = True
            # One that does not close is closed by the open timeout.
            self._wire.write(stranger.answer)
            self._wire.end()
        return data

    def eof_received(self) -> bool:
        if self._greeting and (data := self._greet(self._greeting, at_end=True)):
            self.data_received(data)
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

    def end(self) -> None:
        """Send what is written and the end of the stream, and leave closing to the peer.

        Closed here with bytes of the peer unread, the system resets the connection, and what was written may be lost.
        TLS knows no end of one direction; there asyncio closes, and reads on until the peer has closed too.
        """
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()
