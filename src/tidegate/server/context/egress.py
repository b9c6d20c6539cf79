"""Readers take turns when the namespace gives out all that its throughput units allow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidegate.hub.throughput import EGRESS_EVENTS, Throughput

TURNS_PER_S = 8


class EgressGate:
    """Lets readers through one after the other, each for about a chunk, in the order in which they came."""

    def __init__(self, throughput: Throughput, loop: asyncio.AbstractEventLoop) -> None:
        self._throughput = throughput
        self._loop = loop
        self._waiting: dict[Callable[[], None], None] = {}
        self._admitted: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_limiting(self) -> bool:
        """False: readers are given as much as they take."""
        return self._throughput.units is not None

    @property
    def turn_events(self) -> int:
        """The most that a reader may send in its turn, so that a chunk of tiny events is not many seconds' worth."""
        return max(1, EGRESS_EVENTS * (self._throughput.units or 0) // TURNS_PER_S)

    def may_send(self, reader: Callable[[], None]) -> bool:
        """Whether a reader may send now; if not, it is called when its turn has come."""
        if reader is self._admitted or (not self._waiting and self._throughput.egress_wait_s() == 0):
            return True
        self._waiting[reader] = None
        self._arm()
        return False

    def sent(self, size: int, count: int) -> None:
        """A reader has sent so much."""
        self._throughput.spend_egress(size, count)

    def forget(self, reader: Callable[[], None]) -> None:
        """The reader is gone."""
        self._waiting.pop(reader, None)

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._throughput.egress_wait_s(), self._due)

    def _due(self) -> None:
        self._timer = None
        while self._waiting and self._throughput.egress_wait_s() == 0:
            reader = next(iter(self._waiting))
            del self._waiting[reader]
            self._admitted = reader
            try:
                reader()
            finally:
                self._admitted = None
        if self._waiting:
            self._arm()
