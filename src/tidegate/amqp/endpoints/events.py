"""Events of a Connection: plain data, in wire order.

Every link that was reported (AttachReceived, LinkAttached) or requested (attach_sender, attach_receiver) ends with
exactly one Detached, whether by the peer's detach or the end of its session or connection, unless its owner refused or
detached it. Likewise a session ends with one Ended and a connection with one Closed, and nothing follows a Closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.amqp.encoding.types import AmqpError
from tidegate.amqp.framing.performatives import DeliveryState, Open

if TYPE_CHECKING:
    from tidegate.amqp.endpoints.link import Link
    from tidegate.amqp.endpoints.session import Session


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
    """The peer's open was received (and the local one sent)."""

    remote: Open


@dataclass(slots=True)
class Closed:
    """The connection is over: flush `data_to_send()`, then close the transport.

    `error` is the reason, None for a clean close; `by_peer` tells which side gave it.
    """

    error: AmqpError | None = None
    by_peer: bool = False


@dataclass(slots=True)
class SessionBegun:
    """A session has begun: the peer began it (and was answered), or answered a begin."""

    session: Session


@dataclass(slots=True)
class Ended:
    """A session has ended."""

    session: Session
    error: AmqpError | None = None


@dataclass(slots=True)
class AttachReceived:
    """The peer requests a link; answer with `link.accept(...)` or `link.refuse(condition, description)`."""

    link: Link


@dataclass(slots=True)
class LinkAttached:
    """A link requested with attach_sender() or attach_receiver() is attached."""

    link: Link


@dataclass(slots=True)
class Transfer:
    """One complete delivery. `payload` is the encoded message from all its frames."""

    link: Link
    delivery_id: int
    message_format: int
    settled: bool
    payload: bytes


@dataclass(slots=True)
class Transfers:
    """Consecutive complete deliveries with ids from `first_id` on, without gaps.

    With `joined_transfers`, they are reported instead of Transfers, even for a single delivery.
    """

    link: Link
    first_id: int
    message_format: int
    settled: bool
    payloads: list[bytes]


@dataclass(slots=True)
class TransferTooLarge:
    """A complete delivery exceeded the link's max_message_size; its bytes were not kept.

    The owner answers it like a Transfer, with a Rejected of `amqp:link:message-size-exceeded`.
    """

    link: Link
    delivery_id: int
    settled: bool


@dataclass(slots=True)
class Disposition:
    """The peer reports the state of unsettled deliveries sent on `link`, with ids `first` to `last` inclusive.

    Terminal states are settled automatically.
    """

    link: Link
    first: int
    last: int
    settled: bool
    state: DeliveryState | None


@dataclass(slots=True)
class Credit:
    """A sender link may send `credit` deliveries. With `drain`, send now, and when nothing is left to send, call
    `link.drained()`."""

    link: Link
    credit: int
    drain: bool = False


@dataclass(slots=True)
class Drained:
    """A receiver link's `flow(..., drain=True)` was answered: no credit is left, and no more deliveries follow."""

    link: Link


@dataclass(slots=True)
class Detached:
    """A link has ended. `error` is the reason given by the peer, or that of its session or connection."""

    link: Link
    error: AmqpError | None = None
    closed: bool = True


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
