"""What a Connection reports: plain data, in the order it happened on the wire.

Every link that was reported (AttachReceived, LinkAttached) or asked for (attach_sender, attach_receiver) ends with
exactly one Detached, whatever ended it: the peer's detach, the end of its session or of the connection. The exception
is a link its owner refused or detached. Likewise a session ends with one Ended and a connection with one Closed, and
nothing follows a Closed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.amqp.encoding.errors import AmqpError
from tidegate.amqp.endpoints.link import (
    AttachReceived,
    Credit,
    Detached,
    Disposition,
    Drained,
    LinkAttached,
    Transfer,
    Transfers,
    TransferTooLarge,
)
from tidegate.amqp.endpoints.sasl import SaslInit
from tidegate.amqp.endpoints.session import Ended, SessionBegun
from tidegate.amqp.framing.performatives import Open


@dataclass(slots=True)
class Opened:
    """The peer's open arrived (ours was sent)."""

    remote: Open


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
