"""Events of a Connection: plain data, in wire order.

Every link that was reported (AttachReceived, LinkAttached) or requested (attach_sender, attach_receiver) ends with
exactly one Detached, whether by the peer's detach or the end of its session or connection, unless its owner refused or
detached it. Likewise a session ends with one Ended and a connection with one Closed, and nothing follows a Closed.
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
    """The peer's open was received (and the local one sent)."""

    remote: Open


@dataclass(slots=True)
class Closed:
    """The connection is over: flush `data_to_send()`, then close the transport.

    `error` is the reason, None for a clean close; `by_peer` tells which side gave it.
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
