"""Uvicorn on the server's own event loop: it neither handles signals nor logs requests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from tidegate.server.context.context import ServerContext
from tidegate.server.context.origin import Origin
from tidegate.server.http.handover import HandOver
from tidegate.server.http.protocol import HttpProtocol, OtherProcess
from tidegate.server.http.refusals import HttpRefusals, not_served
from tidegate.server.http.routing import HttpContext, HubControl, route_groups
from tidegate.server.transports.strangers import Strangers

_TICK_S = 1.0


def application(hub: ServerContext, control: HubControl, *, events_only: bool = False) -> Starlette:
    """Return the application of one server; `events_only` leaves out all but publishing and AMQP."""
    context = HttpContext(hub, control, HttpRefusals(hub.metrics))
    groups = [group for group in route_groups() if group.carries_events or not events_only]
    routes = [route for group in (*control.further_routes, *groups) for route in group.build(context)]
    pages = next((group.missing for group in control.further_routes if group.missing is not None), None)

    async def missing(request: Request, error: Exception) -> Response:
        is_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        if pages is not None and is_page and getattr(error, "status_code", 0) == HTTPStatus.NOT_FOUND:
            return pages(request)
        return await not_served(request, error)

    return Starlette(routes=routes, exception_handlers={HTTPException: missing})


def _answers(served: Starlette) -> Callable[[h11.Request], bool]:
    """Return what tells whether an application has a route for a request."""

    def is_here(request: h11.Request) -> bool:
        path = unquote(request.target.partition(b"?")[0].decode("ascii"))
        method = request.method.decode("ascii")
        kind = "websocket" if any(name == b"upgrade" for name, _ in request.headers) else "http"
        scope = {"type": kind, "method": method, "path": path, "root_path": "", "headers": []}
        return any(route.matches(scope)[0] is Match.FULL for route in served.routes)

    return is_here


class _QuietServer(uvicorn.Server):
    """Uvicorn's own server wakes ten times a second, in each process and for each port; this one once."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._is_over = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # sets the Date header
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._is_over.wait()

    def end(self) -> None:
        """Stop soon."""
        self.should_exit = True
        self._is_over.set()


class WebListener:
    """HTTP or HTTPS on one port, or on connections that other processes have accepted.

    With `hand_over`, it answers what carries events, and another process the rest.
    """

    def __init__(
        self,
        hub: ServerContext,
        control: HubControl,
        tls: ssl.SSLContext | None,
        strangers: Strangers,
        hand_over: HandOver | None = None,
    ) -> None:
        served = application(hub, control, events_only=hand_over is not None)
        elsewhere = None if hand_over is None else OtherProcess(_answers(served), hand_over)
        protocol: Any = partial(
            HttpProtocol, head_timeout_s=hub.settings.open_timeout_s, strangers=strangers, elsewhere=elsewhere
        )
        config = uvicorn.Config(
            served,
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
        self._protocol = protocol
        self._stop_timeout_s = hub.settings.stop_timeout_s
        self._reuse_port = hub.settings.reuse_port
        self._server = _QuietServer(config)
        self._task: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port it is. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=1024, reuse_port=self._reuse_port)
        self._socket = listening
        await self._serve([listening])
        return int(listening.getsockname()[1])

    async def start_without_port(self) -> None:
        """Be ready for `take_over`."""
        await self._serve([])

    async def _serve(self, sockets: list[socket.socket]) -> None:
        self._task = asyncio.create_task(self._server.serve(sockets=sockets))
        while not self._server.started:
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.005)

    async def take_over(self, connection: socket.socket, origin: Origin) -> None:
        """Answer a client whose connection another process has accepted. Raises OSError."""
        server = self._server
        protocol = self._protocol(
            config=server.config, server_state=server.server_state, app_state=server.lifespan.state, origin=origin
        )
        await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, connection)

    async def stop(self) -> None:
        """Finish what is under way within a moment, and then end the connections that are left.

        With TLS, a connection is closed by both sides, and a client that does not read does not close its own.
        """
        self._server.end()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=self._stop_timeout_s)
            for connection in list(self._server.server_state.connections):
                connection.transport.abort()
            await self._task
        if self._socket is not None:
            self._socket.close()
