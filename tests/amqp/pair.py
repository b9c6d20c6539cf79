"""A client and a server Connection joined without a network, and frames for playing a peer by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegate.amqp import AttachReceived, Connection, ConnectionSettings, Event, Link, SaslInit
from tidegate.amqp.encoding.codec import decode, skip
from tidegate.amqp.encoding.composites import decode_composite, encode_composite
from tidegate.amqp.framing.frames import AMQP_HEADER, FRAME_HEAD, SASL_HEADER
from tidegate.amqp.framing.performatives import (
    PERFORMATIVES,
    SASL_FRAMES,
    Attach,
    Begin,
    Flow,
    Open,
    SaslInitFrame,
    Source,
    Target,
    TransferFrame,
)

Cut = Callable[[bytes], list[bytes]]


def whole(data: bytes) -> list[bytes]:
    return [data]


class Pair:
    """`exchange()` carries bytes until both are quiet and answers SASL; `cut` decides in which pieces they come."""

    def __init__(
        self, client: Connection | None = None, server: Connection | None = None, *, cut: Cut = whole, **settings: Any
    ) -> None:
        self.client = client or Connection("client", "client")
        self.server = server or Connection("server", "server", ConnectionSettings(**settings))
        self.cut = cut

    def exchange(self) -> tuple[list[Event], list[Event]]:
        """Events at the client and at the server."""
        at_client: list[Event] = []
        at_server: list[Event] = []
        while True:
            to_server, to_client = self.client.data_to_send(), self.server.data_to_send()
            if not to_server and not to_client:
                return at_client, at_server
            for piece in self.cut(to_server):
                for event in self.server.receive_data(piece):
                    at_server.append(event)
                    if isinstance(event, SaslInit):
                        at_server += self.server.sasl_outcome(True)
            for piece in self.cut(to_client):
                at_client += self.client.receive_data(piece)

    def linked(self, role: str = "sender", *, credit: int = 100, **accept: Any) -> tuple[Link, Link]:
        """A link the client asked for in this role, and its other end."""
        if self.client.remote is None:
            self.client.open()
        session = self.client.sessions[0] if self.client.sessions else self.client.begin()
        name = f"{role}-{len(session.links)}"
        if role == "sender":
            ours = session.attach_sender(name, "hub")
        else:
            ours = session.attach_receiver(name, "hub", credit=credit)
        _, at_server = self.exchange()
        (theirs,) = [event.link for event in at_server if isinstance(event, AttachReceived)]
        theirs.accept(credit=credit if role == "sender" else 0, **accept)
        self.exchange()
        return ours, theirs


def raw(performative: Any, payload: bytes = b"", *, channel: int = 0, kind: int = 0) -> bytes:
    """A frame, made apart from the code under test."""
    body = encode_composite(performative) + payload
    return FRAME_HEAD.pack(8 + len(body), 2, kind, channel) + body


def frames(data: bytes) -> list[tuple[int, Any, bytes]]:
    """The frames in bytes a connection sends, protocol headers left out: channel, performative, payload."""
    found = []
    position = 0
    while position < len(data):
        if data.startswith(b"AMQP", position):
            position += 8
            continue
        size, _, _, channel = FRAME_HEAD.unpack_from(data, position)
        body = data[position + 8 : position + size]
        position += size
        if not body:
            found.append((channel, None, b""))
            continue
        stop = skip(body, 0)
        found.append((channel, decode_composite(decode(body[:stop])[0], *PERFORMATIVES, *SASL_FRAMES), body[stop:]))
    return found


def sent(connection: Connection, kind: type[Any]) -> list[Any]:
    """The performatives of one class that a connection has to send now."""
    return [performative for _, performative, _ in frames(connection.data_to_send()) if isinstance(performative, kind)]


SASL_START = SASL_HEADER + raw(SaslInitFrame("ANONYMOUS", b""), kind=1)
OPEN = AMQP_HEADER + raw(Open("peer", max_frame_size=65536))
BEGIN = raw(Begin(None, 0, 2048, 2048))


def open_server(more: bytes = BEGIN, **settings: Any) -> Connection:
    """A server whose peer is played by hand: open, and with a session on channel 0 if nothing else is said."""
    server = Connection("server", "server", ConnectionSettings(**settings))
    server.receive_data(SASL_START)
    server.sasl_outcome(True)
    server.receive_data(OPEN + more)
    server.data_to_send()
    return server


def attach(handle: int = 0, *, sender: bool = True, name: str = "link", **fields: Any) -> bytes:
    """The attach of a peer who sends, or receives."""
    fields.setdefault("initial_delivery_count", 0 if sender else None)
    return raw(Attach(name, handle, not sender, source=Source("source"), target=Target("target"), **fields))


def transfer(delivery_id: int | None, payload: bytes = b"m", handle: int = 0, **fields: Any) -> bytes:
    """A transfer of a peer."""
    return raw(TransferFrame(handle, delivery_id, b"t", 0, **fields), payload)


def credit(
    amount: int, *, handle: int = 0, window: int = 2048, received: int = 0, count: int = 0, **fields: Any
) -> bytes:
    """The flow of a peer who receives."""
    return raw(Flow(received, window, 0, 2048, handle, count, amount, **fields))
