"""The sessions of a connection by local and remote channel, whose numbers may differ."""

from __future__ import annotations

from tidegate.amqp.endpoints.session import Session


class Channels:
    """Attributes: `sessions` by local channel; `by_remote`, the sessions that the peer has begun, by its channel."""

    __slots__ = ("_left", "by_remote", "sessions")

    def __init__(self) -> None:
        self.sessions: dict[int, Session] = {}
        self.by_remote: dict[int, Session] = {}
        self._left: set[int] = set()

    def find_free(self, limit: int, preferred: int = 0) -> int | None:
        """Return a free channel up to `limit`: the preferred one if possible, else the lowest."""
        if preferred <= limit and preferred not in self.sessions:
            return preferred
        return next((number for number in range(limit + 1) if number not in self.sessions), None)

    def was_left(self, remote_channel: int) -> bool:
        """Return whether the channel had a session: Python's client detaches links after the end of their session."""
        return remote_channel in self._left

    def remove(self, session: Session) -> None:
        """Free the channels of a session that both sides have ended."""
        self.sessions.pop(session.channel, None)
        if session.remote_channel is not None:
            self.by_remote.pop(session.remote_channel, None)
            self._left.add(session.remote_channel)

    def clear(self) -> None:
        """Free all channels."""
        self.sessions.clear()
        self.by_remote.clear()
