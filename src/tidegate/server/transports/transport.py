"""AMQP transports: what each offers a connection, and how one registers the URL schemes that it listens on.

A transport is an ordered stream of bytes with backpressure. Its module decorates a function with `transport("scheme")`.
`listen` imports all modules of this package first, so that a new transport is one new module and its test;
`tidegate up --listen URL` reaches it.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from tidegate.extensions import import_modules
from tidegate.server.transports.strangers import Strangers


class Transport(Protocol):
    """The bytes' way out to one client. TCP, TLS and WebSocket each have theirs; none of the calls waits."""

    @property
    def peer(self) -> str:
        """Address and port of the other end, for the log."""

    def write(self, data: bytes) -> None:
        """Send after everything written before."""

    def pause_reading(self) -> None:
        """Hand over no further bytes until resume_reading()."""

    def resume_reading(self) -> None:
        """Hand over bytes again."""

    def close(self) -> None:
        """Send what is written, then close."""

    def end(self) -> None:
        """Send what is written and the end of the stream, and leave closing to the peer."""

    def abort(self) -> None:
        """Close now, whatever is unsent."""


class Conversation(Protocol):
    """What a transport feeds: one client's AMQP connection."""

    def data_received(self, data: bytes) -> None:
        """The next bytes."""

    def eof_received(self) -> None:
        """The client sends no more."""

    def connection_lost(self) -> None:
        """The transport is gone; nothing can be written."""

    def pause_writing(self) -> None:
        """More than enough is unsent."""

    def resume_writing(self) -> None:
        """There is room again."""


Converse = Callable[[Transport], Conversation]
"""Starts a conversation on a transport."""


TRANSPORTS_PACKAGE = "tidegate.server.transports"
BACKLOG = 1024


class UnknownTransport(ValueError):
    """A URL that no transport listens on; the message lists the schemes that exist."""


class Listener(Protocol):
    """A place where clients connect."""

    @property
    def url(self) -> str:
        """Return the address that clients use, with the port that the system chose."""

    def close(self) -> None:
        """Accept no more clients; those that are connected stay."""


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """What every transport gets in addition to the URL.

    Attributes:
        converse: Starts an AMQP connection on an accepted transport.
        unsent_bytes: Above this many unsent bytes, `Conversation.pause_writing` is called.
        tls: Returns the context for accepted sockets, for transports that encrypt.
        strangers: Recognises clients of other protocols.
        reuse_port: Share the port with other processes, over which the system spreads clients.
    """

    converse: Converse
    unsent_bytes: int
    tls: Callable[[], ssl.SSLContext]
    strangers: Strangers
    reuse_port: bool = False


Listen = Callable[[SplitResult, ListenOptions], Awaitable[Listener]]
_transports: dict[str, Listen] = {}


def transport(*schemes: str) -> Callable[[Listen], Listen]:
    """Register a function that listens on URLs of these schemes. It raises OSError if it cannot."""

    def add(listen: Listen) -> Listen:
        _transports.update(dict.fromkeys(schemes, listen))
        return listen

    return add


def schemes() -> list[str]:
    """Return the URL schemes of all transports."""
    import_modules(TRANSPORTS_PACKAGE)
    return sorted(_transports)


async def listen(url: str, options: ListenOptions) -> Listener:
    """Listen on a URL such as `amqp://127.0.0.1:5672`.

    Raises:
        UnknownTransport: No transport has the URL's scheme.
        OSError: The transport cannot listen there.
    """
    known = schemes()
    parts = urlsplit(url)
    if parts.scheme not in known:
        raise UnknownTransport(f"cannot listen on {url!r}: the schemes are {', '.join(f'{s}://' for s in known)}")
    return await _transports[parts.scheme](parts, options)
