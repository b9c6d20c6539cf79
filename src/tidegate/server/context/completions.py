"""Publications on their way to the disk: how many bytes they are, and how the log's threads report them durable."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tidegate.hub.errors import HubError
from tidegate.hub.namespace import Publisher

_logger = logging.getLogger(__name__)


class Completions:
    """Reports from any thread, handled in order on the event loop.

    A wake-up costs a system call; a group commit completes hundreds of appends at once. So the first report of a burst
    wakes the loop and the rest ride along: the flag is lowered *before* the queue is emptied, hence a report that
    finds it still raised is always seen by the emptying that follows.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: int | None = None) -> None:
        """Handle reports on a loop. Those of its own thread, if it is known, need no system call."""
        self._loop = loop
        self._thread = thread
        self._reports: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._awake = False
        self._closed = False
        self._afterwards: dict[Callable[[], None], None] = {}

    def report(self, action: Callable[..., None], *arguments: Any) -> None:
        """Call `action(*arguments)` on the event loop soon. Thread-safe."""
        self._reports.append((action, arguments))
        if not self._awake and not self._closed:
            self._awake = True
            if self._thread is not None and threading.get_ident() == self._thread:
                self._loop.call_soon(self._handle)
            else:
                self._loop.call_soon_threadsafe(self._handle)

    def add(self, action: Callable[..., None], *arguments: Any) -> None:
        """Call `action(*arguments)` on the event loop with the next report, which must follow. Thread-safe."""
        self._reports.append((action, arguments))

    async def publish(self, publisher: Publisher, events: Sequence[bytes], key: str | None) -> None:
        """Publish events, and return once they are durable. Raises HubError."""
        done: asyncio.Future[None] = self._loop.create_future()

        def settle(error: HubError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        publisher.publish_events(events, key, lambda error: self.report(settle, error))
        await done

    def afterwards(self, action: Callable[[], None]) -> None:
        """From within an action: run this once after the whole burst, however many of its actions ask for it."""
        self._afterwards[action] = None

    def close(self) -> None:
        """Take no further reports (the loop is about to end)."""
        self._closed = True

    def _handle(self) -> None:
        self._awake = False
        reports = self._reports
        for _ in range(len(reports)):
            action, arguments = reports.popleft()
            self._run(action, arguments)
        if reports and not self._awake:
            self._awake = True
            self._loop.call_soon(self._handle)
        afterwards = self._afterwards
        self._afterwards = {}
        for action in afterwards:
            self._run(action, ())

    def _run(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        try:
            action(*arguments)
        except Exception:
            _logger.exception("a completion could not be handled")


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
