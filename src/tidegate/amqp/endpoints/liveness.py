"""Idle timeouts of a connection (part 2, section 2.4.5): the peer's silence ends it, heartbeats avoid our own."""

from __future__ import annotations

from tidegate.amqp.encoding.errors import INVALID_FIELD, PeerError

MIN_HEARTBEAT_MS = 100


class Liveness:
    """Tracks idle times. Times are milliseconds of the owner's clock, which must be monotonic."""

    __slots__ = ("_heartbeat_ms", "_idle_timeout_ms", "_last_heard_ms", "_next_heartbeat_ms", "heard")

    def __init__(self, idle_timeout_ms: int | None) -> None:
        self.heard = True
        """Set when bytes are received; cleared when the clock is read."""
        self._idle_timeout_ms = idle_timeout_ms
        self._last_heard_ms: int | None = None
        self._next_heartbeat_ms: int | None = None
        self._heartbeat_ms: int | None = None

    def promise_peer(self, idle_timeout_ms: int | None) -> None:
        """Send heartbeats twice as often as the peer requires. Raises PeerError if that is too often."""
        if idle_timeout_ms:
            if idle_timeout_ms < 2 * MIN_HEARTBEAT_MS:
                raise PeerError(INVALID_FIELD, f"an idle-time-out below {2 * MIN_HEARTBEAT_MS} ms")
            self._heartbeat_ms = idle_timeout_ms // 2

    def peer_is_silent(self, now_ms: int) -> bool:
        """Return whether the peer has been silent for twice the timeout that was announced to it."""
        if self.heard or self._last_heard_ms is None:
            self.heard = False
            self._last_heard_ms = now_ms
            return False
        return bool(self._idle_timeout_ms) and now_ms - self._last_heard_ms >= 2 * (self._idle_timeout_ms or 0)

    def heartbeat_is_due(self, now_ms: int) -> bool:
        """Return whether a heartbeat has to be sent now, and schedule the next one."""
        if self._heartbeat_ms is None or (self._next_heartbeat_ms is not None and now_ms < self._next_heartbeat_ms):
            return False
        self._next_heartbeat_ms = now_ms + self._heartbeat_ms
        return True

    def next_due_ms(self, *, with_heartbeats: bool) -> int | None:
        """Return when the owner must next report the time: 0 for now, None for never."""
        due = []
        if self._idle_timeout_ms:
            due.append(0 if self._last_heard_ms is None else self._last_heard_ms + 2 * self._idle_timeout_ms)
        if self._heartbeat_ms is not None and with_heartbeats:
            due.append(self._next_heartbeat_ms or 0)
        return min(due, default=None)
