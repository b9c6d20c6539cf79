"""What a Connection reports: plain data, in the order it happened on the wire.

Every link that was reported (AttachReceived, LinkAttached) or asked for (attach_sender, attach_receiver) ends with
exactly one Detached, whatever ended it: the peer's detach, the end of its session or of the connection. The exception
is a link its owner refused or detached. Likewise a session ends with one Ended and a connection with one Closed, and
nothing follows a Closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.amqp.errors import AmqpError
from tidegate.amqp.performatives import DeliveryState, Open

if TYPE_CHECKING:
    from tidegate.amqp.link import Link
    from tidegate.amqp.session import Session


@dataclass(slots=True)
class SaslInit:
    """Server: the peer chose a mechanism; nothing more is read until `Connection.sasl_outcome(ok)`.

    `username` and `password` are those of a PLAIN response, None for other mechanisms.
    """

    mechanism: str
    response: bytes | None
    hostname: str | None
    username: str | None = None
    password: str | None = None


@dataclass(slots=True)
class Opened:
    """The peer's open arrived (ours was sent)."""

    remote: Open


@dataclass(slots=True)
class SessionBegun:
    """A session is up: one the peer began (already answered), or ours was answered."""

    session: Session


@dataclass(slots=True)
class AttachReceived:
    """The peer asks for a link; answer with `link.accept(...)` or `link.refuse(condition, description)`."""

    link: Link


@dataclass(slots=True)
class LinkAttached:
    """A link asked for with attach_sender() or attach_receiver() is up."""

    link: Link


@dataclass(slots=True)
class Transfer:
    """One whole delivery. `payload` is the message's bytes, all frames of it."""

    link: Link
    delivery_id: int
    message_format: int
    settled: bool
    payload: bytes


@dataclass(slots=True)
class Transfers:
    """Whole deliveries that came one after the other, with ids from `first_id` on without a gap: in place of as many
    Transfer where the connection was asked for `joined_transfers`, also of one alone.
    """

    link: Link
    first_id: int
    message_format: int
    settled: bool
    payloads: list[bytes]


@dataclass(slots=True)
class TransferTooLarge:
    """A whole delivery came that is larger than the link's max_message_size; its bytes were not kept.

    The owner answers it like a Transfer, with a Rejected of `amqp:link:message-size-exceeded`.
    """

    link: Link
    delivery_id: int
    settled: bool


@dataclass(slots=True)
class Disposition:
    """The receiver of deliveries we sent unsettled on `link` tells their state; ids `first` to `last` inclusive.

    Terminal states are settled by us without more ado.
    """

    link: Link
    first: int
    last: int
    settled: bool
    state: DeliveryState | None


@dataclass(slots=True)
class Credit:
    """A sender link may send: `credit` deliveries. `drain` asks to use it now; when nothing is left to send, call
    `link.drained()`."""

    link: Link
    credit: int
    drain: bool = False


@dataclass(slots=True)
class Drained:
    """A receiver link's `flow(..., drain=True)` was answered: no credit is left, nothing more is coming."""

    link: Link


@dataclass(slots=True)
class Detached:
    """A link is gone. `error` is the peer's reason, or that of its session or connection."""

    link: Link
    error: AmqpError | None = None
    closed: bool = True


@dataclass(slots=True)
class Ended:
    """A session is gone."""

    session: Session
    error: AmqpError | None = None


@dataclass(slots=True)
class Closed:
    """The connection is over: flush `data_to_send()`, then close the transport.

    `error` is the peer's reason or ours; `by_peer` tells whose. None where it was closed in peace.
    """

    error: AmqpError | None = None
    by_peer: bool = False


Event = (
    SaslInit
    | Opened
    | SessionBegun
    | AttachReceived
    | LinkAttached
    | Transfer
    | Transfers
    | TransferTooLarge
    | Disposition
    | Credit
    | Drained
    | Detached
    | Ended
    | Closed
)
