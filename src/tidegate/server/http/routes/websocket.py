"""`/$servicebus/websocket`: AMQP over WebSocket."""

from __future__ import annotations

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from tidegate.server.http.routing import HttpContext, RouteGroup, register
from tidegate.server.transports.websocket import converse_over

PATHS = ("/$servicebus/websocket", "/$servicebus/websocket/")


def _routes(context: HttpContext) -> list[WebSocketRoute]:
    async def web_socket(websocket: WebSocket) -> None:
        await converse_over(websocket, context.control.converse, context.hub.settings.unsent_bytes_per_client)

    return [WebSocketRoute(path, web_socket) for path in PATHS]


register(__name__, RouteGroup(build=_routes))
