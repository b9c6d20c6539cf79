"""HTTP/1.1 on a connection: uvicorn's, with five things that it leaves out.

It has the names of headers in lower case, but an event's properties are called what its publisher calls them. It
waits for ever for the head of a request, while a connection that asks for nothing should cost nothing for long. And it
takes a request's target for a path, while Microsoft's Java client opens web sockets with a whole URL there. And it
lets clients of other protocols wait, and logs a line without a name for each. And it answers everything itself, while
a worker hands connections over to the process that owns the namespace, from the first request that is not its own on.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidegate.server.context.origin import Origin
from tidegate.server.http.handover import HandOver, Relay, head_of
from tidegate.server.transports.strangers import Stranger, Strangers

SPELLING = "tidegate.header_spelling"
"""In a request's state: its headers' names as they were sent, by their names in lower case."""


READ_BYTES = 32 << 10
"""Bytes read from a socket at once. All of them are parsed before another connection has its turn, and a body in chunks
of one byte costs a hundred times as much as a plain one."""


_ORIGIN = re.compile(rb"https?://[^/?#]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OtherProcess:
    """Another process, and the requests that this one answers itself."""

    is_here: Callable[[h11.Request], bool]
    hand_over: HandOver


class _Headers(h11.Connection):
    """Remembers how the names of a request's headers were spelled, and makes every target a path.

    `handed_over` has the bytes of a request that is to be answered elsewhere, and of all that came after it.
    """

    spelling: Mapping[str, str] = MappingProxyType({})
    is_here: Callable[[h11.Request], bool] | None = None
    handed_over: bytes | None = None

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = [name.decode("latin-1") for name, _ in event.headers.raw_items()]
            spelling = {name.lower(): name for name in names}
            if "content-length" in spelling and "transfer-encoding" in spelling:
                # a proxy before this server may see another end of the request: RFC 9112, section 6.1
                raise h11.RemoteProtocolError("Content-Length beside Transfer-Encoding")
            if origin := _ORIGIN.match(event.target):  # the absolute form: RFC 9112, section 3.2.2
                path = event.target[origin.end() :]
                event = h11.Request(
                    method=event.method,
                    headers=event.headers.raw_items(),
                    target=path if path.startswith(b"/") else b"/" + path,
                    http_version=event.http_version,
                )
            if self.is_here is not None and not self.is_here(event):
                self.handed_over = head_of(event) + self.trailing_data[0]
                return h11.NEED_DATA
            self.spelling = spelling
        return event


_NO_HTTP = Stranger("no HTTP that is understood", "the client sends requests that break RFC 9112")
_logger = logging.getLogger(f"{__name__}.uvicorn")
_logger.addFilter(lambda record: record.getMessage() != "Invalid HTTP request received.")  # `send_400_response` does


class HttpProtocol(H11Protocol):
    """A request's head must have come within `head_timeout_s` of the connection or of the head's first byte.

    So must what is left of a request that was answered before its body had come whole. It is still read, for a
    connection that is closed over unread bytes is reset, and the client may then never see the answer (RFC 9112, 9.6).
    A connection that the client wants closed after the answer is closed when the rest of the body has come.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *arguments: Any,
        head_timeout_s: float,
        strangers: Strangers,
        elsewhere: OtherProcess | None = None,
        origin: Origin | None = None,
        **options: Any,
    ) -> None:
        super().__init__(config, *arguments, **options)
        self.logger = _logger
        self._elsewhere = elsewhere
        self._origin = origin
        self._strangers = strangers
        self._is_first = True
        self._is_refused = False
        self.conn = self._headers = _Headers(h11.SERVER, self.conn._max_incomplete_event_size)
        self._headers.is_here = None if elsewhere is None else elsewhere.is_here
        self._head_timeout_s = head_timeout_s
        self._head_timer: asyncio.TimerHandle | None = None
        self._discards = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self._origin is not None:
            self.client, self.server = self._origin.client, self._origin.server
            self.scheme = "https" if self._origin.scheme == "https" else "http"
        if hasattr(transport, "max_size"):
            transport.max_size = READ_BYTES
        self._await_head()

    def handle_events(self) -> None:
        super().handle_events()
        if self._headers.handed_over is not None:
            self._hand_over(self._headers.handed_over)
            return
        if self.cycle is not None:
            closing_late: Any = _ClosingLate(self.transport, self._close_after_body)
            self.cycle.transport = closing_late

    def data_received(self, data: bytes) -> None:
        if self._discards:
            self._discard(data)
            return
        if self._is_refused or self._is_of_a_stranger(data):
            return
        super().data_received(data)
        if self._headers.handed_over is not None:
            return
        if self.conn.their_state is h11.IDLE and self._head_timer is None and not self.transport.is_closing():
            self._await_head()

    def on_response_complete(self) -> None:
        if self._discards:
            return
        super().on_response_complete()
        if self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_has_come()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._note(_NO_HTTP)
        super().send_400_response(msg)

    def _hand_over(self, first: bytes) -> None:
        """Have another process answer from here on."""
        assert self._elsewhere is not None
        self._head_has_come()
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        client, (host, port) = self.client or ("?", 0), self.server or ("?", 0)
        try:
            elsewhere = self._elsewhere.hand_over(self.scheme or "http", client, (host, port or 0))
        except OSError as error:
            _logger.error("a request could not be handed over: %s", error)
            self.transport.close()
            return
        Relay(self.transport, elsewhere, first, self.connections)

    def _is_of_a_stranger(self, data: bytes) -> bool:
        """Refuse a client whose first bytes are another protocol's."""
        stranger = self._strangers.on_http(data) if self._is_first else None
        self._is_first = False
        if stranger is None:
            return False
        self._is_refused = True
        self._note(stranger)
        self.transport.write(stranger.answer)
        # The peer closes, or the timeout does: a connection that is closed over unread bytes is reset.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()
        return True

    def _note(self, stranger: Stranger) -> None:
        host, port = (self.client or ("?", 0))[:2]
        scheme = self.scheme or "http"
        self._strangers.note(stranger, f"the {scheme} port {(self.server or ('?', 0))[1]}", f"{host}:{port}")

    def _close_after_body(self) -> None:
        if self.conn.their_state is not h11.SEND_BODY or self.conn.they_are_waiting_for_100_continue:
            self.transport.close()
            return
        self._discards = True
        self.flow.resume_reading()
        self._await_head()
        self._discard(b"")

    def _discard(self, data: bytes) -> None:
        try:
            if data:
                self.conn.receive_data(data)
            while isinstance(self.conn.next_event(), h11.Data):
                pass
        except h11.RemoteProtocolError:
            self.transport.close()
            return
        if self.conn.their_state is not h11.SEND_BODY:
            self.transport.close()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self._head_timeout_s, self.transport.abort)

    def _head_has_come(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _should_upgrade(self) -> bool:
        """Called once for each request, when its head has come."""
        self._head_has_come()
        if isinstance(self.conn, _Headers):
            self.scope["state"][SPELLING] = self.conn.spelling
        return super()._should_upgrade()


class _ClosingLate:
    """The transport of one answer, which does not close it over a body that is still coming."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = close
