"""`/$servicebus/websocket`: AMQP over WebSocket. Binary frames carry the same bytes, cut anywhere.

https://docs.oasis-open.org/amqp-bindmap/amqp-wsb/v1.0/amqp-wsb-v1.0.html
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from urllib.parse import urlsplit

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tidegate.hub.access import Access
from tidegate.hub.access_rules import EMULATOR_KEY, ROOT_RULE
from tidegate.server.http.refusals import is_loopback
from tidegate.server.http.routing import HttpContext, RouteGroup, register
from tidegate.server.transports.transport import Conversation, Converse

_logger = logging.getLogger(__name__)
SUBPROTOCOLS = ("AMQPWSB10", "amqp")
"""What Microsoft's clients ask for, and the name that is registered for AMQP, which others ask for."""
FRAME_BYTES = 256 << 10


async def converse_over(websocket: WebSocket, converse: Converse, unsent_bytes: int) -> None:
    """Accept the web socket and carry one AMQP connection over it until either side ends it."""
    asked = websocket.scope.get("subprotocols", [])
    subprotocol = next((name for name in asked if name in SUBPROTOCOLS), None)
    if subprotocol is None:
        await websocket.close(1002, f"the subprotocol must be {' or '.join(SUBPROTOCOLS)}")
        return
    await websocket.accept(subprotocol=subprotocol)
    transport = WebSocketTransport(websocket, unsent_bytes)
    conversation = converse(transport)
    transport.conversation = conversation
    writer = asyncio.create_task(transport.send_forever())
    reader = asyncio.create_task(_receive_forever(websocket, transport, conversation))
    try:
        await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (reader, writer):
            task.cancel()
        await asyncio.gather(reader, writer, return_exceptions=True)
        conversation.connection_lost()
        with contextlib.suppress(RuntimeError, WebSocketDisconnect, OSError):
            await websocket.close()


async def _receive_forever(websocket: WebSocket, transport: WebSocketTransport, conversation: Conversation) -> None:
    while True:
        await transport.readable.wait()
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            conversation.eof_received()
            return
        data = message.get("bytes")
        if data is None:
            return  # a text frame: the binding knows only binary ones
        conversation.data_received(data)


class WebSocketTransport:
    """The writing side: what is written is joined while a frame is on its way."""

    def __init__(self, websocket: WebSocket, unsent_bytes: int) -> None:
        address = websocket.client
        self.peer = f"{address.host}:{address.port}" if address else "?"
        self.conversation: Conversation | None = None
        self.readable = asyncio.Event()
        self.readable.set()
        self._websocket = websocket
        self._unsent = bytearray()
        self._unsent_bytes = unsent_bytes
        self._wake = asyncio.Event()
        self._closing = False
        self._paused = False

    def write(self, data: bytes) -> None:
        self._unsent += data
        self._wake.set()
        if len(self._unsent) > self._unsent_bytes and not self._paused and self.conversation is not None:
            self._paused = True
            self.conversation.pause_writing()

    def pause_reading(self) -> None:
        self.readable.clear()

    def resume_reading(self) -> None:
        self.readable.set()

    def close(self) -> None:
        self._closing = True
        self._wake.set()

    end = close
    """The closing handshake of WebSocket waits for the peer, so nothing is lost by it."""

    def abort(self) -> None:
        self._unsent.clear()
        self.close()

    async def send_forever(self) -> None:
        """Until close() has been called and everything written is sent."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._unsent:
                frame = bytes(self._unsent[:FRAME_BYTES])
                del self._unsent[:FRAME_BYTES]
                await self._websocket.send_bytes(frame)
                if self._paused and len(self._unsent) <= self._unsent_bytes // 4 and self.conversation is not None:
                    self._paused = False
                    self.conversation.resume_writing()
            if self._closing:
                return


PATHS = ("/$servicebus/websocket", "/$servicebus/websocket/")


def _is_foreign_page(websocket: WebSocket, access: Access) -> bool:
    """Return whether the page of a site asks, in the browser of someone on this machine, while the key is published.

    Browsers let every page open web sockets to localhost, and name the page's site in `Origin`.
    """
    origin = urlsplit(websocket.headers.get("origin", ""))
    is_own = is_loopback(origin.hostname or "") or origin.netloc == websocket.headers.get("host")
    if "origin" not in websocket.headers or is_own:
        return False
    root = access.rule_table.find(ROOT_RULE)
    is_key_published = root is not None and EMULATOR_KEY in root.keys
    return is_key_published and websocket.client is not None and is_loopback(websocket.client.host)


def _routes(context: HttpContext) -> list[WebSocketRoute]:
    async def web_socket(websocket: WebSocket) -> None:
        if _is_foreign_page(websocket, context.hub.namespace.access):
            site = websocket.headers["origin"][:200]
            _logger.warning("refused a web socket to a page of %r: regenerate %s, whose key is known", site, ROOT_RULE)
            await websocket.close(1008, "another site's page: the hub's key is the published one")
            return
        await converse_over(websocket, context.control.converse, context.hub.settings.unsent_bytes_per_client)

    return [WebSocketRoute(path, web_socket) for path in PATHS]


register(__name__, RouteGroup(build=_routes, carries_events=True))
