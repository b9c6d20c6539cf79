"""One link of a session, and both ends of its flow control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tidegate.amqp.performatives import DeliveryState, Source, Target

if TYPE_CHECKING:
    from tidegate.amqp.session import Session


class Link:
    """A link, from our end. `role` is ours: a "sender" sends to the peer, a "receiver" gets its transfers.

    Attributes: `name`; `role`; `session`; `source` and `target` (None for a null terminus; `source.filter` maps
    names to Described values); `properties`, `desired_capabilities`, `offered_capabilities` (the peer's, {} and () if none);
    `max_message_size` (ours for a receiver, the peer's for a sender; 0 = no limit); `snd_settle_mode`,
    `rcv_settle_mode`; `credit` (deliveries that may be sent now, either way); `context` (the owner's, for anything).
    """

    session: Session
    name: str
    role: Literal["sender", "receiver"]
    source: Source | None
    target: Target | None
    properties: Mapping[str, Any]
    desired_capabilities: tuple[str, ...]
    offered_capabilities: tuple[str, ...]
    max_message_size: int
    snd_settle_mode: int
    rcv_settle_mode: int
    credit: int
    context: Any

    @property
    def is_attached(self) -> bool:
        """True from accept() or LinkAttached until the first detach of either side."""
        ...

    @property
    def sendable(self) -> int:
        """How many deliveries send_deliveries() would take now: credit within the session's window."""
        ...

    def accept(
        self,
        *,
        credit: int = 0,
        max_message_size: int = 0,
        properties: Mapping[str, Any] | None = None,
        offered_capabilities: Sequence[str] = (),
        initial_delivery_count: int = 0,
    ) -> None:
        """Answer AttachReceived: attach from our end.

        A receiver with `credit` grants that much and keeps it topped up by itself; `max_message_size` in bytes must
        be set for it (a JavaScript client makes empty batches of 0).
        """
        ...

    def refuse(self, condition: str, description: str) -> None:
        """Answer AttachReceived: attach with a null terminus, then detach closed with this error."""
        ...

    def flow(self, credit: int, *, drain: bool = False) -> None:
        """Receiver: let the peer send `credit` more deliveries from now; replaces what was granted and the topping up.

        With `drain`, the peer uses it up at once or gives it back: Drained follows.
        """
        ...

    def settle(self, first_id: int, last_id: int, state: DeliveryState) -> None:
        """Receiver: settle deliveries `first_id` to `last_id` (inclusive) with a state.

        May be called in any order; runs of one state become one frame by the time of data_to_send().
        """
        ...

    def send_deliveries(self, payloads: Sequence[bytes], *, message_format: int = 0, settled: bool = True) -> range:
        """Sender: send whole messages, as many from the front as credit and window allow.

        Returns their delivery ids: `len()` of it says how many of `payloads` were taken; the rest is for after the
        next Credit. Unsettled ones are answered by Disposition.
        """
        ...

    def drained(self) -> None:
        """Sender: answer a Credit with `drain`: give back the credit there is nothing to send for."""
        ...

    def detach(self, condition: str | None = None, description: str = "") -> None:
        """Detach for good, with an error where there is a condition; no Detached follows, transfers are ignored."""
        ...
