"""One session of a connection: windows, delivery ids, links by handle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidegate.amqp.link import Link
from tidegate.amqp.performatives import Source, Target

if TYPE_CHECKING:
    from tidegate.amqp.connection import Connection


class Session:
    """A session, from our end. `links` are those not yet detached; `context` is the owner's."""

    connection: Connection
    channel: int
    links: Sequence[Link]
    context: Any

    def attach_sender(
        self,
        name: str,
        target: str | Target,
        *,
        source: str | Source | None = None,
        settled: bool = False,
        properties: Mapping[str, Any] | None = None,
        desired_capabilities: Sequence[str] = (),
    ) -> Link:
        """Ask for a link to send on; LinkAttached or Detached follows, then Credit."""
        ...

    def attach_receiver(
        self,
        name: str,
        source: str | Source,
        *,
        target: str | Target | None = None,
        filter: Mapping[str, Any] | None = None,
        credit: int = 0,
        max_message_size: int = 0,
        properties: Mapping[str, Any] | None = None,
        desired_capabilities: Sequence[str] = (),
    ) -> Link:
        """Ask for a link to receive on; LinkAttached or Detached follows.

        `filter` maps a name to a Described value. `credit` is granted at once and kept topped up; 0 leaves it to
        `link.flow()`.
        """
        ...

    def end(self, condition: str | None = None, description: str = "") -> None:
        """End the session and its links; Ended follows when the peer has answered."""
        ...
