"""Uvicorn on the server's own event loop: it neither handles signals nor logs requests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidegate.server.https import SPELLING, HttpContext, application
from tidegate.server.tcp import Converse


class WebContext(HttpContext, Protocol):
    """What of the server the web listeners need."""

    @property
    def converse(self) -> Converse:
        """Starts a conversation on a transport."""


class _Headers(h11.Connection):
    """Remembers how the names of a request's headers were spelled."""

    spelling: Mapping[str, str] = MappingProxyType({})

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = [name.decode("latin-1") for name, _ in event.headers.raw_items()]
            self.spelling = {name.lower(): name for name in names}
        return event


class _HttpProtocol(H11Protocol):
    """Uvicorn's, which has names in lower case: an event's properties are called what its publisher calls them."""

    def __init__(self, config: uvicorn.Config, *arguments: Any, **options: Any) -> None:
        super().__init__(config, *arguments, **options)
        self.conn = _Headers(h11.SERVER, self.conn._max_incomplete_event_size)

    def _should_upgrade(self) -> bool:
        if isinstance(self.conn, _Headers):
            self.scope["state"][SPELLING] = self.conn.spelling
        return super()._should_upgrade()


class _QuietServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class WebListener:
    """HTTP or HTTPS on one port."""

    def __init__(self, server: WebContext, context: ssl.SSLContext | None) -> None:
        config = uvicorn.Config(
            application(server, server.converse),
            log_config=None,
            access_log=False,
            lifespan="off",
            http=_HttpProtocol,
            ws="websockets-sansio",
            ws_max_size=16 << 20,
            ws_ping_interval=None,  # AMQP has its own heartbeat, and Python's client answers pings only while it reads
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=1,
            server_header=False,
        )
        config.load()
        config.ssl = context
        self._server = _QuietServer(config)
        self._task: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port it is. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=1024)
        self._socket = listening
        self._task = asyncio.create_task(self._server.serve(sockets=[listening]))
        while not self._server.started:
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.005)
        return int(listening.getsockname()[1])

    async def stop(self) -> None:
        """Finish what is under way, within a second."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        if self._socket is not None:
            self._socket.close()
