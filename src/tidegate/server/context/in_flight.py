"""Bytes that were published and are not yet durable, over all clients, and who waits for them to become fewer."""

from __future__ import annotations

from typing import Protocol


class Throttled(Protocol):
    """A connection whose socket is read or not."""

    def choose_reading(self) -> None:
        """Read the socket, or stop reading it, as the limits now ask."""


class InFlightBytes:
    """The sum over all connections. Above `limit`, whoever adds to it waits until the sum has halved."""

    def __init__(self, limit: int) -> None:
        self.total = 0
        self.waiting: set[Throttled] = set()
        self._limit = limit

    def add(self, size: int, connection: Throttled) -> bool:
        """Count bytes that were published. Return whether the connection has to wait."""
        self.total += size
        waits = self.total > self._limit
        if waits:
            self.waiting.add(connection)
        return waits

    def remove(self, size: int) -> None:
        """Count bytes that have become durable; wake those that wait once half of the limit is free."""
        self.total -= size
        if self.waiting and self.total <= self._limit // 2:
            waiting, self.waiting = self.waiting, set()
            for connection in waiting:
                connection.choose_reading()
