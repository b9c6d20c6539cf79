"""What every way in has in common: an ordered stream of bytes with backpressure, whatever carries it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


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
