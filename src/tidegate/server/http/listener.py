"""Uvicorn on the server's own event loop: it neither handles signals nor logs requests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tidegate.server.context.context import ServerContext
from tidegate.server.http.protocol import HttpProtocol
from tidegate.server.http.refusals import HttpRefusals, not_served
from tidegate.server.http.routing import HttpContext, HubControl, route_groups
from tidegate.server.transports.strangers import Strangers


def application(hub: ServerContext, control: HubControl) -> Starlette:
    """Return the application of one server."""
    context = HttpContext(hub, control, HttpRefusals(hub.metrics))
    routes = [route for group in (*control.further_routes, *route_groups()) for route in group.build(context)]
    pages = next((group.missing for group in control.further_routes if group.missing is not None), None)

    async def missing(request: Request, error: Exception) -> Response:
        is_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        if pages is not None and is_page and getattr(error, "status_code", 0) == HTTPStatus.NOT_FOUND:
            return pages(request)
        return await not_served(request, error)

    return Starlette(routes=routes, exception_handlers={HTTPException: missing})


class _QuietServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class WebListener:
    """HTTP or HTTPS on one port."""

    def __init__(
        self, hub: ServerContext, control: HubControl, tls: ssl.SSLContext | None, strangers: Strangers
    ) -> None:
        protocol: Any = partial(HttpProtocol, head_timeout_s=hub.settings.open_timeout_s, strangers=strangers)
        config = uvicorn.Config(
            application(hub, control),
            log_config=None,
            access_log=False,
            log_level="warning",
            lifespan="off",
            http=protocol,
            ws="websockets-sansio",
            ws_max_size=16 << 20,
            ws_ping_interval=None,  # AMQP has its own heartbeat, and Python's client answers pings only while it reads
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=1,
            server_header=False,
        )
        config.load()
        config.ssl = tls
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
